"""Graph: operators and tensors as one immutable directed acyclic graph, with its queries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from npusim.errors import EmptyGraphError, GraphError
from npusim.graph.regions import Region, regions
from npusim.ops import OPERATORS, DType, Family, Operator, Role, Tensor, TensorKind, Work, WorkClass
from npusim.ops.formats import Formats

if TYPE_CHECKING:
    import networkx as nx


Array = npt.NDArray[Any]
Packed = tuple[str, str, tuple[int, ...], bytes]
"""Name, type, shape and bytes of an array."""


class KnownValues(dict[str, Array]):
    """Arrays by tensor, such as the node numbers that a layer gathers; equal arrays are one object.

    Whole numbers have 32 bits. Equality and `repr` go by a digest of the values, and a pickle holds bytes.
    """

    def __init__(self, arrays: Mapping[str, Array] | Iterable[Packed] = ()) -> None:
        if not isinstance(arrays, Mapping):
            arrays = {name: np.frombuffer(raw, kind).reshape(shape) for name, kind, shape, raw in arrays}
        equal: dict[tuple[str, tuple[int, ...], bytes], Array] = {}
        digest = hashlib.sha256()
        for name, array in sorted(arrays.items()):
            held = np.ascontiguousarray(array, np.int32 if array.dtype == np.int64 else array.dtype)
            key = (held.dtype.str, array.shape, hashlib.sha256(held.tobytes()).digest())
            self[name] = equal.setdefault(key, held.reshape(array.shape))
            digest.update(repr((name, key)).encode())
        self.digest = digest.hexdigest()[:16]

    @property
    def elements(self) -> int:
        """Numbers of all arrays, equal ones once."""
        return sum({id(array): array.size for array in self.values()}.values())

    def __repr__(self) -> str:
        return f"KnownValues({self.digest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownValues) and self.digest == other.digest

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownValues, ([(name, a.dtype.str, a.shape, a.tobytes()) for name, a in self.items()],)


@dataclass(frozen=True, slots=True)
class GraphStructure:
    """Statistics of one data graph; edges are undirected, deduplicated, without self-loops."""

    name: str
    nodes: int
    edges: int
    """Directed edges without self-loops: each undirected edge counts twice."""
    features: int
    classes: int
    feature_density: float = 1.0
    feature_block_density: Mapping[int, float] = field(default_factory=dict)
    """Share of b x b blocks of the feature matrix that hold a non-zero, by block edge b."""
    adjacency_block_density: Mapping[int, float] = field(default_factory=dict)
    """Share of b x b blocks of the adjacency matrix with self-loops that hold a non-zero, by block edge b."""
    degree_histogram: tuple[int, ...] = ()
    """Nodes with degree 0, 1, 2, ... (without the self-loop)."""
    source: str = ""
    test_share: float | None = None
    """Share of the nodes that are classified."""
    test_degree_ratio: float = 1.0
    """Mean degree of the classified nodes over the mean degree."""
    unvisited_neighbours: float | None = None
    """Neighbours of a target node without stored hidden features, where batches store them."""
    training_neighbours: float | None = None
    """Share of a node's neighbours that are training or validation nodes."""

    @property
    def nonzeros(self) -> int:
        """Non-zeros of the adjacency matrix with self-loops."""
        return self.edges + self.nodes

    def adjacency_density(self, capacity: int | None = None) -> float:
        """Density of the adjacency matrix with self-loops, padded with empty rows to `capacity` nodes."""
        n = capacity if capacity is not None else self.nodes
        return min(1.0, self.nonzeros / (n * n)) if n else 0.0  # edges may be double

    def padded_block_density(self, block: int, capacity: int | None = None) -> float | None:
        """Share of non-empty blocks of edge `block` of the padded adjacency; None if not counted."""
        known = self.adjacency_block_density.get(block)
        if known is None:
            return None
        n = capacity if capacity is not None else self.nodes
        blocks, padded = -(-self.nodes // block), -(-n // block)
        return known * (blocks * blocks) / (padded * padded)


@dataclass(frozen=True, slots=True)
class GraphMeta:
    """What is known of a network apart from its operators: how it was built, what techniques changed."""

    model: str = ""
    """Model family, such as "gcn"; the operator of a benchmark."""
    form: str = ""
    """Form it is written in: "edges", "dense", "gathered", "csr"; "benchmark", "imported"."""
    dataset: str = ""
    precision: DType | None = None
    """Format of its products."""
    source_precision: DType | None = None
    """Widest floating-point format of the model file that it was imported from."""
    neighbours: int | None = None
    sampled_edges: int | None = None
    """Edges of the sampled data graph."""
    notes: tuple[str, ...] = ()
    """What an import took for granted."""
    prompt_tokens: int | None = None
    """Tokens of a language model's prompt."""
    new_tokens: int | None = None
    """Tokens that an inference of a language model takes in."""
    dynamic_shapes: bool = False
    """Whether sizes follow from the data of each inference; the graph has the sizes of one inference."""
    capacity: int | None = None
    """Nodes that it is compiled for, where that is more than the data graph has."""
    formats: Formats = field(default_factory=Formats)
    """Formats and zeros that operands of products get behind all techniques."""
    chunks: int = 1
    """Parts that an imported network is divided into behind all techniques."""
    npu_forms: tuple[str, ...] = ()
    """Forms in which an NPU can run it, where it has a form that none can."""
    known: KnownValues = field(default_factory=KnownValues)
    """Values of tensors that follow from the edges of the example inputs; empty where none came along."""


_Named = TypeVar("_Named", Tensor, Operator)


class Graph:
    """An immutable operator graph.

    Parameters
    ----------
    tensors : iterable of Tensor
        Every tensor, inputs and constants too.
    operators : iterable of Operator
        Every operator, in any order.
    outputs : iterable of str
        Names of the tensors that the network returns.
    structure : GraphStructure, optional
        Statistics of the data graph; None where the network runs on none.
    techniques : str
        The canonical technique stack that was applied.
    prepared : mapping of str to Graph or array, optional
        By tensor that a technique put in place of operators, its value, or a graph that computes it (first
        output).

    Raises
    ------
    GraphError
        When names clash, an operator reads or writes an unknown tensor, two operators write one tensor, a
        tensor has no writer, there is a cycle or no operator, or an Assign writes what is no state of its
        shape.
    """

    def __init__(
        self,
        name: str,
        tensors: Iterable[Tensor],
        operators: Iterable[Operator],
        outputs: Iterable[str],
        *,
        structure: GraphStructure | None = None,
        techniques: str = "none",
        meta: GraphMeta | None = None,
        prepared: Mapping[str, Graph | Array] | None = None,
    ) -> None:
        self.name = name
        self.tensors: Mapping[str, Tensor] = MappingProxyType(_by_name("tensor", name, tensors))
        by_name = _by_name("operator", name, operators)
        if not by_name:
            raise EmptyGraphError(name)
        self.outputs = tuple(outputs)
        self.structure = structure
        self.techniques = techniques
        self.meta = meta if meta is not None else GraphMeta()
        self.prepared: Mapping[str, Graph | Array] = MappingProxyType(dict(prepared or {}))
        self._writer = _writers(name, by_name.values(), self.tensors)
        self._check(by_name.values())
        self.operators: Mapping[str, Operator] = MappingProxyType(self._sorted(by_name))

    def _check(self, operators: Iterable[Operator]) -> None:
        for op in operators:
            for name in op.inputs:
                if name not in self.tensors:
                    raise self._error(f"operator {op.name!r} reads unknown tensor {name!r}")
            if op.type == "Assign":
                self._check_state(op)
        for tensor in self.tensors.values():
            if tensor.kind is TensorKind.ACTIVATION and tensor.name not in self._writer:
                unwritten = f"tensor {tensor.name!r} is neither input nor constant"
                raise self._error(f"{unwritten}, and nothing writes it")
        for output in self.outputs:
            if output not in self.tensors:
                raise self._error(f"output {output!r} is no tensor of it")

    def _error(self, problem: str) -> GraphError:
        return GraphError(f"graph {self.name!r}: {problem}")

    def _check_state(self, op: Operator) -> None:
        state = self.tensors.get(op.attrs.get("variable", ""))
        if state is None or state.kind is not TensorKind.STATE:
            raise self._error(f"operator {op.name!r} writes what is no state of it")
        shape = self.tensors[op.inputs[0]].shape
        if shape != state.shape and not self.meta.dynamic_shapes:
            target = f"the state {state.name!r} of shape {state.shape}"
            raise self._error(f"operator {op.name!r} writes {shape} to {target}")

    def _sorted(self, operators: dict[str, Operator]) -> dict[str, Operator]:
        """Sort by depth, then name: an order that does not depend on the order of arrival."""
        producers = {
            op.name: [self._writer[t] for t in op.inputs if t in self._writer] for op in operators.values()
        }
        sorter, order = TopologicalSorter(producers), dict[str, Operator]()
        try:
            sorter.prepare()
        except CycleError as error:
            cycle = " -> ".join(error.args[1][:-1])
            raise GraphError(f"graph {self.name!r} has a cycle: {cycle}") from None
        while sorter.is_active():
            layer = sorted(sorter.get_ready())
            order |= {name: operators[name] for name in layer}
            sorter.done(*layer)
        return order

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return the graph for networkx's algorithms, drawings and exchange formats.

        Nodes are operators by name (`kind` "operator") and inputs, constants and states (`kind` as of the
        tensor); an edge leads from a node to each reader of its result. Attributes are text and numbers.

        Examples
        --------
        >>> import networkx as nx
        >>> from npusim.workloads import load_workload
        >>> nx.dag_longest_path_length(load_workload("gcn-cora").to_networkx())
        17
        """
        import networkx as nx  # slow to import

        view: nx.DiGraph[str] = nx.DiGraph(name=self.name, techniques=self.techniques)
        source: dict[str, str] = {}

        def described(name: str) -> str:
            return f"{list(self.tensors[name].shape)} {self.tensors[name].dtype.value}"

        for name, tensor in self.tensors.items():
            if name not in self._writer:
                source[name] = f"{name} tensor" if name in self.operators else name
                view.add_node(source[name], kind=tensor.kind.value, tensor=described(name))
        for op in self:
            fields = {"type": op.type, "region": op.region, "device": op.device or ""}
            result = described(op.outputs[0])
            view.add_node(op.name, kind="operator", tensor=result, macs=self.macs_of(op), **fields)
            source.update(dict.fromkeys(op.outputs, op.name))
            for name in op.inputs:
                view.add_edge(source[name], op.name, tensor=name, bytes=self.tensors[name].bytes)
        return view

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Parts that are compiled and launched one by one, in order; an undivided network has one, unnamed.

        Raises
        ------
        GraphError
            Where parts need each other's results.
        """
        needs: dict[str, set[str]] = {}
        for op in self:
            writers = {self.operators[self._writer[t]].part for t in op.inputs if t in self._writer}
            needs.setdefault(op.part, set()).update(writers - {op.part})
        try:
            return tuple(TopologicalSorter(needs).static_order())
        except CycleError as error:
            cycle = " -> ".join(error.args[1][:-1])
            raise self._error(f"parts that need each other's results: {cycle}") from None

    @cached_property
    def passed_between_parts(self) -> frozenset[str]:
        """Tensors that one part writes and another reads: they pass through DRAM."""
        if len(self.parts) == 1:
            return frozenset()
        reads = [(t, op.part) for op in self for t in op.inputs if t in self._writer]
        return frozenset(t for t, part in reads if self.operators[self._writer[t]].part != part)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.name, [*self.tensors.values()], [*self.operators.values()], self.outputs)
        fields: dict[str, Any] = {name: getattr(self, name) for name in ("structure", "techniques", "meta")}
        return partial(Graph, **fields, prepared=dict(self.prepared)), parts

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over everything that the graph says."""
        text = repr((self.__reduce__()[1], self.structure, self.techniques, self.meta))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[Operator]:
        """Yield the operators, producers before consumers; `graph.operators` has them by name."""
        return iter(self.operators.values())

    def __len__(self) -> int:
        return len(self.operators)

    def __repr__(self) -> str:
        work = f"{len(self)} operators, {self.macs / 1e6:.1f} MMAC"
        return f"Graph({self.name!r}, {work}, techniques={self.techniques!r})"

    def writer(self, tensor: str) -> Operator | None:
        """Return the operator that writes a tensor, or None for an input or a constant."""
        name = self._writer.get(tensor)
        return None if name is None else self.operators[name]

    def made_by(self, tensor: str, *kinds: str) -> Operator | None:
        """Return the operator that writes a tensor, where its type or family is one of some."""
        writer = self.writer(tensor)
        return writer if writer is not None and {writer.type, writer.family}.intersection(kinds) else None

    def behind(self, *tensors: str) -> dict[str, Operator]:
        """Return the operators that tensors depend on, by name."""
        behind, waiting = dict[str, Operator](), list(tensors)
        while waiting:
            op = self.writer(waiting.pop())
            if op is not None and op.name not in behind:
                behind[op.name] = op
                waiting.extend(op.inputs)
        return behind

    @cached_property
    def _readers(self) -> Mapping[str, tuple[Operator, ...]]:
        readers: dict[str, list[Operator]] = {}
        for op in self:
            for tensor in dict.fromkeys(op.inputs):
                readers.setdefault(tensor, []).append(op)
        return {tensor: tuple(ops) for tensor, ops in readers.items()}

    def readers(self, tensor: str) -> tuple[Operator, ...]:
        """Return the operators that read a tensor, producers before consumers."""
        return self._readers.get(tensor, ())

    def inputs_of(self, op: Operator) -> tuple[Tensor, ...]:
        """Return the tensors that an operator reads."""
        return tuple(self.tensors[t] for t in op.inputs)

    def outputs_of(self, op: Operator) -> tuple[Tensor, ...]:
        """Return the tensors that an operator writes."""
        return tuple(self.tensors[t] for t in op.outputs)

    def work(self, op: Operator) -> Work:
        """Return the amount of work of an operator (see `npusim.ops.operator`)."""
        with OPERATORS.blamed(op.type, f"operator type {op.type} cannot count the work of {op.name!r}"):
            return op.traits.work(op, self.inputs_of(op), self.outputs_of(op))

    def macs_of(self, op: Operator) -> float:
        """Return the multiply-accumulates of an operator in one inference; zeros count as work."""
        return op.repeats * self.work(op).macs

    def precision_of(self, op: Operator) -> str:
        """Return the format that an operator computes in, of a product of two formats both: "fp16 x int4"."""
        tensors = self.inputs_of(op) or self.outputs_of(op)
        count = 2 if op.traits.work_class is WorkClass.CONTRACTION else 1
        return " x ".join(dict.fromkeys(tensor.dtype.value for tensor in tensors[:count]))

    @property
    def precision(self) -> str:
        """Formats of its products, most work first; without products, formats of its operators."""
        work: dict[str, float] = {}
        for op in self:
            if op.family is not Family.VIEW:
                name = self.precision_of(op)
                work[name] = work.get(name, 0.0) + self.macs_of(op)
        products = {name: macs for name, macs in work.items() if macs} or work
        return ", ".join(sorted(products, key=lambda name: (-products[name], name)))

    def bytes(self, op: Operator) -> float:
        """Return the bytes that an operator reads and writes, every tensor dense and once."""
        names = dict.fromkeys((*op.inputs, *op.outputs))
        return sum(self.tensors[t].bytes for t in names)

    @property
    def macs(self) -> float:
        """Multiply-accumulates of one inference, zeros counted as work."""
        return sum(self.macs_of(op) for op in self)

    @cached_property
    def state_results(self) -> frozenset[str]:
        """Outputs that are written back to states, not returned to the caller."""
        return frozenset(t for op in self if op.type == "Assign" for t in op.outputs)

    def with_role(self, role: Role) -> tuple[Tensor, ...]:
        """Return the tensors of one role."""
        return tuple(t for t in self.tensors.values() if t.role is role)

    @cached_property
    def regions(self) -> Mapping[str, Region]:
        """Block and phase of each operator, by its name."""
        return regions(self)

    @cached_property
    def feature_independent(self) -> frozenset[str]:
        """Names of the tensors that follow from edges and constants."""
        names = {t.name for t in self.tensors.values() if t.structural or t.kind is TensorKind.CONSTANT}
        for op in self:
            if names.issuperset(op.inputs):
                names.update(op.outputs)
        return frozenset(names)

    def before_broadcast(self, name: str) -> str:
        """Return node numbers or weights before they were repeated over the width of the features."""
        repeating = (Family.VIEW, Family.CONVERT)
        while (writer := self.writer(name)) is not None and (
            writer.family in repeating or writer.type in ("Broadcast", "Tile")
        ):
            name = writer.inputs[0]
        return self._same_numbers.get(name, name)

    @cached_property
    def _same_numbers(self) -> Mapping[str, str]:
        """The smallest constant with the known numbers of each constant, however often it repeats them."""
        constants = [t for t in self.tensors.values() if t.kind is TensorKind.CONSTANT]
        numbers = {t.name: id(self.meta.known[t.name]) for t in constants if t.name in self.meta.known}
        ordered = sorted(numbers, key=lambda name: -self.tensors[name].elements)
        smallest = {numbers[name]: name for name in ordered}
        return {name: smallest[key] for name, key in numbers.items()}

    def known(self, name: str) -> Array | None:
        """Return the values of a tensor that follows from the example's edges, flat; None if not known."""
        values = self.meta.known.get(self.before_broadcast(name))
        return None if values is None else values.reshape(-1)

    @cached_property
    def structural(self) -> frozenset[str]:
        """Names of the tensors that follow from the data graph's edges and constants alone: preprocessing.

        A tensor made only of constants is not counted: it could be folded.
        """
        structural: set[str] = {t.name for t in self.tensors.values() if t.structural}
        constant = {t.name for t in self.tensors.values() if t.kind is TensorKind.CONSTANT} - structural
        for op in self:
            producers = set(op.inputs) - constant
            if producers <= structural:
                (structural if producers else constant).update(op.outputs)
        return frozenset(structural)


def _by_name(what: str, graph: str, items: Iterable[_Named]) -> dict[str, _Named]:
    by_name: dict[str, _Named] = {}
    for item in items:
        if item.name in by_name:
            raise GraphError(f"graph {graph!r}: two {what}s are called {item.name!r}")
        by_name[item.name] = item
    return by_name


def _writers(graph: str, operators: Iterable[Operator], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    writer: dict[str, str] = {}
    for op in operators:
        for tensor in op.outputs:
            if tensor not in tensors:
                raise GraphError(f"graph {graph!r}: operator {op.name!r} writes unknown tensor {tensor!r}")
            if tensor in writer:
                both = f"both {writer[tensor]!r} and {op.name!r}"
                raise GraphError(f"graph {graph!r}: {both} write tensor {tensor!r}")
            writer[tensor] = op.name
    return writer
