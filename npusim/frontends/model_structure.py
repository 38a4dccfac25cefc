"""Structure of an ONNX or IR file, and contradictions in it that are refused.

OpenVINO's readers accept some contradictions (two operators that write one tensor, unknown versions) and name
others badly (a cycle). The XML of an IR and the protobuf wire format of ONNX are read without weights and
without the onnx package.
"""

from __future__ import annotations

import mmap
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple
from xml.parsers.expat import ExpatError, ParserCreate

from npusim.errors import ModelFileError, shown

_MOST_OPERATORS = 20_000
"""Operators of a model; the search for each takes about a millisecond."""
_CYCLE_SHOWN = 6  # most operators of a cycle that a message names


_PYTHON = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')
_SCRIPT = re.compile(r"^\s*(\S[^\n]*?)\((\d+)\): (\S+)", re.MULTILINE)
_LIBRARIES = ("/torch/", "/torch_geometric/", "/site-packages/", "/dist-packages/", "<frozen ")


def user_line(trace: str) -> str:
    """Return the innermost line of a stack trace that lies in no library, as `file:line, in function`.

    Parameters
    ----------
    trace : str
        As Python writes it (outermost first) or as torch's tracer does (innermost first).
    """
    python = [m.groups() for m in _PYTHON.finditer(trace)]
    frames = python[::-1] if python else [m.groups() for m in _SCRIPT.finditer(trace)]
    own = [f for f in frames if not any(part in f[0] for part in _LIBRARIES)]
    if not own:
        return ""
    file, line, function = own[0]
    return f"{file}:{line}, in {function}"


@dataclass(slots=True)
class NodeStructure:
    """One operator as the file has it."""

    name: str
    type: str
    domain: str = ""
    inputs: list[str] = field(default_factory=list)  # names of tensors; '' for an operand that is left out
    outputs: list[str] = field(default_factory=list)
    origin: str = ""  # stack trace of the module that it was exported from, where the exporter wrote one

    @property
    def label(self) -> str:
        """The operator in a message."""
        kind = f"{self.domain}.{self.type}" if self.domain else self.type
        return f"operator {shown(self.name or (self.outputs or ['?'])[0])} ({kind})"


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """A constant whose bytes lie in another file."""

    name: str
    location: str  # path of that file as the model gives it, relative to the model's folder
    offset: int
    length: int


@dataclass(slots=True)
class ModelStructure:
    """Versions, operators and borders of a model file."""

    versions: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """What is versioned -> (version of the file, oldest and newest that is known)."""
    nodes: list[NodeStructure] = field(default_factory=list)
    constants: set[str] = field(default_factory=set)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shape of each input; -1 for a size that is left open."""
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Declared shapes of results of operators."""
    external: list[ExternalTensor] = field(default_factory=list)

    def check(self, path: Path) -> None:
        """Raise a `ModelFileError` for the first thing that cannot be."""
        for problem, remedy in self._problems(path.parent):
            raise ModelFileError(str(path), problem, remedy)

    def _problems(self, folder: Path) -> Iterator[tuple[str, str]]:
        operators = sum(bool(node.inputs) for node in self.nodes)
        if operators > _MOST_OPERATORS:
            problem = f"has {operators:,} operators"
            yield problem, f"at most {_MOST_OPERATORS:,} are read: export a part of the model"
        for what, (version, oldest, newest) in self.versions.items():
            if not oldest <= version <= newest:
                problem = f"its {what} is {version}"
                yield problem, f"known are {oldest} to {newest}: export it for one of these"
        for name, shape in self.inputs.items():
            if any(size < -1 for size in shape):
                problem = f"input {shown(name)} has the shape {list(shape)}"
                yield problem, "sizes are at least 1; -1 stands for one that --shape gives"
        writer: dict[str, NodeStructure] = {}
        for node in self.nodes:
            for tensor in filter(None, node.outputs):
                if tensor in writer:
                    other = writer[tensor].label
                    yield f"{other} and {node.label} both write {shown(tensor)}", "each tensor has one writer"
                writer[tensor] = node
        known = self.constants | self.inputs.keys() | writer.keys()
        for node in self.nodes:
            for tensor in filter(None, node.inputs):
                if tensor not in known:
                    problem = (
                        f"{node.label} reads {shown(tensor)}, which is neither input, constant nor result"
                    )
                    yield problem, "export the model again"
        cycle = _cycle(self.nodes, writer)
        if cycle:
            yield f"its operators are a cycle: {cycle}", "a model is a graph without cycles"
        for tensor_ in self.external:
            problem = _external_problem(tensor_, folder)
            if problem:
                place = f"constant {shown(tensor_.name)}: its data in {shown(tensor_.location)} {problem}"
                yield place, f"it has to lie in {folder}, complete, beside the model"

    def declared(self, actual: Mapping[str, tuple[int, ...]]) -> str:
        """Say which result has another shape than the file declares, '' where none has."""
        for name, shape in self.outputs.items():
            sizes = actual.get(name, shape)
            if len(sizes) != len(shape) or any(a not in (-1, b) for a, b in zip(shape, sizes, strict=True)):
                return f"result {shown(name)} is declared {list(shape)}, but its operator makes {list(sizes)}"
        return ""

    def find(self, name: str) -> NodeStructure | None:
        """Return the operator of a name, or the one that writes a tensor of that name."""
        return next((n for n in self.nodes if n.name == name or name in n.outputs), None)


