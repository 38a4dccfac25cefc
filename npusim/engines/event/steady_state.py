"""Steady states: a run is simulated until it repeats itself, and its period is extrapolated.

A tiling has loops of thousands of equal turns. After some of them the machine repeats itself every few turns:
whatever happens between the ends of two turns (t0 and t1) happens again, shifted by t1 - t0. The turns left
out would do the same, so the run with all turns is the run with some of them, with the time from t0 to t1
stretched (*folding*). The log shows whether that holds; where it does not, more turns are simulated, in the
end all.

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

from npusim.engines.event.machine import Machine, TransferRates, simulate
from npusim.engines.event.program import PERIODS, Loop, Program, refuse_many
from npusim.engines.timeline import EventLog, TaskKind

# Turns of a loop that are simulated at first (and up to as many again), and the factor by which they grow
# where no period shows up.
_TURNS, _GROWTH = 24, 4
# Share of a period by which two periods of a loop may differ.
_TURN_TOLERANCE = 1e-7
# Inferences per context that are simulated at first, twice as many where they do not repeat; and how many
# times the first a machine has room for before one is made for all.
_INFERENCES, _ROOM = 6, 4
# Times that all requests in flight are measured where inferences do not repeat.
_BURSTS = 3
# Share of a period by which two periods of inferences may differ: prefetched loads run ahead a little more
# each time, while inferences end at the same pace. About three times those in flight are left out.
_INFERENCE_TOLERANCE = 1e-5
_NEVER_S = 1e300
_ON_DMA = (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER)


class Window(NamedTuple):
    """A period of a loop, tasks `first` to before `last`, which stands for `repeats` such periods."""

    begin_s: float
    length_s: float
    repeats: int
    first: int
    last: int


def simulate_folded(
    build: Callable[[Callable[[int], int]], Program], rates: TransferRates
) -> tuple[Program, EventLog, Any]:
    """Simulate one inference whose equal steps are folded; `build` maps turns by operator to a program.

    Returns
    -------
    tuple
        The program as simulated, its log in the time of the whole program, and how many tasks each of its
        tasks stands for, float64.
    """
    turns: dict[int, int] = {}
    while True:
        program = build(lambda operator: turns.get(operator, _TURNS))
        refuse_many(len(program), 1)
        log = simulate(program, rates)
        repeats, without_period = fold(program, log)
        if not without_period:
            return program, log, repeats
        turns.update((operator, _GROWTH * turns.get(operator, _TURNS)) for operator in without_period)


def fold(program: Program, log: EventLog) -> tuple[Any, set[int]]:
    """Stretch the log of one inference to the time of all turns.

    Returns
    -------
    tuple
        How many tasks each task stands for, float64, and the operators with a loop without a period: if there
        are any, the log is of no use.
    """
    repeats, without_period = np.ones(len(program)), set[int]()
    for level in range(1 + max((loop.level for _, loop in program.loops), default=-1)):
        columns = (log.ready, log.start, log.end)
        quiet_s = np.maximum.accumulate(log.end)
        others_s = np.minimum.accumulate(log.ready[::-1])[::-1]
        windows = []
        for operator, loop in program.loops:
            if loop.level != level or operator in without_period:
                continue
            before, after = loop.starts[1] - 1, loop.starts[-2]
            window = _window(loop, columns, float(quiet_s[before]), float(others_s[after]))
            if window:
                windows.append(window)
                repeats[window.first : window.last] *= window.repeats
            else:
                without_period.add(operator)
        _stretch(log, windows)
    return repeats, without_period


def _window(loop: Loop, columns: tuple[Any, ...], quiet_s: float, others_s: float) -> Window | None:
    """Return the period of a loop, between the ends of earlier tasks and the first later one, or None."""
    sizes = np.diff(loop.starts)[1:-1]
    if len(set(sizes.tolist())) != 1:
        return None
    turns = np.concatenate(
        [times[loop.starts[1] : loop.starts[-2]].reshape(len(sizes), -1) for times in columns], axis=1
    )
    ends = np.maximum.accumulate(turns[:, -sizes[0] :].max(axis=1))
    left_out = loop.turns - len(sizes) - 2
    # The latest turn without influence of anything behind the loop.
    latest = int(np.searchsorted(ends, others_s * (1.0 - 1e-12) - _TURN_TOLERANCE * (ends[1] - ends[0]))) - 1
    for period in PERIODS:
        if latest < 2 * period:
            return None
        begin_s, length_s = float(ends[latest - period]), float(ends[latest] - ends[latest - period])
        if begin_s - length_s >= quiet_s and is_periodic(turns, period, begin_s, length_s):
            first, last = loop.starts[latest - period + 2], loop.starts[latest + 2]
            return Window(begin_s, length_s, 1 + left_out // period, first, last)
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
    """Repeat periods in time: later events move back, events within a period are stretched."""
    if not windows:
        return
    knots_s, later_s, total_s = list[float](), list[float](), 0.0
    for window in sorted(windows):
        knots_s += [window.begin_s, window.begin_s + window.length_s]
        added_s = (window.repeats - 1) * window.length_s
        later_s += [total_s, total_s + added_s]
        total_s += added_s
    for name in ("ready", "start", "end", "begun", "ended", "sram_time", "dram_time"):
        times_s = getattr(log, name)
        setattr(log, name, times_s + np.interp(times_s, knots_s, later_s))


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


def single(log: EventLog) -> Measured:
    """Return the one inference of a log."""
    ended_s = float(log.ended[0])
    return Measured(np.zeros(1, np.int64), 0, 0.0, ended_s, ended_s)


def simulate_requests(
    program: Program, rates: TransferRates, requests: int, contexts: int, fold: bool
) -> tuple[EventLog, Measured]:
    """Run a program with some requests in flight.

    Parameters
    ----------
    requests : int
        Requests in flight; one is simulated alone.
    contexts : int
        Inferences that work at once. A multiple of it is measured, or inferences that end together would be
        counted in part.
    fold : bool
        Whether to leave out inferences that repeat others.
    """
    if requests == 1:
        refuse_many(len(program), 1)
        log = simulate(program, rates)
        return log, single(log)
    measured = _BURSTS * ceil(requests / contexts) * contexts
    inferences = 2 * requests + measured
    simulated = _INFERENCES * contexts

    def machine_for(count: int) -> Machine:
        refuse_many(len(program), count)
        return Machine(program, rates, count, requests)

    machine = machine_for(min(inferences, _ROOM * simulated + requests) if fold else inferences)
    while fold and simulated + requests < inferences:
        if simulated + requests > machine.inferences:
            machine = machine_for(inferences)
        log = machine.run(simulated)
        steady = _steady(program, log, requests, measured)
        if steady:
            return log.first(len(_ended_in_a_row(log)), len(program)), steady
        simulated *= 2
    if machine.inferences < inferences:
        machine = machine_for(inferences)
    log = machine.run()
    return log, _measured(log.ended, log.begun, requests, measured)


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
    for period in range(1, last // 2 + 1):
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
        latency_s = float((log.ended - log.begun)[numbers].mean())
        return Measured(numbers, shown, begin_s, end_s, latency_s, total - known)
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
