"""Blocks and tiles: known sums over neighbours as small dense products, or in compressed rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from npusim.graph import Graph
from npusim.graph.editor import Rewriter
from npusim.graph.graph import Array
from npusim.ops import Family, Operator, Role, Storage, TensorKind
from npusim.ops.operator import GRANULE
from npusim.techniques.neighbourhoods import (
    Matrix,
    Reduction,
    Writer,
    find_reductions,
    hint_of_values,
    matrix_from,
    reductions_by_result,
)
from npusim.techniques.stack import EdgeData, NoParameters, Parameters, Stage, Technique

_LEAST_BLOCK = 64
"""Nodes of a block at least; smaller graphs share one, since the grid does few large products faster."""
_MOST_POOLED = 1 << 24
"""Elements of the matrix [graphs, nodes] up to which a pooling becomes a product."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where each node stands in blocks of nodes."""

    count: int
    size: int
    place: Array  # [N]: block times size, plus the place in it

    @property
    def nodes(self) -> Array:
        """Node at each place, [count size]; any node where a block is padded."""
        nodes = np.zeros(self.count * self.size, np.int32)
        nodes[self.place] = np.arange(len(self.place))
        return nodes


def linear_squares(graph: Graph) -> dict[str, Reduction]:
    """Return the sums over neighbours [N, F] with a known matrix [N, N], by result."""
    return {
        name: r
        for name, r in reductions_by_result(graph).items()
        if r.operation == "ReduceSum" and _aggregates_nodes(graph, r)
    }


def _aggregates_nodes(graph: Graph, reduction: Reduction) -> bool:
    rows = graph.tensors[reduction.rows]
    square = reduction.matrix.shape[0] == reduction.matrix.shape[1]
    return square and len(rows.shape) == 2 and reduction.matrix.nnz > 0


