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
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.device import CACHE_LEVELS, ELEMENT_KINDS, ROW_KINDS
from npusim.compiling.kernels import compiled, compiled_or_plain
from npusim.compiling.records import Floats
from npusim.cost.lowering.tables import OpRecord
from npusim.cost.machine.hosts import HostRecord

_LEVELS, _KINDS, _ROWS = CACHE_LEVELS, len(ELEMENT_KINDS), len(ROW_KINDS)
_SCATTERS = tuple(ELEMENT_KINDS.index(kind) for kind in ("scatter", "scatter_reduce"))


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
    hosts: Any, ops: Any, times_s: Floats, writes: Floats, written_bytes: Floats, reach_bytes: Floats
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
