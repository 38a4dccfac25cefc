"""Columns of a CPU or GPU: the data sheet's numbers, and what follows from them.

**Power** beyond idle is rated at one clock and voltage: a part leaks, a part moves the bytes of DRAM, and the
rest is dynamic. Leakage grows with the voltage. Dynamic power grows with the clock and with the square of the
voltage.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from npusim.arch import Cpu, Gpu
from npusim.arch.device import CACHE_LEVELS, ELEMENT_KINDS, ROW_KINDS, ElementKind, RooflineDevice
from npusim.compiling.kernels import compiled
from npusim.compiling.records import Hertz, Number, Vector, Watts, columns_at, dtype_of, fill_at


class HostFormat(IntEnum):
    """Format of the products on a host."""

    INTEGER = 0
    FP16 = 1
    BF16 = 2
    FP32 = 3


class DramRates(NamedTuple):
    """Latency of main memory, energy of a byte at its voltage, clock and voltage over the rated ones."""

    latency_s: float
    j_per_byte: float
    clock_ratio: float
    voltage_ratio: float


@compiled
def leakage_scale(voltage_ratio: float) -> float:
    """Return the leakage power at a voltage over that at the rated voltage."""
    return float(voltage_ratio)


@compiled
def dynamic_scale(clock_ratio: float, voltage_ratio: float) -> float:
    """Return the dynamic power at a clock and voltage over that at the rated point."""
    return float(clock_ratio * voltage_ratio * voltage_ratio)


_FORMATS = {
    HostFormat.INTEGER: ("int8", "fp32", "fp16"),
    HostFormat.FP16: ("fp16", "fp32"),
    HostFormat.BF16: ("bf16", "fp16", "fp32"),
    HostFormat.FP32: ("fp32", "fp16"),
}
"""Format of the data sheet that each is computed in: the first that the device has."""

_LIKE: dict[ElementKind, ElementKind] = {
    "scatter_reduce": "scatter",
    "row_relayout": "relayout",
    "spread": "relayout",
    "narrow_gather": "gather",
    "wide_gather": "gather",
    "softmax_across": "softmax",
}
"""Kinds of work with the cycles of another where a data sheet does not list them."""
_Levels = Annotated[Vector, CACHE_LEVELS, "B"]
_SAME_NAMES = """dense_efficiency busy_outputs product_lanes result_macs write_cost outstanding_misses
scatter_cost scatter_columns"""
_FROM_SHEET = {
    **{name: name for name in _SAME_NAMES.split()},
    "bytes_per_s": "dram_bandwidth",
    "core_bytes_per_s": "core_bandwidth",
    "dispatch_s": "dispatch_overhead",
    "product_overhead_s": "product_overhead",
    "launch_s": "launch_overhead",
    "busy_w": "power.busy",
    "idle_w": "power.idle",
    "voltage": "voltage",
    "rated_voltage": "power.rated_at.voltage",
    "leakage_share": "power.leakage_share",
    "waiting_share": "power.waiting_share",
}
"""Columns with a number of the data sheet."""


@columns_at(RooflineDevice, _FROM_SHEET)
class HostPrimitives:
    """The numbers of the data sheet that describe a CPU or GPU."""

    cores: Number
    """Cores of an inference."""
    clock_hz: Hertz
    """Clock of a core."""
    rated_clock_hz: Hertz
    """Clock of the busy power."""
    macs_per_cycle: Annotated[Vector, len(HostFormat), "1/cycle"]
    """Multiply-accumulates of a core, by `HostFormat`."""
    element_cycles: Annotated[Vector, len(ELEMENT_KINDS), "cycles"]
    """Cycles of a core for an element, by the kind of work."""
    row_cycles: Annotated[Vector, len(ROW_KINDS), "cycles"]
    """Cycles of a core for a row, by the kind of work."""
    cache_bytes: _Levels
    """Size of each cache, the nearest first; 0: no such level."""
    cache_bytes_per_s: Annotated[Vector, CACHE_LEVELS, "B/s"]
    """Bandwidth of each cache."""
    cache_latency_s: Annotated[Vector, CACHE_LEVELS, "s"]
    """Latency of each cache."""
    is_gpu: Number
    """1 for a GPU, 0 for a CPU."""

    if TYPE_CHECKING:  # the columns of the data sheet

        def __getattr__(self, name: str) -> float: ...


class HostRecord(HostPrimitives):
    """A CPU or GPU: its primitives, and columns that follow from them (`derive_host`)."""

    level_bytes: _Levels
    """Bytes within each level."""
    level_s_per_byte: Annotated[Vector, CACHE_LEVELS + 1, "s"]
    """Time of a byte from each level; the last is DRAM."""
    level_wait_s: Annotated[Vector, CACHE_LEVELS + 1, "s"]
    """Latency of each level; the last is DRAM."""
    working_w: Watts
    """Power while it works, beyond its idle power."""
    saved_w: Watts
    """Part of `working_w` that cores do not draw while they wait."""


HOST_DTYPE = dtype_of(HostRecord)
HOST_PRIMITIVES = tuple(dtype_of(HostPrimitives).names)


def fill_host(record: Any, device: Cpu | Gpu, hint: str) -> None:
    """Fill the primitives of a CPU or GPU under a performance hint, "latency" or "throughput"."""
    record["product_lanes"] = record["write_cost"] = 1.0
    fill_at(record, _FROM_SHEET, device)
    record["cores"], record["clock_hz"] = device.cores_used(hint), device.clock_used(hint)
    rates = {str(name): float(rate) for name, rate in device.macs_per_cycle.items()}
    for host_format, names in _FORMATS.items():
        known = (rates[name] for name in names if name in rates)
        record["macs_per_cycle"][host_format] = next(known, max(rates.values()))
    cycles = device.element_cycles
    plain = float(cycles.get("arithmetic", 1.0 / float(record["macs_per_cycle"][HostFormat.FP32])))
    for i, kind in enumerate(ELEMENT_KINDS):
        record["element_cycles"][i] = cycles.get(kind, cycles.get(_LIKE.get(kind, kind), plain))
    rows: dict[str, float] = {name: float(count) for name, count in device.row_cycles.items()}
    if "vector" not in rows:  # a reduction across rows counts by its results, as one along a row does
        rows.setdefault("reduction_across", rows.get("reduction", 0.0))
    for i, row in enumerate(ROW_KINDS):
        record["row_cycles"][i] = rows.get(row, 0.0)
    if device.element_rate is not None:
        record["element_cycles"] /= float(device.element_rate)
        record["row_cycles"] /= float(device.element_rate)
    for i, cache in enumerate(device.caches.values()):
        record["cache_bytes"][i], record["cache_bytes_per_s"][i] = cache.size, cache.bandwidth
        record["cache_latency_s"][i] = cache.latency
    rated = device.power.rated_at
    share = rated.sustained_clock_share
    record["rated_clock_hz"] = rated.clock * (1.0 if share is None else getattr(share, hint))
    record["is_gpu"] = float(isinstance(device, Gpu))


_LEVELS = CACHE_LEVELS


@compiled
def derive_host(host: HostRecord, dram: DramRates) -> None:
    """Fill in a host's time per byte, latency and capacity of each cache level and DRAM, and its powers.

    A cache that a host lacks (0 bytes) has the time and latency of what lies behind it, and the capacity of
    what lies before it.
    """
    bytes_per_s = host.bytes_per_s
    if host.core_bytes_per_s > 0.0:  # few cores draw less than DRAM gives
        bytes_per_s = min(bytes_per_s, host.cores * host.core_bytes_per_s)
    host.level_s_per_byte[_LEVELS] = 1.0 / bytes_per_s
    host.level_wait_s[_LEVELS] = dram.latency_s
    for outer_levels in range(_LEVELS):  # from DRAM to the core: what is nearer is no slower
        i = _LEVELS - 1 - outer_levels
        per_byte, wait = host.level_s_per_byte[i + 1], host.level_wait_s[i + 1]
        if host.cache_bytes[i] > 0.0:
            per_byte = min(per_byte, 1.0 / host.cache_bytes_per_s[i])
            wait = min(wait, host.cache_latency_s[i])
        host.level_s_per_byte[i], host.level_wait_s[i] = per_byte, wait
    capacity_bytes = 0.0
    for i in range(_LEVELS):  # from the core outwards: a level counts as no smaller than a nearer one
        capacity_bytes = max(capacity_bytes, host.cache_bytes[i])
        host.level_bytes[i] = capacity_bytes
    _derive_power(host, dram)


@compiled
def _derive_power(host: HostRecord, dram: DramRates) -> None:
    """Fill in the dynamic power of a working host at its clock and voltage, and the power saved in waits."""
    beyond_idle_w = max(0.0, host.busy_w - host.idle_w)
    if beyond_idle_w <= 0.0:
        host.working_w = host.saved_w = 0.0
        return
    leaking_w = host.leakage_share * beyond_idle_w
    rated_memory_w = host.bytes_per_s / dram.clock_ratio * dram.j_per_byte / (dram.voltage_ratio**2)
    memory_w = min(rated_memory_w, beyond_idle_w - leaking_w)
    dynamic_w = beyond_idle_w - leaking_w - memory_w
    scale = dynamic_scale(host.clock_hz / host.rated_clock_hz, host.voltage / host.rated_voltage)
    # As differences, so that rounding loses nothing at the rated point.
    host.working_w = (
        beyond_idle_w
        + leaking_w * (leakage_scale(host.voltage / host.rated_voltage) - 1.0)
        + memory_w * (dynamic_scale(dram.clock_ratio, dram.voltage_ratio) - 1.0)
        + dynamic_w * (scale - 1.0)
    )
    host.saved_w = (1.0 - host.waiting_share) * dynamic_w * scale
