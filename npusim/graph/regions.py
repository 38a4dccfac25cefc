"""Regions of a network: the block that an operator belongs to, and the phase of its work there.

A block comes from names: the region that a builder set, or the module path in an imported model. A phase is
known from structure first (what follows from the edges alone, products with weights or the adjacency), then
from names, then from the operators before and after. The phases are GraNNite's (section III, Figs. 3 to 5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from npusim.ops import Family, Operator, Role, TensorKind, WorkClass

if TYPE_CHECKING:
    from npusim.graph.graph import Graph

PREPROCESS = "preprocess"
"""Block of preprocessing that several blocks share."""


class Phase(StrEnum):
    """What an operator does for its block."""

    PREPROCESSING = "preprocessing"  # follows from the edges, or an attention mask, alone
    ATTENTION = "attention"  # scores of pairs of nodes, pixels or tokens, and their softmax
    AGGREGATION = "aggregation"  # sums, means and maxima over neighbours, or over tokens by their scores
    COMBINATION = "combination"  # products with weights, their biases, and sums or joins of them
    ACTIVATION = "activation"  # elementwise work and normalisation behind them
    OTHER = "other"  # data that is moved, joined, pooled or resized between them


@dataclass(frozen=True, slots=True)
class Region:
    """Where an operator belongs."""

    block: str
    """Block of the network, such as "layer0" or "convs.1"; without a name the operator's family."""
    phase: Phase


_JOINTS = re.compile(r"[/.]")
_OWN = re.compile(r"^(aten|prim|quantized)::")
_NUMBERED = re.compile(r"\d$")
_STACKED = re.compile(r"(^|[/.])blocks?[/.]?\d+(?=$|[/.])")
_SAID = {
    "aggregate": Phase.AGGREGATION,
    "aggregation": Phase.AGGREGATION,
    "aggr_module": Phase.AGGREGATION,
    "attention": Phase.ATTENTION,
    "self_attn": Phase.ATTENTION,
    "attn": Phase.ATTENTION,
    "combine": Phase.COMBINATION,
    "activation": Phase.ACTIVATION,
    "readout": Phase.ACTIVATION,
}
_EDGE_ROLES = frozenset({Role.EDGES, Role.ADJACENCY, Role.NORM, Role.MASK})


def module_path(name: str) -> str:
    """Return the part of a node's name that says where in a model it stands; empty where it says nothing.

    Examples
    --------
    >>> module_path("__module.convs.0.lin/aten::linear/MatMul"), module_path("/conv1/lin/MatMul")
    ('convs.0.lin', 'conv1/lin')
    >>> module_path("MatMul_12")
    ''
    """
    parts = [part for part in name.split("/")[:-1] if part and not _OWN.match(part)]
    return "/".join(parts).removeprefix("__module").removeprefix(".")


def block_of(path: str) -> str:
    """Return the block of a region: the path up to its first numbered part, or to the last `block<n>`.

    Examples
    --------
    >>> block_of("layer1.0.conv1"), block_of("layers/3/self_attn/q_proj"), block_of("stage0/block2/expand")
    ('layer1.0', 'layers/3', 'stage0/block2')
    >>> block_of("conv1.nn.0"), block_of("head/classes")
    ('conv1', 'head/classes')
    """
    stacked = list(_STACKED.finditer(path))
    if stacked:
        return path[: stacked[-1].end()]
    ends = [match.start() for match in _JOINTS.finditer(path)] + [len(path)]
    begins = [0, *(end + 1 for end in ends)]
    end_of_block = 0
    for begin, end in zip(begins, ends, strict=False):
        part = path[begin:end]
        if end_of_block and not part.isdigit():
            break
        if end_of_block or _NUMBERED.search(part):
            end_of_block = end
    return path[:end_of_block] if end_of_block else path


def preprocessing(graph: Graph) -> frozenset[str]:
    """Return the operators that follow from the edges alone, except conditions of the GNN's Selects.

    GraNNite counts such a Greater among the GNN's operators (Fig. 5); handing its result over saves nothing.
    """
    structural = graph.structural
    names = set()
    for op in graph:
        read_by = {reader.family for reader in graph.readers(op.outputs[0])}
        is_condition = op.family is Family.COMPARE and read_by == {Family.SELECT}
        if structural.issuperset(op.outputs) and not is_condition:
            names.add(op.name)
    return frozenset(names)


def regions(graph: Graph) -> Mapping[str, Region]:
    """Return block and phase of each operator, by its name."""
    phases = _Phases(graph).phases
    blocks = _blocks(graph, phases)
    return {op.name: Region(blocks[op.name], phases[op.name]) for op in graph}


