"""Structure of an ONNX file by its protobuf wire format: no onnx package, no weights."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from npusim.errors import ModelFileError
from npusim.frontends.model_structure import ExternalTensor, ModelStructure, NodeStructure

_MOST_FIELDS = 1_000_000
"""Fields of one message: a graph of a million operators is none."""
_IR_VERSIONS = (1, 14)
"""Oldest and newest version of the file format (onnx 1.23, onnx.proto, `enum Version`)."""
_OPSETS = {"": (1, 28), "ai.onnx": (1, 28), "ai.onnx.ml": (1, 5)}
"""Oldest and newest operator set of each domain (onnx 1.23, Changelog.md)."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1
"""`TensorProto.DataLocation.EXTERNAL`."""
_TRACE_KEY = "pkg.torch.onnx.stack_trace"
"""Metadata of a node with the lines of the module that it was exported from."""


class _Damaged(Exception):
    """Bytes that are no protobuf message."""


class _Field(NamedTuple):
    """A field of a message: its number, and the integer or the span of bytes that it holds."""

    number: int
    value: int
    start: int
    stop: int


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
                return _Reader(data).model()
        except OSError as error:
            raise ModelFileError(str(path), f"cannot be read ({error.strerror})", "give it memory") from None
        except (_Damaged, UnicodeDecodeError):
            raise ModelFileError(
                str(path),
                "cannot be read as a model: it is truncated, damaged or no ONNX file",
                "export or copy it again",
            ) from None


class _Reader:
    """Reads messages of `onnx.proto` from bytes; numbers of fields are those of that file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data

    def model(self) -> ModelStructure:
        found, graphs = ModelStructure(), 0
        for each in self._fields(0, len(self.data)):
            if each.number == 1:
                found.versions["version of the ONNX format"] = (each.value, *_IR_VERSIONS)
            elif each.number == 7:
                graphs += 1
                self._graph(each, found)
            elif each.number == 8:
                parts = list(self._fields(each.start, each.stop))
                domain = next((self._text(f) for f in parts if f.number == 1), "")
                version = next((f.value for f in parts if f.number == 2), 0)
                if domain in _OPSETS:
                    label = f"operator set{f' of {domain}' if domain else ''}"
                    found.versions[label] = (version, *_OPSETS[domain])
        if not graphs:
            raise _Damaged
        return found

    def _graph(self, graph: _Field, found: ModelStructure) -> None:
        for each in self._fields(graph.start, graph.stop):
            if each.number == 1:
                found.nodes.append(self._node(each))
            elif each.number == 5:
                self._tensor(each, found)
            elif each.number == 11:
                name, shape = self._value(each)
                found.inputs[name] = shape
            elif each.number == 12:
                name, shape = self._value(each)
                if shape:
                    found.outputs[name] = shape
            elif each.number == 15:  # a sparse constant: its values have the name
                for part in self._fields(each.start, each.stop):
                    if part.number == 1:
                        self._tensor(part, found)

    def _node(self, node: _Field) -> NodeStructure:
        made = NodeStructure("", "")
        for each in self._fields(node.start, node.stop):
            if each.number == 1:
                made.inputs.append(self._text(each))
            elif each.number == 2:
                made.outputs.append(self._text(each))
            elif each.number == 3:
                made.name = self._text(each)
            elif each.number == 4:
                made.type = self._text(each)
            elif each.number == 7:
                made.domain = self._text(each)
            elif each.number == 6:
                made.origin = made.origin or self._text(each)
            elif each.number == 9:
                key, value = self._pair(each)
                made.origin = value if key == _TRACE_KEY else made.origin
        return made

    def _tensor(self, tensor: _Field, found: ModelStructure) -> None:
        name, location, entries = "", 0, {}
        for each in self._fields(tensor.start, tensor.stop):
            if each.number == 8:
                name = self._text(each)
            elif each.number == 14:
                location = each.value
            elif each.number == 13:
                key, value = self._pair(each)
                entries[key] = value
        found.constants.add(name)
        if location == _EXTERNAL:
            try:
                offset, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
            except ValueError:
                raise _Damaged from None
            found.external.append(ExternalTensor(name, entries.get("location", ""), offset, length))

    def _value(self, info: _Field) -> tuple[str, tuple[int, ...]]:
        """Name and shape of a `ValueInfoProto`; no shape where it is no tensor, or of unknown rank."""
        name, shape = "", []
        for each in self._fields(info.start, info.stop):
            if each.number == 1:
                name = self._text(each)
            elif each.number == 2:
                for size in self._nested(each, 1, 2, 1):
                    written = [f.value for f in self._fields(size.start, size.stop) if f.number == 1]
                    shape.append(written[-1] if written else -1)
        return name, tuple(shape)

    def _nested(self, outer: _Field, *numbers: int) -> Iterator[_Field]:
        """Yield the fields at the end of a path of field numbers."""
        for each in self._fields(outer.start, outer.stop):
            if each.number == numbers[0]:
                yield from self._nested(each, *numbers[1:]) if len(numbers) > 1 else (each,)

    def _pair(self, entry: _Field) -> tuple[str, str]:
        parts = {f.number: self._text(f) for f in self._fields(entry.start, entry.stop)}
        return parts.get(1, ""), parts.get(2, "")

    def _text(self, each: _Field) -> str:
        return self.data[each.start : each.stop].decode()

    def _fields(self, start: int, stop: int) -> Iterator[_Field]:
        for _ in range(_MOST_FIELDS + 1):
            if start >= stop:
                return
            key, start = self._varint(start, stop)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value, start = self._varint(start, stop)
                yield _Field(number, value - (value >> 63 << 64), start, start)
                continue
            if kind == _BYTES:
                length, start = self._varint(start, stop)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            else:
                raise _Damaged
            if number == 0 or start + length > stop:
                raise _Damaged
            yield _Field(number, 0, start, start + length)
            start += length
        raise _Damaged

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """Return (number, where it ends); it has up to 64 bits, seven in a byte."""
        value = 0
        for shift in range(0, 70, 7):
            if at >= stop:
                raise _Damaged
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1, at
        raise _Damaged
