"""What a better compiler would give: the same network under every schedule that npusim knows."""

from __future__ import annotations

from npusim.arch import with_overrides
from npusim.arch.npu import Schedule
from npusim.config.overrides import as_overrides
from npusim.documents import Part
from npusim.engines.analytical import estimate
from npusim.engines.estimate import Estimate
from npusim.scenario import Scenario

SWITCHES = ("prefetch", "resident_weights", "depth_first")
"""Switches of `npu.schedule` for what compilers may do."""
assert set(SWITCHES) <= set(Schedule.model_fields)


class PerfectScheduler(Part):
    """The best variant under a compiler that does all that `npu.schedule` can say, and its bound."""

    settings: list[str]
    """Switches that are turned on, as `--set` would."""
    seconds: float
    """Time of an inference, in s: latency, or with several in flight the time between two."""
    gain: float
    """Share of the time that it saves."""
    least_s: float
    """Lower bound of that time for any scheduler: the busiest unit, or the bytes that DRAM must move."""
    least_gain: float
    """Share of the time that lies above this bound."""


def perfect_scheduler(scenario: Scenario) -> PerfectScheduler | None:
    """Estimate a scenario with every scheduling switch on; None where all are, or no array device works."""
    soc, run, base = scenario.machine, scenario.run, estimate(scenario)
    used = {group.device for group in scenario.mapped.decisions.groups} & soc.array_devices.keys()
    switches = [
        f"{name}.schedule.{switch}"
        for name in sorted(used)
        for switch in SWITCHES
        if not getattr(soc.array_devices[name].schedule, switch)
        and not (scenario.first and switch == "resident_weights")  # no weights stay before the first
    ]
    if not switches:
        return None
    better = with_overrides(soc, as_overrides(dict.fromkeys(switches, "true")))
    fixed = scenario.with_(requests=run.requests, tiles=run.tiles or None)
    best, base_s = estimate(fixed.on(better)).pace_s, base.pace_s
    least_s = min(best, _least_s(scenario, base))
    return PerfectScheduler(
        settings=[f"{switch}=true" for switch in switches],
        seconds=best,
        gain=1.0 - best / base_s,
        least_s=least_s,
        least_gain=1.0 - least_s / base_s,
    )


def _least_s(scenario: Scenario, base: Estimate) -> float:
    """Return a lower bound of the time of an inference for any scheduler (s).

    Units that compute are as busy as they are. DRAM moves inputs and outputs, and weights that SRAM has no
    room for; with one inference at a time a call of the runtime comes on top.
    """
    mapped, dram = scenario.mapped, base.dram
    sram = sum(
        float(mapped.arch[name]["tiles"] * mapped.arch[name]["sram_tile_bytes"])
        for name in mapped.arch.arrays
    )
    read = dram.compulsory_activations_bytes + max(0.0, dram.compulsory_weights_bytes - sram)
    busy = [use.busy_s for name, use in base.units.items() if not name.endswith(".dma")]
    contexts = max((float(mapped.arch[name]["contexts"]) for name in mapped.arch.arrays), default=1.0)
    work_s = max(busy, default=0.0) / contexts
    moved_s = read / float(mapped.arch.shared["dram_bytes_per_s"])
    return max(work_s, moved_s) + (base.launch_s if base.requests == 1 else 0.0)
