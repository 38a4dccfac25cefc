"""Files of other tools (Timeloop, AccelForge, ZigZag, SCALE-Sim, MAESTRO) as data with line numbers.

The content decides which format a file has. No expression is evaluated: a number may be a product or quotient
of numbers, every other text is a name. `configs/importers/peers.yaml` has the keys of all formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from npusim.arch.array import LOOPS
from npusim.config.reading import Key, ParsedFile, compose, plain_scalar, read_yaml
from npusim.config.tables import csv_records
from npusim.errors import ConfigError, shown
from npusim.files import read_text
from npusim.graph import Editor, Graph, GraphMeta
from npusim.locate import resource
from npusim.ops import DType, Role

NAMES = read_yaml(resource("configs", "importers", "peers.yaml")).data
"""Names of formats, keys and loops."""
_MOST_BYTES, _LONGEST_LINE, _LARGEST = 4 << 20, 1000, 1e15
_NUMBER = r"\(?\s*([0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][-+]?[0-9]{1,3})?)\s*\)?"
_PRODUCT = re.compile(rf"{_NUMBER}(?:\s*[*/]\s*{_NUMBER}){{0,20}}")
_FACTOR = re.compile(rf"([*/]?)\s*{_NUMBER}")
_SECTION = re.compile(r"\[(\w{1,60})\]")
_SETTING = re.compile(r"(\w{1,60})\s*[:=]\s*")


@dataclass(frozen=True)
class PeerFile:
    """A file of another tool."""

    document: ParsedFile
    kind: str
    """Format, a key of `formats` in `configs/importers/peers.yaml`."""

    @property
    def name(self) -> str:
        """Name of the file, without its folder."""
        return Path(self.document.name).name

    @property
    def title(self) -> str:
        """Format, as messages call it."""
        return str(NAMES["formats"][self.kind])

    def wrong(self, path: Key, problem: str, allowed: str) -> ConfigError:
        """Return the error that names file, line and key of a value."""
        file, line = self.document.place(path)
        return ConfigError(problem, file=file, line=line, key=".".join(map(str, path)), allowed=allowed)

    def value(self, *path: str | int, default: Any = ..., kind: type = object) -> Any:
        """Return the value of a path, which has to be of some kind; without a default it must be there."""
        value = self.document.data
        for place, key in enumerate(path):
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                if default is not ...:
                    return default
                raise self.wrong(path[:place], f"no key `{key}`", f"`{key}: ...` in {self.title}") from None
        if not isinstance(value, kind):
            raise self.wrong(path, shown(value), "a list" if kind is list else "a mapping")
        return value

    def mapping(self, *path: str | int) -> Mapping[str, Any]:
        """Return a mapping; an empty one where it is absent."""
        return dict(self.value(*path, default={}, kind=dict))

    def entries(self, *path: str | int) -> list[Any]:
        """Return a list; an empty one where it is absent."""
        return list(self.value(*path, default=[], kind=list))

    def number(self, *path: str | int, default: float | None = None, most: float = _LARGEST) -> float:
        """Return a number from 0 to `most`, which may be written as a product or quotient."""
        value = self.value(*path, default=... if default is None else default)
        number = as_number(value)
        if number is None or not 0.0 <= number <= most:
            raise self.wrong(path, shown(value), f"a number from 0 to {most:g}")
        return number

    def count(self, *path: str | int, default: int | None = None, most: float = 1e6) -> int:
        """Return a whole number from 1 to `most`."""
        number = self.number(*path, default=default, most=most)
        if number < 1.0 or not number.is_integer():
            raise self.wrong(path, f"`{number:g}`", f"a whole number from 1 to {most:g}")
        return int(number)

    def unread(self, known: Collection[str] = (), *, leaves: bool = True) -> list[str]:
        """Return a line for each reason why keys have no place here, with their first line.

        Parameters
        ----------
        known : collection of str
            Keys that are read beside those of the format.
        leaves : bool
            Whether keys of mappings may have any name.
        """
        skipped, reasons = {*NAMES["reads"].get(self.kind, ()), *NAMES["silent"]}, dict[str, dict[str, int]]()
        skipped.update(known)
        for path, line in self.document.lines.items():
            key = path[-1] if path else 0
            counts = not (leaves and isinstance(self.value(*path, default={}), dict))
            if counts and isinstance(key, str) and key not in skipped:
                why = NAMES["unsaid"].get(key, "a sheet has no such number")
                reasons.setdefault(why, {}).setdefault(key, line)
        return [
            f"{min(keys.values())}: {', '.join(map(shown, keys))}: {why}" for why, keys in reasons.items()
        ]


def as_number(value: object) -> float | None:
    """Return a number, or a product or quotient of numbers such as ``1024*64``; None for another value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or not _PRODUCT.fullmatch(value.strip()):
        return None
    product = 1.0
    for sign, factor in _FACTOR.findall(value):
        if sign == "/" and float(factor) == 0.0:
            return None
        product = product / float(factor) if sign == "/" else product * float(factor)
    return product


