"""Answers about a mix: its capacity, simulated response times, slowdown, and largest rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.engines.limits import limits_of
from npusim.errors import ConfigError, UnknownNameError
from npusim.system.demands import DRAM, POWER, Demands, least_s, members, refuse_short_deadline
from npusim.system.document import FoundRate, MixResult, Relief, ResourceUse, StreamAnswer
from npusim.system.mix import Bursts, Closed, DeviceSpec, Mix, Trace, machine_of
from npusim.system.schedulers import SCHEDULERS
from npusim.system.simulation import MOST_SPANS, Flow, Simulation, System
from npusim.system.statistics import SAME, mean_of, paired_change, steady

_WITHIN = 0.05
_FEWEST, _MOST = 2_000, 200_000  # answers of each stream in the first round, and of all streams at most
_SEARCHED, _MOST_SEARCHED = 5_000, 50_000  # answers of the searched stream in each run, and of all streams
_STEPS = 10
_NODES = 1000  # nodes of the search for a placement
MORE = 1.5
"""Factor of a shared resource in the question what more of it would give."""
_DEVICE = DeviceSpec()


def highest_rate(system: System, stream: int) -> float:
    """Return the rate of a stream from which on queues grow, with the rates of the others, in 1/s.

    A linear program divides each stream over its devices; it leaves out closed loops and traces. 0: the
    others alone are too much.
    """
    from scipy.optimize import linprog

    open_flows = [i for i, flow in enumerate(system.flows) if _rate(flow) is not None or i == stream]
    places, use = _use(system, open_flows)
    others = [i for i in open_flows if i != stream]
    solved = linprog(
        [-1.0 if i == stream else 0.0 for i, _ in places],
        A_ub=use,
        b_ub=np.ones(len(use)),
        A_eq=[[float(i == other) for i, _ in places] for other in others] or None,
        b_eq=[_rate(system.flows[i]) for i in others] or None,
    )
    return float(-solved.fun) if solved.status == 0 else 0.0


def _use(system: System, numbers: Sequence[int]) -> tuple[list[tuple[int, str]], NDArray[np.float64]]:
    """Return places of streams, and the busy share of each resource by a request a second there.

    The shares have the shape (resources, places).
    """
    places = [(i, place) for i in numbers for place in system.flows[i].demands]
    capacities = {name: float(contexts) for name, (_, contexts) in system.devices.items()} | system.capacities
    names = [*capacities]
    use = np.zeros((len(names), len(places)))
    for column, (i, place) in enumerate(places):
        flow = system.flows[i]
        demand, most = flow.demands[place], flow.spec.batch.most if flow.spec.batch else 1
        saved_s = demand.launch_s * (1.0 - 1.0 / most)
        for device in members(place):
            use[names.index(device), column] = flow.spec.inferences * demand.occupancy_s - saved_s
        for part in (demand, *demand.around):
            for resource, amount in part.amounts.items():
                times = flow.spec.inferences if part is demand else 1.0
                use[names.index(resource), column] += times * amount
    return places, use / np.array([[capacities[name]] for name in names])


def balanced(system: System) -> tuple[list[str], float, float]:
    """Return the placement with the least use of the busiest resource, that use, and a lower bound of it.

    A mixed-integer linear program by branch and bound; use and bound are equal unless it ends at the limit of
    nodes. A closed loop counts with the rate that it has alone.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    streams = range(len(system.flows))
    places, use = _use(system, streams)
    rates = [(_expected_rates([flow]) or [0.0])[0] for flow in system.flows]
    loads = np.column_stack([use * [rates[i] for i, _ in places], -np.ones(len(use))])
    once = [[*(float(i == stream) for i, _ in places), 0.0] for stream in streams]
    solved = milp(
        [*np.zeros(len(places)), 1.0],
        integrality=[*np.ones(len(places)), 0.0],
        bounds=Bounds(0.0, [*np.ones(len(places)), inf]),
        constraints=[LinearConstraint(loads, -inf, 0.0), LinearConstraint(once, 1.0, 1.0)],
        options={"node_limit": _NODES},
    )
    chosen = [place for place, share in zip(places, solved.x, strict=False) if share > 0.5]
    return [name for _, name in chosen], float(solved.fun), float(solved.mip_dual_bound)


