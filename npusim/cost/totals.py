"""What an inference takes when its operators' times are known: one cook, or an assembly line.

With one request in flight, operators follow each other and every entry into a device is launched. With
several, devices work on different requests at once: the slowest of the devices and of the shared DRAM sets
the rate, and launches are hidden unless too few requests are in flight to hide them.
"""

from __future__ import annotations

from typing import Any

from npusim.cost.jit import kernel

__all__ = ["inference_times"]


@kernel
def inference_times(
    arch: Any, npu_s: float, cpu_s: float, gpu_s: float, launches_s: float, dram_bytes: float
) -> tuple[float, float]:
    """Return (latency of an inference, interval between two inferences), in s.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    npu_s, cpu_s, gpu_s : float
        Sums of the operators' latencies by device.
    launches_s : float
        Sum of all launches.
    dram_bytes : float
        Bytes that an inference moves between DRAM and the devices.
    """
    serial_s = npu_s + cpu_s + gpu_s + launches_s
    if arch.requests <= 1.0:
        return serial_s, serial_s
    interval_s = max(max(npu_s, dram_bytes / arch.dram_bytes_per_s), max(cpu_s, gpu_s))
    interval_s = max(interval_s, serial_s / arch.requests)
    return max(serial_s, arch.requests * interval_s), interval_s
