"""Time between two inferences, given what one takes on each device: requests and contexts in flight.

The engines, residency plans and placements compare by it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.jit import compiled


class DeviceTimes(NamedTuple):
    """What an inference takes on each device; float64 arrays of shape (devices,)."""

    work_s: Any
    """Sum of the latencies of its operators there."""
    dma_s: Any
    """Time of all DMA engines of the device; 0 for a host."""
    contexts: Any
    """Inferences that the device works on side by side, each on tiles and SRAM of its own; 1 for a host."""


@compiled
def serial_s(times: DeviceTimes, launches_s: float) -> float:
    """Return the time of an inference that nothing waits for (s)."""
    total = 0.0
    for d in range(times.work_s.shape[0]):
        total += times.work_s[d]
    return total + launches_s


@compiled
def fill_interval_bounds_s(
    requests: float, times: DeviceTimes, launches_s: float, memory_s: float, bounds: Any
) -> None:
    """Write lower bounds of the time between two inferences (s), each linear in the times.

    Parameters
    ----------
    requests : float
        Inferences in flight; with one there is one bound.
    launches_s : float
        Time of all calls of runtimes.
    memory_s : float
        Time that the busiest memory that devices share, DRAM or a level, takes for an inference's bytes.
    bounds : array of float64, shape (2 * devices + 2,)
        Written: by each device, by the DMA engines of each, by memory, by requests in flight. Engines serve
        all contexts of a device; with one context they are no bound of their own: its work holds their time.
    """
    bounds[:] = 0.0
    devices = times.work_s.shape[0]
    bounds[2 * devices + 1] = serial_s(times, launches_s)
    if requests <= 1.0:
        return
    bounds[2 * devices + 1] /= requests
    bounds[2 * devices] = memory_s
    for d in range(devices):
        bounds[d] = times.work_s[d] / times.contexts[d]
        bounds[devices + d] = times.dma_s[d] if times.contexts[d] > 1.0 else 0.0


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
def interval_s(requests: float, times: DeviceTimes, launches_s: float, memory_s: float, bounds: Any) -> float:
    """Return the time between two inferences (s): the largest bound, or more where contexts wait for DMA.

    Parameters as of `fill_interval_bounds_s`; `bounds` is scratch.
    """
    fill_interval_bounds_s(requests, times, launches_s, memory_s, bounds)
    longest = bounds[0]
    for b in range(1, len(bounds)):  # the array's own maximum makes loading import linear algebra
        longest = max(longest, bounds[b])
    for d in range(times.work_s.shape[0]):
        longest = max(longest, contention_interval_s(times.contexts[d], times.work_s[d], times.dma_s[d]))
    return float(longest)
