"""From the numbers of points to the numbers of machines: reading an odometer, on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from npusim.cost.jit import parallel_kernel

__all__ = ["decode"]

_STRETCH = 4096
"""Points that a core reads at a time."""


@parallel_kernel
def _decode(start: int, sizes: Any, tables: Any, offsets: Any, widths: Any, values: Any) -> None:
    for stretch in numba.prange((values.shape[0] + _STRETCH - 1) // _STRETCH):
        for p in range(stretch * _STRETCH, min((stretch + 1) * _STRETCH, values.shape[0])):
            left, end = start + p, values.shape[1]
            for i in range(sizes.shape[0] - 1, -1, -1):
                digit = left % sizes[i]
                left //= sizes[i]
                end -= widths[i]
                for c in range(widths[i]):
                    values[p, end + c] = tables[offsets[i] + digit * widths[i] + c]


def decode(start: int, count: int, sizes: Sequence[int], wires: Sequence[Any]) -> Any:
    """Return what consecutive points of a full design set columns to.

    Parameters
    ----------
    start, count : int
        The points `start` to `start + count`, in mixed radix of `sizes`.
    sizes : sequence of int
        Values of each axis, the last one fastest.
    wires : sequence of array, shape (size, columns of the axis)

    Returns
    -------
    array of float64, shape (count, columns)
    """
    widths = np.array([w.shape[1] for w in wires], np.int64)
    lengths = [w.size for w in wires]
    offsets = np.array([0, *np.cumsum(lengths)[:-1]], np.int64) if wires else np.empty(0, np.int64)
    tables = np.concatenate([np.ravel(w) for w in wires]) if wires else np.empty(0)
    values = np.empty((count, int(widths.sum())))
    _decode(start, np.array(sizes, np.int64), tables, offsets, widths, values)
    return values
