"""The slow, obvious twin of the equations of CPU and GPU, from the primitives of a host."""

import math
from typing import Any

import numpy as np

from npusim.arch.device import ELEMENT_KINDS
from npusim.cost.machine.hosts import HOST_DTYPE, HOST_PRIMITIVES


def cost(host: Any, op: Any, dram_latency_s: float) -> tuple[float, float, float]:
    """Return (time in s, DRAM bytes, those of them that take time) of an operator."""
    levels = nearest_first(host, dram_latency_s)
    touched = op.host_read_bytes + op.host_written_bytes
    stream_s = 0.0
    biggest = max([0.0, *(size for size, _, _ in levels if math.isfinite(size))])
    kept = min(1.0, biggest / op.host_network_bytes) if op.host_network_bytes else 1.0
    cold = op.host_fresh_bytes * (1 - kept)
    if touched:
        warm_s = (touched - cold) * average(touched - cold, [(size, 1 / rate) for size, rate, _ in levels])
        mean_s_per_byte = (warm_s + cold / levels[-1][1]) / touched
        stream_s = (op.host_read_bytes + host.write_cost * op.host_written_bytes) * mean_s_per_byte
    stream_s += op.host_handed_bytes / levels[-1][1]
    reach = max(1.0, op.host_reach_bytes)
    stream_s += op.host_fetched_bytes * average(reach, [(size, 1 / rate) for size, rate, _ in levels])
    accesses = op.host_gathers + host.scatter_cost * op.host_scatters
    wait_s = 0.0
    if accesses:
        latency_s = average(max(1.0, op.host_reach_bytes), [(size, wait) for size, _, wait in levels])
        wait_s = accesses * latency_s / (host.cores * host.outstanding_misses)
    shared = [0.0, 0.0]
    for kind, count, cycles in zip(ELEMENT_KINDS, op.host_elements, host.element_cycles, strict=True):
        shared[kind.startswith("scatter")] += count * cycles
    shared[0] += float(np.dot(op.host_rows, host.row_cycles))
    busy = host.cores
    if host.scatter_columns:
        busy = max(1.0, min(busy, op.host_columns / host.scatter_columns))
    work_s = (shared[0] / host.cores + shared[1] / busy) / host.clock_hz + product_s(host, op)
    missed = op.host_fetched_bytes * (1.0 - min(1.0, biggest / reach))
    left = max(0.0, touched - cold - biggest)
    share = (op.host_read_bytes - cold) / (touched - cold) if touched > cold else 0.0
    read, beyond = cold + left * share, cold + left
    moved = max(read + missed, op.host_fresh_bytes) + max(beyond - read, op.host_leaving_bytes)
    time_s = host.dispatch_s + max(work_s, stream_s) + wait_s
    return time_s, op.host_handed_bytes + moved, op.host_handed_bytes + beyond + missed


def beyond_idle_w(host: Any, arch: Any) -> float:
    """Return what a host draws at work beyond its idle power: leakage, moving bytes, switching.

    At the rated clock and voltage they add up to the rated power: switching is what the others leave of it.
    """
    rated_w = max(0.0, host.busy_w - host.idle_w)
    volts, cycles = host.voltage / host.rated_voltage, host.clock_hz / host.rated_clock_hz
    leaks_w = rated_w * host.leakage_share
    rated_rate, rated_j = (
        host.bytes_per_s / arch.dram_clock_ratio,
        arch.dram_j_per_byte / arch.dram_voltage_ratio**2,
    )
    rated_moves_w = min(rated_w - leaks_w, rated_rate * rated_j)
    switches_w = rated_w - leaks_w - rated_moves_w
    moves_w = rated_moves_w * arch.dram_clock_ratio * arch.dram_voltage_ratio**2
    return leaks_w * volts + moves_w + switches_w * cycles * volts**2


def nearest_first(host: Any, dram_latency_s: float) -> list[tuple[float, float, float]]:
    """Return (bytes, bytes per second, latency) of each level; none is worse than one behind it."""
    rate = host.bytes_per_s
    if host.core_bytes_per_s:
        rate = min(rate, host.core_bytes_per_s * host.cores)
    found = [(math.inf, rate, dram_latency_s)]
    for size, rate, wait in reversed(
        list(zip(host.cache_bytes, host.cache_bytes_per_s, host.cache_latency_s, strict=True))
    ):
        if size > 0:
            found.insert(0, (size, max(rate, found[0][1]), min(wait, found[0][2])))
    return found


def average(bytes_: float, levels: list[tuple[float, float]]) -> float:
    """Return the mean price of a byte when bytes go into the nearest level that still has room for them."""
    left, total, held = bytes_, 0.0, 0.0
    for size, price in levels:
        here = min(left, max(0.0, size - held))
        held, left, total = max(held, size), left - here, total + here * price
    return total / bytes_ if bytes_ else 0.0


def product_s(host: Any, op: Any) -> float:
    """Return the time of the multiply-accumulates."""
    if not op.host_macs:
        return 0.0
    rows, columns, depth = op.out_w * op.out_h, op.out_c, op.in_c * op.kernel_w * op.kernel_h

    def rounded(count: float) -> float:
        return math.ceil(count / host.product_lanes) * host.product_lanes / count

    a_result = op.host_macs / depth
    across = a_result * rounded(columns) * (depth + host.result_macs)
    along = a_result * (depth * rounded(depth) + host.result_macs)
    macs = along if columns == 1 else min(across, along) if rows == 1 else across
    busy = max(1.0, op.host_results * rounded(columns))
    macs *= max(1.0, host.cores * host.busy_outputs / busy)
    rate = host.macs_per_cycle[op.host_format] * host.dense_efficiency
    return float(macs / (host.cores * host.clock_hz * rate)) + float(host.product_overhead_s)


def host_row(**changes: Any) -> Any:
    """Return a record of a host with plain settings, changed as told; nothing is derived yet."""
    row = np.zeros(1, HOST_DTYPE)[0]
    plain = dict.fromkeys(HOST_PRIMITIVES, 1.0)
    plain |= dict.fromkeys(
        (
            "cache_bytes",
            "dispatch_s",
            "product_overhead_s",
            "result_macs",
            "scatter_columns",
            "core_bytes_per_s",
        ),
        0.0,
    )
    for name, value in (plain | changes).items():
        row[name] = value
    return row
