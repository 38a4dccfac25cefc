"""Simulation of a mix on SimPy: requests are processes, contexts of devices are resources."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from math import floor, inf, ulp
from typing import Any

import numpy as np
import simpy
from simpy.resources.resource import Preempted, PriorityRequest

from npusim.engines.limits import Governor, Limits
from npusim.system.demands import DRAM, POWER, Demand, members
from npusim.system.document import ServiceSpan
from npusim.system.mix import Batch, Bursts, Closed, DeviceSpec, Periodic, Poisson, StreamSpec, Trace
from npusim.system.schedulers import Order, Request, Scheduler
from npusim.system.statistics import Interval, figures, steady

Steps = Generator[simpy.Event, Any, None]
Rank = tuple[float, float, int]
"""Place in a queue: key of the scheduler, time of arrival, number."""
_BLOCK = 4096
"""Random numbers that are drawn at once."""
MOST_SPANS = 2000
"""Spans of service that are kept for the time line."""
_EPSILON = 1e-9
"""Part of an inference below which a boundary is reached."""
_LEAST_W = 1e-3
"""Power for work that a package always has: without any, a held service would never end."""


@dataclass(frozen=True)
class Flow:
    """A stream with its demands."""

    spec: StreamSpec
    demands: Mapping[str, Demand]  # demand of an inference on each device that may serve it
    sizes: Sequence[float] = ()  # inferences of successive requests, repeated; empty: as specified

    @property
    def deadline_s(self) -> float:
        """Time in which a request should be answered; infinite without a deadline."""
        return inf if self.spec.deadline is None else float(self.spec.deadline)


@dataclass
class Answers:
    """What the simulation observes of a stream, a value for each answered request."""

    response_s: array[float] = field(default_factory=lambda: array("d"))  # time from arrival to answer
    wait_s: array[float] = field(default_factory=lambda: array("d"))  # time before service begins
    arrived: int = 0
    missed: int = 0  # answers after the deadline
    # By place that serves it: time of service, inferences, answered requests, and fetches of weights that
    # another network evicted.
    served_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    inferences: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: Counter[str] = field(default_factory=Counter)
    reloads: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, tuple[float, Interval | None]]:
        """Return mean and percentiles of the steady response times with their intervals."""
        return figures(steady(np.array(self.response_s)))


class Transfer:
    """A service that draws on shared resources: `left_s` seconds at full speed."""

    __slots__ = ("done", "draws", "end_s", "left_s", "speed")

    def __init__(self, left_s: float, draws: Mapping[str, float], done: simpy.Event) -> None:
        self.left_s, self.draws, self.done = left_s, draws, done
        self.speed, self.end_s = 1.0, inf


class Shared:
    """Resources as processor-sharing servers, by the law of the event engine.

    Max-min fairness divides DRAM first, then each memory level and each host, at last the power that the
    limits of the package leave. What one of them holds back is not given to other services.
    """

    def __init__(self, env: simpy.Environment, system: System) -> None:
        self.env, self.capacities, self.idle_w = env, system.capacities, system.idle_w
        self.active: dict[Transfer, None] = {}
        self.held_s = 0.0  # time in which limits of the package held services back
        self._since_s, self._timer, self._drawn_j, self._tick_s = 0.0, 0, 0.0, inf
        self.governor: Governor | None = None
        self.contended = self._contended(system)  # resources that services can exhaust
        if POWER in self.contended and system.limits is not None:
            self.most_w, self.governor = system.burst_w, Governor(system.limits, self.idle_w)
            self._tick_s = self.governor.step_s
            self._limit_power()

    @staticmethod
    def _contended(system: System) -> set[str]:
        """Return the resources of which all contexts together can draw more than there is."""
        around = (part for flow in system.flows for demand in flow.demands.values() for part in demand.around)
        # As many at a time as requests come: the host has no contexts for them.
        draws = defaultdict(float, {name: inf for part in around for name in part.draws})
        for name, (_, contexts) in system.devices.items():
            most: dict[str, float] = defaultdict(float)
            for demand in system.demands_on(name):
                for resource, rate in demand.draws.items():
                    most[resource] = max(most[resource], rate)
            for resource, rate in most.items():
                draws[resource] += contexts * rate
        return {name for name, rate in draws.items() if rate > system.capacities[name] * (1.0 + _EPSILON)}

    def begin(self, seconds: float, draws: Mapping[str, float]) -> Transfer:
        """Start a service that draws so much a second at full speed; its `done` occurs at the end."""
        self._advance()
        transfer = Transfer(seconds, draws, self.env.event())
        self.active[transfer] = None
        self._divide()
        return transfer

    def leave(self, transfer: Transfer) -> float:
        """Stop a service and return the seconds at full speed that are left of it."""
        self._advance()
        self.active.pop(transfer, None)
        self._divide()
        return transfer.left_s

    def _advance(self) -> None:
        elapsed_s = self.env.now - self._since_s
        self._since_s = self.env.now
        for transfer in self.active:
            transfer.left_s = max(0.0, transfer.left_s - elapsed_s * transfer.speed)
        if self.governor is not None:
            watts = [transfer.draws.get(POWER, 0.0) * transfer.speed for transfer in self.active]
            self._drawn_j += elapsed_s * sum(watts)
            if sum(watts) >= self.capacities[POWER] * (1.0 - _EPSILON):
                self.held_s += elapsed_s
            while self.env.now >= self._tick_s * (1.0 - _EPSILON):
                self.governor.advance(self.idle_w + self._drawn_j / self.governor.step_s)
                self._drawn_j, self._tick_s = 0.0, self._tick_s + self.governor.step_s
                self._limit_power()

    def _limit_power(self) -> None:
        assert self.governor is not None
        highest_w = min(self.governor.highest_w(), self.most_w)
        self.capacities = {**self.capacities, POWER: max(highest_w - self.idle_w, _LEAST_W)}

    def _divide(self) -> None:
        """Divide each resource by max-min fairness, and wait for the next end."""
        for transfer in self.active:
            transfer.speed = 1.0
        for name in self.capacities:
            users = [(t.speed * t.draws[name], t) for t in self.active if name in t.draws]
            free, waiting = self.capacities[name], len(users)
            if sum(rate for rate, _ in users) <= free:
                continue
            for rate, transfer in sorted(users, key=lambda user: user[0]):
                granted = min(rate, free / waiting)
                transfer.speed = granted / transfer.draws[name]
                free, waiting = free - granted, waiting - 1
        for transfer in self.active:
            transfer.end_s = transfer.left_s / transfer.speed
        self._timer += 1
        if self.active:
            soonest_s, number = min(transfer.end_s for transfer in self.active), self._timer
            soonest_s = min(soonest_s, max(0.0, self._tick_s - self.env.now))
            self.env.timeout(soonest_s, soonest_s).callbacks.append(
                lambda event: self._end(number, event.value)
            )

    def _end(self, number: int, soonest_s: float) -> None:
        if number != self._timer:
            return
        ended = [transfer for transfer in self.active if transfer.end_s <= soonest_s]
        self._advance()
        for transfer in ended:
            del self.active[transfer]
            transfer.left_s = 0.0
            transfer.done.succeed()
        self._divide()


class Device:
    """A device: contexts that serve a request each, in the order of a scheduler."""

    def __init__(
        self, env: simpy.Environment, name: str, spec: DeviceSpec, contexts: int, scheduler: Scheduler
    ) -> None:
        self.name, self.spec, self.contexts = name, spec, contexts
        self.order: Order = scheduler.order()
        self.preempts = scheduler.preempts and spec.preemption != "none"
        kind = simpy.PreemptiveResource if self.preempts else simpy.PriorityResource
        self.queue = kind(env, capacity=contexts)
        # Interrupted requests that work up to their next boundary, in contexts that are granted already.
        self.draining: list[simpy.Event] = []
        self.switch_s = float(spec.switch_cost or 0.0)
        self.busy_s = self.backlog_s = 0.0
        # Demand of the network whose weights lie in each part of SRAM: by stream, -1 the common part.
        self.resident: dict[int, Demand] = {}

    def request(self, rank: Rank) -> PriorityRequest:
        """Ask for a context; SimPy sorts by any value that can be compared, not only by whole numbers."""
        return self.queue.request(priority=rank)  # type: ignore[arg-type]

    def boundary(self, position: float, demand: Demand) -> float:
        """Return the next position, in inferences, at which a request can be interrupted."""
        unit = self.spec.preemption
        if unit == "instruction":
            return position
        whole = floor(position + _EPSILON)
        if position - whole < _EPSILON:
            return float(whole)
        if unit == "inference":
            return whole + 1.0
        part = position - whole - _EPSILON
        return whole + next((end for end in demand.boundaries if end >= part), 1.0)


@dataclass(frozen=True)
class System:
    """A mix with its demands: all that a simulation needs."""

    flows: Sequence[Flow]
    devices: Mapping[str, tuple[DeviceSpec, int]]  # devices by name with their contexts
    dram_bytes_per_s: float
    scheduler: Scheduler
    seed: int = 0
    limits: Limits | None = None  # limits of the package; None: they hold nothing back
    idle_w: float = 0.0  # power of the idle package (W)
    burst_w: float = inf  # highest power of a burst (W)
    extra: Mapping[str, float] = field(default_factory=dict)  # capacities of hosts other than 1

    def demands_on(self, device: str) -> list[Demand]:
        """Return the demands of all streams that a device may serve, alone or with others."""
        served = (item for flow in self.flows for item in flow.demands.items())
        return [demand for place, demand in served if device in members(place)]

    @property
    def capacities(self) -> dict[str, float]:
        """What each shared resource gives in a second, in the order in which it is divided."""
        demands = [demand for flow in self.flows for demand in flow.demands.values()]
        names = [name for demand in demands for part in (demand, *demand.around) for name in part.uses]
        steady_w = inf if self.limits is None else float(self.limits.most_w.min())
        power = {POWER: min(steady_w, self.burst_w) - self.idle_w}
        return {DRAM: self.dram_bytes_per_s, **dict.fromkeys(names, 1.0), **self.extra, **power}


class Simulation:
    """A run of a system; it can be continued."""

    def __init__(self, system: System) -> None:
        self.env = simpy.Environment()
        flows = self.flows = list(system.flows)
        self.devices = {
            name: Device(self.env, name, spec, contexts, system.scheduler)
            for name, (spec, contexts) in system.devices.items()
        }
        # Devices of each place that may serve each stream; several run an inference together.
        self.places = [
            {place: [self.devices[name] for name in members(place)] for place in flow.demands}
            for flow in flows
        ]
        self.shared = Shared(self.env, system)
        self.answers = [Answers() for _ in flows]
        self.spans: list[ServiceSpan] = []
        self._numbers = 0
        # Each stream draws from its own generators, so that another mix gives it the same numbers.
        for number, flow in enumerate(flows):
            spec, name = flow.spec, [*flow.spec.title.encode()]
            arrivals, sizes = (np.random.default_rng([system.seed, part, *name]) for part in (0, 1))
            drawn = cycle(flow.sizes) if flow.sizes else _sizes(sizes, spec)
            if isinstance(spec.arrivals, Closed):
                think_s = float(spec.arrivals.think or 0.0)
                thoughts = _exponential(arrivals, think_s)
                for _ in range(spec.arrivals.clients):
                    self.env.process(self._client(number, thoughts, drawn))
            else:
                self.env.process(self._source(number, _times(spec.arrivals, arrivals), drawn))

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return float(self.env.now)

    @property
    def answered(self) -> int:
        """Answered requests of all streams."""
        return sum(len(one.response_s) for one in self.answers)

    def run(self, until_s: float | None) -> None:
        """Continue to a time; None: to the last answer, where all arrivals are recorded."""
        self.env.run(until=until_s)

    def drawn(self, stream: int) -> Iterator[tuple[Demand, float]]:
        """Yield what a stream asked of devices and shared resources, and how often."""
        answers = self.answers[stream]
        for name, demand in self.flows[stream].demands.items():
            yield demand, answers.inferences[name]
            for part in demand.around:
                yield part, answers.requests[name]
            if demand.reload is not None:
                yield demand.reload, answers.reloads[name]

    def _source(self, stream: int, times: Iterator[float], sizes: Iterator[float]) -> Steps:
        env, policy, answers = self.env, self.flows[stream].spec.batch, self.answers[stream]
        batches = None
        if policy is not None:
            batches = simpy.Store(env)
            env.process(self._gather(stream, batches, policy))
        for time in times:
            if time > env.now:
                yield env.timeout(time - env.now)
            answers.arrived += 1
            request = (env.now, next(sizes))
            if batches is None:
                env.process(self._serve(stream, [request]))
            else:
                batches.put(request)

    def _client(self, stream: int, thoughts: Iterator[float], sizes: Iterator[float]) -> Steps:
        env, answers = self.env, self.answers[stream]
        while True:
            thought_s = next(thoughts)
            if thought_s > 0.0:
                yield env.timeout(thought_s)
            answers.arrived += 1
            yield env.process(self._serve(stream, [(env.now, next(sizes))]))

    def _gather(self, stream: int, requests: simpy.Store, batch: Batch) -> Steps:
        """Collect requests into batches."""
        while True:
            members = [(yield requests.get())]
            timer = self.env.timeout(float(batch.within))
            while len(members) < batch.most:
                further = requests.get()
                yield further | timer
                if not further.triggered:
                    further.cancel()
                    break
                members.append(further.value)
            self.env.process(self._serve(stream, members))

    def _serve(self, stream: int, members: list[tuple[float, float]]) -> Steps:
        """Serve a request, or a batch as one."""
        env, flow, arrival_s = self.env, self.flows[stream], members[0][0]
        self._numbers += 1
        number, size = self._numbers, sum(member[1] for member in members)
        place, devices = self._place(stream, size)
        demand = flow.demands[place]
        service_s = size * demand.occupancy_s - (len(members) - 1) * demand.launch_s
        request = Request(
            stream, arrival_s, arrival_s + flow.deadline_s, flow.spec.priority, flow.spec.share, service_s
        )
        for device in devices:
            device.backlog_s += service_s
        for part in demand.before:
            yield self._work(part, len(members) * part.occupancy_s)[0]
        ranks = [(device.order.key(request), arrival_s, number) for device in devices]
        ready_s = env.now
        begin_s = yield from self._occupy(place, ranks, stream, size, service_s)
        for device in devices:
            device.backlog_s -= service_s
        for part in demand.after:
            yield self._work(part, len(members) * part.occupancy_s)[0]
        around_s = len(members) * sum(part.occupancy_s for part in demand.around)
        self.answers[stream].inferences[place] += size
        self.answers[stream].requests[place] += len(members)
        arrivals_s = (member[0] for member in members)
        self._answer(stream, arrivals_s, begin_s - ready_s, service_s + around_s)

    def _occupy(
        self, place: str, ranks: Sequence[Rank], stream: int, size: float, service_s: float
    ) -> Generator[simpy.Event, Any, float]:
        """Hold a context until the end, or yield it at boundaries to urgent requests; return the begin.

        Several devices are asked for in their order, so that no two requests wait for each other.
        """
        devices, demand = self.places[stream][place], self.flows[stream].demands[place]
        env, left_s, begin_s, cost_s, is_resuming = self.env, service_s, -1.0, 0.0, False
        per_inference_s = service_s / size
        while True:
            with ExitStack() as contexts:
                drain: tuple[Device, simpy.Event] | None = None
                transfer: Transfer | None = None
                worked_s = None
                try:
                    for device, rank in zip(devices, ranks, strict=True):
                        yield contexts.enter_context(device.request(rank))
                        if device.draining:
                            drain = (device, device.draining.pop())
                            yield drain[1]
                            drain = None
                    worked_s = env.now
                    begin_s = env.now if begin_s < 0.0 else begin_s
                    for device, rank in zip(devices, ranks, strict=True):
                        device.order.begins(rank[0])
                    reload = self._evicted(place, stream)
                    is_resuming = True
                    if cost_s:
                        yield env.timeout(cost_s)
                    if reload is not None:
                        done, transfer = self._work(reload, reload.occupancy_s)
                        yield done
                    cost_s, is_resuming, from_s = 0.0, False, env.now
                    done, transfer = self._work(demand, left_s)
                    yield done
                    self._note(place, stream, ranks[0][2], worked_s)
                    return begin_s
                except simpy.Interrupt as interrupt:
                    if drain is not None:
                        drain[0].draining.append(drain[1])
                    if worked_s is None:
                        continue
                    if is_resuming:  # it begins to resume again later
                        if transfer is not None:
                            self.shared.leave(transfer)
                        self._note(place, stream, ranks[0][2], worked_s)
                        continue
                    left_s = left_s - (env.now - from_s) if transfer is None else self.shared.leave(transfer)
                    position = (service_s - max(left_s, 0.0)) / per_inference_s
                    device = _preempted(devices, interrupt)
                    rest_s = min((device.boundary(position, demand) - position) * per_inference_s, left_s)
                    if rest_s > _EPSILON * per_inference_s:
                        yield from self._finish(devices, interrupt, self._work(demand, rest_s)[0])
                        left_s -= rest_s
                    elif len(devices) > 1:  # another device may be preempted at the same time
                        yield from self._finish(devices, interrupt, env.timeout(0.0))
                    self._note(place, stream, ranks[0][2], worked_s)
                    if left_s <= _EPSILON * per_inference_s:
                        return begin_s
                    cost_s = max(device.switch_s for device in devices)

    def _finish(self, devices: Sequence[Device], interrupt: simpy.Interrupt, done: simpy.Event) -> Steps:
        """Work up to a boundary; whoever preempts a device meanwhile waits for it, too."""
        finished = self.env.event()
        while True:
            _preempted(devices, interrupt).draining.append(finished)
            try:
                yield done
            except simpy.Interrupt as again:
                interrupt = again
            else:
                break
        finished.succeed()

    def _evicted(self, place: str, stream: int) -> Demand | None:
        """Return the fetch of resident weights that another network evicted; None: they are there."""
        flow, devices = self.flows[stream], self.places[stream][place]
        part, demand = -1 if flow.spec.sram is None else stream, flow.demands[place]
        is_there = all(device.resident.get(part) is demand for device in devices)
        for device in devices:
            device.resident[part] = demand
        if is_there or demand.reload is None:
            return None
        self.answers[stream].reloads[place] += 1
        return demand.reload

    def _work(self, demand: Demand, seconds: float) -> tuple[simpy.Event, Transfer | None]:
        """Start a service; return the event of its end."""
        contended = self.shared.contended
        draws = contended and {name: rate for name, rate in demand.draws.items() if name in contended}
        if not draws:
            return self.env.timeout(seconds), None
        transfer = self.shared.begin(seconds, draws)
        return transfer.done, transfer

    def _place(self, stream: int, size: float) -> tuple[str, list[Device]]:
        """Return the place that is expected to be done first, and its devices."""
        places = self.places[stream]
        if len(places) == 1:
            return next(iter(places.items()))
        demands = self.flows[stream].demands
        return min(
            places.items(),
            key=lambda item: (
                max(device.backlog_s / device.contexts for device in item[1])
                + size * demands[item[0]].occupancy_s
            ),
        )

    def _note(self, place: str, stream: int, number: int, begin_s: float) -> None:
        """Note that the devices of a place served a request until now."""
        now_s = self.env.now
        self.answers[stream].served_s[place] += now_s - begin_s
        for device in self.places[stream][place]:
            device.busy_s += now_s - begin_s
            if len(self.spans) < MOST_SPANS:
                name = self.flows[stream].spec.title
                times = {"begin_s": begin_s, "end_s": now_s}
                self.spans.append(ServiceSpan(device=device.name, stream=name, number=number, **times))

    def _answer(self, stream: int, arrivals_s: Iterable[float], wait_s: float, nominal_s: float) -> None:
        answers, now_s = self.answers[stream], self.env.now
        for arrival_s in arrivals_s:
            response_s = now_s - arrival_s
            # Differences of large times lose digits; an undisturbed request took its own time.
            if abs(response_s - nominal_s) <= 8.0 * ulp(now_s):
                response_s = nominal_s
            answers.response_s.append(response_s)
            answers.wait_s.append(wait_s)
            if response_s > self.flows[stream].deadline_s:
                answers.missed += 1


def _preempted(devices: Sequence[Device], interrupt: simpy.Interrupt) -> Device:
    """Return the device that a request lost."""
    cause = interrupt.cause
    assert isinstance(cause, Preempted)
    return next(device for device in devices if device.queue is cause.resource)


def _exponential(generator: np.random.Generator, mean: float) -> Iterator[float]:
    while True:
        yield from (generator.exponential(mean, _BLOCK) if mean else np.zeros(_BLOCK)).tolist()


def _sizes(generator: np.random.Generator, spec: StreamSpec) -> Iterator[float]:
    """Yield the number of inferences of each request."""
    if spec.spread == "exponential":
        return _exponential(generator, spec.inferences)
    return iter(lambda: spec.inferences, None)


def _times(arrivals: Periodic | Poisson | Bursts | Trace, generator: np.random.Generator) -> Iterator[float]:
    """Yield the times of arrival, which do not fall."""
    if isinstance(arrivals, Trace):
        yield from arrivals.times_s()
        return
    rate, number, time_s = float(arrivals.rate), 0, 0.0
    if isinstance(arrivals, Periodic):
        jitter_s = float(arrivals.jitter or 0.0)
        while True:
            delays = generator.uniform(0.0, jitter_s, _BLOCK) if jitter_s else np.zeros(_BLOCK)
            for delay_s in delays.tolist():
                yield number / rate + delay_s
                number += 1
    size = arrivals.size if isinstance(arrivals, Bursts) else 1
    for gap_s in _exponential(generator, 1.0 / rate):
        time_s += gap_s
        for _ in range(size):
            yield time_s
