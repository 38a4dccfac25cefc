"""Equal steps folded: some turns of a loop are acted out, and their period is repeated.

A tiling has loops of thousands of equal turns. After some of them the machine does the same every few turns:
all that happens between one turn's end (t0) and a later one's (t1) happens again, shifted by t1 - t0. The
turns that were left out would do just that, so the run with all turns is the run with some of them, its time
from t0 to t1 drawn out. Whether that holds is read off the log; where it does not, more turns are acted out,
all of them in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npusim.engines.event.machine import TransferRates, simulate
from npusim.engines.event.program import PERIODS, EventLog, Loop, Program, refuse_many

_FEW = 24
"""Turns of a loop that are acted out at first, and up to as many again ..."""
_MORE = 4
"""... and so many times as many when these do not come to a period."""
_SAME = 1e-7
"""Share of a period by which two of them may differ."""


class Window(NamedTuple):
    """A period of a loop, which stands for others like it."""

    begin_s: float
    length_s: float
    times: int
    """Periods that it stands for, itself counted."""
    first: int
    """Its tasks, from here ..."""
    last: int
    """... up to here, not included."""


def simulate_folded(
    build: Callable[[Callable[[int], int]], Program], rates: TransferRates
) -> tuple[Program, EventLog, Any]:
    """Run one inference of a program with equal steps folded.

    Parameters
    ----------
    build : callable
        Returns the program, given for each operator how many turns of a loop to write.

    Returns
    -------
    tuple
        The program as it was acted out, its log in the time of the whole program, and how many tasks each
        of its tasks stands for, float64.
    """
    most: dict[int, int] = {}
    while True:
        program = build(lambda operator: most.get(operator, _FEW))
        refuse_many(len(program), 1)
        log = simulate(program, rates)
        times, missed = fold(program, log)
        if not missed:
            return program, log, times
        most.update((operator, _MORE * most.get(operator, _FEW)) for operator in missed)


def fold(program: Program, log: EventLog) -> tuple[Any, set[int]]:
    """Draw the log of one inference out to the time of all turns.

    Returns
    -------
    tuple
        How many tasks each task stands for, float64, and the operators with a loop that came to no period:
        if there are any the log is of no use.
    """
    times, missed = np.ones(len(program)), set[int]()
    for level in range(1 + max((loop.level for _, loop in program.loops), default=-1)):
        columns = (log.ready, log.start, log.end)
        quiet_s = np.maximum.accumulate(columns[2])
        others_s = np.minimum.accumulate(columns[0][::-1])[::-1]
        windows = []
        for operator, loop in program.loops:
            if loop.level != level or operator in missed:
                continue
            before, after = loop.starts[1] - 1, loop.starts[-2]
            found = _window(loop, columns, float(quiet_s[before]), float(others_s[after]))
            if found:
                windows.append(found)
                times[found.first : found.last] *= found.times
            else:
                missed.add(operator)
        _draw_out(log, windows)
    return times, missed


def _window(loop: Loop, columns: tuple[Any, ...], quiet_s: float, others_s: float) -> Window | None:
    """Return the period that a loop comes to, if any.

    Parameters
    ----------
    columns : tuple of arrays
        When each task was ready, began and ended (s).
    quiet_s, others_s : float
        When all tasks before the loop's second turn have ended, and when the first one from its last turn on
        is ready.
    """
    sizes = np.diff(loop.starts)[1:-1]
    if len(set(sizes.tolist())) != 1:
        return None
    turns = np.concatenate(
        [times[loop.starts[1] : loop.starts[-2]].reshape(len(sizes), -1) for times in columns], axis=1
    )
    ends = np.maximum.accumulate(turns[:, -sizes[0] :].max(axis=1))
    left_out = loop.turns - len(sizes) - 2
    for period in PERIODS:
        # The latest turn that nothing behind the loop has a part in.
        at = int(np.searchsorted(ends, others_s * (1.0 - 1e-12) - _SAME * (ends[1] - ends[0]))) - 1
        if at < 2 * period:
            return None
        begin_s, length_s = float(ends[at - period]), float(ends[at] - ends[at - period])
        if begin_s - length_s >= quiet_s and repeats(turns, period, begin_s, length_s):
            first, last = loop.starts[at - period + 2], loop.starts[at + 2]
            return Window(begin_s, length_s, 1 + left_out // period, first, last)
    return None


def repeats(turns: Any, period: int, begin_s: float, length_s: float, same: float = _SAME) -> bool:
    """Tell whether all that happens in a period is what happened in the one before.

    Parameters
    ----------
    turns : array
        Times of all that happens (s), a row for each turn.
    period : int
        Turns of a period.
    begin_s, length_s : float
        When the later period begins, and how long it is.
    same : float
        Share of a period by which two of them may differ.
    """
    end_s, rounding = begin_s + length_s, same * length_s + 1e-13 * begin_s
    expected, found = turns[:-period] + length_s, turns[period:]
    over = np.maximum(expected, found) <= begin_s + rounding
    to_come = np.minimum(expected, found) > end_s + rounding
    equal = np.abs(expected - found) <= rounding
    return bool(
        length_s > 0.0
        and (over | to_come | equal).all()
        and (turns[:period] <= begin_s + rounding).all()
        and (turns[-period:] > begin_s - rounding).all()
    )


def _draw_out(log: EventLog, windows: list[Window]) -> None:
    """Repeat periods in time: what is behind them comes later, what is in them takes longer."""
    if not windows:
        return
    knots_s, later_s, total_s = list[float](), list[float](), 0.0
    for window in sorted(windows):
        knots_s += [window.begin_s, window.begin_s + window.length_s]
        added_s = (window.times - 1) * window.length_s
        later_s += [total_s, total_s + added_s]
        total_s += added_s
    for name in ("ready", "start", "end", "begun", "ended", "sram_time", "dram_time"):
        times = getattr(log, name)
        setattr(log, name, times + np.interp(times, knots_s, later_s))
