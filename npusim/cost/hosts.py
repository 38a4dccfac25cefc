"""Operators on a CPU or GPU: a roofline with caches and a time to dispatch.

    time = dispatch + max(products + elements, stream) + random accesses

**Products.** Multiply-accumulates at a share of the peak. Columns are computed in parallel lanes, so their
number is rounded up (a product of a vector lays the depth there instead, where that is less). Each result
takes the time of further multiply-accumulates to start and store, and few results leave cores idle. Each
product has a fixed time: laying out operands, filling and draining the kernel.

**Elements.** Cycles of a core for each element and row, by the kind of work. Cores divide the columns of a
scatter, so narrow rows keep few of them busy.

**Stream.** Bytes read and written, with a higher cost per written byte. Weights, inputs and states come from
DRAM where together they exceed the caches: other data evicts the share beyond them before the next inference.
Other bytes move at the bandwidth of the nearest cache that they fit, level by level, and the rest at that of
DRAM, of which one core gets a part only. A farther level is never faster. Where several devices share an
inference, a tensor that two of them touch passes through DRAM; others stay in the caches of their host.

**Sparse products.** A row of the right operand is fetched for each non-zero of the left one, from the level
that holds the table.

**Random accesses.** The latency of the levels, weighted by the bytes among which they fall, over the misses
that all cores keep in flight.

**Power** beyond idle is rated at one clock and voltage: a part leaks, a part moves the bytes of DRAM, and the
rest is dynamic. Leakage grows with the voltage. Dynamic power grows with the clock and with the square of the
voltage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from npusim.arch import Cpu, Gpu
from npusim.arch.device import (
    CACHE_LEVELS,
    ELEMENT_KINDS,
    ROW_KINDS,
    ElementKind,
    RooflineDevice,
    RowKind,
)
from npusim.cost.kernels import compiled, compiled_or_plain
from npusim.cost.records import Floats, Hertz, Number, Vector, Watts, columns_at, dtype_of, fill_at
from npusim.cost.tables import HostFormat, OpRecord


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
_FROM_SHEET = {
    "dense_efficiency": "dense_efficiency",
    "busy_outputs": "busy_outputs",
    "product_lanes": "product_lanes",
    "result_macs": "result_macs",
    "write_cost": "write_cost",
    "outstanding_misses": "outstanding_misses",
    "scatter_cost": "scatter_cost",
    "scatter_columns": "scatter_columns",
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
    rows: dict[RowKind, float] = {name: float(count) for name, count in device.row_cycles.items()}
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


_LEVELS, _KINDS, _ROWS = CACHE_LEVELS, len(ELEMENT_KINDS), len(ROW_KINDS)
_SCATTERS = tuple(ELEMENT_KINDS.index(kind) for kind in ("scatter", "scatter_reduce"))


@compiled
def derive_host(host: HostRecord, dram: DramRates) -> None:
    """Fill the derived columns of a host."""
    bytes_per_s = host.bytes_per_s
    if host.core_bytes_per_s > 0.0:
        bytes_per_s = min(bytes_per_s, host.cores * host.core_bytes_per_s)
    host.level_s_per_byte[_LEVELS] = 1.0 / bytes_per_s
    host.level_wait_s[_LEVELS] = dram.latency_s
    for behind in range(_LEVELS):  # from DRAM to the core: what is nearer is no slower
        i = _LEVELS - 1 - behind
        per_byte, wait = host.level_s_per_byte[i + 1], host.level_wait_s[i + 1]
        if host.cache_bytes[i] > 0.0:
            per_byte = min(per_byte, 1.0 / host.cache_bytes_per_s[i])
            wait = min(wait, host.cache_latency_s[i])
        host.level_s_per_byte[i], host.level_wait_s[i] = per_byte, wait
    within = 0.0
    for i in range(_LEVELS):
        within = max(within, host.cache_bytes[i])
        host.level_bytes[i] = within
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


@compiled
def _spread(host: HostRecord, bytes_: float, per_byte: Floats) -> float:
    """Return the summed time of `bytes_` that fill the levels nearest first, at `per_byte` of each."""
    time_s = nearer_bytes = 0.0
    for i in range(_LEVELS):
        held_bytes = min(bytes_, host.level_bytes[i])
        time_s += (held_bytes - nearer_bytes) * per_byte[i]
        nearer_bytes = held_bytes
    return float(time_s + (bytes_ - nearer_bytes) * per_byte[_LEVELS])


@compiled
def _stream_s(host: HostRecord, op: OpRecord) -> float:
    """Return the time to read and write an operator's tensors (s), through caches and from DRAM."""
    s_per_byte = host.level_s_per_byte
    handed_s = op.host_handed_bytes * s_per_byte[_LEVELS]
    moved_bytes = op.host_read_bytes + op.host_written_bytes
    if moved_bytes <= 0.0:
        return float(handed_s)
    weighted_bytes = op.host_read_bytes + host.write_cost * op.host_written_bytes
    cold_bytes = _cold_bytes(host, op)
    streamed_s = _spread(host, moved_bytes - cold_bytes, s_per_byte) + cold_bytes * s_per_byte[_LEVELS]
    return float(handed_s + weighted_bytes / moved_bytes * streamed_s)


@compiled
def _cold_bytes(host: HostRecord, op: OpRecord) -> float:
    """Return the bytes of inputs, constants and states that were evicted since the last inference."""
    if op.host_network_bytes <= host.level_bytes[_LEVELS - 1]:
        return 0.0
    return float(op.host_fresh_bytes * (1.0 - host.level_bytes[_LEVELS - 1] / op.host_network_bytes))


