"""Service demands of networks on devices, from estimates: one for each network, device and setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from npusim.arch import Soc
from npusim.engines.analytical import estimate, mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.engines.event.machine import transfer_rates
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Editor
from npusim.mapping import Division, Sharding
from npusim.ops import DType, Tensor, TensorKind
from npusim.scenario import Scenario
from npusim.system.mix import Mix, StreamSpec

DRAM, POWER = "dram", "power"
_TOGETHER = "+"
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Demand:
    """What one inference asks of a device."""

    latency_s: float  # time of an inference alone (s)
    occupancy_s: float  # part of it in which the device serves no other request in this context (s)
    dram_bytes: float = 0.0  # bytes that it moves to and from DRAM, evenly over its occupancy
    launch_s: float = 0.0  # part of the occupancy that a batch pays once (s)
    boundaries: tuple[float, ...] = (1.0,)  # ends of its layers, as shares of the occupancy
    work_j: float = 0.0  # energy of its work (J)
    static_w: float = 0.0  # power of the device while it serves, beyond idle power and work (W)
    tiles: int = 0  # NPU tiles that it occupies
    contexts: int = 1  # requests that the device serves at a time, as it is compiled
    # Fetching the weights that stay in SRAM, after another network; None: none stay.
    reload: Demand | None = None
    # Seconds of work on further shared resources: memory levels of several devices, all cores of a host.
    uses: Mapping[str, float] = field(default_factory=dict)
    # Work of the host before the device: conversion of inputs, calls that overlap with other requests.
    before: tuple[Demand, ...] = ()
    after: tuple[Demand, ...] = ()  # work of the host behind it: conversion of outputs

    @property
    def around(self) -> tuple[Demand, ...]:
        """Work of the host before and behind the device, once a request."""
        return self.before + self.after

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
    dram_bytes_per_s: float = inf  # what DRAM sustains for all devices together, by the event engine's law
    idle_w: float = 0.0  # power of the idle package (W)
    area_mm2: float = 0.0  # area of the array devices (mm2)
    _kept: dict[tuple[str | float, ...], tuple[str, Demand]] = field(default_factory=dict)

    def of(self, stream: StreamSpec) -> Mapping[str, Demand]:
        """Return the demand of a stream on each device that may serve it."""
        devices = self._devices(stream)
        homes = {name for device in devices for name in members(self._home(device))}
        if stream.sram is not None and not homes & {*self.soc.array_devices}:
            allowed = f"only for a stream on {', '.join(self.soc.array_devices) or 'a device with SRAM'}"
            raise ConfigError(f"{stream.sram:g} on {stream.device}", file="mix", key="sram", allowed=allowed)
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

    def _devices(self, stream: StreamSpec) -> list[str]:
        """Return the devices that may serve a stream, as its specification names them."""
        if stream.device == "any":
            return [*self.soc.array_devices, *self.soc.hosts]
        return [name.strip() for name in stream.device.split(",")]

    def _home(self, device: str) -> str:
        """Return the name of a device, or the names of several that run an inference together."""
        if device == "auto":
            return self.soc.main_device
        names = [self.soc.named(name) or name for name in members(device)]
        return _TOGETHER.join(sorted(names, key=[*self.soc.devices, *names].index))

    def _sram(self, stream: StreamSpec, home: str) -> float:
        """Return the share of a device's SRAM that a stream may use."""
        own = [
            other.sram
            for other in self.mix.streams
            if other.sram is not None
            and any(home in members(self._home(device)) for device in self._devices(other))
        ]
        share = 1.0 - sum(own) if stream.sram is None else stream.sram
        if sum(own) > 1.0 + _ROUNDING or share < _ROUNDING:
            allowed = "shares of at most 1, and some SRAM for streams without a share"
            raise ConfigError(f"{sum(own):g} of the SRAM of {home}", file="mix", key="sram", allowed=allowed)
        return share

    def _on(self, stream: StreamSpec, device: str) -> tuple[str, Demand]:
        home = self._home(device)
        parts = members(home)
        arrays = [name for name in parts if name in self.soc.array_devices]
        sram = min([1.0, *(self._sram(stream, name) for name in arrays)])
        key = (stream.network, stream.techniques, stream.hint, device, stream.io or "", sram)
        if key not in self._kept:
            self._refuse_unequal(parts)
            where = device if len(parts) == 1 else "auto"
            whole = Scenario(
                stream.network, self.soc, stream.techniques, hint=stream.hint, requests=1, device=where
            )
            scenario, alone = whole, estimate(whole)
            rates = transfer_rates(scenario.mapped.arch)
            self.dram_bytes_per_s = rates.dram_bytes_per_s
            self.area_mm2 = max(self.area_mm2, alone.area_mm2)
            if sram < 1.0:
                of_tile = self.soc.array_devices[parts[0]].sram
                left = f"{of_tile.reserved + sram * (of_tile.per_tile - of_tile.reserved)!r} B"
                scenario = whole.with_settings({f"{name}.sram.per_tile": left for name in parts})
                alone = estimate(scenario)
            self.idle_w = max(self.idle_w, alone.energy.idle_j * alone.throughput_per_s)
            full = estimate(scenario.with_(requests=None)) if stream.hint == "throughput" else alone
            demand = self._demand(alone, full)
            if len(parts) > 1:
                possible = shares(scenario, len(parts))
                if not possible:
                    raise InfeasibleError(f"{stream.network} has no operator that {home} could divide")
                share = min(possible, key=lambda share: share.latency_s)
                scenario, alone = share.scenario, share.estimate
                demand = self._demand(alone, alone, share.waits_s)
            if stream.io is not None:
                tensors = whole.graph.tensors
                inputs = (tensor for tensor in tensors.values() if tensor.kind is TensorKind.INPUT)
                before = self._converted(inputs, stream.io, True)
                after = self._converted([tensors[name] for name in whole.graph.outputs], stream.io, False)
                added_s = sum(part.occupancy_s for part in before + after)
                before, latency_s = before + demand.before, demand.latency_s + added_s
                demand = replace(demand, latency_s=latency_s, before=before, after=after)
            cold = estimate(scenario.with_(first=True))
            if cold.latency_s > alone.latency_s:
                reload_s = cold.latency_s - alone.latency_s
                more_bytes, more_j = cold.dram_bytes - alone.dram_bytes, _work_j(cold) - _work_j(alone)
                reload = Demand(reload_s, reload_s, max(0.0, more_bytes), work_j=max(0.0, more_j))
                demand = replace(demand, reload=reload)
            if len(parts) > 1:
                demand = self._together(demand, len(parts))
            self._kept[key] = (home, demand)
        return self._kept[key]

    def _refuse_unequal(self, names: list[str]) -> None:
        """Refuse devices that cannot run a network together: others than the main one and its equals."""
        equal = self.soc.array_devices.get(self.soc.main_device)
        alike = [name for name, device in self.soc.array_devices.items() if device == equal]
        if len(names) > 1 and (not {*names} <= {*alike} or len({*names}) < len(names)):
            allowed = f"several equal ones of {', '.join(alike) or 'no device'} (`copies` adds such)"
            raise ConfigError(f"`{_TOGETHER.join(names)}`", file="mix", key="device", allowed=allowed)

    def _together(self, demand: Demand, count: int) -> Demand:
        """Return what several devices ask that each do the same at once."""
        return replace(
            demand,
            dram_bytes=min(count * demand.dram_bytes, demand.occupancy_s * self.dram_bytes_per_s),
            work_j=count * demand.work_j,
            static_w=count * demand.static_w,
            uses={name: min(count * use_s, demand.occupancy_s) for name, use_s in demand.uses.items()},
            reload=None if demand.reload is None else self._together(demand.reload, count),
        )

    def _demand(self, alone: Estimate, full: Estimate, waits_s: Sequence[float] = ()) -> Demand:
        """Return the demand of an inference from its estimates, alone and with all requests in flight.

        `waits_s`: what each operator waits for bytes of other devices that run it at the same time.
        """
        latency_s = alone.latency_s + sum(waits_s)
        critical = np.array([op.critical_s or 0.0 for op in alone.operators])
        ends_s = np.cumsum(critical + waits_s if waits_s else critical) + alone.launch_s
        # Calls of the runtime overlap with the work of other requests in flight.
        occupancy_s = latency_s
        if full.requests > 1:
            occupancy_s = min(latency_s, full.contexts / full.throughput_per_s)
        busy_s: dict[str, float] = defaultdict(float)  # by host and shared level, which several devices use
        for name, use in alone.units.items():
            busy_s[name.rpartition(".")[2]] += use.busy_s
        uses = {name: busy_s[name] for name in self.soc.levels}
        uses |= {cores(name): busy_s[name] for name in self.soc.hosts}
        overlapped_s = latency_s - occupancy_s
        within_s = alone.launch_s if overlapped_s <= 0.0 else 0.0
        for name, call_s in self._calls(within_s).items():
            uses[name] += call_s
        calls = Demand(overlapped_s, overlapped_s, uses=self._calls(min(alone.launch_s, overlapped_s)))
        return Demand(
            latency_s,
            occupancy_s,
            self._moved(full, occupancy_s),
            within_s,
            tuple(sorted({*(ends_s / latency_s).clip(0.0, 1.0).tolist(), 1.0})),
            _work_j(alone),
            alone.energy.static_j / alone.latency_s,
            alone.tiles,
            full.contexts,
            uses={name: min(seconds, occupancy_s) for name, seconds in uses.items() if seconds > 0.0},
            before=(calls,) if overlapped_s > 0.0 else (),
        )

    def _calls(self, seconds: float) -> dict[str, float]:
        """Return the use of the CPU by calls of runtimes and drivers, which take one core."""
        cpu = self.soc.named("cpu")
        return {} if cpu is None else {cores(cpu): seconds / float(self.soc.hosts[cpu].cores)}

    def _converted(self, tensors: Iterable[Tensor], form: str, is_input: bool) -> tuple[Demand, ...]:
        """Return the conversion of inputs from the application's format, or of outputs to it, if any.

        All cores of the CPU do it, without a call of the runtime.
        """
        editor = Editor("conversion")
        for tensor in tensors:
            if tensor.dtype.is_float and tensor.dtype != form:
                held, wanted = (DType(form), tensor.dtype) if is_input else (tensor.dtype, DType(form))
                source = editor.input(tensor.name, tensor.shape, held)
                name = f"{tensor.name}/converted"
                editor.outputs.append(editor.op("Convert", (source,), tensor.shape, wanted, name))
        if not editor.outputs:
            return ()
        result = estimate(Scenario(editor.finish(), self.soc, device="cpu"))
        seconds = result.latency_s - result.launch_s
        uses = {cores(str(self.soc.named("cpu"))): seconds}
        return (Demand(seconds, seconds, self._moved(result, seconds), work_j=_work_j(result), uses=uses),)

    def _moved(self, result: Estimate, seconds: float) -> float:
        """Return the bytes over DRAM in some time; a cache serves what is more than DRAM sustains."""
        return min(result.dram_bytes, seconds * self.dram_bytes_per_s)


