"""Service demands of networks on devices, from estimates: one for each network, device and setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from npusim.arch import Soc
from npusim.engines import Estimate, estimate
from npusim.engines.event.machine import transfer_rates
from npusim.errors import ConfigError, InfeasibleError
from npusim.scenario import Scenario
from npusim.system.mix import Mix, StreamSpec


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
        key = (stream.network, stream.techniques, stream.hint, device)
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
            demand = _demand(alone, full)
            cold = estimate(scenario.with_(first=True))
            if cold.latency_s > alone.latency_s:
                reload_s = cold.latency_s - alone.latency_s
                more_bytes, more_j = cold.dram_bytes - alone.dram_bytes, _work_j(cold) - _work_j(alone)
                reload = Demand(reload_s, reload_s, max(0.0, more_bytes), work_j=max(0.0, more_j))
                demand = replace(demand, reload=reload)
            self._kept[key] = (str(home), demand)
        return self._kept[key]


def _demand(alone: Estimate, full: Estimate) -> Demand:
    """Return the demand of an inference from its estimates, alone and with all requests in flight."""
    critical = np.cumsum([op.critical_s or 0.0 for op in alone.operators]) + alone.launch_s
    # Calls of the runtime overlap with the work of other requests in flight.
    occupancy_s = alone.latency_s
    if full.requests > 1:
        occupancy_s = min(alone.latency_s, full.contexts / full.throughput_per_s)
    return Demand(
        alone.latency_s,
        occupancy_s,
        full.dram_bytes,
        min(alone.launch_s, occupancy_s) if occupancy_s == alone.latency_s else 0.0,
        tuple(sorted({*(critical / alone.latency_s).clip(0.0, 1.0).tolist(), 1.0})),
        _work_j(alone),
        alone.energy.static_j / alone.latency_s,
        alone.tiles,
        full.contexts,
    )


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