def _cycle(nodes: list[NodeStructure], writer: Mapping[str, NodeStructure]) -> str:
    """Return the operators of a cycle, joined by arrows; '' where there is none."""
    place = {id(node): i for i, node in enumerate(nodes)}
    before = {
        i: {place[id(writer[tensor])] for tensor in node.inputs if tensor in writer}
        for i, node in enumerate(nodes)
    }
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        members = [nodes[i].name or nodes[i].outputs[0] for i in error.args[1]]
        more = " -> ..." if len(members) > _CYCLE_SHOWN else ""
        return " -> ".join(shown(m) for m in members[:_CYCLE_SHOWN]) + more
    return ""


def _external_problem(tensor: ExternalTensor, folder: Path) -> str:
    """Say what is wrong with a constant's file, '' where nothing is."""
    data = folder / tensor.location
    try:
        inside = data.resolve().is_relative_to(folder.resolve())
        if not inside:
            return "is outside of the model's folder"
        if not data.is_file():
            return "is no regular file" if data.exists() else "does not exist"
        size = data.stat().st_size
    except (OSError, ValueError) as error:
        return f"cannot be read: {error.__class__.__name__}"
    if tensor.offset < 0 or tensor.length < 0 or tensor.offset + tensor.length > size:
        return f"would be bytes {tensor.offset} to {tensor.offset + tensor.length} of {size}"
    return ""


_VERSIONS = (10, 11)  # oldest and newest IR that OpenVINO reads (since 2022)
LARGEST_XML = 1 << 30
"""Most bytes of an IR description that are read; the largest language models have some 10 MB."""
_BLOCK, _LONGEST_TAG = 1 << 20, 4 << 20
_DEEPEST = 200  # elements within each other; bodies of nested loops need some ten each


def read_ir_structure(path: Path) -> ModelStructure:
    """Read version, layers, edges and declared shapes of an IR; bodies of loops are left out.

    Raises
    ------
    ModelFileError
        Where it is no XML, or no IR.
    """
    reader = _IrReader()
    parser = ParserCreate()
    parser.buffer_text = True  # else a size at the edge of a block of the file comes in two parts
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.entity
    try:
        with path.open("rb") as file:
            # Large blocks: a tag that is not closed is looked through again with each of them.
            while block := file.read(_BLOCK):
                parser.Parse(block, False)
                if file.tell() - parser.CurrentByteIndex > _LONGEST_TAG:
                    raise ValueError(f"a tag of more than {_LONGEST_TAG >> 20} MiB")
            parser.Parse(b"", True)
        return reader.finish()
    except (ExpatError, KeyError, ValueError) as error:
        problem = f"cannot be read as a model: {'no ' if isinstance(error, KeyError) else ''}{error}"
        raise ModelFileError(str(path), problem, "export or copy it again with its .bin file") from None


