"""How large SRAM or a memory level would have to be so that nothing is refetched or spilled."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

from npusim.arch import outer_levels, with_overrides
from npusim.config import SET_BY_STUDY, parse_override
from npusim.documents import Part
from npusim.engines.estimate import DramByKind
from npusim.engines.traffic import dram_by_kind, summed_kinds
from npusim.errors import ConfigError, InfeasibleError
from npusim.mapping import Mapped, PreparedGraph, prepared

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
    device = mapped.soc.array_devices[home]
    yield f"{home}.sram.per_tile", float(mapped.arch[home]["sram_tile_bytes"])
    for name, level in outer_levels(device, mapped.soc.levels).items():
        path = f"{home}.levels.{name}" if name in device.levels else f"levels.{name}"
        yield f"{path}.capacity", max(_MIB, float(level.capacity))


def _setting(path: str, present: float, doublings: int) -> str:
    size = present * 2.0**doublings
    return f"{path}={size / _MIB:g}MiB" if size >= _MIB else f"{path}={size / 1024:g}KiB"


def _traffic(graph: PreparedGraph, mapped: Mapped, path: str, present: float, doublings: int) -> DramByKind:
    change = replace(parse_override(_setting(path, present, doublings)), source=SET_BY_STUDY)
    return summed_kinds(dram_by_kind(graph.on(with_overrides(mapped.soc, [change]))))


def _fewest(traffic: Callable[[int], DramByKind], kind: str, least_bytes: float) -> int:
    """Return the fewest doublings that leave hardly any bytes, by bisection; the most where none does."""
    low, high = 0, _DOUBLINGS
    while high - low > 1 and (high < _DOUBLINGS or getattr(traffic(high), kind) <= least_bytes):
        middle = (low + high) // 2
        low, high = (low, middle) if getattr(traffic(middle), kind) <= least_bytes else (middle, high)
    return high
