"""Timing of one compiled network: warm-up, then turns of a few readings each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npusim.measure.devices import load_openvino
from npusim.measure.document import Spread
from npusim.measure.neighbours import Moment, others_cores
from npusim.measure.pace import Pace
from npusim.measure.spreads import SHORTEST_S, spread_of

__all__ = ["Batch", "Trial"]

_DISCARD_BELOW = 0.25
"""Part of a turn below which an inference is run once more, so that the first, with caches that other
networks have filled, does not count."""


@dataclass(frozen=True)
class Batch:
    """Inferences that ran one after the other.

    Attributes
    ----------
    latencies_s : list of float
        Time of each inference, from its start to its end (s).
    seconds : float
        Time of all of them (s).
    others_cores : float
        Cores that other programs took meanwhile.
    """

    latencies_s: list[float]
    seconds: float
    others_cores: float = 0.0


@dataclass
class Trial:
    """A network that is measured.

    Attributes
    ----------
    compiled : openvino.CompiledModel
    feed : list of openvino.Tensor
        A value for each input.
    requests : int
        Inferences in flight.
    batches : list of Batch
        What was read so far, a batch a turn.
    turns_left : int
        How many turns are still to come.
    repeats_left : int
        How many turns that others disturbed may still be done again.
    """

    compiled: Any
    feed: list[Any]
    requests: int
    batches: list[Batch] = field(default_factory=list)
    turns_left: int = 0
    repeats_left: int = 0
    _run: Callable[[int], Batch] = field(init=False, repr=False)
    inference_s: float = 0.0
    """About how long one inference takes (s), in the pace of all requests together."""

    def __post_init__(self) -> None:
        """Make the requests and give each its inputs."""
        run = _one_by_one if self.requests == 1 else _in_flight
        self._run = run(self.compiled, self.feed, self.requests)

    @classmethod
    def prepare(cls, compiled: Any, feed: list[Any], requests: int | None) -> Trial:
        """Return a trial with as many requests as asked for, or as the device finds best for the hint."""
        best = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        return cls(compiled, feed, requests or max(1, best))

    def warm_up(self, pace: Pace) -> None:
        """Run until the warm-up's time is over, and learn how long an inference takes."""
        begun = time.perf_counter()
        self._run(self.requests)  # the first: allocates, and on many devices still compiles
        times_s: list[float] = []
        while time.perf_counter() - begun < pace.warm_up_s or not times_s:
            times_s.append(self._run(self.requests).seconds / self.requests)
        self.inference_s = max(float(np.median(times_s)), SHORTEST_S)
        self.turns_left = self.repeats_left = pace.turns(self.inference_s)

    def take_turn(self, pace: Pace) -> None:
        """Run for one turn and keep the readings; a turn that others disturbed is not the last word."""
        if self.inference_s < _DISCARD_BELOW * pace.turn_s:
            self._run(self.requests)
        count = min(pace.most, max(self.requests, round(pace.turn_s / self.inference_s)))
        begun = Moment.now()
        batch = self._run(count)
        batch = replace(batch, others_cores=others_cores(begun, Moment.now()))
        self.batches.append(batch)
        if batch.others_cores > pace.others_cores and self.repeats_left > 0:
            self.repeats_left -= 1
        else:
            self.turns_left -= 1

    def settle(self, pace: Pace) -> bool:
        """Drop the disturbed turns where enough others are left; returns whether they are.

        Where they are not, all turns stay: an odd reading is better than none.
        """
        calm = [batch for batch in self.batches if batch.others_cores <= pace.others_cores]
        enough = len(calm) >= min(pace.rounds // 2, len(self.batches))
        if enough:
            self.batches = calm
        return enough

    def run_for(self, seconds: float) -> int:
        """Run without a pause for at least so long; returns how many inferences that were."""
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            count = max(self.requests, min(1000, round(0.1 * seconds / self.inference_s)))
            self._run(count)
            done += count
        return done

    def latency(self) -> Spread | None:
        """Return the readings' median and spread; None before the first."""
        return spread_of([batch.latencies_s for batch in self.batches])

    def throughput_per_s(self) -> float | None:
        """Return inferences a second: the median over turns; None before the first."""
        if not self.batches:
            return None
        if self.requests == 1:
            latency = self.latency()
            return 1.0 / latency.median_s if latency else None
        return float(np.median([len(b.latencies_s) / b.seconds for b in self.batches]))


def _one_by_one(compiled: Any, feed: list[Any], _: int) -> Callable[[int], Batch]:
    """Return what runs one inference after the other.

    The time of each is what OpenVINO measures around it: Python's own share would be half of a small network.
    """
    request = compiled.create_infer_request()
    for at, tensor in enumerate(feed):
        request.set_input_tensor(at, tensor)

    def run(count: int) -> Batch:
        latencies = []
        begun = time.perf_counter()
        for _ in range(count):
            request.infer(share_outputs=True)  # results are not copied
            latencies.append(request.latency * 1e-3)
        return Batch(latencies, time.perf_counter() - begun)

    return run


def _in_flight(compiled: Any, feed: list[Any], requests: int) -> Callable[[int], Batch]:
    """Return what keeps as many inferences in flight as there are requests."""
    queue = load_openvino().AsyncInferQueue(compiled, requests)
    for request in queue:
        for at, tensor in enumerate(feed):
            request.set_input_tensor(at, tensor)
    latencies: list[float] = []
    queue.set_callback(lambda request, _: latencies.append(request.latency * 1e-3))

    def run(count: int) -> Batch:
        latencies.clear()
        begun = time.perf_counter()
        for _ in range(count):
            queue.start_async()
        queue.wait_all()
        return Batch(list(latencies), time.perf_counter() - begun)

    return run