def read_peer(path: str | Path) -> PeerFile:
    """Return a file of another tool.

    Raises
    ------
    FileError
        If it cannot be read, or holds more than 4 MiB.
    ConfigError
        If it has none of the formats; it names file and line.
    """
    name = str(path)
    document = _parsed(read_text(Path(path).expanduser(), most=_MOST_BYTES), name)
    kind = _format_of(document.data)
    if kind is None:
        allowed = ", ".join(NAMES["formats"].values())
        raise ConfigError("a file of an unknown format", file=name, line=1, allowed=allowed)
    return PeerFile(document, kind)


def peer_network(path: Path) -> PeerFile | None:
    """Return a file if it is a network of another tool; None for a YAML file that is none.

    Raises
    ------
    FileError, ConfigError
        As `read_peer`.
    """
    if path.suffix in {".yaml", ".yml"}:
        document = read_yaml(path)
        kind = _format_of(document.data)
        return PeerFile(document, str(kind)) if kind in NAMES["networks"] else None
    return read_peer(path)


def _format_of(data: Any) -> str | None:
    first = data[0] if isinstance(data, list) and data else data
    keys = first.keys() if isinstance(first, dict) else ()
    return next((kind for key, kind in NAMES["told_by"].items() if key in keys), None)


def _parsed(text: str, name: str) -> ParsedFile:
    """Return the data of a text: sections of settings, a table, MAESTRO's blocks, or YAML."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE or "{%" in line or "{{" in line:
            problem = (
                "a template (Jinja)" if len(line) <= _LONGEST_LINE else f"a line of {len(line):,} letters"
            )
            allowed = f"the file that a template renders, lines of at most {_LONGEST_LINE} letters"
            raise ConfigError(problem, file=name, line=number, allowed=allowed)
    first = next((line for line in lines if re.match(r"\s*[^\s#;/]", line)), "")
    if _SECTION.fullmatch(first.strip()):
        return compose("\n".join(map(_setting, lines)), name)
    if first.count(",") >= 3 and ":" not in first:
        return _topology(text, name)
    if re.match(r"\s*(Network|Constant)\b", first):
        return compose(_maestro_yaml(text), name)
    return compose(text, name, lenient=True)


def _setting(line: str) -> str:
    """Return a line of sections and settings as YAML, the key in lower case."""
    line = line.strip()
    section = _SECTION.fullmatch(line)
    if section:
        return f"{section[1].lower()}:"
    return (
        _SETTING.sub(lambda match: f"  {match[1].lower()}: ", line, count=1) if line[:1] not in "#;" else ""
    )


def _topology(text: str, name: str) -> ParsedFile:
    """Return the rows of a SCALE-Sim table, keys by the words of its header."""
    (_, header), *records = csv_records(text, name)
    words = [word for word in header if word]
    plain = [re.sub(r"[\s_-]", "", word).lower() for word in words]
    columns = NAMES["topologies"]["products" if {"m", "n", "k"} <= {*plain} else "convolutions"]
    by_word = {word: key for key, known in columns.items() for word in known}
    keys = [by_word.get(word, "") for word in plain]
    for key, word in zip(keys, words, strict=True):
        if not key or keys.count(key) > 1:
            problem = f"the column {shown(word)}" + (" twice" if key else "")
            raise ConfigError(problem, file=name, line=1, allowed=", ".join(columns))
    if not records:
        raise ConfigError("no rows below the header", file=name, line=1, allowed="a row for each layer")
    document = ParsedFile(name, [], {(): 1})
    for place, (line, row) in enumerate(records):
        ratios = [cell for cell in row[len(words) :] if cell]
        if len(row) < len(words) or not all(re.fullmatch(r"\d+:\d+", cell) for cell in ratios):
            allowed = f"{len(words)} as in the header, and a sparsity such as 2:4"
            raise ConfigError(f"{len(row)} cells", file=name, line=line, allowed=allowed)
        cells = {key: plain_scalar(cell) for key, cell in zip(keys, row[: len(words)], strict=True)}
        document.lines[(place,)] = line
        if cells.pop("sparsity", None) or ratios:
            cells["sparsity"], document.lines[place, "sparsity"] = ratios, line
        document.data.append(cells)
    return document


_CONSTANT = re.compile(r"\bConstant\s+(\w+)\s+(\w+)\s*;")
_MAESTRO = {
    r"\b(SpatialMap|TemporalMap)\b[^;]*?(\w+)\s*;": r"[\1, \2],",
    r"\bCluster\s*\(\s*(\w+)\s*,?\s*\w*\s*\)\s*;?": r"[Cluster, \1],",
    r"\bDataflow\s*:?\s*{([^{}]*)}": r"Dataflow: [\1],",
    r"(?<=[{,])(\s*\w+)\s+(\w+)(?=\s*[,}])": r"\1: \2",  # pairs without a colon
    r"\b(Stride|Dimensions)\s*:?\s*({[^{}]*})": r"\1: \2,",
    r"\bType\s*:?\s*(\w+)[ \t]*;?": r"Type: \1,",
    r"\bLayer\s+(\w+)\s*{": r"{name: \1,",
    r"\bNetwork\s+\w+\s*{": "[",
    r"}(?!,)(?=.*})": "},",  # of a layer
    r"}(?=[^}]*\Z)": "]",  # of the network
}
"""MAESTRO's blocks as YAML, in order: whatever else stands in a file is no YAML then."""


