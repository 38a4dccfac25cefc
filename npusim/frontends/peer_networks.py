"""Networks of SCALE-Sim, ZigZag, Timeloop and MAESTRO as operator graphs.

These tools cost layers one by one, so each layer reads an input and writes an output of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from npusim.arch.array import LOOPS
from npusim.config.reading import Key
from npusim.frontends.peer_files import NAMES, PeerFile, as_number
from npusim.graph import Editor, Graph, GraphMeta
from npusim.ops import DType, Role

_MOST_LAYERS, _LARGEST_SIZE, _LARGEST_TENSOR = 10_000, 1e6, 1e12
_SIDES = ("height", "width")
_WINDOWED = {f"{part}_{side}" for part in ("kernel", "output") for side in _SIDES}
_STRIDE = re.compile(r"i([xy])=(\d{1,4})\*o\1\+1\*f\1(?![^,])")
_NOTE = "layers of another tool: each reads its input from DRAM and writes its result there"


def peer_graph(file: PeerFile, name: str) -> Graph:
    """Return the operator graph of a network file of another tool.

    Raises
    ------
    ConfigError
        If it is no network, a layer has a loop or operator that has no place here, or an impossible size.
    """
    if file.kind not in _READERS:
        allowed = ", ".join(NAMES["formats"][kind] for kind in _READERS)
        raise file.wrong((), f"a {file.title} file", f"a network: {allowed}")
    is_list = isinstance(file.value(), list)
    layers: list[Key] = [(place,) for place in range(len(file.value()))] if is_list else [()]
    if len(layers) > _MOST_LAYERS:
        raise file.wrong((), f"{len(layers):,} layers", f"at most {_MOST_LAYERS:,}")
    letters = _timeloop_loops(file) if file.kind == "timeloop_problem" else ()
    notes = (_NOTE, *(f"{file.name}:{line}" for line in file.unread(letters, leaves=False)))
    editor = Editor(name, meta=GraphMeta(model=name, form="imported", notes=notes))
    for place, path in enumerate(layers):
        own = str(file.value(*path, "name", default=f"layer{place}"))
        editor.region = f"{own}_{place}" if own in editor.operators else own
        editor.outputs.append(_add_layer(editor, file, path))
    return editor.finish()


def _zigzag(file: PeerFile, path: Key) -> dict[str, float]:
    letters = [str(letter).upper() for letter in file.entries(*path, "loop_dims")]
    sizes = {letter: file.number(*path, "loop_sizes", place) for place, letter in enumerate(letters)}
    relations = re.sub(r"\s", "", ",".join(map(str, file.entries(*path, "dimension_relations")))).lower()
    strides = _STRIDE.findall(relations)
    if len(strides) != relations.count("=i") + relations.count("i", 0, 1) + relations.count(",i"):
        raise file.wrong((*path, "dimension_relations"), f"`{relations[:80]}`", "ix = S*ox + 1*fx, and of y")
    return sizes | {f"stride_{axis}": float(stride) for axis, stride in strides}


def _instance(file: PeerFile) -> tuple[Key, list[str]]:
    """Return where the sizes of a Timeloop problem stand, and their keys."""
    problem = file.mapping("problem")
    if "instance" in problem:
        return ("problem", "instance"), list(file.mapping("problem", "instance"))
    return ("problem",), [key for key in problem if key not in NAMES["flat"]]


def _timeloop(file: PeerFile, path: Key) -> dict[str, float]:
    (at, letters), loops = _instance(file), _timeloop_loops(file)
    for key in NAMES["dilations"]:
        if key not in loops and file.number(*at, key, default=1.0) != 1.0:
            raise file.wrong((*at, key), "a dilated kernel", "1")
    coefficients = _coefficients(file)
    skipped = {*NAMES["derived"], *NAMES["dilations"]} - loops.keys() | coefficients.keys()
    wanted = dict.fromkeys((*_dimensions(file), *(letter for letter in letters if letter not in skipped)))
    strides = {name: value for name, value in coefficients.items() if name in loops}
    return {letter: file.number(*at, letter) for letter in wanted} | strides


def _dimensions(file: PeerFile) -> list[str]:
    """Return the dimensions that a Timeloop problem declares; none where it names a shape."""
    is_declared = isinstance(file.value("problem", "shape", default=""), dict)
    return [str(each) for each in file.entries("problem", "shape", "dimensions")] if is_declared else []


def _coefficients(file: PeerFile) -> dict[str, float]:
    """Return the coefficients that a Timeloop problem declares, by the names in its instance."""
    if not _dimensions(file):
        return {}
    at, (sizes, _) = ("problem", "shape", "coefficients"), _instance(file)
    names = [str(file.value(*at, place, "name")) for place in range(len(file.entries(*at)))]
    defaults = [file.number(*at, place, "default", default=1.0) for place in range(len(names))]
    pairs = zip(names, defaults, strict=True)
    return {name: file.number(*sizes, name, default=default) for name, default in pairs}


def _timeloop_loops(file: PeerFile) -> dict[str, str]:
    """Return the loop, or stride, that each letter of a Timeloop problem stands for.

    Letters of a declared shape have the meaning of their projections; those of a named shape are Timeloop's.
    """
    dimensions, letters = _dimensions(file), _instance(file)[1]
    if not dimensions:
        if "K" in letters and "C" not in letters:
            return dict(NAMES["loops"]["product"])
        loops = dict(NAMES["loops"]["timeloop_problem"])
        if "K" in letters and "M" not in letters:
            del loops["M"]
            loops |= NAMES["loops"]["timeloop_filters"]
        return loops
    inputs, weights, outputs = _spaces(file)
    windows = [axis for axis in inputs if len(axis) > 1]
    of_inputs, of_weights, of_outputs = (
        {term[0] for axis in space for term in axis} for space in (inputs, weights, outputs)
    )
    loops = {}
    for letter in dimensions:
        kind = _BY_SPACES.get((letter in of_inputs, letter in of_weights, letter in of_outputs))
        if kind is None:
            allowed = "dimensions of two or three data spaces"
            raise file.wrong(("problem", "shape", "dimensions"), f"`{letter}`", allowed)
        loops[letter] = kind
    for side, axis in zip(("width", "height"), windows, strict=False):
        for letter, *coefficient in axis:
            part = {"batch": "output", "input_channels": "kernel"}.get(loops.get(letter, ""))
            value = _coefficients(file).get(coefficient[0], as_number(coefficient[0])) if coefficient else 1.0
            if part is None or value is None or (part == "kernel" and value != 1.0) or len(axis) != 2:
                allowed = "a sum of an output's dimension, with its stride, and a kernel's"
                raise file.wrong(("problem", "shape", "data_spaces"), f"`{axis}`", allowed)
            loops[letter] = f"{part}_{side}"
            if part == "output" and coefficient:
                loops[coefficient[0]] = f"{loops.get(coefficient[0], '')} stride_{side}".strip()
    if len(windows) > len(_SIDES):
        raise file.wrong(("problem", "shape"), f"{len(windows)} axes with kernels", "at most 2")
    return loops


_BY_SPACES = {
    (True, True, True): "groups",
    (True, False, True): "batch",
    (False, True, True): "output_channels",
    (True, True, False): "input_channels",
}
"""Loop of a dimension by whether inputs, weights and outputs have it."""


_Projection = list[list[list[str]]]
"""Axes of terms: a letter, and a coefficient where it has one."""


def _spaces(file: PeerFile) -> list[_Projection]:
    """Return the projections of inputs, weights and outputs."""
    shape: Key = ("problem", "shape")
    key = "data-spaces" if "data-spaces" in file.mapping(*shape) else "data_spaces"
    results, operands = list[_Projection](), list[_Projection]()
    for place in range(len(file.entries(*shape, key))):
        at = (*shape, key, place)
        axes = file.value(*at, "projection", kind=list)
        if not all(isinstance(axis, list) and all(isinstance(t, list) and t for t in axis) for axis in axes):
            raise file.wrong((*at, "projection"), "an expression", "lists of lists of lists, such as [[[M]]]")
        terms = [[[str(word) for word in term] for term in axis] for axis in axes]
        is_result = any(file.value(*at, word, default=False) for word in ("read_write", "read-write"))
        (results if is_result else operands).append(terms)
    if len(results) != 1 or len(operands) != 2:
        problem = f"{len(operands)} operands and {len(results)} results"
        raise file.wrong((*shape, key), problem, "two operands and one result, which is read_write")
    operands.sort(key=lambda axes: all(len(axis) < 2 for axis in axes))
    return [*operands, *results]


def _maestro(file: PeerFile, path: Key) -> dict[str, float]:
    axes = file.mapping(*path, "Stride")
    strides = {f"stride_{axis.lower()}": file.number(*path, "Stride", axis) for axis in axes}
    dimensions = file.mapping(*path, "Dimensions")
    return strides | {letter: file.number(*path, "Dimensions", letter) for letter in dimensions}


def _table(file: PeerFile, path: Key) -> dict[str, float]:
    return {key: file.number(*path, key) for key in file.mapping(*path) if key not in ("name", "sparsity")}


_READERS: Mapping[str, Callable[[PeerFile, Key], dict[str, float]]] = {
    "zigzag_workload": _zigzag,
    "timeloop_problem": _timeloop,
    "maestro_network": _maestro,
    "scalesim_convolutions": _table,
    "scalesim_products": _table,
}
"""Returns the numbers of a layer by the tool's names of them."""