def _rate(flow: Flow) -> float | None:
    """Return the requests a second of a stream; None of a closed loop or a trace."""
    arrivals = flow.spec.arrivals
    if isinstance(arrivals, Closed | Trace):
        return None
    return float(arrivals.rate) * (arrivals.size if isinstance(arrivals, Bursts) else 1)


def system_of(mix: Mix) -> tuple[System, Demands]:
    """Return the system of a mix; errors as for `npusim.mix`."""
    scheduler = SCHEDULERS.find(mix.scheduler)
    soc = machine_of(mix)
    demands = Demands(mix, soc)
    flows = []
    for stream in mix.streams:
        on_devices = demands.of(stream)
        refuse_short_deadline(stream, on_devices)
        if isinstance(stream.arrivals, Trace):
            stream.arrivals.times_s()
        flows.append(Flow(stream, on_devices))
    system = System(flows, {}, demands.dram_bytes_per_s, scheduler, mix.seed, idle_w=demands.idle_w)
    devices = {}
    for name in dict.fromkeys(name for flow in flows for place in flow.demands for name in members(place)):
        spec = mix.devices.get(name, _DEVICE)
        here = system.demands_on(name)
        contexts = spec.contexts or min(demand.contexts for demand in here)
        tiles = contexts * max(demand.tiles for demand in here)
        if name in soc.array_devices and tiles > int(soc.array_devices[name].tiles):
            allowed = f"contexts for which the {int(soc.array_devices[name].tiles)} tiles suffice"
            raise ConfigError(f"{contexts} contexts on {tiles} tiles", key=f"devices.{name}", allowed=allowed)
        devices[name] = (spec, contexts)
    unknown = next((name for name in mix.devices if name not in soc.devices), None)
    if unknown is not None:
        raise UnknownNameError("device of the mix", unknown, soc.devices)
    return replace(system, devices=devices, **_package(soc, demands.idle_w)), demands


def _package(soc: Soc, idle_w: float) -> dict[str, Any]:
    """Return the limits of the package; where inferences are stretched already, it holds back no more."""
    package = soc.package
    if package is None or package.throttle:
        return {}
    limits = limits_of(package)
    if float(limits.most_w.min()) <= idle_w:
        allowed = f"limits above {idle_w:.3g} W, which the idle package draws"
        raise ConfigError(f"{limits.most_w.min():.3g} W", file=soc.name, key="package", allowed=allowed)
    return {"limits": limits, "burst_w": float(package.burst_limit)}


def _refuse_overload(system: System) -> dict[str, float]:
    """Return the highest rate of each open stream; refuse rates that no queue survives."""
    rates = {number: rate for number, flow in enumerate(system.flows) if (rate := _rate(flow)) is not None}
    highest = {number: highest_rate(system, number) for number in rates}
    # The stream that has room beside the others, if any, says most about what to change.
    worst = max((n for n in rates if rates[n] >= highest[n]), key=lambda n: highest[n], default=None)
    if worst is not None:
        name = system.flows[worst].spec.title
        found = f"{rates[worst]:g} requests a second of `{name}`: its queue would grow without end"
        most = f"less than {highest[worst]:.4g}/s with the other streams as they are"
        raise ConfigError(found, file="mix", key="arrivals", allowed=most)
    return {system.flows[number].spec.title: rate for number, rate in highest.items()}


def dram_with_more(soc: Soc) -> dict[str, str]:
    """Return the settings of a machine whose DRAM has more bandwidth, at its peak, too."""
    bandwidths = {"bandwidth": soc.dram.bandwidth, "peak_bandwidth": soc.dram.peak_bandwidth}
    return {f"dram.{name}": _more(value) for name, value in bandwidths.items() if value is not None}


def _more(bandwidth: float) -> str:
    return f"{MORE * float(bandwidth) / 1e9:.4g} GB/s"


