"""Structure of an OpenVINO IR by its XML, without its weights."""

from __future__ import annotations

from pathlib import Path
from xml.parsers.expat import ExpatError, ParserCreate

from npusim.errors import ModelFileError
from npusim.frontends.model_structure import ModelStructure, NodeStructure

_VERSIONS = (10, 11)
"""Oldest and newest IR that OpenVINO reads (since 2022)."""
LARGEST_XML = 1 << 30
"""Most bytes of an IR description that are read; the largest language models have some 10 MB."""
_BLOCK, _LONGEST_TAG = 1 << 20, 4 << 20
_DEEPEST = 200
"""Elements within each other; bodies of nested loops need some ten each."""


def read_ir_structure(path: Path) -> ModelStructure:
    """Read version, layers, edges and declared shapes of an IR; bodies of loops are left out.

    Raises
    ------
    ModelFileError
        Where it is no XML, or no IR.
    """
    reader = _Reader()
    parser = ParserCreate()
    parser.buffer_text = True  # else a size at the edge of a block of the file comes in two parts
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.entity
    remedy = "export or copy it again with its .bin file"
    try:
        with path.open("rb") as file:
            # Large blocks: a tag that is not closed is looked through again with each of them.
            while block := file.read(_BLOCK):
                parser.Parse(block, False)
                if file.tell() - parser.CurrentByteIndex > _LONGEST_TAG:
                    raise ValueError(f"a tag of more than {_LONGEST_TAG >> 20} MiB")
            parser.Parse(b"", True)
        return reader.finish()
    except ExpatError as error:
        raise ModelFileError(str(path), f"cannot be read as a model: {error}", remedy) from None
    except (KeyError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ModelFileError(str(path), f"cannot be read as a model: {what}", remedy) from None


class _Reader:
    def __init__(self) -> None:
        self.path: list[str] = []
        self.found = ModelStructure()
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
        if self.path == ["net"]:
            self.found.versions["version of the IR"] = (int(attributes["version"]), *_VERSIONS)
        elif len(self.path) == 1:
            raise ValueError(f"it begins with <{tag}>, an IR with <net>")
        elif self.path == ["net", "layers", "layer"]:
            self._layer(attributes)
        elif self.path == ["net", "layers", "layer", "output", "port"]:
            self.port = attributes["id"]
            self.layer.outputs.append(f"{self.id}:{self.port}")
            self.shapes[self.id, self.port] = []
        elif self.path == ["net", "layers", "layer", "data"] and self.layer.type == "Parameter":
            shape = attributes.get("shape", "")
            sizes = [size.strip() for size in shape.split(",") if size.strip()]
            self.found.inputs[self.layer.name] = tuple(_size(size, self.layer) for size in sizes)
        elif self.path == ["net", "edges", "edge"]:
            source = f"{attributes['from-layer']}:{attributes['from-port']}"
            self.edges.append((source, attributes["to-layer"], attributes["to-port"]))

    def _layer(self, attributes: dict[str, str]) -> None:
        self.id = attributes["id"]
        self.layer = NodeStructure(attributes.get("name", ""), attributes["type"])
        if self.id in self.layers:
            raise ValueError(
                f"{self.layers[self.id].label} and {self.layer.label} both have the id {self.id}"
            )
        self.layers[self.id] = self.layer
        self.found.nodes.append(self.layer)

    def text(self, data: str) -> None:
        if self.path == ["net", "layers", "layer", "output", "port", "dim"] and data.strip():
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
                self.found.outputs[node.name] = tuple(shape)
        return self.found


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
