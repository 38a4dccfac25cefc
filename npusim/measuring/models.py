"""Operator graphs and OpenVINO models of rows, with input values.

The graph of a row is estimated by npusim and written for OpenVINO: what is predicted is what was measured.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from npusim.arch import Soc, load_soc
from npusim.errors import ConfigError, ModelFileError, NpusimError, shown
from npusim.frontends.apart import graph_of_file, try_model_file
from npusim.frontends.openvino_write import example_value
from npusim.graph import Editor, Graph, GraphMeta
from npusim.mapping import Mapped
from npusim.measuring.benchmarks import benchmark_graph
from npusim.measuring.devices import load_openvino
from npusim.measuring.document import (
    UNKNOWN_CHIP,
    Benchmark,
    Device,
    Given,
    Measurement,
    ModelFile,
    ModelRef,
    Network,
    Row,
    SingleOperator,
    Workload,
    read_measurement,
)
from npusim.ops import DType, Operator, Role, Tensor, TensorKind
from npusim.scenario import Scenario, is_module, name_of, split_settings
from npusim.studies.placement import OperatorTime, Profile
from npusim.techniques import parse
from npusim.workloads import load_workload, workload_published_as

if TYPE_CHECKING:
    from npusim.measuring.suites import Item

Sources = Mapping[str, Path | Scenario]
"""Paths of model and workload files, and networks of Python, by the name in a row."""

PRECISIONS: Mapping[str, DType] = {"f32": DType.FP32, "f16": DType.FP16, "bf16": DType.BF16}
"""Floating-point formats by OpenVINO's names."""


class UnbuildableError(NpusimError):
    """A row whose network npusim cannot build: only its name is known, or its file is missing."""


def graph_of(ref: ModelRef, precision: str | None = None, files: Sources | None = None) -> Graph:
    """Return the operator graph that a row names.

    Parameters
    ----------
    precision : str, optional
        Floating-point format of the device: f32, f16, bf16. It replaces the format of workloads and
        benchmarks; int8 tensors stay. Default: the row's own format.
    files : Sources, optional
        Model files, workload files and networks of Python by the name in the row.

    Raises
    ------
    UnbuildableError
        For a network whose name only is known, or a model file that is missing or has changed.
    ConfigError, UnknownNameError, IllegalTechniqueError
        For an impossible precision, size or setting, an unknown name, or a technique that does not fit.

    Examples
    --------
    >>> graph_of(Benchmark(operator="MatMul", sizes={"m": 8, "k": 8, "n": 8}), "f16").macs
    512.0
    """
    if precision is not None and precision not in PRECISIONS:
        raise ConfigError(f"`{precision}`", key="precision", allowed=", ".join(PRECISIONS))
    floats, files = PRECISIONS[precision] if precision else None, files or {}
    if isinstance(ref, Benchmark):
        dtype = _in_format(DType.parse(ref.dtype), floats)
        return benchmark_graph(ref.operator, ref.sizes, dtype, floats or DType.FP32)
    if isinstance(ref, SingleOperator):
        return _single(ref, floats or DType.FP32)
    if isinstance(ref, Workload):
        changes = ref.settings.items()
        settings = [f"workload.{key.removeprefix('workload.')}={value}" for key, value in changes]
        settings += [f"workload.precision={floats.value}"] if floats is not None else []
        named = files.get(ref.workload, ref.workload)
        return Scenario(str(named), techniques=ref.techniques, settings=settings).graph
    if isinstance(ref, ModelFile):
        return _imported(ref, floats, files)
    if isinstance(ref, Given):
        return _given(ref, floats, files).graph
    name = workload_published_as(ref.network)
    if name is None:
        named = f"network {ref.network} ({ref.precision})"
        raise UnbuildableError(f"{named} is known by its name only; measure its model file instead")
    return load_workload(name, [f"workload.precision={_in_format(DType.parse(ref.precision), floats).value}"])


def _single(ref: SingleOperator, floats: DType) -> Graph:
    """Return the network of one operator."""
    editor = Editor(ref.name, meta=GraphMeta(model=ref.operator, form="benchmark", precision=floats))
    for port, operand in enumerate(ref.operands):
        add = editor.constant if operand.constant else editor.input
        dtype, role = _in_format(DType.parse(operand.dtype), floats), Role(operand.role)
        add(f"operand{port}", operand.shape, dtype, role=role, density=operand.density)
    dtypes = [_in_format(DType.parse(result.dtype), floats) for result in ref.results]
    results = [
        Tensor(f"result{port}", result.shape, dtype)
        for port, (result, dtype) in enumerate(zip(ref.results, dtypes, strict=True))
    ]
    editor.outputs = [result.name for result in results]
    reads = tuple(f"operand{port}" for port in range(len(ref.operands)))
    editor.add_operator(
        Operator(ref.operator.lower(), ref.operator, reads, tuple(editor.outputs), ref.settings), results
    )
    return editor.finish()