DIVISIONS: tuple[Division, ...] = ("rows", "channels")


@dataclass(frozen=True)
class Share:
    """What the busiest device does (`npusim.mapping.sharding`); all of them share the bandwidth of DRAM."""

    sharding: Sharding
    scenario: Scenario  # the share as a network of its own
    estimate: Estimate
    waits_s: list[float]  # time that each operator waits for the bytes of the other devices (s)

    @property
    def latency_s(self) -> float:
        """Time of an inference, in s."""
        return self.estimate.latency_s + sum(self.waits_s)


def shares(scenario: Scenario, count: int) -> list[Share]:
    """Return a device's share of a network by each division that is possible."""
    rate, possible = transfer_rates(scenario.mapped.arch).dram_bytes_per_s, []
    for division in DIVISIONS:
        try:
            sharding = Sharding(scenario.graph, count, division)
        except InfeasibleError:
            continue
        share = scenario.with_(network=sharding.editor.finish(), techniques="none")
        result = mapped_estimate(share.mapped)
        alone_s = (op.latency_s if op.critical_s is None else op.critical_s for op in result.operators)
        shared_s = (count * op.dram_bytes / rate for op in result.operators)
        waits_s = [max(0.0, all_s - own_s) for all_s, own_s in zip(shared_s, alone_s, strict=True)]
        possible.append(Share(sharding, share, result, waits_s))
    return possible


def members(place: str) -> list[str]:
    """Return the devices that run an inference together: `npu+npu2`."""
    return [name.strip() for name in place.split(_TOGETHER)]


def cores(host: str) -> str:
    """Return the name of a host's cores as a shared resource; its device has the queue."""
    return f"{host} cores"


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
