"""Block-sparse tiles and compressed rows: matrices of graphs that are too large to be dense."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from npusim.graph import Graph
from npusim.ops import Role, Storage
from npusim.techniques.blocks import BlockLayout, LaidOut, linear_squares
from npusim.techniques.neighbourhoods import Matrix, Reduction, find_reductions, hint_of_values
from npusim.techniques.preprocessing import Rewriter
from npusim.techniques.technique import EdgeData, NoParameters, Parameters, Stage, Technique

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