def _blocks(graph: Graph, phases: Mapping[str, Phase]) -> dict[str, str]:
    """Return each operator's block; without a region, the block of its inputs or of its readers."""
    shared = _common([op.region for op in graph if op.region])
    blocks = {op.name: block_of(op.region[shared:]) for op in graph if op.region}
    order = list(graph)
    number = {op.name: i for i, op in enumerate(order)}
    before = Phase.PREPROCESSING
    for op in order:
        if op.name not in blocks:
            writers = [w for w in map(graph.writer, op.inputs) if w is not None and w.name in blocks]
            own = [w for w in writers if phases[w.name] is not before or phases[op.name] is before]
            if own:
                blocks[op.name] = blocks[max(own, key=lambda w: number[w.name]).name]
    for op in reversed(order):
        readers = [r.name for name in op.outputs for r in graph.readers(name)]
        if op.name not in blocks:
            named = next((blocks[name] for name in readers if name in blocks), "")
            blocks[op.name] = named or op.family.value
        if phases[op.name] is before and {blocks[name] for name in readers} - {blocks[op.name]}:
            blocks[op.name] = PREPROCESS
    return blocks


def _common(paths: Sequence[str]) -> int:
    """Return how many characters at the beginning of all paths to leave out: a numbered name of the whole."""
    count, first = 0, paths[0] if paths else ""
    for match in _JOINTS.finditer(first):
        if not all(path.startswith(first[: match.end()]) for path in paths):
            break
        left = [path[match.end() :] for path in paths]
        are_numbered = any(_NUMBERED.search(block_of(path)) for path in left)
        if _NUMBERED.search(first[: match.start()]) and are_numbered:
            count = match.end()
    return count