@dataclass(frozen=True)
class Simulated:
    """A mix that has been simulated."""

    mix: Mix
    system: System
    demands: Demands
    simulation: Simulation
    highest_per_s: Mapping[str, float]  # rates of open streams, by name, from which on queues grow
    converged: bool  # whether the intervals of mean and 99th percentile of every stream are within 5 %

    def streams(self, alone_s: Sequence[float] = ()) -> list[StreamAnswer]:
        """Return the answers to each stream; `alone_s`: mean response times where each is alone."""
        numbers = range(len(self.system.flows))
        return [self._stream(number, alone_s[number] if alone_s else None) for number in numbers]

    def _stream(self, number: int, alone: float | None) -> StreamAnswer:
        flow, run = self.system.flows[number], self.simulation
        answers, demands, has_deadline = run.answers[number], flow.demands, flow.spec.deadline is not None
        times, answered = answers.figures(), len(answers.response_s)
        work_j = sum(part.work_j * count for part, count in run.drawn(number))
        static_j = sum(demand.static_w * answers.served_s[name] for name, demand in demands.items())
        values = {name: value for name, (value, _) in times.items()}
        return StreamAnswer(
            name=flow.spec.title,
            network=flow.spec.network,
            devices=list(demands),
            answers=answered,
            throughput_per_s=answered / run.now_s,
            **values,
            intervals_s={name: interval for name, (_, interval) in times.items()},
            alone_s=least_s(flow.spec, demands),
            mean_of_stream_alone_s=alone,
            slowdown=None if alone is None else values["mean_s"] / alone,
            deadline_s=flow.deadline_s if has_deadline else None,
            missed_share=answers.missed / answered if has_deadline else None,
            mean_waiting=sum(answers.wait_s) / run.now_s,
            mean_in_system=sum(answers.response_s) / run.now_s,
            energy_j=(work_j + static_j) / answered,
            highest_rate_per_s=self.highest_per_s.get(flow.spec.title),
        )

    def resources(self) -> list[ResourceUse]:
        """Return the use of each device, and of DRAM."""
        seconds = self.simulation.now_s
        resources = [
            ResourceUse(
                name=device.name,
                is_device=True,
                utilisation=device.busy_s / device.contexts / seconds,
                contexts=device.contexts,
                preemption=device.spec.preemption if device.preempts else "none",
            )
            for device in self.simulation.devices.values()
        ]
        drawn = dict.fromkeys(self.system.capacities, 0.0)
        for number in range(len(self.system.flows)):
            for demand, times in self.simulation.drawn(number):
                for name, amount in demand.amounts.items():
                    drawn[name] += times * amount
        uses = {name: drawn[name] / capacity / seconds for name, capacity in self.system.capacities.items()}
        shared = [
            ResourceUse(name=name, is_device=False, utilisation=use, contexts=1, preemption="none")
            for name, use in uses.items()
            if isfinite(self.system.capacities[name])
        ]
        return [*resources, *shared]

    def relief(self, resource: str) -> list[Relief]:
        """Return what more of a resource gives each stream, by one more simulation.

        A second device; of all else 1.5 times as much, with new estimates for bandwidths of DRAM and levels.
        """
        again = Simulation(self._with_more(resource))
        again.run(self.simulation.now_s * min(1.0, _MOST / self.simulation.answered))
        reliefs = []
        for flow, *runs in zip(self.system.flows, self.simulation.answers, again.answers, strict=True):
            before_s, after_s = (np.array(answers.response_s) for answers in runs)
            if len(after_s):
                mean_s = mean_of(steady(after_s[: len(before_s)]))
                change = paired_change([(before_s, after_s)])
                reliefs.append(Relief(stream=flow.spec.title, mean_s=mean_s, change=change))
        return reliefs

    def _with_more(self, resource: str) -> System:
        soc = self.demands.soc
        if resource == DRAM or resource in soc.levels:
            path = f"levels.{resource}.bandwidth"
            more = dram_with_more(soc) if resource == DRAM else {path: _more(soc.levels[resource].bandwidth)}
            return system_of(self.mix.model_copy(update={"settings": self.mix.settings | more}))[0]
        if resource == POWER:
            limits = self.system.limits
            most = None if limits is None else replace(limits, most=MORE * limits.most)
            return replace(self.system, limits=most, burst_w=MORE * self.system.burst_w)
        if resource in self.system.devices:
            spec, contexts = self.system.devices[resource]
            return replace(self.system, devices={**self.system.devices, resource: (spec, 2 * contexts)})
        return replace(self.system, extra={resource: MORE})

    def package_j(self, streams: Sequence[StreamAnswer]) -> float:
        """Return the energy of the package with idle power, in J, from the answers to the streams."""
        of_streams = sum(one.energy_j * one.answers for one in streams)
        return of_streams + self.demands.idle_w * self.simulation.now_s


