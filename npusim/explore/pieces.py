"""The points of a full design that share a search, in an order in which neighbours have similar rates.

All groups have the same points but for what the search looks at, so values and order of a group are made
once. It is cut along its rated axes into boxes of at most `BLOCK` points, the widest side first, measured in
ratios. Axes that change no rate (DSPs, voltage) come outside of a box: the same box follows for each of their
values. A group that is long is cut along its outermost axis into pieces, a search each, so that all cores
have work.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npusim.cost import BLOCK, PointGroups
from npusim.explore.axes import Axis

_LONGEST = 16_384
"""Points of a piece at most."""
_KEPT = 64
"""Pieces whose places are kept."""
_TINY = 1e-300


class _Places(NamedTuple):
    """Points of a piece in the order of their evaluation."""

    order: Any
    """Which point each is, int64, shape (places,)."""
    cuts: Any
    """Places where boxes begin, int64; the number of places last."""
    values: Any
    """What each sets columns to, float64, shape (places, columns)."""


class Pieces:
    """Groups of points of one network that share a search, by their numbers.

    Parameters
    ----------
    searched : sequence of Axis
        Machine axes that the search looks at, in the order in which points are numbered.
    others : sequence of Axis
        The machine axes behind them.
    """

    def __init__(self, searched: Sequence[Axis], others: Sequence[Axis]) -> None:
        sizes = [axis.size for axis in others]
        cut = 0  # the first axis of which several values fit into a piece
        while cut < len(others) - 1 and prod(sizes[cut + 1 :]) > _LONGEST:
            cut += 1
        self._outer, self._inner = [*searched, *others[:cut]], list(others[cut:])
        self._alike = prod(sizes[:cut])
        self._below = prod(sizes[cut + 1 :])
        run = max(1, min(sizes[cut], _LONGEST // self._below))
        run = -(-sizes[cut] // -(-sizes[cut] // run))  # as even as possible
        self._starts = [*range(0, sizes[cut], run), sizes[cut]]
        self.length = prod(sizes[cut:])
        """Points whose outer axes have the same values."""
        self._kept: dict[int, _Places] = {}

    def points(self, first: int, last: int) -> PointGroups:
        """Return the points `first` to `last` of a network."""
        parts: list[_Places] = []
        where: dict[int, tuple[int, int]] = {}  # of whole pieces
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
        return PointGroups(
            columns, values, np.array(firsts, np.int64), np.array(spans, np.int64), _columns(self._inner),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.order for part in parts]),
            np.unique(np.concatenate([part.cuts + s for part, s in zip(parts, starts, strict=True)])),
            np.array(owners, np.int64) // self._alike,
        )  # fmt: skip

    def _outer_values(self, owners: Any) -> tuple[Any, Any]:
        """Return the columns that outer axes set, and what groups set them to."""
        if not self._outer:
            return np.empty(0, np.int64), np.empty((len(owners), 0))
        digits = np.unravel_index(owners, [axis.size for axis in self._outer])
        found = [axis.column_values[digit] for axis, digit in zip(self._outer, digits, strict=True)]
        return _columns(self._outer), np.ascontiguousarray(np.concatenate(found, axis=1))

    def _places(self, run: int) -> _Places:
        """Return the places of a piece, by its number among those with the same outer values."""
        if run not in self._kept:
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            start, stop = self._starts[run : run + 2]
            values = [axis.column_values for axis in self._inner]
            values[0] = values[0][start:stop]
            sizes = [len(one) for one in values]
            order, cuts = in_boxes(values, [axis.is_rated for axis in self._inner])
            digits = np.unravel_index(order, sizes)
            set_to = np.concatenate([one[d] for one, d in zip(values, digits, strict=True)], axis=1)
            self._kept[run] = _Places(order, cuts, np.ascontiguousarray(set_to))
        return self._kept[run]


def _columns(axes: Sequence[Axis]) -> Any:
    return np.array([column for axis in axes for column in axis.columns], np.int64)


def _between(places: _Places, low: int, high: int) -> _Places:
    """Return some of the points of a piece."""
    taken = (places.order >= low) & (places.order < high)
    before = np.concatenate([[0], np.cumsum(taken)])
    return _Places(places.order[taken] - low, before[places.cuts], places.values[taken])


def in_boxes(values: Sequence[Any], is_rated: Sequence[bool]) -> tuple[Any, Any]:
    """Return an order of all combinations in which neighbours are similar, and where its boxes begin.

    Parameters
    ----------
    values : sequence of array of float64, shape (size, columns)
        Of each axis; the last one varies fastest in the numbers of combinations.
    is_rated : sequence of bool
        Whether neighbours shall be similar in an axis.

    Returns
    -------
    order, cuts : array of int64
        Numbers of combinations; places of boxes of at most `BLOCK` of them, the number of places last.
    """
    sizes = [len(one) for one in values]
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    logs = [np.log(np.maximum(np.abs(one), _TINY)) for one in values]
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
    found = np.zeros(1, np.int64)
    for part in parts:
        found = np.add.outer(found, part).ravel()
    return found


def _width(logs: Any, start: int, stop: int) -> float:
    """Return the range of an axis between two of its values, as a logarithm; of one value less than any."""
    if stop - start < 2:
        return -1.0
    part = logs[start:stop]
    return float(np.max(part.max(axis=0) - part.min(axis=0)))
