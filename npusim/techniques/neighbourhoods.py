"""Padded neighbourhoods: gathers to slots [N, K, F] in place of scatters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from npusim.graph import Graph
from npusim.graph.editor import Rewriter
from npusim.graph.graph import Array
from npusim.ops import DType, Family, Operator, Role, TensorKind
from npusim.techniques.aggregation import Aggregation, aggregation_of, scattered, with_counts
from npusim.techniques.stack import EdgeData, NoParameters, Stage, Technique

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Matrix: TypeAlias = "csr_matrix"
_EXTREMES = {"max": "ReduceMax", "min": "ReduceMin"}
_BUCKET_ROWS = 2000
"""Rows that a further bucket has to save, since it adds operators; fitted: TransformerConv and power laws."""


def matrix_from(values: Array, rows: Array, columns: Array, shape: tuple[int, ...]) -> Matrix:
    """Return a sparse matrix of its entries; equal places add up."""
    from scipy.sparse import csr_matrix  # slow to import

    return csr_matrix((values, (rows, columns)), shape)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Rows that are summed, or whose maximum is taken, by the edges of the example."""

    rows: str  # tensor [M, ...]: features of nodes, or messages of edges
    result: str  # tensor [N, ...]
    matrix: Matrix  # [N, M]: weights of the rows in each result
    operation: str  # ReduceSum, ReduceMax or ReduceMin
    region: str


@lru_cache(maxsize=4)  # those along millions of edges take seconds
def find_reductions(graph: Graph) -> tuple[Reduction, ...]:
    """Return the reductions of rows by a scatter whose targets are known."""
    scatters = [op for op in graph if op.family is Family.SCATTER]
    return tuple(r for op in scatters if (r := _reduction(graph, op)) is not None)


def _reduction(graph: Graph, op: Operator) -> Reduction | None:
    """Return what a scatter reduces: features of nodes where it is linear in them, else its messages."""
    if _blank(graph, op):
        return None
    linear = aggregation_of(graph, op)
    if linear is not None:
        matrix = matrix_of(graph, linear)
        if matrix is not None:
            return Reduction(linear.features, linear.result, matrix, "ReduceSum", op.region)
    extreme = _EXTREMES.get(str(op.attrs.get("reduction")))
    if extreme is not None:
        return _extreme(graph, op, extreme)
    start = scattered(graph, op)
    if start is None or start[1] is None:
        return None
    messages = Aggregation(start[0], op.outputs[0], "", start[1], mean=start[2], region=op.region)
    messages = with_counts(graph, messages)
    matrix = matrix_of(graph, messages)
    return matrix if matrix is None else Reduction(start[0], messages.result, matrix, "ReduceSum", op.region)


def _blank(graph: Graph, op: Operator) -> bool:
    """Whether a scatter begins with other numbers than zeros, or along another axis."""
    blank = graph.known(op.inputs[0])
    zeros = graph.tensors[op.inputs[0]].density == 0.0 or (blank is not None and not blank.any())
    return not zeros or op.attrs.get("axes", (0,)) != (0,)


def _extreme(graph: Graph, op: Operator, operation: str) -> Reduction | None:
    rows, targets = op.inputs[2], graph.known(op.inputs[1])
    starts = op.attrs.get("use_init_val", True)
    shape = (graph.tensors[op.outputs[0]].shape[0], graph.tensors[rows].shape[0])
    if starts or targets is None or len(targets) != shape[1] or rows in graph.feature_independent:
        return None
    matrix = matrix_from(np.ones(shape[1], np.float32), targets, np.arange(shape[1]), shape)
    return Reduction(rows, op.outputs[0], matrix, operation, op.region)


