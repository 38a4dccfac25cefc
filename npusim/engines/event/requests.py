"""Several requests in flight: a run until its inferences repeat, and what figures are means of.

R inferences fill the machine, at least R more are measured, and R keep it full meanwhile. Once the machine
does the same for every few inferences, the others would do just that: the run is acted out up to there, and
their ends and begins follow from the period. Where no period is found all inferences are acted out.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import numpy as np

from npusim.engines.event.folding import repeats
from npusim.engines.event.machine import Machine, TransferRates
from npusim.engines.event.program import PERIODS, EventLog, Program, refuse_many
from npusim.engines.timeline import TaskKind

_FEW, _ROOM = 6, 4
"""Inferences of each context that are acted out at first, twice as many where they do not repeat; for so many
times the first there is room, before a run is laid out for all."""
_SAME = 1e-5
"""Share of a period by which two of them may differ: loads that run ahead a little more each time, while
inferences end at the same pace. About three times those in flight are left out."""
_NEVER_S = 1e300
_ON_DMA = [int(kind) for kind in (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER)]


class Measured(NamedTuple):
    """The inferences that figures are means of."""

    numbers: Any
    """Of inferences that were acted out, int64 array."""
    shown: int
    """The one of which operators are shown."""
    begin_s: float
    """When those before had ended ..."""
    end_s: float
    """... and when these had."""
    latency_s: float
    """Mean time from an inference's request to its end."""
    left_out: int = 0
    """Inferences like them that were not acted out."""

    @property
    def interval_s(self) -> float:
        """Time between two inferences."""
        return (self.end_s - self.begin_s) / len(self.numbers)


def single(log: EventLog) -> Measured:
    """Return the one inference of a log."""
    return Measured(np.zeros(1, np.int64), 0, 0.0, float(log.ended[0]), float(log.ended[0]))


def simulate_requests(
    program: Program, rates: TransferRates, requests: int, contexts: int, fold: bool
) -> tuple[EventLog, Measured]:
    """Run a program with several requests in flight.

    Parameters
    ----------
    requests : int
        Requests in flight, two at least.
    contexts : int
        Inferences that work at once. Those that end together would be counted in part if fewer were measured
        than a multiple of it.
    fold : bool
        Whether to leave out inferences that repeat others.
    """
    tasks, measured = len(program), ceil(requests / contexts) * contexts
    inferences = 2 * requests + measured
    acted = _FEW * contexts
    machine = _machine(
        program, rates, min(inferences, _ROOM * acted + requests) if fold else inferences, requests
    )
    while fold and acted + requests < inferences:
        if acted + requests > machine.inferences:
            machine = _machine(program, rates, inferences, requests)
        log = machine.run(acted)
        found = _repeated(program, log, requests, measured)
        if found:
            return log.first(len(_acted_out(log)), tasks), found
        acted *= 2
    if machine.inferences < inferences:
        machine = _machine(program, rates, inferences, requests)
    log = machine.run()
    return log, _measured(log.ended, log.begun, requests, measured)


def _machine(program: Program, rates: TransferRates, inferences: int, requests: int) -> Machine:
    refuse_many(len(program), inferences)
    return Machine(program, rates, inferences, requests)


def _acted_out(log: EventLog) -> Any:
    """Return the ends of the first inferences that are over, up to one that is not."""
    ended = log.ended
    return ended[: int(np.argmax(ended < 0.0)) if (ended < 0.0).any() else len(ended)]


def _measured(ended: Any, begun: Any, requests: int, measured: int) -> Measured:
    """Return what is measured of a run, given the ends and begins of all inferences."""
    numbers = np.argsort(ended, kind="stable")[requests - 1 : requests + measured]
    last, numbers = numbers[0], numbers[1:]
    latency_s = float((ended - begun)[numbers].mean())
    return Measured(numbers, int(numbers[0]), float(ended[last]), float(ended[numbers[-1]]), latency_s)


def _repeated(program: Program, log: EventLog, requests: int, measured: int) -> Measured | None:
    """Return what is measured of a run that was left while it repeats; None where it does not yet."""
    tasks, ended = len(program), _acted_out(log)
    ready, start, end = (
        np.where(values < 0.0, _NEVER_S, values).reshape(-1, tasks)
        for values in (log.ready, log.start, log.end)
    )
    ends = np.sort(ended)
    # The latest end before the run was left and before which no inference worked that is not over by then.
    at_work = np.array(program.unit) >= 0
    others_s = float(start[len(ended) :, at_work].min(initial=_NEVER_S))
    last = int(np.searchsorted(ends, min(others_s, float(ends[-1]) * (1.0 - 1e-12)))) - 1
    for period in (p for p in PERIODS if measured % p == 0 and 2 * p <= last):
        begin_s, end_s = float(ends[last - period]), float(ends[last])
        length_s = end_s - begin_s
        numbers = np.flatnonzero((ended > begin_s) & (ended <= end_s))
        if len(numbers) != period or not repeats(
            np.hstack((ready, start, end)), period, begin_s, length_s, _SAME
        ):
            continue
        if not _same_rest(program, (ready, start, end), period, end_s, length_s):
            continue
        total = 2 * requests + measured
        ended = np.append(ended, np.zeros(total - len(ended)))
        known = len(ends)
        for i in range(known, total):
            ended[i] = ended[i - period] + length_s
        begun = np.concatenate((np.zeros(requests), np.sort(ended)[: total - requests]))
        whole = _measured(ended, begun, requests, measured)
        shown = whole.shown - period * max(0, ceil((whole.shown - known + 1) / period))
        return Measured(numbers, shown, begin_s, end_s, whole.latency_s, total - known)
    return None


def _same_rest(
    program: Program, times: tuple[Any, Any, Any], period: int, end_s: float, length_s: float
) -> bool:
    """Tell whether what goes on at the end of a period began as what went on at its begin had begun.

    A launch may last longer than a period; of what is compared within one only its end would be seen.
    """
    ready, start, end = times
    rounding_s = _SAME * length_s + 1e-13 * end_s
    moves = np.isin(np.array(program.kind), _ON_DMA)
    open_ = ((start, (start <= end_s) & (end > end_s)), (ready, (ready <= end_s) & (start > end_s) & moves))
    return all(
        bool((np.abs(column[:-period] + length_s - column[period:]) <= rounding_s)[is_open[period:]].all())
        for column, is_open in open_
    )
