"""Elasticity of the time of an inference to each resource of the machine.

The network is mapped and estimated again on each slightly better machine; no formula is differentiated.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter

from npusim.arch import outer_levels, with_overrides
from npusim.config import SET_BY_STUDY, parse_override
from npusim.documents import Part
from npusim.engines.estimate import Estimate
from npusim.scenario import Scenario

STEP = 0.10
"""How much more of a resource is tried, where it can be had in parts."""

Engine = Callable[[Scenario], Estimate]
"""What estimates a scenario."""


class Elasticity(Part):
    """Sensitivity of the time of an inference to one resource."""

    resource: str
    """What is changed, in words."""
    setting: str
    """The change as `--set` or `--tiles` would make it."""
    more: float
    """Relative change of the resource, 0.1 for 10 % more."""
    seconds: float
    """Time of an inference with it, in s: latency, or with several in flight the time between two."""
    gain: float
    """Share of the time that it saves; negative where it costs."""

    @property
    def elasticity(self) -> float:
        """Elasticity: percent of time saved per percent more of the resource; 0 to 1."""
        return self.gain / self.more


_UNITS = {"GB/s": 1e9, "MHz": 1e6, "KiB": 1024.0, "us": 1e-6}
_DRAM = ("DRAM bandwidth", "dram.bandwidth", "GB/s")
_CPU = (("CPU clock", "cpu.clock", "MHz"), ("DRAM bandwidth of the CPU", "cpu.dram_bandwidth", "GB/s"))
_NPU = (
    ("DPU clock", "npu.dpu.clock", "MHz"),
    ("clock of DSPs and DMA", "npu.vpu_clock", "MHz"),
    ("SRAM of a tile", "npu.sram.per_tile", "KiB"),
)
"""Resource, setting and unit of what can be had in parts."""
_COUNTS = (("DSPs of a tile", "npu.dsp.per_tile"), ("DMA engines", "npu.dma.engines"))
"""Resource and setting of what can be had one by one."""


def elasticities(scenario: Scenario, engine: Engine) -> list[Elasticity]:
    """Simulate the network with slightly more of each resource; return its gains, largest first."""
    base_s = engine(scenario).pace_s
    rows = []
    for resource, setting, increase, changed in _changes(scenario):
        changed_s = engine(changed).pace_s
        gain = 1.0 - changed_s / base_s if base_s else 0.0
        rows.append(
            Elasticity(resource=resource, setting=setting, more=increase, seconds=changed_s, gain=gain)
        )
    return sorted(rows, key=lambda row: (-row.elasticity, row.resource))


def _changes(scenario: Scenario) -> Iterator[tuple[str, str, float, Scenario]]:
    """Yield (resource, setting, relative change, scenario) of every change that the machine allows."""
    soc, run = scenario.machine, scenario.run
    # What the hint chose stays, so that the machine alone changes.
    fixed = scenario.with_(requests=run.requests, tiles=run.tiles or None)

    def changed(path: str, text: str, on: Scenario = fixed) -> tuple[str, Scenario]:
        kind, _, number = path.partition(".")
        path = f"{soc.named(kind) or kind}.{number}"
        setting = replace(parse_override(f"{path}={text}"), source=SET_BY_STUDY)
        return setting.origin, on.on(with_overrides(soc, [setting]))

    def scaled(path: str, unit: str, factor: float) -> tuple[str, Scenario]:
        """Change a quantity, written in a unit as one would type it."""
        return changed(path, f"{float(attrgetter(path)(soc)) * factor / _UNITS[unit]:.6g}{unit}")

    has_npu = soc.has("npu")
    uses_cpu = "cpu" in {op.device for op in scenario.graph} | {run.device}
    of_cpu = _CPU if not has_npu else _CPU[:1] if uses_cpu else ()
    for resource, path, unit in (_DRAM, *(of_cpu if soc.has("cpu") else ()), *(_NPU if has_npu else ())):
        setting, machine = scaled(path, unit, 1.0 + STEP)
        yield resource, setting, STEP, machine
    if not has_npu:
        return
    for name, level in outer_levels(soc.npu, soc.levels).items():
        path = f"npu.levels.{name}" if name in soc.npu.levels else f"levels.{name}"
        if level.capacity > 0.0:
            setting, machine = changed(f"{path}.bandwidth", f"{level.bandwidth * (1.0 + STEP) / 1e9:.6g}GB/s")
            yield f"bandwidth of {name}", setting, STEP, machine
            setting, machine = changed(f"{path}.capacity", f"{level.capacity * (1.0 + STEP) / 1024.0:.6g}KiB")
            yield f"capacity of {name}", setting, STEP, machine
    for resource, path in _COUNTS:
        count = int(attrgetter(path)(soc))
        setting, machine = changed(path, str(count + 1))
        yield resource, setting, 1.0 / count, machine
    if run.requests == 1 and float(soc.npu.launch_overhead) * (1.0 - STEP) > 0.0:
        setting, machine = scaled("npu.launch_overhead", "us", 1.0 - STEP)
        yield "shorter launch", setting, STEP, machine
    wider = fixed.with_(tiles=run.tiles + 1)
    if run.tiles < int(soc.npu.tiles):
        yield "tiles", f"--tiles {run.tiles + 1}", 1.0 / run.tiles, wider
    elif run.requests == 1:
        setting, machine = changed("npu.tiles", str(run.tiles + 1), wider)
        yield "tiles", setting, 1.0 / run.tiles, machine
