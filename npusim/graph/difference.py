"""What a technique stack changes in an operator graph, and drawings of graphs.

A pass of a compiler is understood by the graph before and after it. `graph_difference` lists what changed;
`to_dot` draws one of the two graphs with the changes in colour.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.graph.graph import Graph
from npusim.ops import Operator, Tensor

Change = Literal["type", "device", "inputs", "shape", "dtype", "storage"]
"""What differs between two operators of one name."""


class TensorSummary(Part):
    """A tensor that an operator reads or writes."""

    name: str
    shape: list[int]
    dtype: str
    storage: str
    """Storage in DRAM: dense, zvc, triangle or csr."""
    resident: bool
    """Whether it is kept in SRAM from its first use to its last."""


class OperatorSummary(Part):
    """An operator of a graph."""

    name: str
    type: str
    region: str
    device: str | None
    """Preferred device; null lets the mapping decide."""
    inputs: list[TensorSummary]
    outputs: list[TensorSummary]
    macs: float
    """Multiply-accumulates of one inference."""
    bytes: float
    """Bytes that it reads and writes, every tensor dense and once."""


class OperatorChange(Part):
    """An operator of both graphs that differs."""

    name: str
    changes: list[Change]
    """What differs; shape, dtype and storage of any tensor that it reads or writes."""
    before: OperatorSummary
    after: OperatorSummary


class GraphTotals(Part):
    """Totals of a graph."""

    techniques: str
    operators: int
    macs: float
    """Multiply-accumulates of one inference."""
    bytes: float
    """Bytes that all operators read and write, every tensor dense and once an operator."""


class GraphDifference(Document):
    """Operators that differ between two graphs of a network, matched by name."""

    MAIN_TABLE: ClassVar[str] = "changed"

    schema_: Literal["npusim.graph-difference/1"] = Field("npusim.graph-difference/1", alias="schema")
    workload: str
    """Name of the network."""
    before: GraphTotals
    after: GraphTotals
    removed: list[OperatorSummary]
    """Operators of the graph before alone, producers before consumers."""
    added: list[OperatorSummary]
    """Operators of the graph after alone, producers before consumers."""
    changed: list[OperatorChange]
    """Operators of both graphs that differ, producers before consumers."""


def graph_difference(before: Graph, after: Graph) -> GraphDifference:
    """Return the operators that one graph has and the other lacks, and those that differ.

    Examples
    --------
    >>> from npusim.techniques import apply
    >>> from npusim.workloads import load_workload
    >>> graph = load_workload("gcn-cora")
    >>> difference = graph_difference(graph, apply(graph, "stagr+symg"))
    >>> [op.type for op in difference.added], len(difference.removed)
    (['MatMul', 'MatMul'], 21)
    """
    pairs = [(op, after.operators[op.name]) for op in before if op.name in after.operators]
    changes = {old.name: _changes(before, old, after, new) for old, new in pairs}
    return GraphDifference(
        workload=before.name,
        before=_totals(before),
        after=_totals(after),
        removed=[_summary(before, op) for op in before if op.name not in after.operators],
        added=[_summary(after, op) for op in after if op.name not in before.operators],
        changed=[
            OperatorChange(
                name=old.name,
                changes=changes[old.name],
                before=_summary(before, old),
                after=_summary(after, new),
            )
            for old, new in pairs
            if changes[old.name]
        ],
    )


def to_dot(
    graph: Graph,
    difference: GraphDifference | None = None,
    facts: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> str:
    """Return a graph in the DOT language of Graphviz.

    Operators of the difference are filled: red if removed, green if added, yellow if changed. `facts` are
    further attributes of operators, by name.
    """
    fills: dict[str, str] = {}
    if difference is not None:
        fills |= {op.name: "#f4b6b6" for op in difference.removed}
        fills |= {op.name: "#b9e3b9" for op in difference.added}
        fills |= {op.name: "#f5e6a3" for op in difference.changed}
    drawn = graph.to_networkx()
    lines = [f"digraph {_quoted(graph.name)} {{", "  node [shape=box, style=filled, fillcolor=white];"]
    for node, fields in drawn.nodes(data=True):
        label = "\n".join(filter(None, (fields.get("type"), node, fields["tensor"])))
        look = {"label": label} | {key: str(value) for key, value in facts.get(node, {}).items()}
        if fields["kind"] != "operator":
            look["shape"] = "ellipse"
        elif node in fills:
            look["fillcolor"] = fills[node]
        lines.append(f"  {_quoted(node)} [{', '.join(f'{key}={_quoted(look[key])}' for key in look)}];")
    lines += [f"  {_quoted(source)} -> {_quoted(target)};" for source, target in drawn.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _totals(graph: Graph) -> GraphTotals:
    return GraphTotals(
        techniques=graph.techniques,
        operators=len(graph),
        macs=graph.macs,
        bytes=sum(op.repeats * graph.bytes(op) for op in graph),
    )


def _summary(graph: Graph, op: Operator) -> OperatorSummary:
    return OperatorSummary(
        name=op.name,
        type=op.type,
        region=op.region,
        device=op.device,
        inputs=[_tensor(tensor) for tensor in graph.inputs_of(op)],
        outputs=[_tensor(tensor) for tensor in graph.outputs_of(op)],
        macs=graph.macs_of(op),
        bytes=op.repeats * graph.bytes(op),
    )


def _tensor(tensor: Tensor) -> TensorSummary:
    return TensorSummary(
        name=tensor.name,
        shape=list(tensor.shape),
        dtype=tensor.dtype.value,
        storage=tensor.storage.value,
        resident=tensor.cached,
    )


def _changes(before: Graph, old: Operator, after: Graph, new: Operator) -> list[Change]:
    tensors = [(*graph.inputs_of(op), *graph.outputs_of(op)) for graph, op in ((before, old), (after, new))]
    differs: Mapping[Change, bool] = {
        "type": old.type != new.type,
        "device": old.device != new.device,
        "inputs": old.inputs != new.inputs,
        "shape": [t.shape for t in tensors[0]] != [t.shape for t in tensors[1]],
        "dtype": [t.dtype for t in tensors[0]] != [t.dtype for t in tensors[1]],
        "storage": [(t.storage, t.cached) for t in tensors[0]] != [(t.storage, t.cached) for t in tensors[1]],
    }
    return [change for change, is_different in differs.items() if is_different]