def simulate(mix: Mix) -> Simulated:
    """Simulate a mix to the end that it says; errors as for `npusim.mix`."""
    system, demands = system_of(mix)
    highest = _refuse_overload(system)
    simulation = Simulation(system)
    converged = _run(simulation, mix)
    silent = [f.spec.title for f, a in zip(system.flows, simulation.answers, strict=True) if not a.response_s]
    if silent:
        allowed = "a longer duration, or more requests"
        raise ConfigError(f"no answer to `{silent[0]}` in {simulation.now_s:.4g} s", allowed=allowed)
    return Simulated(mix, system, demands, simulation, highest, converged)


def answer(mix: Mix, find_rate: str | None = None) -> MixResult:
    """Simulate a mix and return its answers; parameters and errors as for `npusim.mix`."""
    run = simulate(mix)
    system, simulation = run.system, run.simulation
    alone_s = []
    for flow in system.flows if len(system.flows) > 1 else ():
        single = Simulation(replace(system, flows=[flow]))
        while not single.answered or single.now_s < simulation.now_s:
            single.run(single.now_s + simulation.now_s)
        alone_s.append(single.answers[0].figures()["mean_s"][0])
    streams, resources = run.streams(alone_s), run.resources()
    contended = max(resources, key=lambda resource: resource.utilisation)
    relief = run.relief(contended.name)
    energy_j = run.package_j(streams)
    return MixResult(
        title=mix.title,
        soc=run.demands.soc.name,
        scheduler=mix.scheduler,
        seed=mix.seed,
        simulated_s=simulation.now_s,
        streams=streams,
        resources=resources,
        contended=contended.name,
        relief=relief,
        energy_j=energy_j,
        power_w=energy_j / simulation.now_s,
        converged=run.converged,
        found_rate=None if find_rate is None else largest_rate(system, find_rate),
        spans=simulation.spans,
        notes=_notes(simulation, run.converged),
        conclusion=_conclusion(streams, contended, relief),
    )


def _run(simulation: Simulation, mix: Mix) -> bool:
    """Run until the end that the mix says, or the intervals are narrow; return whether they are."""
    if all(isinstance(flow.spec.arrivals, Trace) for flow in simulation.flows):
        simulation.run(None)
        return _is_narrow(simulation)
    if mix.duration is not None:
        simulation.run(float(mix.duration))
        return _is_narrow(simulation)
    most = mix.requests or _MOST
    rates = _expected_rates(simulation.flows)
    simulation.run(min(_FEWEST / min(rates), most / sum(rates)))
    while simulation.answered < most and (mix.requests is not None or not _is_narrow(simulation)):
        left = most / max(1, simulation.answered)
        simulation.run(simulation.now_s * min(2.0, left * 1.001))
    return _is_narrow(simulation)


def _expected_rates(flows: Sequence[Flow]) -> list[float]:
    """Return the requests a second of each stream; of closed loops at most, traces left out."""
    rates = []
    for flow in flows:
        arrivals, rate = flow.spec.arrivals, _rate(flow)
        if isinstance(arrivals, Closed):
            latency_s = min(demand.latency_s for demand in flow.demands.values()) * flow.spec.inferences
            rate = arrivals.clients / (latency_s + float(arrivals.think or 0.0))
        if rate is not None:
            rates.append(rate)
    return rates


