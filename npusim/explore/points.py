"""Points of a design space: their numbers, the column values of each, and the order of evaluation.

A full factorial design is a number in mixed radix: the digits of a point's number are the positions of its
axes, the last axis fastest. A sampled design (scipy.stats.qmc) draws a row of the unit cube for each number
and turns it into positions. Either way point 4711 is the same point in every run, on every machine. The
points are never all in memory.

Traversal. All groups of points that share a search have the same points except for what the search looks at,
so values and order of a group are computed once. A group is cut along its rated axes into boxes of at most
`BLOCK` points, the widest side first, measured in ratios: few candidates can be the fastest in a narrow box.
Axes that change no rate (DSPs, voltage) come outside of a box: the same box follows for each of their values.
A long group is cut along its outermost axis into runs, one search each, so that all cores have work.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npusim.cost import BLOCK, PointGroups
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
        cube = _rows(self.design, len(self.axes), int(numbers[0]), len(numbers))
        return positions_in_unit_cube(self.axes, cube)


def positions_in_unit_cube(axes: Sequence[Axis], cube: Any) -> Any:
    """Turn rows of the unit cube [0, 1) into coordinates; shapes (points, axes)."""
    positions = np.empty_like(cube)
    for i, axis in enumerate(axes):
        share = np.clip(cube[:, i], 0.0, 1.0)
        if not axis.is_continuous:
            positions[:, i] = np.minimum(np.floor(share * axis.size), axis.size - 1)
            continue
        low, high = axis.numbers
        value = low * (high / low) ** share if axis.is_log else low + share * (high - low)
        positions[:, i] = np.round(value) if axis.is_whole else np.clip(value, low, high)
    return positions


def _rows(design: DesignSpec, dimensions: int, start: int, count: int) -> Any:
    """Return consecutive rows of a sampled design in the unit cube, shape (count, dimensions)."""
    from scipy.stats import qmc  # slow to import

    if design.method == "latin-hypercube":
        return _hypercube(design.points or 0, dimensions, design.seed)[start : start + count]
    sampler = qmc.Sobol(dimensions, seed=design.seed)
    if start:
        sampler.fast_forward(start)
    with warnings.catch_warnings():  # a part of the sequence is no power of two long, the whole may be
        warnings.simplefilter("ignore", UserWarning)
        return sampler.random(count)


@lru_cache(maxsize=4)
def _hypercube(points: int, dimensions: int, seed: int) -> Any:
    from scipy.stats import qmc

    return qmc.LatinHypercube(dimensions, scramble=False, seed=seed).random(points)


_LONGEST_RUN = 16_384
"""Most points of a run."""
_KEPT = 64
"""Runs whose places are kept."""
_TINY = 1e-300


class _Places(NamedTuple):
    """Points of a run in the order of their evaluation."""

    order: Any
    """Number of each point, int64."""
    cuts: Any
    """Places where boxes begin, int64; the number of places last."""
    values: Any
    """Column values of each, float64, shape (places, columns)."""


class Traversal:
    """Order of evaluation of a full-factorial design: groups of points that share a search.

    Parameters
    ----------
    searched : sequence of Axis
        Machine axes that the search looks at, in the order in which points are numbered.
    others : sequence of Axis
        The machine axes behind them.
    """

    def __init__(self, searched: Sequence[Axis], others: Sequence[Axis]) -> None:
        sizes = [axis.size for axis in others]
        cut = 0  # the first axis with several values in a run
        while cut < len(others) - 1 and prod(sizes[cut + 1 :]) > _LONGEST_RUN:
            cut += 1
        self._outer, self._inner = [*searched, *others[:cut]], list(others[cut:])
        self._alike = prod(sizes[:cut])
        self._below = prod(sizes[cut + 1 :])
        run = max(1, min(sizes[cut], _LONGEST_RUN // self._below))
        run = -(-sizes[cut] // -(-sizes[cut] // run))  # as even as possible
        self._starts = [*range(0, sizes[cut], run), sizes[cut]]
        self.length = prod(sizes[cut:])
        """Points whose outer axes have the same values."""
        self._places = lru_cache(maxsize=_KEPT)(self._places_of)

    def points(self, first: int, last: int) -> PointGroups:
        """Return the points `first` to `last` of a network."""
        parts: list[_Places] = []
        where: dict[int, tuple[int, int]] = {}  # spans of whole runs
        spans, firsts, owners, end = [], [], [], 0
        for owner in range(first // self.length, -(-last // self.length)):
            for r, (start, stop) in enumerate(pairwise(self._starts)):
                begin = owner * self.length + start * self._below
                low, high = max(first, begin) - begin, min(last, begin + (stop - start) * self._below) - begin
                if low >= high:
                    continue
                is_whole = high - low == (stop - start) * self._below
                if not (is_whole and r in where):
                    parts.append(self._places(r) if is_whole else _between(self._places(r), low, high))
                    span = (end, end + high - low)
                    end = span[1]
                    if is_whole:
                        where[r] = span
                spans.append(where[r] if is_whole else span)
                firsts.append(begin + low - first)
                owners.append(owner)
        columns, values = self._outer_values(np.array(owners, np.int64))
        starts = np.cumsum([0, *(len(part.order) for part in parts)])[:-1]
        cuts = [part.cuts + start for part, start in zip(parts, starts, strict=True)]
        return PointGroups(
            group_columns=columns,
            group_values=values,
            first=np.array(firsts, np.int64),
            spans=np.array(spans, np.int64),
            columns=_columns(self._inner),
            values=np.concatenate([part.values for part in parts]),
            order=np.concatenate([part.order for part in parts]),
            cuts=np.unique(np.concatenate(cuts)),
            search_of=np.array(owners, np.int64) // self._alike,
        )

    def _outer_values(self, owners: Any) -> tuple[Any, Any]:
        """Return the columns that outer axes set, and their values in each group."""
        if not self._outer:
            return np.empty(0, np.int64), np.empty((len(owners), 0))
        digits = np.unravel_index(owners, [axis.size for axis in self._outer])
        values = [axis.column_values[digit] for axis, digit in zip(self._outer, digits, strict=True)]
        return _columns(self._outer), np.ascontiguousarray(np.concatenate(values, axis=1))

    def _places_of(self, run: int) -> _Places:
        """Return the places of a run, by its number among runs with the same outer values."""
        start, stop = self._starts[run : run + 2]
        values = [axis.column_values for axis in self._inner]
        values[0] = values[0][start:stop]
        order, cuts = in_boxes(values, [axis.is_rated for axis in self._inner])
        digits = np.unravel_index(order, [len(axis) for axis in values])
        set_to = np.concatenate([axis[d] for axis, d in zip(values, digits, strict=True)], axis=1)
        return _Places(order, cuts, np.ascontiguousarray(set_to))


def _columns(axes: Sequence[Axis]) -> Any:
    return np.array([column for axis in axes for column in axis.columns], np.int64)


def _between(places: _Places, low: int, high: int) -> _Places:
    """Return the points `low` to `high` of a run."""
    is_inside = (places.order >= low) & (places.order < high)
    before = np.concatenate([[0], np.cumsum(is_inside)])
    return _Places(places.order[is_inside] - low, before[places.cuts], places.values[is_inside])


def in_boxes(values: Sequence[Any], is_rated: Sequence[bool]) -> tuple[Any, Any]:
    """Return a traversal order of all combinations with similar neighbours, and where its boxes begin.

    Parameters
    ----------
    values : sequence of array of float64, shape (size, columns)
        Of each axis; the last one varies fastest in the numbers of combinations.
    is_rated : sequence of bool
        Whether an axis changes rates: neighbours are similar in it.

    Returns
    -------
    order, cuts : array of int64
        Numbers of combinations; places of boxes of at most `BLOCK` of them, the number of places last.
    """
    sizes = [len(axis) for axis in values]
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    logs = [np.log(np.maximum(np.abs(axis), _TINY)) for axis in values]
    rated = [i for i in range(len(sizes)) if is_rated[i]]
    others = [i for i in range(len(sizes)) if not is_rated[i]]
    while others and prod(sizes[i] for i in rated) < BLOCK // 2:  # a box takes as long however small it is
        rated.append(others.pop())
    outside = _sums([np.arange(sizes[i]) * strides[i] for i in others])
    order, lengths = [], []
    waiting = [{i: (0, sizes[i]) for i in rated}]
    while waiting:
        box = waiting.pop()
        if prod(stop - start for start, stop in box.values()) > BLOCK:
            widest = max(box, key=lambda i: _width(logs[i], *box[i]))
            start, stop = box[widest]
            middle = (start + stop) // 2
            waiting += [{**box, widest: (middle, stop)}, {**box, widest: (start, middle)}]
            continue
        inside = _sums([np.arange(*box[i]) * strides[i] for i in rated])
        order.append(np.add.outer(outside, inside).ravel())
        lengths += [len(inside)] * len(outside)
    return np.concatenate(order), np.cumsum([0, *lengths])


def _sums(parts: Sequence[Any]) -> Any:
    sums = np.zeros(1, np.int64)
    for part in parts:
        sums = np.add.outer(sums, part).ravel()
    return sums


def _width(logs: Any, start: int, stop: int) -> float:
    """Return the range of an axis between two of its values, as a logarithm; of one value less than any."""
    if stop - start < 2:
        return -1.0
    part = logs[start:stop]
    return float(np.max(part.max(axis=0) - part.min(axis=0)))
