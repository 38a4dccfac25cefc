"""Time between two inferences, given what one takes on each device: requests and contexts in flight.

The engines, residency plans and placements compare by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.cost.jit import compiled


class InferenceSums(NamedTuple):
    """What an inference takes on each device, and what runs beside it."""

    requests: float
    """Inferences in flight."""
    contexts: float
    """Inferences that the NPU works on side by side, each on tiles and SRAM of its own."""
    dram_bytes_per_s: float
    npu_s: float
    """Sum of the latencies of operators on the NPU."""
    cpu_s: float
    gpu_s: float
    launches_s: float
    dma_s: float
    """Time of all DMA engines."""
    dram_bytes: float
    """Moved between DRAM and the devices."""


@compiled
def interval_bounds_s(sums: InferenceSums) -> tuple[float, float, float, float, float, float]:
    """Return lower bounds of the time between two inferences (s), each linear in the sums.

    By NPU, CPU, GPU, DMA engines, DRAM, and requests in flight; with one request there is one bound. DMA
    engines, DRAM and hosts serve all contexts; with one context the engines are no bound of their own, for
    `npu_s` holds their time.
    """
    serial_s = sums.npu_s + sums.cpu_s + sums.gpu_s + sums.launches_s
    if sums.requests <= 1.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, serial_s
    shared_s = sums.dma_s if sums.contexts > 1.0 else 0.0
    dram_s = sums.dram_bytes / sums.dram_bytes_per_s
    return sums.npu_s / sums.contexts, sums.cpu_s, sums.gpu_s, shared_s, dram_s, serial_s / sums.requests


@compiled
def contention_interval_s(contexts: float, npu_s: float, dma_s: float) -> float:
    """Return the time between two inferences of contexts that share the DMA engines (s).

    A closed queueing network: each context works by itself for `npu_s` less `dma_s`, then waits for the
    engines, which divide their rate among those that ask. Its throughput depends on the means alone (Baskett
    et al., JACM 1975) and follows by mean value analysis (Reiser and Lavenberg, JACM 1980).
    """
    if contexts <= 1.0 or not 0.0 < npu_s < np.inf:
        return npu_s
    apart_s = max(0.0, npu_s - dma_s)
    queue, interval = 0.0, npu_s
    for customers in range(1, int(contexts) + 1):
        shared_s = dma_s * (1.0 + queue)
        interval = (apart_s + shared_s) / customers
        queue = shared_s / interval
    return interval


@compiled
def interval_s(sums: InferenceSums) -> float:
    """Return the time between two inferences (s): the largest bound, or more where contexts wait for DMA."""
    return max(max(interval_bounds_s(sums)), contention_interval_s(sums.contexts, sums.npu_s, sums.dma_s))


@compiled
def inference_times(sums: InferenceSums) -> tuple[float, float]:
    """Return (latency of an inference, interval between two inferences), in s; see `interval_s`."""
    serial_s = sums.npu_s + sums.cpu_s + sums.gpu_s + sums.launches_s
    if sums.requests <= 1.0 and sums.contexts <= 1.0:  # the usual case in sweeps, and no bound but the sum
        return serial_s, serial_s
    interval = interval_s(sums)
    return max(serial_s, sums.requests * interval), interval