class _Phases:
    """Phases of a graph's operators, from a few passes over them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edges = self._edge_facts()
        self.attention = self._attention()
        before = preprocessing(graph)
        self.phases: dict[str, Phase] = {}
        for op in graph:
            phase = Phase.PREPROCESSING if op.name in before else self._phase(op)
            if phase is not None:
                self.phases[op.name] = phase
        for op in reversed(list(graph)):  # constant inputs alone, or layout for a reader
            if op.name not in self.phases:
                readers = [r.name for name in op.outputs for r in graph.readers(name)]
                self.phases[op.name] = next((self.phases[name] for name in readers), Phase.OTHER)

    def _edge_facts(self) -> frozenset[str]:
        """Return the tensors that follow from the edges: inputs, prepared constants and computed tensors."""
        edges = {
            t.name
            for t in self.graph.tensors.values()
            if t.structural or (t.kind is not TensorKind.ACTIVATION and t.role in _EDGE_ROLES)
        }
        for op in self.graph:
            others = [t for t in op.inputs if t not in edges]
            if len(others) < len(op.inputs) and all(map(self._constant, others)):
                edges.update(op.outputs)
        return frozenset(edges)

    def _constant(self, name: str) -> bool:
        return self.graph.tensors[name].kind is TensorKind.CONSTANT

    def _features(self, op: Operator) -> list[str]:
        """Operands that features flow through."""
        return [name for name in op.inputs if name not in self.edges and not self._constant(name)]

    def _is_weighted(self, op: Operator) -> bool:
        """Whether it multiplies features with weights, to more than a score for each row."""
        if op.family.work_class is not WorkClass.CONTRACTION:
            return False
        weights = [name for name in op.inputs if self._constant(name) and name not in self.edges]
        return bool(weights) and self.graph.tensors[op.outputs[0]].shape[-1:] != (1,)

    def _attention(self) -> frozenset[str]:
        """Return the operators that lead to an attention softmax alone, or depend on it alone."""
        behind: set[str] = set()
        for op in self.graph:
            if (op.family is Family.SOFTMAX or op.type == "Exp") and op.name not in behind:
                behind |= self._weights_behind(op)
        attention = set(behind)
        for op in reversed(list(self.graph)):
            readers = [r.name for name in op.outputs for r in self.graph.readers(name)]
            combines = self._is_weighted(op) or self._is_bias(op)
            if readers and attention.issuperset(readers) and not combines:
                attention.add(op.name)
        return frozenset(attention)

    def _weights_behind(self, start: Operator) -> set[str]:
        """Return a softmax (or the exponential of one) with the operators that depend on it alone.

        The set is empty where the result weighs no features: a readout, a gate.
        """
        operators, tensors, weighs = {start.name}, set(start.outputs), False
        waiting = [r for name in start.outputs for r in self.graph.readers(name)]
        while waiting:
            op = waiting.pop()
            if op.name in operators or self._is_weighted(op):
                continue
            features = self._features(op)
            if tensors.issuperset(features):
                operators.add(op.name)
                tensors.update(op.outputs)
                waiting += [r for name in op.outputs for r in self.graph.readers(name)]
            elif any(self._is_apart(name, tensors) for name in features if name not in tensors):
                later = [r.family for name in op.outputs for r in self.graph.readers(name)]
                weighs |= op.family in (Family.MATMUL, Family.AGGREGATE)
                weighs |= op.type == "Multiply" and Family.SCATTER in later
        return operators if weighs else set()

    def _is_apart(self, name: str, tensors: set[str]) -> bool:
        """Whether the operator that writes a tensor reads none of these tensors."""
        writer = self.graph.writer(name)
        return writer is None or not tensors.intersection(writer.inputs)

    def _is_bias(self, op: Operator) -> bool:
        """Whether it adds a constant to a product with weights."""
        writers = [w for w in map(self.graph.writer, self._features(op)) if w is not None]
        adds_two = op.type == "Add" and len(op.inputs) == 2
        return adds_two and len(writers) == 1 and self._is_weighted(writers[0])

    def _phase(self, op: Operator) -> Phase | None:
        """Return the phase of an operator after its writers; None: the phase of its reader holds."""
        features = self._features(op)
        if not features:
            return None
        if op.family is Family.AGGREGATE:
            return Phase.AGGREGATION
        if self._is_weighted(op):
            return Phase.COMBINATION
        if op.family is Family.MATMUL and self.edges.intersection(op.inputs):
            return Phase.AGGREGATION
        said = _SAID.get(_JOINTS.split(op.region)[-1].lower())
        if said is not None:
            return said
        if op.name in self.attention:
            return Phase.ATTENTION
        from_edges = any(name in self.edges for name in op.inputs)
        match op.family.work_class:
            case WorkClass.CONTRACTION:
                return self._product(op)
            case WorkClass.INDEXED:
                return self._indexed(op)
            case WorkClass.COMPOSITE | WorkClass.UNKNOWN:
                return self._composite(op)
        if from_edges:
            return Phase.AGGREGATION
        return self._continued(op, features)

    def _product(self, op: Operator) -> Phase:
        """Return the phase of a product of two activations, or with a vector of weights."""
        if any(self._constant(name) for name in op.inputs):
            return Phase.COMBINATION
        writers = [w.name for w in map(self.graph.writer, op.inputs) if w is not None]
        return Phase.AGGREGATION if self.attention.intersection(writers) else Phase.ATTENTION

    def _indexed(self, op: Operator) -> Phase:
        """Return the phase of a Gather or Scatter: aggregation, except of one row or a table of weights."""
        of_weights = op.family is Family.GATHER and self._constant(op.inputs[0])
        rows = max((self.graph.tensors[name].elements for name in op.inputs[1:2]), default=1)
        return Phase.OTHER if of_weights or rows == 1 else Phase.AGGREGATION

    def _composite(self, op: Operator) -> Phase:
        if self.graph.work(op).macs <= 0.0:
            return Phase.OTHER
        return Phase.COMBINATION if any(map(self._constant, op.inputs)) else Phase.ATTENTION

    def _continued(self, op: Operator, features: Sequence[str]) -> Phase | None:
        """Return the phase of an operator that follows others: theirs, or its own."""
        writers = [w.name for w in map(self.graph.writer, features) if w is not None]
        before = [self.phases[name] for name in writers if name in self.phases]
        summing, combining = Phase.AGGREGATION, Phase.COMBINATION
        own = {WorkClass.POINTWISE: Phase.ACTIVATION, WorkClass.ROW_WISE: Phase.ACTIVATION}
        kind = op.family.work_class
        if op.family in (Family.ACTIVATION, Family.SOFTMAX):
            return Phase.ACTIVATION
        if len(features) > 1 and kind is WorkClass.POINTWISE:
            if before and set(before) <= {summing, combining}:
                return combining if combining in before else summing
            return summing if summing in before and combining not in before else Phase.ACTIVATION
        if not before:
            return None
        if op.type == "Concat" and self.edges and combining in before and set(before) <= {summing, combining}:
            return combining  # a layer's branches side by side, where others are added up
        if kind is WorkClass.STATE or (kind is WorkClass.POINTWISE and len(op.inputs) <= 2):
            return before[0]
        return summing if before[0] is summing else own.get(kind, Phase.OTHER)