def _type_of(file: PeerFile, path: Key) -> str:
    """Return the operator type of a layer; depthwise convolutions are a type of their own."""
    operators: Mapping[str, str] = NAMES["operators"][file.kind]
    word = str(file.value(*path, operators["key"], default="")) if operators["key"] else "-"
    if file.kind == "timeloop_problem" and not _WINDOWED.intersection(_timeloop_loops(file).values()):
        return "MatMul"
    kind = next((kind for start, kind in operators.items() if start in word), operators["default"])
    if not kind:
        allowed = ", ".join(start for start in operators if start not in ("key", "default"))
        raise file.wrong((*path, operators["key"]), f"`{word[:80]}`", allowed)
    return kind


def _sizes_of(file: PeerFile, path: Key, type_: str) -> dict[str, int]:
    """Return the steps of each loop of a layer, and its strides."""
    is_problem = file.kind == "timeloop_problem"
    names = _timeloop_loops(file) if is_problem else NAMES["loops"][file.kind]
    numbers = _READERS[file.kind](file, path)
    if not numbers:
        raise file.wrong(path, "no loops", ", ".join(names))
    sizes = dict.fromkeys((*LOOPS, "stride_height", "stride_width"), 1)
    for name, number in numbers.items():
        if name not in names or not (number.is_integer() and 1.0 <= number <= _LARGEST_SIZE):
            allowed = f"whole numbers from 1 to {_LARGEST_SIZE:g} for {', '.join(names)}"
            raise file.wrong(path, f"`{name}` of {number:g}", allowed)
        for loop in names[name].split():
            sizes[loop] = sizes.get(loop, 1) * int(number)
    for side in _SIDES:
        if f"input_{side}" in sizes:
            room = sizes[f"input_{side}"] - sizes[f"kernel_{side}"]
            if room < 0:
                raise file.wrong(path, f"a kernel above the input's {side}", "one that fits")
            sizes[f"output_{side}"] = room // sizes[f"stride_{side}"] + 1
    if type_ == "Depthwise":
        sizes |= {"groups": sizes["input_channels"], "input_channels": 1}
    return sizes