class _IrReader:
    def __init__(self) -> None:
        self.path: list[str] = []
        self.structure = ModelStructure()
        self.layers: dict[str, NodeStructure] = {}
        self.layer = NodeStructure("", "")
        self.id = self.port = ""
        self.shapes: dict[tuple[str, str], list[int]] = {}
        self.edges: list[tuple[str, str, str]] = []

    def entity(self, *_: object) -> None:
        """Refuse entities: an IR has none, and they can grow without bound."""
        raise ValueError("it declares XML entities")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.path.append(tag)
        if len(self.path) > _DEEPEST:
            raise ValueError(f"its elements are more than {_DEEPEST} deep")
        match "/".join(self.path):
            case "net":
                self.structure.versions["version of the IR"] = (int(attributes["version"]), *_VERSIONS)
            case "net/layers/layer":
                self._layer(attributes)
            case "net/layers/layer/output/port":
                self.port = attributes["id"]
                self.layer.outputs.append(f"{self.id}:{self.port}")
                self.shapes[self.id, self.port] = []
            case "net/layers/layer/data" if self.layer.type == "Parameter":
                sizes = [size.strip() for size in attributes.get("shape", "").split(",") if size.strip()]
                self.structure.inputs[self.layer.name] = tuple(_size(size, self.layer) for size in sizes)
            case "net/edges/edge":
                source = f"{attributes['from-layer']}:{attributes['from-port']}"
                self.edges.append((source, attributes["to-layer"], attributes["to-port"]))
            case root if "/" not in root:
                raise ValueError(f"it begins with <{tag}>, an IR with <net>")

    def _layer(self, attributes: dict[str, str]) -> None:
        self.id = attributes["id"]
        self.layer = NodeStructure(attributes.get("name", ""), attributes["type"])
        if self.id in self.layers:
            both = f"{self.layers[self.id].label} and {self.layer.label}"
            raise ValueError(f"{both} both have the id {self.id}")
        self.layers[self.id] = self.layer
        self.structure.nodes.append(self.layer)

    def text(self, data: str) -> None:
        if "/".join(self.path) == "net/layers/layer/output/port/dim" and data.strip():
            self.shapes[self.id, self.port].append(_size(data.strip(), self.layer))

    def end(self, _: str) -> None:
        self.path.pop()

    def finish(self) -> ModelStructure:
        for source, layer, _port in self.edges:
            if layer not in self.layers:
                raise ValueError(f"an edge leads to layer {layer}, which does not exist")
            self.layers[layer].inputs.append(source)
        for (layer, _port), shape in self.shapes.items():
            node = self.layers[layer]
            if len(node.outputs) == 1 and shape:
                self.structure.outputs[node.name] = tuple(shape)
        return self.structure


def _size(text: str, layer: NodeStructure) -> int:
    """Return a size; -1 for an open one or an interval such as `1..8`."""
    if text == "?" or ".." in text:
        return -1
    try:
        size = int(text)
    except ValueError:
        raise ValueError(f"{layer.label} has the size `{text[:40]}`") from None
    if not -1 <= size < 1 << 62:
        raise ValueError(f"{layer.label} has the size {text[:40]}; sizes are at least 1 and below 2^62")
    return size


_MOST_FIELDS = 1_000_000  # fields of one message: a graph of a million operators is none
_IR_VERSIONS = (1, 14)  # oldest and newest version of the file format (onnx 1.23, onnx.proto, `enum Version`)
_OPSETS = {"": (1, 28), "ai.onnx": (1, 28), "ai.onnx.ml": (1, 5)}
"""Oldest and newest operator set of each domain (onnx 1.23, Changelog.md)."""
_VARINT, _BYTES = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}  # length of a field by its wire type
_EXTERNAL = 1  # `TensorProto.DataLocation.EXTERNAL`
_TRACE_KEY = "pkg.torch.onnx.stack_trace"  # metadata of a node: the lines that it was exported from


class _Damaged(Exception):
    """Bytes that are no protobuf message."""


class _Field(NamedTuple):
    """A field of a message: an integer, or the span of its bytes."""

    value: int
    start: int
    stop: int


