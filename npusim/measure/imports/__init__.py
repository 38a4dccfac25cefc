"""Measurements taken with other tools: benchmark_app, the NPU's profiler, published tables."""

from npusim.measure.imports.benchmark_app import from_benchmark_app
from npusim.measure.imports.npu_profiling import from_npu_profiling
from npusim.measure.imports.openvino_benchmarks import choose_platform, from_openvino_benchmarks

__all__ = ["choose_platform", "from_benchmark_app", "from_npu_profiling", "from_openvino_benchmarks"]