def _add_layer(editor: Editor, file: PeerFile, path: Key) -> str:
    """Add a layer with its own input and weights, and return the name of its result."""
    name, type_ = editor.region, _type_of(file, path)
    sizes = _sizes_of(file, path, type_)
    batch, groups, out_c, in_c = (sizes[loop] for loop in LOOPS[:4])
    kernel, strides, pixels = (
        tuple(sizes[f"{part}_{side}"] for side in _SIDES) for part in ("kernel", "stride", "output")
    )
    image = [(n - 1) * stride + taps for n, stride, taps in zip(pixels, strides, kernel, strict=True)]
    largest = batch * groups * max(in_c * prod(image), out_c * prod(pixels), in_c * out_c * prod(kernel))
    if largest > _LARGEST_TENSOR:
        raise file.wrong(path, f"a tensor of {largest:.3g} elements", f"at most {_LARGEST_TENSOR:g}")
    dtype = DType.INT8 if file.number(*path, "operand_precision", "I", default=8.0) <= 8.0 else DType.FP16
    shape, input_shape = (batch, groups * out_c, *pixels), [batch, groups * in_c, *image]
    weight_shape = [groups, out_c, in_c, *kernel][int(groups == 1) :]
    if type_ == "MatMul":
        batched = [groups] if groups > 1 else []
        input_shape, weight_shape = [*batched, batch, in_c], [*batched, in_c, out_c]
    x = editor.input(f"{name}/input", input_shape, dtype, role=Role.FEATURES)
    passes: dict[str, Any] = {
        "strides": strides,
        "pads_begin": (0, 0),
        "pads_end": (0, 0),
        "dilations": (1, 1),
    }
    if type_ == "Add":
        second = editor.input(f"{name}/second", shape, dtype, role=Role.FEATURES)
        return editor.op("Add", (x, second), shape, dtype, name)
    if type_ == "MaxPool":
        return editor.op("MaxPool", (x,), shape, dtype, name, kernel=kernel, **passes)
    weight = editor.constant(f"{name}/weight", weight_shape, dtype, role=Role.WEIGHT)
    if type_ == "MatMul":
        return editor.matmul(x, weight, name, dtype=dtype)
    type_ = "Convolution" if groups == 1 else "GroupConvolution"
    return editor.op(type_, (x, weight), shape, dtype, name, **passes)
