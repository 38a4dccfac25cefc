"""Timing of one compiled network: budget, warm-up, turns, background load, profile.

Operator times come from the device's profiler, in runs of their own: profiling slows a network down. A CPU's
profiler shows the mean over all runs since the start, slow first run included; an operator's time is computed
from two such means.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psutil

from npusim.measuring.devices import load_openvino
from npusim.measuring.document import SHORTEST_S, Counter, Spread

# Shares of a row's time: readings, warm-up, counters. Readings matter most.
_HEADLINE, _WARM_UP, _COUNTERS = 0.6, 0.15, 0.25
# Part of a turn below which an inference runs once more, because other networks have filled the caches.
_DISCARD_BELOW = 0.25
# Busy times of processors by psutil's names, where the operating system has them.
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")

_STEP_S = 0.01  # resolution of processor time (s): USER_HZ of Linux is 100; Windows has 0.016


@dataclass(frozen=True)
class TimeBudget:
    """Time budget of a row, divided among warm-up, readings, energy and profiling."""

    row_s: float = 2.0  # time for one row, without compilation (s); slow networks take longer
    rounds: int = 8  # turns of each network, alternating with the others
    min_readings: int = 5
    max_readings: int = 500
    energy_s: float = 1.0  # length of the run for energy (s)
    max_background_cores: float = 0.25
    """Cores that other programs may take during a turn; otherwise the turn is repeated."""
    processor_time: bool = False  # whether readings are this program's processor time

    @property
    def turn_s(self) -> float:
        """Length of one turn (s)."""
        return _HEADLINE * self.row_s / self.rounds

    def turns(self, inference_s: float) -> int:
        """Return the number of turns: all, or fewer for a slow network."""
        if inference_s <= self.turn_s:
            return self.rounds
        return max(self.min_readings, min(self.rounds, math.ceil(_HEADLINE * self.row_s / inference_s)))

    def profiled_runs(self, inference_s: float) -> int:
        """Return the number of runs with profiling."""
        return max(self.min_readings, min(self.max_readings, int(_COUNTERS * self.row_s / inference_s)))


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clocks at one moment (s): wall time, busy time of all processors, this program's share of it."""

    wall_s: float
    busy_s: float
    own_s: float

    @classmethod
    def now(cls) -> CpuTimes:
        """Read the clocks."""
        times = psutil.cpu_times()
        busy_s = sum(getattr(times, name, 0.0) for name in _BUSY)
        return cls(time.perf_counter(), busy_s, time.process_time())


def background_cores(begun: CpuTimes, ended: CpuTimes) -> float:
    """Return the mean number of cores that other programs took between two moments.

    An operating system counts processor time in steps, for each core; their rounding is subtracted.
    """
    wall_s = ended.wall_s - begun.wall_s
    if wall_s <= 0.0:
        return 0.0
    rounding_s = _STEP_S * math.sqrt(psutil.cpu_count() or 1)
    others_s = (ended.busy_s - begun.busy_s) - (ended.own_s - begun.own_s)
    return max(0.0, others_s - rounding_s) / wall_s


@dataclass(frozen=True)
class Batch:
    """The readings of one turn."""

    latencies_s: list[float]  # time of each inference (s)
    seconds: float  # time of all inferences together (s)
    background_cores: float = 0.0  # cores that other programs took


