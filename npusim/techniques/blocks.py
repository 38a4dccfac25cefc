"""Blocks: a batch of small graphs as dense products [blocks, n, n]."""

from dataclasses import dataclass, replace

import numpy as np

from npusim.graph import Graph
from npusim.graph.known import Array
from npusim.ops import Family, Operator, Role, TensorKind
from npusim.ops.operator import GRANULE
from npusim.techniques.neighbourhoods import (
    Reduction,
    Writer,
    hint_of_values,
    matrix_from,
    reductions_by_result,
)
from npusim.techniques.preprocessing import Rewriter
from npusim.techniques.technique import EdgeData, NoParameters, Stage, Technique

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
