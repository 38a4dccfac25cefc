"""Finding a sum over neighbours that is written as Gather and Scatter, and writing it as one matrix product.

Two ways to tell a class who sits next to whom: walk to each desk in turn (gather, scale, scatter), or hang up one seating plan
(a matrix) that everybody reads at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from npusim.graph import Editor, Graph
from npusim.ops import Family, Operator, Role
from npusim.techniques.frontier import free_name

__all__ = ["Aggregation", "find_aggregations", "write_product"]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One sum (or mean) over neighbours in the form of a list of edges."""

    features: str
    """Tensor [N, F] whose rows are gathered."""
    result: str
    """Tensor [N, F] that the neighbours' rows were summed into, after the scaling that is folded in."""
    operators: tuple[Operator, ...]
    """Gather, scaling, Scatter and whatever scales the result by structure alone."""
    structure: tuple[str, ...]
    """Structural tensors it reads: sources, edge weights, destinations, counts."""
    edges: int
    """Rows gathered."""
    nodes: int
    scaled: bool
    """Whether edge weights or counts are folded in, so that the matrix is a norm and no adjacency."""
    region: str

    @property
    def density(self) -> float:
        """Share of non-zeros of the aggregation matrix."""
        return min(1.0, self.edges / (self.nodes * self.nodes)) if self.nodes else 0.0


def find_aggregations(graph: Graph) -> tuple[Aggregation, ...]:
    """Find every linear aggregation over a list of edges: its edge weights follow from the edges alone."""
    found = (_aggregation(graph, op) for op in graph if op.family is Family.SCATTER)
    return tuple(a for a in found if a is not None)


def _aggregation(graph: Graph, scatter: Operator) -> Aggregation | None:
    if scatter.attrs.get("reduction") not in ("sum", "mean") or len(scatter.inputs) < 3:
        return None
    structural = graph.structural
    data, index, updates = scatter.inputs[:3]
    if updates in structural or index not in structural or not _is_blank(graph, data):
        return None
    operators, reads, scaled = [scatter], [index], scatter.attrs.get("reduction") == "mean"
    op = graph.writer(updates)
    while op is not None and op.family is not Family.GATHER:
        step = _scaling(graph, op)
        if step is None or len(graph.readers(op.outputs[0])) != 1:
            return None
        operators.append(op)
        reads.extend(step[1])
        scaled = scaled or bool(step[1])
        op = graph.writer(step[0])
    if op is None or tuple(op.attrs.get("axes", (0,))) not in ((0,), (-2,)):
        return None
    features, sources = op.inputs[:2]
    if features in structural or sources not in structural or len(graph.tensors[features].shape) != 2:
        return None
    operators.append(op)
    result = scatter.outputs[0]
    readers = graph.readers(result)
    while (
        len(readers) == 1
        and (step := _scaling(graph, readers[0])) is not None
        and step[1]
        and result not in graph.outputs
    ):
        operators.append(readers[0])
        reads.extend(step[1])
        scaled, result = True, readers[0].outputs[0]
        readers = graph.readers(result)
    nodes = graph.tensors[result].shape[0]
    edges = graph.tensors[sources].elements
    return Aggregation(
        features, result, tuple(operators), (sources, *reads), edges, nodes, scaled, scatter.region
    )


def _is_blank(graph: Graph, name: str) -> bool:
    """Whether a scatter adds into a tensor that no feature flows into: zeros, written down or made in the graph."""
    seen: list[str] = [name]
    while seen:
        tensor = seen.pop()
        if graph.tensors[tensor].role is Role.FEATURES:
            return False
        writer = graph.writer(tensor)
        if writer is not None and writer.family not in (
            Family.MOVE,
            Family.GENERATE,
            Family.VIEW,
            Family.CONVERT,
        ):
            return tensor in graph.structural
        seen.extend(writer.inputs if writer is not None and writer.type != "ShapeOf" else ())
    return True


def _scaling(graph: Graph, op: Operator) -> tuple[str, tuple[str, ...]] | None:
    """Return the scaled tensor and the structural scales, where `op` does nothing but view or scale rows; else None."""
    if op.family is Family.VIEW and op.type != "Result":
        shape, source = graph.tensors[op.outputs[0]].shape, graph.tensors[op.inputs[0]].shape
        return (
            (op.inputs[0], ())
            if tuple(d for d in shape if d > 1) == tuple(d for d in source if d > 1)
            else None
        )
    if op.type not in ("Multiply", "Divide"):
        return None
    scales = [t for t in op.inputs if t in graph.structural and graph.tensors[t].shape[-1:] in ((1,), ())]
    scaled = [t for t in op.inputs if t not in graph.structural]
    if len(scales) != 1 or len(scaled) != 1 or (op.type == "Divide" and op.inputs[1] != scales[0]):
        return None
    return scaled[0], tuple(scales)


def write_product(editor: Editor, aggregation: Aggregation, matrix: str) -> str:
    """Let one MatMul(matrix, features) stand in the aggregation's place and return its result's name."""
    editor.region = aggregation.region
    name = free_name(editor, f"{aggregation.region}/matmul" if aggregation.region else "matmul")
    product = editor.matmul(matrix, aggregation.features, name)
    editor.rewire(aggregation.result, product)
    return product