def _blocks_of(squares: dict[str, Reduction]) -> BlockLayout | None:
    """Return blocks, filled with connected graphs, the largest first; None where one graph has most nodes."""
    from scipy.sparse.csgraph import connected_components  # slow to import

    nodes = {r.matrix.shape[0] for r in squares.values()}
    if len(nodes) != 1:
        return None
    edges = sum(abs(r.matrix) for r in squares.values())
    count, graph_of = connected_components(edges, directed=False)
    sizes = np.bincount(graph_of, minlength=count)
    size = max(_LEAST_BLOCK, -(-int(sizes.max()) // GRANULE) * GRANULE)
    if 2 * size > len(graph_of):
        return None
    free: list[int] = []
    start = np.zeros(count, np.int64)
    for graph in np.argsort(-sizes, kind="stable"):
        block = next((i for i in reversed(range(len(free))) if free[i] >= sizes[graph]), len(free))
        if block == len(free):
            free.append(size)
        start[graph] = block * size + size - free[block]
        free[block] -= int(sizes[graph])
    order = np.argsort(graph_of, kind="stable")
    within = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.empty(len(order), np.int64)
    place[order] = start[graph_of[order]] + within
    return BlockLayout(len(free), size, place)


def _blocked(graph: Graph, _: NoParameters) -> Graph:
    """Graphs of a batch fill blocks of nodes: a sum over neighbours is a product with [blocks, n, n].

    No edge leaves a graph, so that the matrix of a batch is nearly empty but for blocks on its diagonal.
    Layers between the sums work on padded rows; a pooling over graphs is a product with a matrix.
    """
    squares = linear_squares(graph)
    blocks = _blocks_of(squares)
    assert blocks is not None
    return LaidOut(graph, squares, blocks).rewritten()


class LaidOut:
    """The rewriting of one graph: which tensors over the nodes stand in blocks, too."""

    def __init__(self, graph: Graph, squares: dict[str, Reduction], blocks: BlockLayout) -> None:
        self.graph, self.squares, self.blocks = graph, squares, blocks
        self.editor = Rewriter.of(graph)
        self.writer = Writer(self.editor)
        self.laid: dict[str, str] = {}
        self.gathered: set[str] = set()
        self.nodes, self.rows = len(blocks.place), blocks.count * blocks.size

    def rewritten(self) -> Graph:
        """Return the graph in blocks; what does not work row by row reads the nodes in their order."""
        graph, editor, moved = self.graph, self.editor, set[str]()
        reductions = reductions_by_result(graph)
        for op in graph:
            editor.region = op.region
            result = op.outputs[0]
            reduction = reductions.get(result)
            if result in self.squares:
                self.laid[result] = self._product(self.squares[result])
            elif reduction is not None and self._pools(reduction):
                matrix = np.zeros((reduction.matrix.shape[0], self.rows), np.float32)
                matrix[:, self.blocks.place] = reduction.matrix.toarray()
                dtype = graph.tensors[reduction.rows].dtype
                pooling = self.writer.constant("pooling", matrix, dtype, Role.ADJACENCY)
                pooled = editor.matmul(pooling, self.laid[reduction.rows], "pooled")
                editor.rewire(result, pooled)
            elif self._works_by_row(op):
                moved.add(op.name)
                inputs = [self._operand(name) for name in op.inputs]
                tensor = graph.tensors[result]
                shape = (self.rows, *tensor.shape[1:])
                self.laid[result] = editor.op(
                    op.type, inputs, shape, tensor.dtype, f"/{op.name}/in_blocks", **op.attrs
                )
        for name in [name for name in self.laid if name not in self.gathered]:
            laid, readers = self.laid[name], [op.name for op in graph.readers(name) if op.name not in moved]
            if readers or name in graph.outputs:
                editor.region = reductions[name].region if name in reductions else ""
                editor.rewire(name, self.writer.gather(laid, self.blocks.place, "nodes"))
        return editor.finish()

    def _operand(self, name: str) -> str:
        """Return a tensor in blocks: as it was laid there, gathered, or as it is where all rows share it."""
        tensor = self.graph.tensors[name]
        if name in self.laid or len(tensor.shape) < 2 or tensor.shape[0] != self.nodes:
            return self.laid.get(name, name)
        self.laid[name] = self.writer.gather(name, self.blocks.nodes, "blocks")
        self.gathered.add(name)
        return self.laid[name]

    def _product(self, reduction: Reduction) -> str:
        """Multiply the tiles that hold an edge by their blocks of columns, and add up by blocks of rows."""
        editor, blocks, rows = self.editor, self.blocks, self._operand(reduction.rows)
        editor.region, width = reduction.region, self.graph.tensors[reduction.rows].shape[1]
        entries, size = reduction.matrix.tocoo(), blocks.size
        row_block, row = np.divmod(blocks.place[entries.row], size)
        column_block, column = np.divmod(blocks.place[entries.col], size)
        is_diagonal = np.array_equal(row_block, column_block)
        present, tile = np.unique(row_block * blocks.count + column_block, return_inverse=True)
        if is_diagonal:
            present, tile = np.arange(blocks.count) * (blocks.count + 1), row_block
        else:
            by_block = editor.reshape(rows, (blocks.count, size * width), "blocks")
            rows = self.writer.gather(by_block, present % blocks.count, "columns")
        matrix = np.zeros((len(present), size, size), np.float32)
        matrix[tile, row, column] = entries.data
        norm = self.writer.constant("norm", matrix, self.graph.tensors[reduction.rows].dtype, Role.NORM)
        rows = editor.reshape(rows, (len(present), size, width), "in_blocks")
        product = editor.matmul(norm, rows, "matmul")
        if not is_diagonal:
            ones, tiles = np.ones(len(present), np.float32), np.arange(len(present))
            sums = matrix_from(ones, present // blocks.count, tiles, (blocks.count, len(present)))
            by_tile = editor.reshape(product, (len(present), size * width), "tiles")
            product = self.writer.reduce(replace(reduction, matrix=sums), by_tile)
        return editor.reshape(product, (self.rows, width), "rows")

    def _pools(self, reduction: Reduction) -> bool:
        elements = reduction.matrix.shape[0] * self.rows
        rank = len(self.graph.tensors[reduction.rows].shape)
        is_sum = reduction.operation == "ReduceSum" and rank == 2
        return is_sum and reduction.rows in self.laid and elements <= _MOST_POOLED

    def _works_by_row(self, op: Operator) -> bool:
        """Whether an operator makes each row of one row of what stands in blocks."""
        tensors, result = self.graph.inputs_of(op), self.graph.tensors[op.outputs[0]]
        laid = [t for t in tensors if t.name in self.laid]
        if not laid or len(op.outputs) > 1 or result.shape[:1] != (self.nodes,) or op.repeats > 1:
            return False
        if op.family is Family.MATMUL:
            is_plain = not op.attrs.get("transpose_a") and [len(t.shape) for t in tensors] == [2, 2]
            return is_plain and laid == [tensors[0]] and tensors[1].kind is TensorKind.CONSTANT
        if op.family in (Family.ELTWISE, Family.ACTIVATION, Family.CONVERT, Family.SELECT):
            return all(len(t.shape) == len(result.shape) for t in laid)
        inner = op.family in (Family.REDUCE, Family.SOFTMAX) or op.type == "Concat"
        return inner and 0 not in op.attrs.get("axes", (0,)) and all(t in laid for t in tensors)


BLOCKS = Technique(
    name="blocks",
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=_blocked,
    stage=Stage.PRECOMPUTE,
    needs="sums over neighbours in many small graphs, with known edges",
    finds=lambda graph, _: _blocks_of(linear_squares(graph)),
    hint=hint_of_values,
    excludes={"grad": "blocks are laid out for the edges of the example"},
    edges=EdgeData.LAID_OUT,
)


_MOST_ELEMENTS = 1 << 28
"""Elements of all tiles up to which they are laid out: 1 GB while a file is written in fp32."""
_MOST_SHARE = 0.5
"""Share of the dense matrix that tiles may hold: more saves nothing over one product."""
_MOST_LOUVAIN = 20_000
"""Edges up to which communities are searched: networkx takes about a second for them."""
_LEAST_NODES = 512
"""Nodes from which on a matrix is cut: the grid multiplies a smaller one at once."""


class TilesParameters(Parameters):
    """Size of the tiles."""

    size: Annotated[int, Field(ge=16, le=4096, multiple_of=16)] = 64
    """Rows and columns of a tile."""


def count_tiles(matrix: Matrix, place: npt.NDArray[np.int64], size: int) -> int:
    """Count the tiles that hold an entry, where node i stands at `place[i]`."""
    block = place // size
    rows = np.repeat(block, np.diff(matrix.indptr))
    tiles = np.sort(rows * (int(block.max(initial=0)) + 1) + block[matrix.indices])  # faster than `unique`
    return int(np.count_nonzero(np.diff(tiles))) + (len(tiles) > 0)


def places_of_nodes(matrix: Matrix, size: int) -> npt.NDArray[np.int64]:
    """Return the place of each node in the order that leaves fewest tiles, shape (nodes,).

    Orders are the graph's own, reverse Cuthill-McKee (scipy), and, for small graphs, Louvain communities
    (networkx), which are packed one after the other.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # slow to import

    nodes = matrix.shape[0]
    orders = [np.arange(nodes), np.asarray(reverse_cuthill_mckee(matrix, symmetric_mode=False), np.int64)]
    if matrix.nnz <= _MOST_LOUVAIN:
        from networkx import from_scipy_sparse_array
        from networkx.algorithms.community import louvain_communities

        communities = louvain_communities(from_scipy_sparse_array(matrix), weight=None, seed=0)
        ranked = sorted(communities, key=len, reverse=True)
        orders.append(np.concatenate([np.fromiter(sorted(each), np.int64) for each in ranked]))
    places = [np.argsort(order) for order in orders]
    return min(places, key=lambda place: count_tiles(matrix, place, size))


@lru_cache(maxsize=4)
def tiling_of(graph: Graph, size: int) -> tuple[BlockLayout, int] | None:
    """Return where nodes stand, and how many tiles hold an edge; None without sums over known edges."""
    squares = linear_squares(graph)
    nodes = {r.matrix.shape[0] for r in squares.values()}
    if len(nodes) != 1 or max(nodes) < _LEAST_NODES:
        return None
    edges = sum(abs(r.matrix) for r in squares.values()).tocsr()
    place = places_of_nodes(edges, size)
    return BlockLayout(-(-len(place) // size), size, place), count_tiles(edges, place, size)


def _tiled(graph: Graph, parameters: TilesParameters) -> Graph:
    """Sums over neighbours multiply only the tiles [T, b, b] of the matrix that hold an edge.

    Nodes are reordered first, so that edges gather in few tiles: by reverse Cuthill-McKee, or by communities.
    Each tile multiplies the rows of its column block; products of a row block are added in padded slots.
    Layers between the sums work in the new order.
    """
    tiling = tiling_of(graph, parameters.size)
    assert tiling is not None
    return LaidOut(graph, linear_squares(graph), tiling[0]).rewritten()


def _too_many(graph: Graph, parameters: TilesParameters) -> str | None:
    tiling = tiling_of(graph, parameters.size)
    if tiling is None:
        return None
    (layout, tiles), size = tiling, parameters.size
    share = tiles / layout.count**2
    if share <= _MOST_SHARE and tiles * size**2 <= _MOST_ELEMENTS:
        return None
    return (
        f"tiles needs a matrix with few tiles; {graph.name} has {tiles:,} of {size} x {size} with an "
        f"edge after reordering ({share:.2g} of all), {tiles * size**2 * 2 / 1e9:.3g} GB in fp16"
    )


TILES = Technique(
    name="tiles",
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=_tiled,
    stage=Stage.PRECOMPUTE,
    needs=f"sums over neighbours in a graph of at least {_LEAST_NODES} nodes, with known edges",
    finds=lambda graph, _: any(r.matrix.shape[0] >= _LEAST_NODES for r in linear_squares(graph).values()),
    check=_too_many,
    hint=hint_of_values,
    excludes={"grad": "tiles are laid out for the edges of the example"},
    parameters=TilesParameters,
    edges=EdgeData.LAID_OUT,
)


def _compressed(graph: Graph, _: NoParameters) -> Graph:
    """Sums over neighbours become products with a matrix in compressed rows.

    A CPU or GPU multiplies only the entries, and reads a column number for each. The matrix takes memory by
    edges, not by nodes squared, and nothing is scattered.
    """
    editor = Rewriter.of(graph)
    matrices, rewritten = dict[tuple[object, ...], str](), dict[str, str]()
    for reduction in _sums(graph):
        editor.region, matrix = reduction.region, reduction.matrix
        rows = editor.tensors[rewritten.get(reduction.rows, reduction.rows)]
        key = (matrix.shape, hash(matrix.indices.tobytes()), hash(matrix.data.tobytes()))
        if key not in matrices:
            fields = {"role": Role.NORM, "storage": Storage.CSR, "density": matrix.nnz / prod(matrix.shape)}
            matrices[key] = editor.constant("csr", matrix.shape, rows.dtype, **fields)
        shape, operands = (matrix.shape[0], *rows.shape[1:]), (matrices[key], rows.name)
        product = editor.op("SparseMatMul", operands, shape, rows.dtype, "spmm")
        editor.rewire(reduction.result, product)
        rewritten[reduction.result] = product
    return editor.finish()


def _sums(graph: Graph) -> list[Reduction]:
    """Return the sums over rows [M, F] whose matrix is known."""
    sums = [r for r in find_reductions(graph) if r.operation == "ReduceSum"]
    return [r for r in sums if len(graph.tensors[r.rows].shape) == 2]


CSR = Technique(
    name="csr",
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=_compressed,
    stage=Stage.PRECOMPUTE,
    needs="a sum along edges whose numbers are known",
    finds=lambda graph, _: _sums(graph),
    hint=hint_of_values,
    excludes={"grad": "compressed rows are laid out for the edges of the example"},
    edges=EdgeData.LAID_OUT,
    what_if="OpenVINO has no product with compressed rows; PyTorch has one on CPU and GPU",
)