@dataclass
class TimedNetwork:
    """A compiled network with its readings."""

    compiled: Any
    feed: list[Any]  # A value for each input
    requests: int  # inferences in flight
    batches: list[Batch] = field(default_factory=list)  # readings so far, a batch per turn
    processor_time: bool = False  # whether this program's processor time is read instead of OpenVINO's clock
    turns_left: int = 0
    repeats_left: int = 0  # disturbed turns that may still be repeated
    _run: Callable[[int], Batch] = field(init=False, repr=False)
    inference_s: float = 0.0  # approximate time per inference with all requests in flight (s)

    def __post_init__(self) -> None:
        """Make the requests and give each its inputs."""
        run = _one_by_one if self.requests == 1 else _in_flight
        self._run = run(self)

    @classmethod
    def prepare(
        cls, compiled: Any, feed: list[Any], requests: int | None, processor_time: bool = False
    ) -> TimedNetwork:
        """Return a network with the requested inferences in flight; None: the device's best number."""
        best = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        return cls(compiled, feed, requests or max(1, best), processor_time=processor_time)

    def warm_up(self, budget: TimeBudget) -> None:
        """Run until the warm-up is over, and estimate the time of an inference."""
        begun = time.perf_counter()
        self._run(self.requests)  # the first inference allocates, and on many devices still compiles
        times_s: list[float] = []
        while time.perf_counter() - begun < _WARM_UP * budget.row_s or not times_s:
            times_s.append(self._run(self.requests).seconds / self.requests)
        self.inference_s = max(float(np.median(times_s)), SHORTEST_S)
        self.turns_left = self.repeats_left = budget.turns(self.inference_s)

    def run_turn(self, budget: TimeBudget) -> None:
        """Run for one turn and keep the readings; a disturbed turn is repeated."""
        if self.inference_s < _DISCARD_BELOW * budget.turn_s:
            self._run(self.requests)
        count = min(budget.max_readings, max(self.requests, round(budget.turn_s / self.inference_s)))
        begun = CpuTimes.now()
        batch = self._run(count)
        batch = replace(batch, background_cores=background_cores(begun, CpuTimes.now()))
        self.batches.append(batch)
        if batch.background_cores > budget.max_background_cores and self.repeats_left > 0:
            self.repeats_left -= 1
        else:
            self.turns_left -= 1

    def drop_disturbed(self, budget: TimeBudget) -> bool:
        """Drop the disturbed turns where enough others are left; return whether they are."""
        calm = [batch for batch in self.batches if batch.background_cores <= budget.max_background_cores]
        enough = len(calm) >= min(budget.rounds // 2, len(self.batches))
        if enough:
            self.batches = calm
        return enough

    def run_for(self, seconds: float) -> int:
        """Run without a pause for at least some seconds; return the number of inferences."""
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            count = max(self.requests, min(1000, round(0.1 * seconds / self.inference_s)))
            self._run(count)
            done += count
        return done

    def latency(self) -> Spread | None:
        """Return the readings' median and spread; None before the first."""
        return Spread.of([batch.latencies_s for batch in self.batches])

    def throughput_per_s(self) -> float | None:
        """Return inferences per second: the median over turns; None before the first."""
        latency = self.latency()
        if latency is None or self.requests == 1:
            return 1.0 / latency.median_s if latency else None
        return float(np.median([len(b.latencies_s) / b.seconds for b in self.batches]))


def _fed(request: Any, feed: list[Any]) -> Any:
    """Give a request its inputs, and return it."""
    for at, tensor in enumerate(feed):
        request.set_input_tensor(at, tensor)
    return request


def _one_by_one(network: TimedNetwork) -> Callable[[int], Batch]:
    """Return a function that runs one inference after the other.

    OpenVINO measures the time of each: Python's own share would be half of a small network. Processor time
    includes that share, some 10 us.
    """
    request = _fed(network.compiled.create_infer_request(), network.feed)

    def run(count: int) -> Batch:
        latencies = []
        begun = time.perf_counter()
        for _ in range(count):
            began_s = time.process_time()
            request.infer(share_outputs=True)  # results are not copied
            own_s = time.process_time() - began_s
            latencies.append(own_s if network.processor_time else request.latency * 1e-3)
        return _batch(latencies, time.perf_counter() - begun, 1)

    return run


def _in_flight(network: TimedNetwork) -> Callable[[int], Batch]:
    """Return a function that keeps all requests in flight."""
    queue = load_openvino().AsyncInferQueue(network.compiled, network.requests)
    for request in queue:
        _fed(request, network.feed)
    latencies: list[float] = []
    queue.set_callback(lambda request, _: latencies.append(request.latency * 1e-3))

    def run(count: int) -> Batch:
        latencies.clear()
        begun = time.perf_counter()
        for _ in range(count):
            queue.start_async()
        queue.wait_all()
        return _batch(latencies, time.perf_counter() - begun, network.requests)

    return run


def _batch(latencies_s: Sequence[float], seconds: float, requests: int) -> Batch:
    """Return a batch, with the mean for readings longer than it or negative: OpenVINO's clock may jump."""
    mean_s = seconds * requests / max(1, len(latencies_s))
    return Batch([one if 0.0 <= one <= seconds else mean_s for one in latencies_s], seconds)


_NOT_RUN = "NOT_RUN"
_BATCHES = 5
_TICK_S = 1e-6  # resolution of a counter (OpenVINO's ProfilingInfo is in whole microseconds, cut off)
_COARSE = 0.05  # relative resolution from which on the mean over all runs replaces the median over batches

Readings = Sequence[tuple[int, Mapping[str, float]]]
"""Readings: the runs so far, and the profiler's time of each operator (s)."""


def profile_operators(
    compiled: Any, feed: list[Any], runs: int, means: bool, stop: Callable[[], bool]
) -> tuple[Counter, ...]:
    """Run a network that was compiled with profiling; return the executed operators with their times.

    Parameters
    ----------
    runs : int
        Least number of runs, after two that do not count.
    means : bool
        Whether the profiler shows the mean over all runs (CPU), or the last run.
    """
    request = _fed(compiled.create_infer_request(), feed)
    batch = -(-runs // _BATCHES) if means else 1
    readings: list[tuple[int, Mapping[str, float]]] = []
    done = 0
    for size in [2, *[batch] * (_BATCHES if means else runs)]:
        for _ in range(size):
            if stop():
                return ()
            request.infer(share_outputs=True)
        done += size
        infos = {info.node_name: info for info in request.profiling_info}
        readings.append((done, {name: info.real_time.total_seconds() for name, info in infos.items()}))
    times = times_from_means(readings) if means else times_from_last(readings)
    originals = _originals(compiled)
    return tuple(
        Counter(
            name=name,
            type=info.node_type,
            executed_as=info.exec_type,
            originals=originals.get(name, ()),
            latency_s=times[name],
        )
        for name, info in infos.items()
        if info.status.name != _NOT_RUN and name in times
    )


def times_from_last(readings: Readings) -> dict[str, float]:
    """Return each operator's median time (s) where the profiler shows the last run, without the first run."""
    times_s = defaultdict[str, list[float]](list)
    for _, shown in readings[1:]:
        for name, time_s in shown.items():
            times_s[name].append(time_s)
    return {name: float(np.median(values)) for name, values in times_s.items()}


def times_from_means(readings: Readings) -> dict[str, float]:
    """Return each operator's time (s), where the profiler shows the mean over all runs so far.

    Examples
    --------
    One slow run, then batches of ten that take 100 us a run:

    >>> shown = [(1, {"a": 900e-6}), (11, {"a": 172e-6}), (21, {"a": 138e-6}), (31, {"a": 125e-6})]
    >>> round(times_from_means(shown)["a"] * 1e6)
    100
    """
    times_s = {}
    for name in readings[-1][1]:
        runs = np.array([run for run, shown in readings if name in shown], dtype=float)
        # Cut off to whole ticks: half a tick more is right on average.
        mean_s = np.array([shown[name] for _, shown in readings if name in shown]) + 0.5 * _TICK_S
        total_s = runs * mean_s
        overall_s = (total_s[-1] - total_s[0]) / (runs[-1] - runs[0])
        batches_s = np.diff(total_s) / np.diff(runs)
        blur_s = _TICK_S * float(np.max(runs[1:] / np.diff(runs)))
        robust = blur_s < _COARSE * overall_s
        times_s[name] = max(0.0, float(np.median(batches_s) if robust else overall_s))
    return times_s


def _originals(compiled: Any) -> dict[str, tuple[str, ...]]:
    """Return the model's operators of each executed node, where the device reports them."""
    originals: dict[str, tuple[str, ...]] = {}
    with suppress(RuntimeError):  # not every device shows the graph that it runs
        for node in compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            if "originalLayersNames" in info:
                names = info["originalLayersNames"].astype(str)
                originals[node.get_friendly_name()] = tuple(name for name in names.split(",") if name)
    return originals
