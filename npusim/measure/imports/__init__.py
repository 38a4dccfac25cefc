"""Measurements taken with the tools of others: benchmark_app, the NPU's profiler, published tables.

Like a bank that takes foreign coins: each is weighed, converted and booked in the house's own currency.
"""

from npusim.measure.imports.benchmark_app import from_benchmark_app
from npusim.measure.imports.npu_profiling import from_npu_profiling
from npusim.measure.imports.openvino_benchmarks import choose_platform, from_openvino_benchmarks

__all__ = ["choose_platform", "from_benchmark_app", "from_npu_profiling", "from_openvino_benchmarks"]
