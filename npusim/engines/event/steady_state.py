"""Steady states: a run is simulated until it repeats itself, and its period is extrapolated.

A tiling has loops of thousands of equal turns. After some of them the machine repeats itself every few turns:
whatever happens between the ends of two turns (t0 and t1) happens again, shifted by t1 - t0. The turns left
out would do the same, so the run with all turns is the run with some of them, with the time from t0 to t1
stretched (*folding*). The log shows whether that holds; where it does not, more turns are simulated, in the
end all. Nothing else may begin, end or run meanwhile: a loop that goes on while another inference works is
simulated in full.

With R requests in flight, R inferences fill the machine, at least 3 R more are measured, and R keep it full
meanwhile: inferences that wait for each other end in bursts, and few bursts would be a poor mean. Once the
machine repeats itself every few inferences, the ends and begins of the others follow from that period. Where
no period shows up, all inferences are simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from npusim.engines.event.machine import TransferRates, simulate
from npusim.engines.event.program import MOST_TASKS, PERIODS, Loop, Program, refuse_many
from npusim.engines.timeline import EventLog, TaskKind

# Turns of a loop that are simulated at first (and up to as many again), and the factor by which they grow
# where no period shows up.
_TURNS, _GROWTH = 24, 4
# Share of a period by which two periods of a loop may differ.
_TURN_TOLERANCE = 1e-7
# Inferences per context that are simulated at first, twice as many where they do not repeat.
_INFERENCES = 6
# Times that all requests in flight are measured where inferences do not repeat.
_BURSTS = 3
# Share of a period by which two periods of inferences may differ: prefetched loads run ahead a little more
# each time, while inferences end at the same pace. About three times those in flight are left out.
_INFERENCE_TOLERANCE = 1e-5
_NEVER_S = 1e300
_ON_DMA = (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER)


class Window(NamedTuple):
    """A period of a loop, tasks `first` to before `last` of an inference, which stands for `repeats` such."""

    begin_s: float
    length_s: float
    repeats: int
    inference: int
    first: int
    last: int


class Run(NamedTuple):
    """A simulated run.

    Program, log in the time of the whole program, how many tasks each task stands for (float64, shape
    (inferences or 1, tasks)), and what is measured.
    """

    program: Program
    log: EventLog
    repeats: Any
    measured: Measured


def simulate_folded(
    build: Callable[[Callable[[int], int]], Program], rates: TransferRates, requests: int, contexts: int
) -> Run:
    """Simulate a run without the turns and inferences that repeat others.

    Parameters
    ----------
    build : callable
        Maps turns by operator to a program.
    requests, contexts : int
        See `simulate_requests`.
    """
    turns, tried = dict[int, int](), 0
    while True:
        program = build(lambda operator: turns.get(operator, _TURNS))
        tried += len(program)
        fits = program.unfolded * (_INFERENCES * contexts + requests) <= MOST_TASKS
        if requests > 1 and tried > program.unfolded and fits:  # trying on would take longer than all turns
            program = build(lambda operator: 0)
        try:
            return simulate_requests(program, rates, requests, contexts, fold=True)
        except _NoPeriodError as error:
            turns.update((operator, _GROWTH * turns.get(operator, _TURNS)) for operator in error.operators)


class _NoPeriodError(Exception):
    """Loops of some operators have no period: the log is of no use."""

    def __init__(self, operators: set[int]) -> None:
        super().__init__(operators)
        self.operators = operators


def folded(program: Program, log: EventLog) -> Any:
    """Stretch a log to the time of all turns; return how many tasks each task stands for.

    Loops that have not ended are left as they are.

    Raises
    ------
    _NoPeriodError
        Where a loop that has ended has no period.
    """
    if not program.loops:
        return np.ones((1, len(program)))
    repeats, without_period = np.ones((len(log.begun), len(program))), set[int]()
    for level in range(1 + max(loop.level for _, loop in program.loops)):
        columns = [getattr(log, name).reshape(repeats.shape) for name in ("ready", "start", "end")]
        events, windows = _Events(columns), []
        for operator, loop in program.loops:
            if loop.level != level or operator in without_period:
                continue
            for inference in np.flatnonzero((columns[2][:, loop.starts[0] : loop.starts[-1]] >= 0.0).all(1)):
                window = _window(loop, int(inference), columns, events)
                if window is None:
                    without_period.add(operator)
                    break
                repeats[inference, window.first : window.last] *= window.repeats
                windows.append(window)
        _stretch(log, windows)
    if without_period:
        raise _NoPeriodError(without_period)
    return repeats


class _Events:
    """Begins and ends of all tasks of a run in order of time, to find when nothing but a loop goes on."""

    def __init__(self, columns: list[Any]) -> None:
        self._shape = columns[0].shape
        times = np.concatenate([column.ravel() for column in columns])
        order = np.argsort(times, kind="stable")[np.count_nonzero(times < 0.0) :]
        self._times, self._rows = times[order], order % columns[0].size
        self._start, self._end = columns[1], np.where(columns[2] < 0.0, _NEVER_S, columns[2])
        is_long = (self._start >= 0.0) & (self._end > self._start)
        self._starts, self._ends = np.sort(self._start[is_long]), np.sort(self._end[is_long])

    def quiet(self, inference: int, first: int, last: int) -> tuple[float, float]:
        """Return the longest time in which nothing but tasks `first` to before `last` begins, ends or runs.

        It is empty (begin after end) where another task runs meanwhile.
        """
        start, end = (column[inference, first:last] for column in (self._start, self._end))
        begin_s, end_s = float(start.min()), float(end.max())
        place = slice(*np.searchsorted(self._times, (begin_s, end_s), "right"))
        rows = self._rows[place] - inference * self._shape[1]
        times = self._times[place][(rows < first) | (rows >= last)]
        times = np.concatenate(([begin_s], times, [end_s]))
        longest = int(np.argmax(np.diff(times)))
        quiet_s = float(times[longest])
        others_s = float(times[longest + 1]) if longest < len(times) - 2 else _NEVER_S
        running = np.searchsorted(self._starts, quiet_s, "right") - np.searchsorted(
            self._ends, quiet_s, "right"
        )
        own = np.count_nonzero((start <= quiet_s) & (end > quiet_s) & (end > start))
        return (quiet_s, others_s) if running == own else (_NEVER_S, 0.0)


def _window(loop: Loop, inference: int, columns: list[Any], events: _Events) -> Window | None:
    """Return the period of a loop in one inference, while nothing else goes on; None without one."""
    sizes = np.diff(loop.starts)[1:-1]
    if len(set(sizes.tolist())) != 1:
        return None
    rows = slice(loop.starts[1], loop.starts[-2])
    turns = np.concatenate([times[inference, rows].reshape(len(sizes), -1) for times in columns], axis=1)
    ends = np.maximum.accumulate(turns[:, -sizes[0] :].max(axis=1))
    left_out = loop.turns - len(sizes) - 2
    quiet_s, others_s = events.quiet(inference, rows.start, rows.stop)
    # The latest turn without influence of anything behind the loop.
    latest = int(np.searchsorted(ends, others_s * (1.0 - 1e-12) - _TURN_TOLERANCE * (ends[1] - ends[0]))) - 1
    for period in PERIODS:
        if latest < 2 * period:
            return None
        begin_s, length_s = float(ends[latest - period]), float(ends[latest] - ends[latest - period])
        if begin_s - length_s >= quiet_s and is_periodic(turns, period, begin_s, length_s):
            first, last = loop.starts[latest - period + 2], loop.starts[latest + 2]
            return Window(begin_s, length_s, 1 + left_out // period, inference, first, last)
    return None


def is_periodic(
    turns: Any, period: int, begin_s: float, length_s: float, tolerance: float = _TURN_TOLERANCE
) -> bool:
    """Return whether a period repeats all events of the one before.

    Parameters
    ----------
    turns : array, shape (turns, events)
        Times of all events (s).
    period : int
        Turns of a period.
    begin_s, length_s : float
        Begin and length of the later period.
    tolerance : float
        Share of a period by which the two may differ.
    """
    end_s, rounding_s = begin_s + length_s, tolerance * length_s + 1e-13 * begin_s
    expected, simulated = turns[:-period] + length_s, turns[period:]
    over = np.maximum(expected, simulated) <= begin_s + rounding_s
    to_come = np.minimum(expected, simulated) > end_s + rounding_s
    equal = np.abs(expected - simulated) <= rounding_s
    return bool(
        length_s > 0.0
        and (over | to_come | equal).all()
        and (turns[:period] <= begin_s + rounding_s).all()
        and (turns[-period:] > begin_s - rounding_s).all()
    )


def _stretch(log: EventLog, windows: list[Window]) -> None:
    """Stretch each window to the time of its repeats: events in it spread out, later ones wait."""
    if not windows:
        return
    knots_s, delays_s, total_s = list[float](), list[float](), 0.0
    for window in sorted(windows):
        knots_s += [window.begin_s, window.begin_s + window.length_s]
        added_s = (window.repeats - 1) * window.length_s
        delays_s += [total_s, total_s + added_s]
        total_s += added_s
    for name in ("ready", "start", "end", "begun", "ended", "sram_time", "dram_time"):
        times_s = getattr(log, name)
        setattr(log, name, times_s + np.interp(times_s, knots_s, delays_s))


class Measured(NamedTuple):
    """The inferences that figures are means of, as their numbers among the simulated ones.

    They last from the end of the inference before them to the end of the last of them; `latency_s` is their
    mean time from request to end. Operators are shown of the inference `shown`. `left_out` further inferences
    were not simulated.
    """

    numbers: Any
    shown: int
    begin_s: float
    end_s: float
    latency_s: float
    left_out: int = 0

    @property
    def interval_s(self) -> float:
        """Time between two inferences."""
        return (self.end_s - self.begin_s) / len(self.numbers)


def simulate_requests(
    program: Program, rates: TransferRates, requests: int, contexts: int, fold: bool
) -> Run:
    """Run a program with some requests in flight.

    Parameters
    ----------
    requests : int
        Requests in flight; one is simulated alone.
    contexts : int
        Inferences that work at once. A multiple of it is measured, or inferences that end together would be
        counted in part.
    fold : bool
        Whether to leave out turns, and inferences, that repeat others.
    """
    measured = _BURSTS * ceil(requests / contexts) * contexts
    inferences = 2 * requests + measured if requests > 1 else 1
    simulated = _INFERENCES * contexts
    while fold and simulated + requests < inferences:
        refuse_many(len(program), simulated + requests)
        log = simulate(program, rates, simulated + requests, requests, until=simulated)
        repeats = folded(program, log)
        steady = _steady(program, log, requests, measured)
        if steady:
            ended = len(_ended_in_a_row(log))
            return Run(program, log.first(ended, len(program)), repeats[:ended], steady)
        simulated *= 2
    refuse_many(len(program), inferences)
    log = simulate(program, rates, inferences, requests)
    repeats = folded(program, log)
    if requests > 1:
        return Run(program, log, repeats, _measured(log.ended, log.begun, requests, measured))
    ended_s = float(log.ended[0])
    return Run(program, log, repeats, Measured(np.zeros(1, np.int64), 0, 0.0, ended_s, ended_s))


def _ended_in_a_row(log: EventLog) -> Any:
    """Return the ends of the first inferences, up to one that has not ended."""
    return log.ended[: int(np.argmax(np.append(log.ended, -1.0) < 0.0))]


def _measured(ended: Any, begun: Any, requests: int, measured: int) -> Measured:
    """Return the measured inferences of a run, given the ends and begins of all."""
    numbers = np.argsort(ended, kind="stable")[requests - 1 : requests + measured]
    last, numbers = numbers[0], numbers[1:]
    latency_s = float((ended - begun)[numbers].mean())
    return Measured(numbers, int(numbers[0]), float(ended[last]), float(ended[numbers[-1]]), latency_s)


def _steady(program: Program, log: EventLog, requests: int, measured: int) -> Measured | None:
    """Return the measured inferences of a run in steady state; None where it is not yet in one."""
    ended = _ended_in_a_row(log)
    columns = (np.where(values < 0.0, _NEVER_S, values) for values in (log.ready, log.start, log.end))
    times = [column.reshape(-1, len(program)) for column in columns]
    ends = np.sort(ended)
    # The latest end before which no inference worked that is still running.
    on_unit = program.tasks["unit"] >= 0
    others_s = float(times[1][len(ended) :, on_unit].min(initial=_NEVER_S))
    last = int(np.searchsorted(ends, min(others_s, float(ends[-1]) * (1.0 - 1e-12)))) - 1
    for period in (p for p in PERIODS if measured % p == 0 and 2 * p <= last):
        begin_s, end_s = float(ends[last - period]), float(ends[last])
        length_s = end_s - begin_s
        numbers = np.flatnonzero((ended > begin_s) & (ended <= end_s))
        if (
            len(numbers) != period
            or not is_periodic(np.hstack(times), period, begin_s, length_s, _INFERENCE_TOLERANCE)
            or not _is_rest_periodic(program, times, period, end_s, length_s)
        ):
            continue
        total, known = 2 * requests + measured, len(ends)
        ended = np.append(ended, np.zeros(total - known))
        for i in range(known, total):
            ended[i] = ended[i - period] + length_s
        begun = np.concatenate((np.zeros(requests), np.sort(ended)[: total - requests]))
        whole = _measured(ended, begun, requests, measured)
        shown = whole.shown - period * max(0, ceil((whole.shown - known + 1) / period))
        return Measured(numbers, shown, begin_s, end_s, whole.latency_s, total - known)
    return None


def _is_rest_periodic(program: Program, times: list[Any], period: int, end_s: float, length_s: float) -> bool:
    """Return whether the tasks at work at a period's end began as the tasks at work at its begin did.

    A launch may last longer than a period: within one only its end would be compared.
    """
    ready, start, end = times
    rounding_s = _INFERENCE_TOLERANCE * length_s + 1e-13 * end_s
    moves = np.isin(program.tasks["kind"], _ON_DMA)
    running = ((start, (start <= end_s) & (end > end_s)), (ready, (ready <= end_s) & (start > end_s) & moves))
    return all(
        bool((np.abs(column[:-period] + length_s - column[period:]) <= rounding_s)[is_open[period:]].all())
        for column, is_open in running
    )