def _is_narrow(simulation: Simulation) -> bool:
    """Tell whether mean and 99th percentile of every stream are within 5 %."""
    for answers in simulation.answers:
        if not answers.response_s:
            return False
        times = answers.figures()
        for name in ("mean_s", "p99_s"):
            value, interval = times[name]
            if interval is None or interval[1] - value > _WITHIN * value:
                return False
    return True


def largest_rate(system: System, name: str) -> FoundRate:
    """Return the largest rate of a stream at which its 99th percentile keeps the deadline, by bisection.

    All rates see the same random numbers.
    """
    names = [flow.spec.title for flow in system.flows]
    if name not in names:
        raise UnknownNameError("stream", name, names)
    number = names.index(name)
    flow = system.flows[number]
    arrivals = flow.spec.arrivals
    if isinstance(arrivals, Closed | Trace) or flow.deadline_s == inf:
        allowed = "a stream with a deadline and a rate: periodic, poisson or bursts"
        raise ConfigError(f"`{name}`", file="--find-rate", allowed=allowed)
    size = arrivals.size if isinstance(arrivals, Bursts) else 1

    def p99_s(rate: float) -> float:
        other = flow.spec.model_copy(update={"arrivals": arrivals.model_copy(update={"rate": rate / size})})
        flows = [Flow(other, flow.demands) if i == number else one for i, one in enumerate(system.flows)]
        simulation = Simulation(replace(system, flows=flows))
        simulation.run(min(_SEARCHED / rate, _MOST_SEARCHED / sum(_expected_rates(flows))))
        times = np.array(simulation.answers[number].response_s)
        return float(np.quantile(steady(times), 0.99)) if len(times) else inf

    low, high = 0.0, highest_rate(system, number)
    kept_s = p99_s(high / 2.0**_STEPS)
    if kept_s > flow.deadline_s:
        return FoundRate(stream=name, rate_per_s=0.0, p99_s=kept_s)
    low = high / 2.0**_STEPS
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        reached_s = p99_s(middle)
        if reached_s <= flow.deadline_s:
            low, kept_s = middle, reached_s
        else:
            high = middle
    return FoundRate(stream=name, rate_per_s=low, p99_s=kept_s)


def _conclusion(streams: Sequence[StreamAnswer], contended: ResourceUse, relief: Sequence[Relief]) -> str:
    """Return which deadlines are missed, and which resource is contended."""
    changes = {one.stream: one.change for one in relief if one.change is not None}
    saved = [f"{name} {-sum(change) / 2.0:.0%}" for name, change in changes.items() if change[1] < -SAME]
    misses = [one for one in streams if one.missed_share]
    kept = "every deadline is kept" if any(one.deadline_s for one in streams) else "no stream has a deadline"
    extra = f"a second {contended.name}" if contended.is_device else "half as much of it again"
    more = f"{extra} saves {', '.join(saved) or f'no stream {SAME:.0%} for sure'}"
    late = ", ".join(f"{one.name} misses {one.missed_share:.2%} of its deadlines" for one in misses)
    return f"{late or kept}; {contended.name} is contended, {contended.utilisation:.0%} busy: {more}"


def _notes(simulation: Simulation, converged: bool) -> list[str]:
    """Return what the simulation assumes, and where its answers are not sure."""
    notes = ["the bytes of an inference are spread evenly over its time on the device"]
    if simulation.shared.held_s:
        share = simulation.shared.held_s / simulation.now_s
        notes.append(f"power and heat: the limits of the package hold work back in {share:.0%} of the time")
    if any(answers.reloads for answers in simulation.answers):
        notes.append("largest rates leave out the time of fetching weights again after another network")
    if not converged:
        notes.append("some mean or 99th percentile has an interval wider than 5 %: simulate longer")
    for flow, answers in zip(simulation.flows, simulation.answers, strict=True):
        waiting = answers.arrived - len(answers.response_s)
        if waiting > max(20.0, 0.05 * answers.arrived):
            notes.append(
                f"{waiting} requests of {flow.spec.title} have no answer at the end: its queue grows"
            )
    if len(simulation.spans) == MOST_SPANS:
        notes.append(f"the time line shows the first {MOST_SPANS:,} times of service only")
    return notes