def _maestro_yaml(text: str) -> str:
    """Return MAESTRO's layers as YAML, on the same lines: type, strides, dimensions, maps in order."""
    text = re.sub("//[^\n]*", "", text)
    named = dict(_CONSTANT.findall(text))
    text = re.sub(r"\w+", lambda word: named.get(word[0], word[0]), _CONSTANT.sub("", text))
    for block, yaml in _MAESTRO.items():
        text = re.sub(block, yaml, text, flags=re.DOTALL)
    return text


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
    letters = _loops_of(file)
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
    absent = operators.get("absent", "")
    word = str(file.value(*path, operators["key"], default=absent)) if operators["key"] else "-"
    if file.kind == "timeloop_problem" and not _WINDOWED.intersection(_timeloop_loops(file).values()):
        return "MatMul"
    kind = next((kind for start, kind in operators.items() if start in word), operators["default"])
    if not kind:
        allowed = ", ".join(start for start in operators if start not in ("key", "absent", "default"))
        raise file.wrong((*path, operators["key"]), f"`{word[:80]}`", allowed)
    return kind


def _loops_of(file: PeerFile) -> Mapping[str, str]:
    """Return the loop, or stride, that each name of a number stands for."""
    own: Mapping[str, str] = NAMES["loops"].get(file.kind, {})
    return _timeloop_loops(file) if file.kind == "timeloop_problem" else own


def _sizes_of(file: PeerFile, path: Key, type_: str) -> dict[str, int]:
    """Return the steps of each loop of a layer, and its strides."""
    names = _loops_of(file)
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
