"""Operators on the CPU or the GPU: a roofline with a price for being called.

A craftsman next door: he comes when asked (dispatch), works at his own pace (arithmetic), and waits for
material from the same yard as everyone else (DRAM), piece by piece when it lies scattered about (random
reads).
"""

from __future__ import annotations

from typing import Any

from npusim.cost.jit import kernel

__all__ = ["cost_host"]


@kernel
def cost_host(host: Any, op: Any) -> tuple[float, float]:
    """Return (time in s, DRAM bytes) of an operator on a host device.

    Time is a fixed dispatch, the slower of arithmetic and streamed bytes, and the wait for scattered
    accesses, which arrive in whole lines, so many at a time as the cores keep misses in flight.
    """
    arithmetic_s = op.host_macs / (host.float_macs_per_s if op.host_is_float else host.int8_macs_per_s)
    stream_s = op.host_bytes / host.bytes_per_s
    random_s = op.host_random_accesses / host.random_accesses_per_s
    return host.dispatch_s + max(arithmetic_s, stream_s) + random_s, op.host_bytes
