"""The graph as a matrix in compressed rows, sorted from the edges, and its product with features.

What a library for sparse matrices does on a CPU or GPU: no message is written, a neighbour's row is fetched
and added up at once. No unit of an NPU walks compressed rows.
"""

from __future__ import annotations

from npusim.graph import Editor
from npusim.ops import Role, Storage
from npusim.workloads.gnn.edges import EdgeList


def compressed_rows(edges: EdgeList, values: str | None = None, mean: bool = False) -> str:
    """Sort the edges by target into a matrix [targets, sources] in compressed rows and return its name.

    Parameters
    ----------
    values : str, optional
        Weight of each edge, [E] or [E, 1]; None: ones.
    mean : bool
        Whether each row is divided by its length on the way.
    """
    editor = edges.editor
    editor.region = edges.place
    columns = edges.sources
    inputs = (edges.source, edges.target, *((values,) if values is not None else ()))
    density = min(1.0, edges.count / (edges.nodes * columns))
    role = Role.NORM if mean or values is not None else Role.ADJACENCY
    name = edges.free(f"{edges.place}/csr")
    fields = {"role": role, "density": density, "storage": Storage.CSR}
    return editor.op(
        "EdgesToCsr",
        inputs,
        (edges.nodes, columns),
        edges.dtype,
        name,
        tensor=fields,
        normalise="mean" if mean else "none",
    )


def sparse_product(editor: Editor, matrix: str, x: str, region: str, values: str | None = None) -> str:
    """Multiply a matrix in compressed rows [N, M] by `x` [M, F].

    Parameters
    ----------
    values : str, optional
        Weights [E, heads] that stand in the matrix's place, in the order of its rows; a head has F / heads
        columns of `x`.
    """
    editor.region = region
    inputs = (matrix, x, *((values,) if values is not None else ()))
    return editor.add("SparseMatMul", inputs, f"{region}/spmm", editor.tensors[x].dtype)
