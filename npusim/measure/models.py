"""From what a row of a measurement names to the operator graph that ran.

The graph is costed by npusim and written for OpenVINO, so that what is predicted is what was measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from npusim.errors import ConfigError, NpusimError
from npusim.graph import Graph
from npusim.measure.benchmarks import benchmark_graph
from npusim.measure.document import Benchmark, Given, ModelFile, ModelRef, Network, Workload
from npusim.ops import DType
from npusim.scenario import Scenario, is_module
from npusim.workloads import load_workload, workload_published_as

Sources = Mapping[str, Path | Scenario]
"""Where model and workload files lie, and networks handed in from Python, by the name in a row."""

PRECISIONS: Mapping[str, DType] = {"f32": DType.FP32, "f16": DType.FP16, "bf16": DType.BF16}
"""What OpenVINO calls the formats that a device computes floating point in."""


class UnbuildableError(NpusimError):
    """A row whose network npusim cannot build: it is known by name only, or its file is not at hand."""


def graph_of(ref: ModelRef, precision: str | None = None, files: Sources | None = None) -> Graph:
    """Return the operator graph that a row names.

    Parameters
    ----------
    precision : str, optional
        Format in which the device computed floating point: f32, f16, bf16. It replaces the floating-point
        format of workloads and benchmarks; tensors of int8 stay. Default: the format that they name.
    files : Sources, optional
        Where model files and workload files lie, and networks of Python, by the name in the row.

    Returns
    -------
    Graph
        With the row's technique stack applied.

    Raises
    ------
    UnbuildableError
        For a network that is known by its name only, or a model file that is not at hand or is another one.
    ConfigError
        For a precision that no device computes in, or a size or setting that is impossible.
    UnknownNameError
        For a workload, technique or benchmark that this version does not know.
    IllegalTechniqueError
        For a technique that the workload does not allow.

    Examples
    --------
    >>> graph_of(Benchmark(operator="MatMul", sizes={"m": 8, "k": 8, "n": 8}), "f16").macs
    512.0
    """
    floats = _float_dtype(precision)
    if isinstance(ref, Benchmark):
        dtype = DType.parse(ref.dtype)
        if dtype.is_float and floats is not None:
            dtype = floats
        return benchmark_graph(ref.operator, ref.sizes, dtype, floats or DType.FP32)
    if isinstance(ref, Workload):
        settings = [f"{_setting_key(key)}={value}" for key, value in ref.settings.items()]
        if floats is not None:
            settings.append(f"workload.precision={floats.value}")
        named = (files or {}).get(ref.workload, ref.workload)
        return Scenario(str(named), techniques=ref.techniques, settings=settings).graph
    if isinstance(ref, ModelFile):
        return _imported(ref, floats, files or {})
    if isinstance(ref, Given):
        return _given(ref, floats, files or {}).graph
    assert isinstance(ref, Network)
    return _published(ref, floats)


def _published(ref: Network, floats: DType | None) -> Graph:
    """Build a network of a published table, in the format that the table names."""
    name = workload_published_as(ref.network)
    if name is None:
        named = f"network {ref.network} ({ref.precision})"
        raise UnbuildableError(f"{named} is known by its name only; measure its model file instead")
    precision = DType.parse(ref.precision)
    if precision.is_float and floats is not None:
        precision = floats
    return load_workload(name, [f"workload.precision={precision.value}"])


def _float_dtype(precision: str | None) -> DType | None:
    if precision is None:
        return None
    if precision not in PRECISIONS:
        raise ConfigError(f"`{precision}`", key="precision", allowed=", ".join(PRECISIONS))
    return PRECISIONS[precision]


def _setting_key(key: str) -> str:
    return key if key.startswith("workload.") else f"workload.{key}"


def _given(ref: Given, floats: DType | None, files: Sources) -> Scenario:
    scenario = files.get(ref.name)
    if not isinstance(scenario, Scenario):
        raise UnbuildableError(f"network {ref.name} was handed in from Python and is not at hand; hand it in")
    if floats is not None and is_module(scenario.network):
        scenario = scenario.with_settings([f"workload.precision={floats.value}"])
    return scenario.with_(techniques=ref.techniques)


def _imported(ref: ModelFile, floats: DType | None, files: Sources) -> Graph:
    path = files.get(ref.name)
    if not isinstance(path, Path):
        raise UnbuildableError(f"model file {ref.name} is not at hand; say where it lies")
    if ref.sha256 is not None and path.is_file():
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != ref.sha256:
            raise UnbuildableError(
                f"model file {ref.name} is another one than was measured (sha256 {found[:12]}..., "
                f"measured {ref.sha256[:12]}...); find the file of the measurement"
            )
    from npusim.frontends.openvino_ir import import_model  # openvino is needed for model files only

    return import_model(path, ref.shapes, precision=floats)
