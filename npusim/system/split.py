"""Shares of a network that several equal devices run at once, divided by rows or by channels."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.engines.event.machine import transfer_rates
from npusim.errors import InfeasibleError
from npusim.mapping import Division, Sharding
from npusim.scenario import Scenario

DIVISIONS: tuple[Division, ...] = ("rows", "channels")


@dataclass(frozen=True)
class Share:
    """What the busiest device does (`npusim.mapping.sharding`); all of them share the bandwidth of DRAM."""

    sharding: Sharding
    scenario: Scenario
    """The share as a network of its own."""
    estimate: Estimate
    waits_s: list[float]
    """Time that each operator waits for the bytes of the other devices, in s."""

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
