"""A CPU or GPU in the kernel's own words: the part of a design point's row that describes it.

Like the card that a temporary worker hands in on the first morning: how fast, how many hands, how far to the
shelves. Every primitive is one number of the data sheet; `npusim.cost.hosts` derives the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.arch import Cpu, Gpu
from npusim.arch.device import CACHE_LEVELS, ELEMENT_KINDS, ROW_KINDS
from npusim.cost.tables import HostFormat

__all__ = ["HOST_DTYPE", "HOST_PRIMITIVES", "fill_host"]

_FORMATS = {
    HostFormat.INTEGER: ("int8", "fp32", "fp16"),
    HostFormat.FP16: ("fp16", "fp32"),
    HostFormat.BF16: ("bf16", "fp16", "fp32"),
    HostFormat.FP32: ("fp32", "fp16"),
}
"""Format of the data sheet that each is computed in: the first that the device has."""

_PRIMITIVES: list[tuple[str, Any]] = [
    ("cores", "f8"),
    ("clock_hz", "f8"),
    ("macs_per_cycle", (np.float64, (len(HostFormat),))),
    ("dense_efficiency", "f8"),
    ("busy_outputs", "f8"),  # 0: products of any size keep the cores busy
    ("product_lanes", "f8"),  # 1: columns are not rounded up
    ("result_macs", "f8"),
    ("element_cycles", (np.float64, (len(ELEMENT_KINDS),))),
    ("row_cycles", (np.float64, (len(ROW_KINDS),))),
    ("cache_bytes", (np.float64, (CACHE_LEVELS,))),  # 0: there is no such level
    ("cache_bytes_per_s", (np.float64, (CACHE_LEVELS,))),
    ("cache_latency_s", (np.float64, (CACHE_LEVELS,))),
    ("write_cost", "f8"),
    ("outstanding_misses", "f8"),
    ("scatter_cost", "f8"),
    ("bytes_per_s", "f8"),  # from DRAM
    ("dispatch_s", "f8"),
    ("launch_s", "f8"),
    ("busy_w", "f8"),
]
_DERIVED: list[tuple[str, Any]] = [
    ("level_bytes", (np.float64, (CACHE_LEVELS,))),
    ("level_s_per_byte", (np.float64, (CACHE_LEVELS + 1,))),  # the last is DRAM
    ("level_wait_s", (np.float64, (CACHE_LEVELS + 1,))),
]

HOST_DTYPE = np.dtype([*_PRIMITIVES, *_DERIVED])
"""A CPU or GPU; SI units and cycles, `npusim.arch.RooflineDevice` says what each number means."""

HOST_PRIMITIVES = tuple(name for name, _ in _PRIMITIVES)
"""Columns that are numbers of the data sheet."""


def fill_host(record: Any, device: Cpu | Gpu) -> None:
    """Fill the primitives of a CPU or GPU.

    Parameters
    ----------
    record : record of HOST_DTYPE
        Written.
    device : Cpu or Gpu
    """
    record["cores"], record["clock_hz"] = device.cores, device.clock
    rates = {str(name): float(rate) for name, rate in device.macs_per_cycle.items()}
    fastest = max(rates.values())
    for form, names in _FORMATS.items():
        record["macs_per_cycle"][form] = next((rates[name] for name in names if name in rates), fastest)
    record["dense_efficiency"] = device.dense_efficiency
    record["busy_outputs"] = device.busy_outputs if device.busy_outputs is not None else 0.0
    record["product_lanes"] = device.product_lanes if device.product_lanes is not None else 1.0
    record["result_macs"] = device.result_macs if device.result_macs is not None else 0.0
    plain = 1.0 / float(record["macs_per_cycle"][HostFormat.FP32])
    plain = float(device.element_cycles.get("arithmetic", plain))
    for i, kind in enumerate(ELEMENT_KINDS):
        record["element_cycles"][i] = device.element_cycles.get(kind, plain)
    for i, row in enumerate(ROW_KINDS):
        record["row_cycles"][i] = device.row_cycles.get(row, 0.0)
    for i, cache in enumerate(device.caches.values()):
        record["cache_bytes"][i], record["cache_bytes_per_s"][i] = cache.size, cache.bandwidth
        record["cache_latency_s"][i] = cache.latency
    record["write_cost"] = device.write_cost if device.write_cost is not None else 1.0
    record["outstanding_misses"], record["scatter_cost"] = device.outstanding_misses, device.scatter_cost
    record["bytes_per_s"], record["busy_w"] = device.dram_bandwidth, device.power.busy
    record["dispatch_s"], record["launch_s"] = device.dispatch_overhead, device.launch_overhead