def matrix_of(graph: Graph, aggregation: Aggregation) -> Matrix | None:
    """Return the matrix [N, M] of an aggregation; None where something of it is not known."""
    shape = tuple(graph.tensors[t].shape[0] for t in (aggregation.result, aggregation.features))
    if any(name and graph.known(name) is None for name in (aggregation.sources, aggregation.targets)):
        return None  # before arrays of each edge are made
    columns = graph.known(aggregation.sources) if aggregation.sources else np.arange(shape[1])
    assert columns is not None
    rows: Array | None = np.arange(shape[0]).repeat(len(columns) // shape[0])
    if aggregation.targets is not None:
        rows = graph.known(aggregation.targets)
    if rows is None or len(rows) != len(columns):
        return None
    shares: Array = np.ones(shape[0], np.float32)
    if aggregation.mean:
        shares /= np.bincount(rows, minlength=shape[0]).clip(1)
    values = _scaled(graph, np.ones(len(columns), np.float32), aggregation.scales)
    scale = _scaled(graph, shares, aggregation.counts)
    if values is None or scale is None:
        return None
    return matrix_from(values * scale[rows], rows, columns, shape)


def _scaled(graph: Graph, values: Array, scales: Sequence[tuple[str, str]]) -> Array | None:
    """Return values after factors and divisors; None where one is not known."""
    for kind, name in scales:
        factor = graph.known(name)
        if factor is None or len(factor) not in (1, len(values)):
            return None
        values = values / factor if kind == "Divide" else values * factor
    return values


def _buckets(degrees: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return (slots of a row, rows) so that padding costs least; rows of a bucket have at most its slots."""
    caps = sorted({int(min(1 << k, degrees.max())) for k in range(int(degrees.max()).bit_length() + 1)})
    order = np.argsort(degrees, kind="stable")
    ends = np.searchsorted(degrees[order], caps, side="right")
    best: list[tuple[int, list[int]]] = [(0, [])]  # by number of caps: rows of slots, the caps' indices
    for i, cap in enumerate(caps):
        best.append(
            min(
                (cost + cap * int(ends[i] - (ends[j - 1] if j else 0)) + _BUCKET_ROWS, [*chosen, i])
                for j, (cost, chosen) in enumerate(best[: i + 1])
            )
        )
    begin, buckets = 0, []
    for i in best[-1][1]:
        if ends[i] > begin:
            buckets.append((caps[i], order[begin : ends[i]]))
        begin = int(ends[i])
    return buckets


@dataclass
class Writer:
    """Adds reductions to a graph; equal constants and equal gathers are added once."""

    editor: Rewriter
    ready: dict[tuple[object, ...], str] = field(default_factory=dict)

    def constant(self, name: str, value: Array, dtype: DType, role: Role = Role.NONE) -> str:
        """Add a constant with its value; `dtype` is the format in which a machine holds it."""
        key = (sha256(np.ascontiguousarray(value).data).digest(), value.dtype.str, value.shape, dtype)
        if key not in self.ready:
            density = float(np.count_nonzero(value)) / max(1, value.size) if dtype.is_float else 1.0
            self.ready[key] = self.editor.constant(name, value.shape, dtype, role=role, density=density)
            self.editor.prepared[self.ready[key]] = value
        return self.ready[key]

    def gather(self, rows: str, index: Array, name: str) -> str:
        """Add a Gather of rows by known numbers."""
        at = self.constant(name, index.astype(np.int32), DType.INT32, Role.EDGES)
        if (rows, at) not in self.ready:
            self.ready[rows, at] = self.editor.gather(rows, at, f"to_{name}")
        return self.ready[rows, at]

    def reduce(self, reduction: Reduction, rows: str) -> str:
        """Add a reduction over rows gathered to slots [n, K, ...], by buckets of degrees.

        Free slots repeat a row of the same node; sums multiply them by 0.
        """
        editor, matrix = self.editor, reduction.matrix
        editor.region = reduction.region
        dtype, ones = editor.tensors[rows].dtype, (1,) * (len(editor.tensors[rows].shape) - 1)
        parts, order = [], []
        for slots, nodes in _buckets(np.diff(matrix.indptr).clip(1)):
            degree, slot = np.diff(matrix.indptr)[nodes, None], np.arange(slots)[None]
            at = matrix.indptr[nodes, None] + np.where(slot < degree, slot, 0)
            at = at.clip(0, matrix.nnz - 1)
            weights = np.where(slot < degree, matrix.data[at], 0).astype(np.float32)
            part = self.gather(rows, matrix.indices[at], "slots")
            if reduction.operation == "ReduceSum" and (weights != 1).any():
                scale = self.constant("weights", weights.reshape(*weights.shape, *ones), dtype, Role.MASK)
                part = editor.eltwise("Multiply", part, scale, "weighted")
            part = editor.reduce(reduction.operation, part, (1,), "reduced")
            if reduction.operation != "ReduceSum" and not degree.all():
                present = self.constant("present", (degree > 0).astype(np.float32).reshape(-1, *ones), dtype)
                part = editor.eltwise("Multiply", part, present, "kept")
            parts.append(part)
            order.append(nodes)
        joined = parts[0] if len(parts) == 1 else editor.concat(parts, 0, "buckets")
        places = np.argsort(np.concatenate(order))
        in_order = (np.diff(places) == 1).all()
        return joined if in_order else self.gather(joined, places, "in_order")


def reductions_by_result(graph: Graph) -> dict[str, Reduction]:
    """Return the known reductions by the tensor that each makes."""
    return {reduction.result: reduction for reduction in find_reductions(graph)}


_Shape = tuple[str, tuple[int, ...], bool, tuple[int, ...]]
"""Rows, shape of the weights, whether they are [out, in], and shape of the matrix of a term."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """A sum whose terms are products of reductions of the same rows with constant weights."""

    result: str
    reductions: tuple[Reduction, ...]
    weights: tuple[str, ...]
    transposed: bool  # whether weights are [out, in]
    others: tuple[str, ...]  # further terms


def _find_terms(graph: Graph, reductions: dict[str, Reduction]) -> list[_Terms]:
    """Return the sums of relations: a term each, of which products come first, so that rows are narrow."""
    sums, inner = list[_Terms](), set[str]()
    for op in reversed([op for op in graph if op.type in ("Add", "MatMul")]):
        result = op.outputs[0]
        if result in inner:
            continue
        leaves, waiting = [], [result]
        while waiting:
            name = waiting.pop()
            writer = graph.writer(name)
            alone = name == result or (len(graph.readers(name)) == 1 and name not in graph.outputs)
            same = graph.tensors[name].shape == graph.tensors[result].shape
            if writer is not None and writer.type == "Add" and alone and same:
                inner.add(name)
                waiting.extend(writer.inputs)
            else:
                leaves.append(name)
        groups: dict[_Shape, list[tuple[str, Reduction, str]]] = {}
        for leaf in leaves:
            writer = graph.writer(leaf)
            if writer is None or writer.type != "MatMul" or (leaf != result and len(graph.readers(leaf)) > 1):
                continue
            reduction, weight = reductions.get(writer.inputs[0]), graph.tensors[writer.inputs[1]]
            if reduction is None or reduction.operation != "ReduceSum":
                continue
            alone = len(graph.readers(writer.inputs[0])) == 1 and len(weight.shape) == 2
            if alone and weight.kind is TensorKind.CONSTANT and not writer.attrs.get("transpose_a"):
                transposed = bool(writer.attrs.get("transpose_b"))
                key = (reduction.rows, weight.shape, transposed, reduction.matrix.shape)
                groups.setdefault(key, []).append((leaf, reduction, weight.name))
        for (_, shape, transposed, _), terms in groups.items():
            narrower = shape[0] < shape[1] if transposed else shape[1] < shape[0]
            if (
                len(shape) == 2
                and (len(terms) > 1 or narrower)
                and not inner.intersection(t[0] for t in terms)
            ):
                chosen = {leaf for leaf, _, _ in terms}
                others = tuple(leaf for leaf in leaves if leaf not in chosen)
                inner |= chosen
                reduced, weights = (tuple(t[1] for t in terms), tuple(t[2] for t in terms))
                sums.append(_Terms(result, reduced, weights, transposed, others))
                break
    return sums


def _write_terms(writer: Writer, terms: _Terms, rows: str) -> str:
    """Multiply the rows by all weights at once, [M R, F'], and sum over all relations' edges at once."""
    editor, count = writer.editor, len(terms.reductions)
    editor.region = terms.reductions[0].region
    axis = 0 if terms.transposed else 1
    weight = terms.weights[0] if count == 1 else editor.concat(terms.weights, axis, "weights_of_relations")
    product = editor.matmul(rows, weight, "matmul", transpose_b=terms.transposed)
    nodes, width = editor.tensors[product].shape
    if count > 1:
        product = editor.reshape(product, (nodes * count, width // count), "rows_of_relations")
    parts = [reduction.matrix.tocoo() for reduction in terms.reductions]
    columns = np.concatenate([part.col * count + i for i, part in enumerate(parts)])
    values, targets = (np.concatenate([getattr(p, key) for p in parts]) for key in ("data", "row"))
    matrix = matrix_from(values, targets, columns, (parts[0].shape[0], nodes * count))
    total = writer.reduce(replace(terms.reductions[0], matrix=matrix), product)
    for other in terms.others:
        total = editor.eltwise("Add", total, other, "term")
    return total


def _padded(graph: Graph, _: NoParameters) -> Graph:
    """Scatters along the edges become gathers to slots [N, K, F] and reductions over K.

    A DSP scatters element by element; it gathers and reduces rows. Nodes are sorted into buckets by degree,
    so that hubs do not pad the others. Messages of edges are computed along the edges as before. Sums of
    relations multiply by all weights first and gather once; divisions by a gathered sum become products with
    its reciprocal.
    """
    writer, reductions = Writer(Rewriter.of(graph)), reductions_by_result(graph)
    editor, written = writer.editor, dict[str, str]()
    merged = {r.result: terms for terms in _find_terms(graph, reductions) for r in terms.reductions}
    done: set[str] = set()
    for name, reduction in reductions.items():
        rows, terms = written.get(reduction.rows, reduction.rows), merged.get(name)
        result = name if terms is None else terms.result
        if result not in done:
            done.add(result)
            total = writer.reduce(reduction, rows) if terms is None else _write_terms(writer, terms, rows)
            editor.rewire(result, total)
            written[result] = total
    return _multiply_by_reciprocals(editor.finish())


def _multiply_by_reciprocals(graph: Graph) -> Graph:
    """Divide 1 by what is gathered before it is gathered: by node, not by edge."""
    editor = Rewriter.of(graph)
    for op in graph:
        gather = graph.writer(op.inputs[1]) if op.type == "Divide" else None
        if gather is not None and gather.type == "Gather" and len(graph.readers(gather.outputs[0])) == 1:
            divisor, editor.region = graph.tensors[gather.inputs[0]], op.region
            result, known = graph.tensors[op.outputs[0]], graph.known(gather.inputs[1])
            whole = known is not None and len(known) == result.shape[0]  # not fewer, as values decide
            if whole and divisor.elements < result.elements and gather.attrs.get("axes") == (0,):
                one = editor.constant("one", (1,) * len(divisor.shape), divisor.dtype, fill=1.0)
                reciprocal = editor.eltwise("Divide", one, divisor.name, "reciprocal")
                factor = editor.gather(reciprocal, gather.inputs[1], "reciprocals")
                editor.rewire(op.outputs[0], editor.eltwise("Multiply", op.inputs[0], factor, "quotient"))
    return editor.finish()


_UNKNOWN = "the edges have no values: a module's example inputs, or --values of a model file, have them"


def hint_of_values(graph: Graph) -> str:
    """Say what is missing where a network scatters by numbers that are not known."""
    scatters = any(op.family is Family.SCATTER for op in graph)
    return _UNKNOWN if scatters and not graph.meta.known else ""


PADDED = Technique(
    name="padded",
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=_padded,
    stage=Stage.PRECOMPUTE,
    needs="a sum, mean, maximum or minimum along edges whose numbers are known",
    finds=lambda graph, _: find_reductions(graph),
    hint=hint_of_values,
    excludes={"grad": "slots are laid out for the edges of the example"},
    edges=EdgeData.LAID_OUT,
)