@compiled
def _fetch_s(host: HostRecord, op: OpRecord) -> float:
    """Return the time to fetch the rows of a sparse product (s), each from the level of its table."""
    if op.host_fetched_bytes <= 0.0:
        return 0.0
    touched = max(1.0, op.host_reach_bytes)
    return float(op.host_fetched_bytes / touched * _spread(host, touched, host.level_s_per_byte))


@compiled
def _product_s(host: HostRecord, op: OpRecord) -> float:
    """Return the time of an operator's multiply-accumulates (s)."""
    if op.host_macs <= 0.0:
        return 0.0
    lanes = host.product_lanes
    rows, columns, depth = op.out_w * op.out_h, op.out_c, op.in_c * op.kernel_w * op.kernel_h
    padding = np.ceil(columns / lanes) * lanes / columns
    steps = op.host_macs / depth
    by_column = steps * padding * (depth + host.result_macs)
    by_depth = steps * (np.ceil(depth / lanes) * lanes + host.result_macs)
    macs = by_column
    if columns <= 1.0:
        macs = by_depth
    elif rows <= 1.0:
        macs = min(by_column, by_depth)
    macs *= max(1.0, host.cores * host.busy_outputs / max(1.0, op.host_results * padding))
    peak = host.macs_per_cycle[op.host_format] * host.cores * host.clock_hz
    return float(host.product_overhead_s + macs / (peak * host.dense_efficiency))


@compiled
def _elements_s(host: HostRecord, op: OpRecord) -> float:
    """Return the time of an operator's work on elements and rows (s)."""
    cycles = 0.0
    for i in range(_KINDS):
        if i not in _SCATTERS:
            cycles += op.host_elements[i] * host.element_cycles[i]
    for i in range(_ROWS):
        cycles += op.host_rows[i] * host.row_cycles[i]
    scattered = 0.0
    for i in _SCATTERS:
        scattered += op.host_elements[i] * host.element_cycles[i]
    cores = host.cores
    if host.scatter_columns > 0.0:
        cores = min(cores, max(1.0, op.host_columns / host.scatter_columns))
    return float((cycles / host.cores + scattered / cores) / host.clock_hz)


@compiled
def host_waits_s(host: HostRecord, op: OpRecord) -> float:
    """Return the time of dispatch and random accesses of an operator (s)."""
    accesses = op.host_gathers + host.scatter_cost * op.host_scatters
    if accesses <= 0.0:
        return float(host.dispatch_s)
    touched = max(1.0, op.host_reach_bytes)
    wait_s = _spread(host, touched, host.level_wait_s) / touched
    return float(host.dispatch_s + accesses * wait_s / (host.cores * host.outstanding_misses))


class HostCost(NamedTuple):
    """Costs of an operator on a host."""

    time_s: float
    streamed_bytes: float
    """Bytes from and to DRAM that caches do not serve."""
    waiting_s: float
    """Part of the time in which cores wait for memory or for the call."""
    read_bytes: float
    """Bytes read from DRAM; at least inputs and constants of the network, cached or not."""
    written_bytes: float
    """Bytes written to DRAM; at least results of the network."""


@compiled
def cost_host(host: HostRecord, op: OpRecord) -> HostCost:
    """Return the costs of one operator on a host."""
    work_s = _product_s(host, op) + _elements_s(host, op)
    busy_s, waits_s = max(work_s, _stream_s(host, op) + _fetch_s(host, op)), host_waits_s(host, op)
    cold, touched = _cold_bytes(host, op), max(1.0, op.host_reach_bytes)
    missed = op.host_fetched_bytes * max(0.0, touched - host.level_bytes[_LEVELS - 1]) / touched
    warm = op.host_read_bytes + op.host_written_bytes - cold
    overflow = max(0.0, warm - host.level_bytes[_LEVELS - 1])
    read_bytes = cold + (overflow * (op.host_read_bytes - cold) / warm if warm > 0.0 else 0.0)
    dram_bytes = cold + overflow
    return HostCost(
        waits_s + busy_s,
        op.host_handed_bytes + dram_bytes + missed,
        waits_s + busy_s - work_s,
        op.host_handed_bytes - op.host_handed_written_bytes + max(read_bytes + missed, op.host_fresh_bytes),
        op.host_handed_written_bytes + max(dram_bytes - read_bytes, op.host_leaving_bytes),
    )


_WRITES_MS = 0.02
"""Time of an operator of `scattered_writes` as plain Python."""


@compiled_or_plain(lambda hosts, ops, times_s, *_: _WRITES_MS * len(times_s), in_lists=True)
def scattered_writes(
    hosts: Any, ops: Any, times_s: Vector, writes: Vector, written_bytes: Vector, reach_bytes: Vector
) -> None:
    """Fill in the time (s) of each of many operators that write at random; `ops` lends its one row."""
    op = ops[0]
    for i in range(len(times_s)):
        op.host_scatters = writes[i]
        op.host_written_bytes = written_bytes[i]
        op.host_reach_bytes = reach_bytes[i]
        times_s[i] = cost_host(hosts[0], op).time_s


@compiled
def host_energy_j(host: HostRecord, cost: HostCost) -> float:
    """Return the energy of a host for one operator beyond its idle power (J)."""
    return float(cost.time_s * host.working_w - cost.waiting_s * host.saved_w)
