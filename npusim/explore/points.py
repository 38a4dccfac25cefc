"""The points of a design space, numbered from 0, and the column values of each; never all in memory.

A full factorial design is a number in mixed radix: the digits of a point's number are the positions of its
axes, the last axis fastest. A sampled design (scipy.stats.qmc) draws a row of the unit cube for each number
and turns it into positions. Either way point 4711 is the same point in every run, on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numba
import numpy as np

from npusim.cost import compiled_parallel_or_plain
from npusim.errors import NpusimError
from npusim.explore.axes import Axis
from npusim.explore.spaces import DesignSpec

_MOST_POINTS = 2**53


@dataclass(frozen=True)
class Points:
    """All points of a design."""

    axes: tuple[Axis, ...]
    """In the order of numbering."""
    design: DesignSpec

    def __post_init__(self) -> None:
        if self.total > _MOST_POINTS:
            raise NpusimError(
                f"the space has {self.total:.3g} points; numbers go to {_MOST_POINTS:.3g}: take fewer values"
            )

    @property
    def total(self) -> int:
        """How many points there are."""
        return self.design.points if self.design.points is not None else prod(axis.size for axis in self.axes)

    @property
    def is_full(self) -> bool:
        """Whether every combination is a point."""
        return self.design.method == "full"

    def coordinates(self, numbers: Any) -> Any:
        """Return the coordinates of points.

        Parameters
        ----------
        numbers : array of int, shape (points,)
            Numbers of points; of a sampled design consecutive ones.

        Returns
        -------
        array of float, shape (points, axes)
            Positions in the list of values; of a continuous axis the SI values themselves.
        """
        numbers = np.asarray(numbers, np.int64)
        if self.is_full:
            digits = np.unravel_index(numbers, [axis.size for axis in self.axes])
            return np.stack(digits, axis=1).astype(float)
        cube = _rows(
            self.design.method, len(self.axes), self.total, self.design.seed, int(numbers[0]), len(numbers)
        )
        return positions_in_unit_cube(self.axes, cube)

    def stride(self, axis: int) -> int:
        """Return how many points of a full design follow each other before the digit of `axis` changes."""
        return prod(a.size for a in self.axes[axis + 1 :])


def positions_in_unit_cube(axes: Sequence[Axis], cube: Any) -> Any:
    """Turn rows of the unit cube [0, 1) into coordinates; shapes (points, axes)."""
    found = np.empty_like(cube)
    for i, axis in enumerate(axes):
        share = np.clip(cube[:, i], 0.0, 1.0)
        if not axis.is_continuous:
            found[:, i] = np.minimum(np.floor(share * axis.size), axis.size - 1)
            continue
        low, high = axis.numbers
        value = low * (high / low) ** share if axis.is_log else low + share * (high - low)
        found[:, i] = np.round(value) if axis.is_whole else np.clip(value, low, high)
    return found


def _rows(method: str, dimensions: int, total: int, seed: int, start: int, count: int) -> Any:
    if method == "latin-hypercube":
        from npusim.studies.uncertainty import latin_hypercube

        return latin_hypercube(total, dimensions, seed)[start : start + count]
    from scipy.stats import qmc  # slow to import

    sampler = qmc.Sobol(dimensions, seed=seed)
    if start:
        sampler.fast_forward(start)
    import warnings

    with warnings.catch_warnings():  # a part of the sequence is no power of two long, the whole may be
        warnings.simplefilter("ignore", UserWarning)
        return sampler.random(count)


_BLOCK, _POINT_MS = 4096, 0.01
"""Points that a core reads at a time, and what one takes as plain Python, roughly."""


@compiled_parallel_or_plain(lambda start, sizes, tables, offsets, widths, values: _POINT_MS * len(values))
def _decode(start: int, sizes: Any, tables: Any, offsets: Any, widths: Any, values: Any) -> None:
    last = sizes.shape[0] - 1
    for block in numba.prange((values.shape[0] + _BLOCK - 1) // _BLOCK):
        left, digits = start + block * _BLOCK, np.empty_like(sizes)
        for i in range(last, -1, -1):
            digits[i] = left % sizes[i]
            left //= sizes[i]
        for p in range(block * _BLOCK, min((block + 1) * _BLOCK, values.shape[0])):
            column = 0
            for i in range(last + 1):
                for c in range(widths[i]):
                    values[p, column] = tables[offsets[i] + digits[i] * widths[i] + c]
                    column += 1
            for i in range(last, -1, -1):  # the next point
                digits[i] += 1
                if digits[i] < sizes[i]:
                    break
                digits[i] = 0


def decode(start: int, count: int, sizes: Sequence[int], column_values: Sequence[Any]) -> Any:
    """Return what consecutive points of a full design set columns to.

    Parameters
    ----------
    sizes : sequence of int
        Values of each axis, the last one fastest.
    column_values : sequence of array, shape (size, columns of the axis)

    Returns
    -------
    array of float64, shape (count, columns)
    """
    widths = np.array([w.shape[1] for w in column_values], np.int64)
    lengths = [w.size for w in column_values]
    offsets = np.array([0, *np.cumsum(lengths)[:-1]], np.int64) if column_values else np.empty(0, np.int64)
    tables = np.concatenate([np.ravel(w) for w in column_values]) if column_values else np.empty(0)
    values = np.empty((count, int(widths.sum())))
    _decode(start, np.array(sizes, np.int64), tables, offsets, widths, values)
    return values
