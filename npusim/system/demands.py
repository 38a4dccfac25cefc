"""Service demands of networks on devices, from estimates: one for each network, device and setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from npusim.arch import Soc
from npusim.engines import Estimate, estimate
from npusim.engines.event.machine import transfer_rates
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Editor, Graph
from npusim.ops import DType, TensorKind
from npusim.scenario import Scenario
from npusim.system.mix import Mix, StreamSpec

DRAM, POWER = "dram", "power"


@dataclass(frozen=True, slots=True)
class Demand:
    """What one inference asks of a device."""

    latency_s: float
    """Time of an inference alone, in s."""
    occupancy_s: float
    """Part of it in which the device serves no other request in this context, in s."""
    dram_bytes: float = 0.0
    """Bytes that it moves to and from DRAM, evenly over its occupancy."""
    launch_s: float = 0.0
    """Part of the occupancy that a batch pays once, in s."""
    boundaries: tuple[float, ...] = (1.0,)
    """Ends of its layers, as shares of the occupancy."""
    work_j: float = 0.0
    """Energy of its work, in J."""
    static_w: float = 0.0
    """Power of the device while it serves, beyond idle power and work, in W."""
    tiles: int = 0
    """NPU tiles that it occupies."""
    contexts: int = 1
    """Requests that the device serves at a time, as it is compiled."""
    reload: Demand | None = None
    """Fetching the weights that stay in SRAM, after another network; None: none stay."""
    uses: Mapping[str, float] = field(default_factory=dict)
    """Seconds of work on further shared resources: memory levels of several devices, all cores of a host."""
    before: Demand | None = None
    """Work of the host before the device: calls that overlap with other requests, conversion of inputs."""
    after: Demand | None = None
    """Work of the host behind it: conversion of outputs."""

    @property
    def parts(self) -> tuple[Demand, ...]:
        """The demand and all that belongs to it."""
        return (self, *(part for part in (self.reload, self.before, self.after) if part is not None))

    @property
    def amounts(self) -> dict[str, float]:
        """What an inference takes of each shared resource: bytes of DRAM, seconds, and joules of power."""
        amounts = {DRAM: self.dram_bytes, **self.uses, POWER: self.work_j + self.static_w * self.occupancy_s}
        return {name: amount for name, amount in amounts.items() if amount > 0.0}

    @property
    def draws(self) -> dict[str, float]:
        """What it takes of each shared resource in a second at full speed."""
        return {name: amount / self.occupancy_s for name, amount in self.amounts.items()}


@dataclass
class Demands:
    """Demands of the streams of a mix; a network, device and setting is estimated once."""

    mix: Mix
    soc: Soc
    dram_bytes_per_s: float = inf
    """What DRAM sustains for all devices together, by the law of the event engine."""
    idle_w: float = 0.0
    """Power of the idle package, in W."""
    area_mm2: float = 0.0
    """Area of the array devices, in mm2."""
    _kept: dict[tuple[str, ...], tuple[str, Demand]] = field(default_factory=dict)

    def of(self, stream: StreamSpec) -> Mapping[str, Demand]:
        """Return the demand of a stream on each device that may serve it."""
        devices = [*self.soc.array_devices, *self.soc.hosts]
        if stream.device != "any":
            devices = [name.strip() for name in stream.device.split(",")]
        if len(devices) == 1:
            return dict([self._on(stream, devices[0])])
        demands = {}
        for device in devices:
            try:
                name, demand = self._on(stream, device)
            except InfeasibleError:
                continue
            demands[name] = demand
        return demands or dict([self._on(stream, "auto")])

    def _on(self, stream: StreamSpec, device: str) -> tuple[str, Demand]:
        key = (stream.network, stream.techniques, stream.hint, device, stream.io or "")
        if key not in self._kept:
            scenario = Scenario(
                stream.network, self.soc, stream.techniques, hint=stream.hint, requests=1, device=device
            )
            alone = estimate(scenario)
            home = self.soc.main_device if device == "auto" else self.soc.named(device)
            rates = transfer_rates(scenario.mapped.arch)
            self.dram_bytes_per_s = rates.dram_bytes_per_s
            self.area_mm2 = max(self.area_mm2, alone.area_mm2)
            self.idle_w = max(self.idle_w, alone.energy.idle_j * alone.throughput_per_s)
            full = estimate(scenario.with_(requests=None)) if stream.hint == "throughput" else alone
            demand = self._around(self._demand(alone, full), scenario, stream.io)
            cold = estimate(scenario.with_(first=True))
            if cold.latency_s > alone.latency_s:
                reload_s = cold.latency_s - alone.latency_s
                more_bytes, more_j = cold.dram_bytes - alone.dram_bytes, _work_j(cold) - _work_j(alone)
                reload = Demand(reload_s, reload_s, max(0.0, more_bytes), work_j=max(0.0, more_j))
                demand = replace(demand, reload=reload)
            self._kept[key] = (str(home), demand)
        return self._kept[key]

    def _demand(self, alone: Estimate, full: Estimate) -> Demand:
        """Return the demand of an inference from its estimates, alone and with all requests in flight."""
        critical = np.cumsum([op.critical_s or 0.0 for op in alone.operators]) + alone.launch_s
        # Calls of the runtime overlap with the work of other requests in flight.
        occupancy_s = alone.latency_s
        if full.requests > 1:
            occupancy_s = min(alone.latency_s, full.contexts / full.throughput_per_s)
        busy_s: dict[str, float] = defaultdict(float)  # by host and shared level, which several devices use
        for name, use in alone.units.items():
            busy_s[name.rpartition(".")[2]] += use.busy_s
        uses = {name: busy_s[name] for name in self.soc.levels}
        uses |= {cores(name): busy_s[name] for name in self.soc.hosts}
        overlapped_s, before = alone.latency_s - occupancy_s, None
        if overlapped_s > 0.0:
            before = Demand(overlapped_s, overlapped_s, uses=self._calls(min(alone.launch_s, overlapped_s)))
        within_s = alone.launch_s if before is None else 0.0
        for name, call_s in self._calls(within_s).items():
            uses[name] += call_s
        return Demand(
            alone.latency_s,
            occupancy_s,
            full.dram_bytes,
            within_s,
            tuple(sorted({*(critical / alone.latency_s).clip(0.0, 1.0).tolist(), 1.0})),
            _work_j(alone),
            alone.energy.static_j / alone.latency_s,
            alone.tiles,
            full.contexts,
            uses={name: min(seconds, occupancy_s) for name, seconds in uses.items() if seconds > 0.0},
            before=before,
        )

    def _calls(self, seconds: float) -> dict[str, float]:
        """Return the use of the CPU by calls of runtimes and drivers, which take one core."""
        cpu = self.soc.named("cpu")
        return {} if cpu is None else {cores(cpu): seconds / float(self.soc.hosts[cpu].cores)}

    def _around(self, demand: Demand, scenario: Scenario, form: str | None) -> Demand:
        """Add the conversion of inputs and outputs between the application's format and the network's."""
        if form is None:
            return demand
        graph, sides = scenario.graph, []
        outputs = [graph.tensors[name] for name in graph.outputs]
        inputs = [tensor for tensor in graph.tensors.values() if tensor.kind is TensorKind.INPUT]
        for tensors, is_input in ((inputs, True), (outputs, False)):
            editor = Editor("conversion")
            for tensor in tensors:
                if tensor.dtype.is_float and tensor.dtype != form:
                    held, wanted = (DType(form), tensor.dtype) if is_input else (tensor.dtype, DType(form))
                    source = editor.input(tensor.name, tensor.shape, held)
                    name = f"{tensor.name}/converted"
                    editor.outputs.append(editor.op("Convert", (source,), tensor.shape, wanted, name))
            sides.append(self._conversion(editor.finish()) if editor.outputs else None)
        before, after = sides
        if before is not None and demand.before is not None:
            before = joined(before, demand.before)
        added_s = sum(side.occupancy_s for side in sides if side is not None)
        latency_s, before = demand.latency_s + added_s, before or demand.before
        return replace(demand, latency_s=latency_s, before=before, after=after)

    def _conversion(self, graph: Graph) -> Demand:
        """Return the work of all cores of the CPU for conversions; no runtime is called for them."""
        result = estimate(Scenario(graph, self.soc, device="cpu"))
        seconds = result.latency_s - result.launch_s
        uses = {cores(str(self.soc.named("cpu"))): seconds}
        return Demand(seconds, seconds, result.dram_bytes, work_j=_work_j(result), uses=uses)


def cores(host: str) -> str:
    """Return the name of a host's cores as a shared resource; its device has the queue."""
    return f"{host} cores"


