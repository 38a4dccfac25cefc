"""What an ONNX or IR file says of itself, and contradictions in it that are refused.

OpenVINO's readers accept some contradictions (two operators that write one tensor, unknown versions) and name
others badly (a cycle). No weight is looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from npusim.errors import ModelFileError, shown

_CYCLE_SHOWN = 6
"""Operators of a cycle that a message names."""


@dataclass(slots=True)
class NodeStructure:
    """One operator as the file has it."""

    name: str
    type: str
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    """Names of tensors; '' for an operand that is left out."""
    outputs: list[str] = field(default_factory=list)
    origin: str = ""
    """Stack trace of the module that it was exported from, where the exporter wrote one."""

    @property
    def label(self) -> str:
        """The operator in a message."""
        kind = f"{self.domain}.{self.type}" if self.domain else self.type
        return f"operator {shown(self.name or (self.outputs or ['?'])[0])} ({kind})"


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """A constant whose bytes lie in another file."""

    name: str
    location: str
    """Path of that file as the model gives it, relative to the model's folder."""
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
    """Shape of each input as far as it is written; -1 for an open size."""
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The same of what operators are said to return."""
    external: list[ExternalTensor] = field(default_factory=list)

    def check(self, path: Path) -> None:
        """Raise a `ModelFileError` for the first thing that cannot be."""
        for problem, remedy in self._problems(path.parent):
            raise ModelFileError(str(path), problem, remedy)

    def _problems(self, folder: Path) -> Iterator[tuple[str, str]]:
        for what, (found, oldest, newest) in self.versions.items():
            if not oldest <= found <= newest:
                yield f"its {what} is {found}", f"known are {oldest} to {newest}: export it for one of these"
        for name, shape in self.inputs.items():
            if any(size < -1 for size in shape):
                yield (
                    f"input {shown(name)} has the shape {list(shape)}",
                    "sizes are at least 1; -1 stands for one that --shape gives",
                )
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
                    yield (
                        f"{node.label} reads {shown(tensor)}, which is neither input, constant nor result",
                        "export the model again",
                    )
        cycle = _cycle(self.nodes, writer)
        if cycle:
            yield f"its operators are a cycle: {cycle}", "a model is a graph without cycles"
        for tensor_ in self.external:
            problem = _external_problem(tensor_, folder)
            if problem:
                place = f"constant {shown(tensor_.name)}: its data in {shown(tensor_.location)} {problem}"
                yield place, f"it has to lie in {folder}, complete, beside the model"

    def declared(self, made: Mapping[str, tuple[int, ...]]) -> str:
        """Say which result has another shape than the file declares, '' where none has."""
        for name, shape in self.outputs.items():
            real = made.get(name)
            fits = real is None or (
                len(real) == len(shape) and all(a in (-1, b) for a, b in zip(shape, real, strict=True))
            )
            if not fits:
                made_ = list(real or ())
                return f"result {shown(name)} is declared {list(shape)}, but its operator makes {made_}"
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
