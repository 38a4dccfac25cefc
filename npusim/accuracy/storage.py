"""Storage formats of SymG and GraSp: the lower triangle, and zero-value compression (ZVC).

The cost of packing is `npusim.cost`'s; here it is shown that nothing is lost.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["from_triangle", "from_zvc", "stored", "to_triangle", "to_zvc"]

Matrix = npt.NDArray[np.float32]


def to_triangle(matrix: Matrix) -> Matrix:
    """Return the lower triangle with the diagonal of a symmetric matrix [N, N], row by row, [N (N + 1) / 2].

    Raises
    ------
    ValueError
        When the matrix is not symmetric to the bit: its upper half would be lost.
    """
    if matrix.ndim != 2 or not np.array_equal(matrix, matrix.T):
        raise ValueError("a triangle holds symmetric matrices only")
    return matrix[np.tril_indices(matrix.shape[0])]


def from_triangle(packed: Matrix) -> Matrix:
    """Return the symmetric matrix [N, N] of its triangle [N (N + 1) / 2]."""
    nodes = (math.isqrt(8 * packed.size + 1) - 1) // 2
    matrix = np.zeros((nodes, nodes), dtype=packed.dtype)
    rows, columns = np.tril_indices(nodes)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix


def to_zvc(matrix: Matrix) -> tuple[npt.NDArray[np.uint8], Matrix]:
    """Return a bitmap of one bit an element, 8 to a byte, and the non-zeros in their order."""
    present = matrix.ravel() != 0
    return np.packbits(present), matrix.ravel()[present]


def from_zvc(bitmap: npt.NDArray[np.uint8], values: Matrix, shape: tuple[int, ...]) -> Matrix:
    """Return the array of the given shape that `to_zvc` compressed; a stored -0.0 comes back as 0.0."""
    array = np.zeros(int(np.prod(shape)), dtype=values.dtype)
    array[np.unpackbits(bitmap, count=array.size).astype(bool)] = values
    return array.reshape(shape)


def stored(matrix: Matrix, triangle: bool, compressed: bool) -> Matrix:
    """Return a matrix as it comes out of its store.

    Parameters
    ----------
    matrix : ndarray
        Any array; symmetric where `triangle` is asked for.
    triangle, compressed : bool
        Whether it is stored as a triangle (SymG), or else with a bitmap (GraSp).
    """
    if triangle:
        return from_triangle(to_triangle(matrix))
    return from_zvc(*to_zvc(matrix), matrix.shape) if compressed else matrix