def joined(first: Demand, second: Demand) -> Demand:
    """Return two works of the host, one after the other, as one."""
    seconds, names = first.occupancy_s + second.occupancy_s, {*first.uses, *second.uses}
    uses = {name: first.uses.get(name, 0.0) + second.uses.get(name, 0.0) for name in names}
    moved = first.dram_bytes + second.dram_bytes
    return Demand(seconds, seconds, moved, work_j=first.work_j + second.work_j, uses=uses)


def _work_j(result: Estimate) -> float:
    energy = result.energy
    return energy.mac_j + energy.sram_j + energy.dram_j + energy.dsp_j + energy.cpu_j + energy.gpu_j


def least_s(stream: StreamSpec, demands: Mapping[str, Demand]) -> float:
    """Return the response time of a request on an idle SoC (s)."""
    return min(d.latency_s + (stream.inferences - 1.0) * d.occupancy_s for d in demands.values())


def refuse_short_deadline(stream: StreamSpec, demands: Mapping[str, Demand]) -> None:
    """Refuse a deadline that no request can keep."""
    service_s = least_s(stream, demands)
    if stream.deadline is not None and stream.deadline < service_s and stream.spread == "none":
        found = f"a deadline of {stream.deadline.text} for `{stream.title}`"
        raise ConfigError(
            found, file="mix", key="deadline", allowed=f"at least {service_s:.4g} s, its service"
        )
