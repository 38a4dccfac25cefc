"""What a better machine or compiler would give.

More of each resource, every schedule, and larger memories are tried. The network is mapped and estimated
again on each changed machine; no formula is differentiated.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter

from npusim.arch import Soc, outer_levels, with_overrides
from npusim.arch.array import OuterLevel
from npusim.arch.npu import Schedule
from npusim.config import SET_BY_STUDY, parse_override
from npusim.config.overrides import as_overrides
from npusim.documents import Part
from npusim.engines.analytical import estimate
from npusim.engines.estimate import DramByKind, Estimate
from npusim.engines.operators import dram_by_kind, summed_kinds
from npusim.errors import ConfigError, InfeasibleError
from npusim.mapping import Mapped, PreparedGraph, prepared
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


def _set(soc: Soc, text: str) -> Soc:
    """Return a machine with one setting, such as `npu.tiles=4`, that a study makes."""
    return with_overrides(soc, [replace(parse_override(text), source=SET_BY_STUDY)])


def _levels(soc: Soc, home: str) -> Iterator[tuple[str, str, OuterLevel]]:
    """Yield name, path and sheet of each memory level of a device."""
    device = soc.array_devices[home]
    for name, level in outer_levels(device, soc.levels).items():
        yield name, f"{home}.levels.{name}" if name in device.levels else f"levels.{name}", level


def _changes(scenario: Scenario) -> Iterator[tuple[str, str, float, Scenario]]:
    """Yield (resource, setting, relative change, scenario) of every change that the machine allows."""
    soc, run = scenario.machine, scenario.run
    # What the hint chose stays, so that the machine alone changes.
    fixed = scenario.with_(requests=run.requests, tiles=run.tiles or None)

    def changed(path: str, text: str, on: Scenario = fixed) -> tuple[str, Scenario]:
        kind, _, number = path.partition(".")
        setting = f"{soc.named(kind) or kind}.{number}={text}"
        return f"--set {setting}", on.on(_set(soc, setting))

    def scaled(path: str, unit: str, factor: float, value: float | None = None) -> tuple[str, Scenario]:
        """Change a quantity, written in a unit as one would type it."""
        value = float(attrgetter(path)(soc)) if value is None else value
        return changed(path, f"{value * factor / _UNITS[unit]:.6g}{unit}")

    has_npu = soc.has("npu")
    uses_cpu = "cpu" in {op.device for op in scenario.graph} | {run.device}
    of_cpu = _CPU if not has_npu else _CPU[:1] if uses_cpu else ()
    for resource, path, unit in (_DRAM, *(of_cpu if soc.has("cpu") else ()), *(_NPU if has_npu else ())):
        setting, machine = scaled(path, unit, 1.0 + STEP)
        yield resource, setting, STEP, machine
    if not has_npu:
        return
    for name, path, level in _levels(soc, str(soc.named("npu"))):
        for quantity, unit in (("bandwidth", "GB/s"), ("capacity", "KiB")) if level.capacity > 0.0 else ():
            value = float(getattr(level, quantity))
            setting, machine = scaled(f"{path}.{quantity}", unit, 1.0 + STEP, value)
            yield f"{quantity} of {name}", setting, STEP, machine
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


AVOIDABLE = ("refetched_bytes", "spilled_bytes")
"""Kinds of DRAM traffic that more memory on the chip can remove."""
_MIB = 2.0**20
_DOUBLINGS = 8
_VANISHED = 1e-3
"""Share of the DRAM traffic below which a kind counts as gone."""
_HELPS = 0.9
"""Most that a larger memory may leave of a kind to be worth a line."""


class MemoryNeed(Part):
    """What a larger memory leaves of one kind of DRAM traffic."""

    kind: str
    """Field of `DramByKind`."""
    setting: str
    """The larger memory, as `--set` gives it."""
    bytes: float
    """Bytes of this kind on the machine as it is."""
    left_bytes: float
    """Bytes of this kind with the larger memory."""


def memory_needs(mapped: Mapped) -> list[MemoryNeed]:
    """Return the smallest SRAM, and the smallest level, that removes each avoidable kind of traffic.

    Sizes double, up to 256 times the present one (a level: at least 256 MiB). Where none suffices the largest
    stands, if it removes a tenth. The network is mapped again some four times for each kind and memory.
    """
    now, home = summed_kinds(dram_by_kind(mapped)), mapped.run.home(mapped.soc)
    least_bytes = _VANISHED * float(mapped.total["dram_bytes"])
    kinds = [kind for kind in AVOIDABLE if getattr(now, kind) > least_bytes]
    if home is None or not kinds:
        return []
    graph = prepared(mapped.graph, mapped.soc, mapped.run)
    needs = []
    for path, present in _memories(mapped, home):
        traffic = cache(partial(_traffic, graph, mapped, path, present))
        for kind in kinds:
            try:
                doublings = _fewest(traffic, kind, least_bytes)
                left_bytes = getattr(traffic(doublings), kind)
            except (ConfigError, InfeasibleError):  # the data sheet bounds this memory
                continue
            size_bytes = getattr(now, kind)
            if left_bytes <= _HELPS * size_bytes:
                setting = _setting(path, present, doublings)
                needs.append(MemoryNeed(kind=kind, setting=setting, bytes=size_bytes, left_bytes=left_bytes))
    return needs


def _memories(mapped: Mapped, home: str) -> Iterator[tuple[str, float]]:
    """Yield the path and present size (bytes) of SRAM and of each memory level of a device."""
    yield f"{home}.sram.per_tile", float(mapped.arch[home]["sram_tile_bytes"])
    for _, path, level in _levels(mapped.soc, home):
        yield f"{path}.capacity", max(_MIB, float(level.capacity))


def _setting(path: str, present: float, doublings: int) -> str:
    size = present * 2.0**doublings
    return f"{path}={size / _MIB:g}MiB" if size >= _MIB else f"{path}={size / 1024:g}KiB"


def _traffic(graph: PreparedGraph, mapped: Mapped, path: str, present: float, doublings: int) -> DramByKind:
    machine = _set(mapped.soc, _setting(path, present, doublings))
    return summed_kinds(dram_by_kind(graph.on(machine)))


def _fewest(traffic: Callable[[int], DramByKind], kind: str, least_bytes: float) -> int:
    """Return the fewest doublings that leave hardly any bytes, by bisection; the most where none does."""
    low, high = 0, _DOUBLINGS
    while high - low > 1 and (high < _DOUBLINGS or getattr(traffic(high), kind) <= least_bytes):
        middle = (low + high) // 2
        low, high = (low, middle) if getattr(traffic(middle), kind) <= least_bytes else (middle, high)
    return high