def _in_format(dtype: DType, floats: DType | None) -> DType:
    """Return a format, or that of the device where it is floating point."""
    return floats if dtype.is_float and floats is not None else dtype


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
    digest = ModelFile.at(str(path), present=True).sha256 if ref.sha256 is not None else None
    if digest is not None and digest != ref.sha256:
        raise UnbuildableError(
            f"model file {ref.name} is another one than was measured (sha256 {digest[:12]}..., "
            f"measured {str(ref.sha256)[:12]}...); find the file of the measurement"
        )
    return graph_of_file(path, ref.shapes, floats)


_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?(?:~|\.{1,2})?[/\\](?:[^\s'\"`:;,/\\]+[/\\])+")
_YAML = (".yaml", ".yml")
_PLACES = ("Exception from", "Check ", "src/", "FrontEnd API failed")
_LARGEST_INT8 = 127  # the number 1 in 8 bits


def model_of(core: Any, ref: ModelRef, precision: str, files: Sources) -> tuple[Any, list[Any]]:
    """Return the OpenVINO model of a row, with fixed shapes, and a value for each input.

    Parameters
    ----------
    precision : str
        Floating-point format of the device; a model file keeps its own.

    Raises
    ------
    NpusimError
        Where the model cannot be built or read.
    """
    if isinstance(ref, ModelFile):
        model, graph = _from_file(core, ref, files)
        _refuse_larger_than_memory(bytes_of(port) for port in model.inputs)
        return model, [_example(port, graph) for port in model.inputs]
    source = files.get(ref.name) if isinstance(ref, Given) and ref.techniques == "none" else None
    if isinstance(source, Scenario) and source.module is not None:
        from npusim.frontends.pyg import convert

        values = source.module[1]
        model = convert(*source.module)
        tensors = zip(model.inputs, values.values(), strict=True)
        return model, [_converted(value.numpy(), port.get_element_type()) for port, value in tensors]
    from npusim.frontends.openvino_write import model_of_graph

    graph = graph_of(ref, precision, files)
    held = (TensorKind.INPUT, TensorKind.CONSTANT)
    _refuse_larger_than_memory(t.stored_bytes for t in graph.tensors.values() if t.kind in held)
    model = model_of_graph(graph)
    return model, graph_tensors(graph, model)


def _from_file(core: Any, ref: ModelFile, files: Sources) -> tuple[Any, Graph | None]:
    """Return the model of a file with fixed input shapes, and its graph.

    The graph is None where sizes inside depend on values, which a device can run.
    """
    from npusim.frontends.openvino_ir import fix_shapes

    path, graph = files.get(ref.name), None
    if not isinstance(path, Path):
        raise ModelFileError(ref.name, "is not at hand", "name the file itself")
    with suppress(NpusimError):
        graph = graph_of_file(path, ref.shapes, None)
    try:
        if graph is None:
            try_model_file(path, ref.shapes)  # where the reader dies, it does so there
        model = core.read_model(str(path))
    except RuntimeError as error:
        raise ModelFileError(ref.name, f"cannot be read as a model: {short_reason(error, [path])}") from None
    fix_shapes(model, ref.name, ref.shapes, {})
    return model, graph


def with_file_names(items: Sequence[Item], files: Sources) -> tuple[list[Item], dict[str, Path | Scenario]]:
    """Return rows that name workload files without folders, and the paths of these files.

    Raises
    ------
    NpusimError
        For two files of one name.
    """
    sources = dict(files)
    renamed = []
    for item in items:
        named = item.model.workload if isinstance(item.model, Workload) else ""
        path = Path(named).expanduser()
        if path.suffix in _YAML and named not in sources:
            if sources.setdefault(path.name, path) != path:
                raise NpusimError(
                    f"two different files are called {path.name}; rename one: rows tell no folders"
                )
            model = item.model.model_copy(update={"workload": path.name})
            item = replace(item, id=item.id.replace(named, path.name), model=model)
        renamed.append(item)
    return renamed, sources


def footprint_bytes(model: Any) -> int:
    """Return an estimate of a running model's memory: all its tensors, constants twice (B).

    A compiler lays constants out again; it may reuse the memory of other tensors, which is not counted.
    """
    return sum(
        bytes_of(port) * (2 if node.get_type_name() == "Constant" else 1)
        for node in model.get_ops()
        for port in node.outputs()
        if port.get_partial_shape().is_static
    )


def bytes_of(port: Any) -> int:
    """Return the bytes of a port of fixed shape."""
    return math.prod(map(int, port.get_shape())) * max(1, int(port.get_element_type().bitwidth) // 8)


def _refuse_larger_than_memory(sizes: Iterable[float]) -> None:
    """Refuse inputs and constants of some sizes (B) that the free memory does not hold."""
    needed, free = sum(sizes), psutil.virtual_memory().available
    if needed > free:
        found = f"inputs and constants of {needed / 1e9:,.3g} GB, and {free / 1e9:.3g} GB of memory are free"
        raise NpusimError(f"{found}; allowed: a smaller network")


def short_reason(error: BaseException, files: Iterable[Path] = ()) -> str:
    r"""Return the last informative line of an error, without folders.

    Examples
    --------
    >>> short_reason(RuntimeError("Exception from src/a.cpp:3:\nCannot open /home/ann/models/a.bin here"))
    'Cannot open a.bin here'
    """
    lines = [line.strip() for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith(_PLACES)]
    text = messages[-1] if messages else str(error).strip() or type(error).__name__
    for path in files:  # by name first: the general rule stops at a blank
        for folder in (path.parent, path.parent.resolve()):
            text = text.replace(f"{folder}{os.sep}", "")
    return without_folders(text)[:300]


def without_folders(text: str) -> str:
    """Return a text with file names instead of paths."""
    return _FOLDERS.sub("", text)


def graph_tensors(graph: Graph, model: Any, seed: int = 0) -> list[Any]:
    """Return a value for each input of a graph's model."""
    return [
        _converted(example_value(graph, port.get_any_name(), seed), port.get_element_type())
        for port in model.inputs
    ]


def _example(port: Any, graph: Graph | None) -> Any:
    """Return a value for an input of a model file, such as its readers in the graph allow.

    Without a graph floats are uniform between 0 and 1, and integers 0, which is a valid index.
    """
    element, shape, name = port.get_element_type(), list(port.get_shape()), port.get_any_name()
    if graph is not None and name in graph.tensors and element.bitwidth >= 8:
        return _converted(example_value(graph, name), element)
    if element.is_real():
        return _converted(np.random.default_rng(0).random(shape, dtype=np.float32), element)
    tensor = load_openvino().Tensor(element, shape)
    tensor.data[...] = 0
    return tensor


def _converted(values: Any, element: Any) -> Any:
    """Return a tensor in a format that numpy may not have."""
    openvino = load_openvino()
    values = np.ascontiguousarray(values)
    if element == openvino.Type.bf16:
        upper = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        tensor = openvino.Tensor(element, list(values.shape))
        tensor.data.view(np.uint16)[...] = upper
        return tensor
    if element.is_integral_number() and values.dtype.kind == "f":
        values = np.rint(values * _LARGEST_INT8)
    return openvino.Tensor(np.ascontiguousarray(values, dtype=element.to_dtype()))


def predicted(measurement: Measurement, soc: str | Path | Soc, files: Sources | None = None) -> Measurement:
    """Return a measurement with a SoC's estimate in each row that can be built.

    Other rows, another chip, and another number of cores get a warning.

    Parameters
    ----------
    soc : str, Path or Soc
        The measured machine, fitted by `npusim calibrate`, or a shipped one.
    files : Sources, optional
        Model files, and networks of Python, by the name in the measurement.

    Raises
    ------
    NpusimError
        Where the SoC has no device of the measured class.
    """
    machine = soc if isinstance(soc, Soc) else load_soc(soc)
    device = measurement.device
    warnings = match_device(measurement, machine, "the measurement", force=True)
    if device.kind == "cpu" and device.cores not in (None, int(machine.cpu.cores)):
        warnings.append(
            f"{machine.name} has {int(machine.cpu.cores)} cores, {device.cores} were measured: predicted "
            "times are of the former"
        )
    rows = []
    for row in measurement.rows:
        try:
            total = mapped_row(row, machine, device.kind, files).total
            update = {"predicted_s": predicted_seconds(total, row.is_interval), "predicted_on": machine.name}
            rows.append(row.model_copy(update=update))
        except NpusimError as error:
            warnings.append(f"{row.id} is not predicted: {str(error).splitlines()[0]}")
            rows.append(row)
    update = {"rows": tuple(rows), "warnings": (*measurement.warnings, *warnings)}
    return measurement.model_copy(update=update)


def mapped_row(row: Row, soc: Soc, kind: str, files: Sources | None = None) -> Mapped:
    """Return a row's network mapped on a device of a SoC, with the row's hint, requests and tiles."""
    graph = partial(graph_of, row.model, row.precision, files)
    how = {"hint": row.hint, "requests": row.requests, "tiles": row.tiles}
    return Scenario(graph, soc, device=kind, **how).mapped  # type: ignore[arg-type]


def predicted_seconds(total: object, interval: bool) -> float:
    """Return the interval between results, or the latency (s), from a record of TOTAL_DTYPE."""
    if interval:
        return 1.0 / float(total["throughput_per_s"])  # type: ignore[index]
    return float(total["latency_s"])  # type: ignore[index]


def match_device(measurement: Measurement, soc: Soc, file: str, force: bool = False) -> list[str]:
    """Check that a SoC has the measured device; return warnings.

    Raises
    ------
    NpusimError
        Where the SoC has no device of that class, or its chips have other names and `force` is not set.
    """
    device = measurement.device
    if not soc.has(device.kind):
        kinds = ", ".join(sorted({device.kind for device in soc.devices.values()}))
        raise NpusimError(
            f"{file}: device.kind: found `{device.kind}` ({device.name}); {soc.name} has no such device; "
            f"allowed: {kinds}; choose a SoC that has one (npusim list socs)"
        )
    name = chip_text(device)
    if device.name == UNKNOWN_CHIP:
        return [f"{file} does not name its chip: it is taken for one of {soc.title}"]
    if soc.is_chip(device.kind, name):
        return []
    if force:
        return [f"{file} was measured on {name}, which is no chip of {soc.title}: taken all the same"]
    raise NpusimError(
        f"{file}: device.name: found `{name}`, which is no {device.kind} of {soc.title}; allowed: a name "
        f"that matches {' or '.join(soc.chips[device.kind])}; --force-soc takes it all the same"
    )


def chip_text(device: Device) -> str:
    """Return the chip's name and architecture, which distinguishes NPUs."""
    architecture = device.settings.get("DEVICE_ARCHITECTURE", "") if device.kind != "cpu" else ""
    return f"{device.name} {architecture}".strip()


def operator_profiles(files: Sequence[str | Path], scenario: Scenario) -> list[Profile]:
    """Return the measured times of a network's operators, one profile for each file.

    Parameters
    ----------
    files : sequence of str or Path
        Measurements (`npusim.measurement/1`), one for each device, with a row of this network under these
        techniques that has operator times.

    Raises
    ------
    ConfigError
        Where a file has no such row, or two are of one device; the message lists the available rows.
    """
    profiles: dict[str, Profile] = {}
    for file in files:
        measurement = read_measurement(file)
        kind = measurement.device.kind
        if kind in profiles:
            allowed = "one file for each device"
            raise ConfigError(f"a second profile of the {kind}", file=str(file), allowed=allowed)
        row = _profiled_row(measurement, scenario, str(file))
        times = tuple(OperatorTime((*op.originals, op.name), op.latency_s) for op in row.operators)
        profiles[kind] = Profile(device=kind, chip=measurement.device.name, row=row.id, operators=times)
    return list(profiles.values())


def _profiled_row(measurement: Measurement, scenario: Scenario, file: str) -> Row:
    """Return the row of a scenario's network that has operator times; latency and few requests first."""
    profiled = [row for row in measurement.rows if row.operators]
    fitting = [row for row in profiled if _is_run_by(row.model, scenario)]
    if fitting:
        return min(fitting, key=lambda row: (row.hint != "latency", row.requests))
    network = f"`{name_of(scenario.network)}` with {parse(scenario.techniques)}"
    listed = ", ".join(shown(row.id) for row in profiled) or "none"
    allowed = f"a row of this very network; rows with operator times: {listed}"
    raise ConfigError(f"no operator times of {network}", file=file, allowed=allowed)


def _is_run_by(model: ModelRef, scenario: Scenario) -> bool:
    """Return whether a row runs a scenario's network with its techniques and settings."""
    name, techniques = name_of(scenario.network), str(parse(scenario.techniques))
    if isinstance(model, Workload):
        settings = {".".join(o.path[1:]): str(o.value) for o in split_settings(scenario.settings)[0]}
        own = (Path(model.workload).stem, str(parse(model.techniques)), dict(model.settings))
        return own == (Path(name).stem, techniques, settings)
    if isinstance(model, ModelFile):
        return model.name == Path(name).name and techniques == "none"
    return isinstance(model, Network) and model.network == name
