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
from npusim.frontends.peer_files import NAMES, PeerFile
from npusim.graph import Editor, Graph, GraphMeta
from npusim.ops import DType, Role

_MOST_LAYERS, _LARGEST_SIZE, _LARGEST_TENSOR = 10_000, 1e6, 1e12
_SIDES = ("height", "width")
_STRIDE = re.compile(r"i([xy])=(\d{1,4})\*o\1\+1\*f\1")
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
    editor = Editor(name, meta=GraphMeta(model=name, form="imported", notes=(_NOTE,)))
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


def _timeloop(file: PeerFile, path: Key) -> dict[str, float]:
    at, instance = ("problem", "instance"), file.mapping("problem", "instance")
    return {letter: file.number(*at, letter) for letter in instance if letter not in NAMES["derived"]}


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
    if file.kind == "timeloop_problem" and "K" in file.mapping("problem", "instance"):
        return "MatMul"
    kind = next((kind for start, kind in operators.items() if start in word), operators["default"])
    if not kind:
        allowed = ", ".join(start for start in operators if start not in ("key", "default"))
        raise file.wrong((*path, operators["key"]), f"`{word[:80]}`", allowed)
    return kind


def _sizes_of(file: PeerFile, path: Key, type_: str) -> dict[str, int]:
    """Return the steps of each loop of a layer, and its strides."""
    numbers, names = _READERS[file.kind](file, path), NAMES["loops"][file.kind]
    if type_ == "MatMul" and "K" in numbers and "C" not in numbers:
        names = NAMES["loops"]["product"]
    if not numbers:
        raise file.wrong(path, "no loops", ", ".join(names))
    sizes = dict.fromkeys((*LOOPS, "stride_height", "stride_width"), 1)
    for name, number in numbers.items():
        if name not in names or not (number.is_integer() and 1.0 <= number <= _LARGEST_SIZE):
            allowed = f"whole numbers from 1 to {_LARGEST_SIZE:g} for {', '.join(names)}"
            raise file.wrong(path, f"`{name}` of {number:g}", allowed)
        sizes |= dict.fromkeys(names[name].split(), int(number))
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
