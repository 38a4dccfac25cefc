"""Time between two inferences, given what one takes on each device: requests and contexts in flight.

The engines, residency plans and placements compare by it.
"""

from __future__ import annotations

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.jit import compiled


@compiled
def interval_bounds_s(
    requests: float,
    contexts: float,
    dram_bytes_per_s: float,
    npu_s: float,
    cpu_s: float,
    gpu_s: float,
    launches_s: float,
    dma_s: float,
    dram_bytes: float,
) -> tuple[float, float, float, float, float, float]:
    """Return lower bounds of the time between two inferences (s); see `interval_s`.

    Contexts have tiles and SRAM of their own; DMA engines, DRAM and hosts serve all of them.

    Parameters
    ----------
    requests : float
        Inferences in flight; with one there is one bound.
    contexts : float
        Inferences that the NPU works on side by side.
    npu_s, cpu_s, gpu_s : float
        Sums of the operators' latencies by device.
    launches_s : float
        Sum of all launches.
    dma_s : float
        Time of all DMA engines; no bound of its own with one context, whose `npu_s` holds it.
    dram_bytes : float
        Bytes that an inference moves between DRAM and the devices.

    Returns
    -------
    tuple of float
        By NPU, CPU, GPU, DMA engines, DRAM, and requests in flight; each is linear in the sums.
    """
    serial_s = npu_s + cpu_s + gpu_s + launches_s
    if requests <= 1.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, serial_s
    shared_s = dma_s if contexts > 1.0 else 0.0
    return npu_s / contexts, cpu_s, gpu_s, shared_s, dram_bytes / dram_bytes_per_s, serial_s / requests


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
def interval_s(
    requests: float,
    contexts: float,
    dram_bytes_per_s: float,
    npu_s: float,
    cpu_s: float,
    gpu_s: float,
    launches_s: float,
    dma_s: float,
    dram_bytes: float,
) -> float:
    """Return the time between two inferences (s): the largest bound, or more where contexts wait for DMA.

    Parameters as of `interval_bounds_s`.
    """
    bounds = interval_bounds_s(
        requests, contexts, dram_bytes_per_s, npu_s, cpu_s, gpu_s, launches_s, dma_s, dram_bytes
    )
    return max(max(bounds), contention_interval_s(contexts, npu_s, dma_s))


@compiled
def inference_times(
    arch: ArchRecord,
    npu_s: float,
    cpu_s: float,
    gpu_s: float,
    launches_s: float,
    dma_s: float,
    dram_bytes: float,
) -> tuple[float, float]:
    """Return (latency of an inference, interval between two inferences), in s; see `interval_s`."""
    serial_s = npu_s + cpu_s + gpu_s + launches_s
    if arch.requests <= 1.0 and arch.contexts <= 1.0:  # the usual case in sweeps, and no bound but the sum
        return serial_s, serial_s
    interval = interval_s(
        arch.requests, arch.contexts, arch.dram_bytes_per_s,
        npu_s, cpu_s, gpu_s, launches_s, dma_s, dram_bytes,
    )  # fmt: skip
    return max(serial_s, arch.requests * interval), interval