class _Message:
    """A message of `onnx.proto`: its fields by their numbers in that file."""

    def __init__(self, data: mmap.mmap, start: int, stop: int) -> None:
        self.data, self.fields = data, defaultdict[int, list[_Field]](list)
        for number, field_ in _fields(data, start, stop):
            self.fields[number].append(field_)

    def integers(self, number: int) -> list[int]:
        return [part.value for part in self.fields[number]]

    def texts(self, number: int) -> list[str]:
        return [self.data[part.start : part.stop].decode() for part in self.fields[number]]

    def text(self, number: int) -> str:
        """Return the last text of a field; '' if there is none."""
        return ("", *self.texts(number))[-1]

    def messages(self, number: int, *path: int) -> list[_Message]:
        """Return the messages at the end of a path of fields."""
        inner = [_Message(self.data, part.start, part.stop) for part in self.fields[number]]
        return [message for part in inner for message in part.messages(*path)] if path else inner

    def entries(self, number: int) -> dict[str, str]:
        """Return a field of keys with values."""
        return {entry.text(1): entry.text(2) for entry in self.messages(number)}


def read_onnx_structure(path: Path) -> ModelStructure:
    """Read versions, operators, inputs and outputs of an ONNX file.

    Raises
    ------
    ModelFileError
        Where it is truncated or no ONNX file.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _onnx_model(_Message(data, 0, len(data)))
        except OSError as error:
            raise ModelFileError(str(path), f"cannot be read ({error.strerror})", "give it memory") from None
        except (_Damaged, UnicodeDecodeError):
            problem = "cannot be read as a model: it is truncated, damaged or no ONNX file"
            raise ModelFileError(str(path), problem, "export or copy it again") from None


def _onnx_model(model: _Message) -> ModelStructure:
    structure = ModelStructure()
    for version in model.integers(1):
        structure.versions["version of the ONNX format"] = (version, *_IR_VERSIONS)
    for opset in model.messages(8):
        domain, versions = opset.text(1), (0, *opset.integers(2))
        if domain in _OPSETS:
            label = f"operator set{f' of {domain}' if domain else ''}"
            structure.versions[label] = (versions[-1], *_OPSETS[domain])
    graphs = model.messages(7)
    if not graphs:
        raise _Damaged
    for graph in graphs:
        structure.nodes += map(_onnx_node, graph.messages(1))
        structure.inputs |= map(_onnx_value, graph.messages(11))
        structure.outputs |= {name: shape for name, shape in map(_onnx_value, graph.messages(12)) if shape}
        # The values of a sparse constant have its name.
        for tensor in (*graph.messages(5), *graph.messages(15, 1)):
            structure.constants.add(tensor.text(8))
            if _EXTERNAL in tensor.integers(14)[-1:]:
                structure.external.append(_external_tensor(tensor))
    return structure


def _onnx_node(node: _Message) -> NodeStructure:
    origin = node.entries(9).get(_TRACE_KEY) or next(filter(None, node.texts(6)), "")
    return NodeStructure(node.text(3), node.text(4), node.text(7), node.texts(1), node.texts(2), origin)


def _onnx_value(info: _Message) -> tuple[str, tuple[int, ...]]:
    """Return name and shape of a `ValueInfoProto`; no shape where it is no tensor, or of unknown rank."""
    return info.text(1), tuple((-1, *size.integers(1))[-1] for size in info.messages(2, 1, 2, 1))


def _external_tensor(tensor: _Message) -> ExternalTensor:
    entries = tensor.entries(13)
    try:
        offset, length = (int(entries.get(key, 0)) for key in ("offset", "length"))
    except ValueError:
        raise _Damaged from None
    return ExternalTensor(tensor.text(8), entries.get("location", ""), offset, length)


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[tuple[int, _Field]]:
    """Yield number and content of each field of a message in the protobuf wire format."""
    for _ in range(_MOST_FIELDS + 1):
        if start >= stop:
            return
        key, start = _varint(data, start, stop)
        number, kind = key >> 3, key & 7
        value, length = 0, _FIXED_BYTES.get(kind, 0)
        if kind in (_VARINT, _BYTES):
            value, start = _varint(data, start, stop)
        elif not length:
            raise _Damaged
        if kind == _BYTES:
            value, length = 0, value
        if kind != _VARINT and (number == 0 or start + length > stop):
            raise _Damaged
        yield number, _Field(value - (value >> 63 << 64), start, start + length)
        start += length
    raise _Damaged


def _varint(data: mmap.mmap, start: int, stop: int) -> tuple[int, int]:
    """Return (number, where it ends); it has up to 64 bits, seven in a byte."""
    value = 0
    for place, shift in zip(range(start, stop), range(0, 70, 7), strict=False):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return value & (1 << 64) - 1, place + 1
    raise _Damaged
