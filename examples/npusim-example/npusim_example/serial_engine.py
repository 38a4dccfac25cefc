"""An engine of one's own: a machine that never overlaps work with transfers.

npusim's engines overlap the DMA with the units. This one adds, for each operator, the time of its unit and
the time of its bytes at the full rate of DRAM. `estimate --engine serial` runs it; the difference to the
analytical engine is what double buffering is worth.
"""

from npusim import Estimate, Scenario, estimate


def serial(scenario: Scenario) -> Estimate:
    """Return the estimate of a scenario whose operators wait for all of their transfers.

    Parameters
    ----------
    scenario : npusim.Scenario
        Network, machine, techniques and how it runs.

    Returns
    -------
    npusim.Estimate
        Mapping, traffic and energy of work as the analytical engine has them; times are of this engine, and
        static energy grows with the latency.
    """
    overlapped = estimate(scenario)
    dram_bytes_per_s = float(scenario.machine.dram.bandwidth)
    operators = []
    for cost in overlapped.operators:
        transfer_s = 0.0 if cost.unit in ("cpu", "gpu", "none") else cost.dram_bytes / dram_bytes_per_s
        latency_s = cost.busy_s + transfer_s if cost.unit != "npu.dma" else max(cost.busy_s, transfer_s)
        changes = {"latency_s": latency_s, "span_s": latency_s, "critical_s": latency_s, "critical": None}
        operators.append(cost.model_copy(update=changes))
    latency_s = overlapped.launch_s + sum(cost.latency_s for cost in operators)
    idle = overlapped.energy.static_j + overlapped.energy.idle_j
    longer = latency_s / overlapped.latency_s
    energy = overlapped.energy.model_copy(
        update={
            "static_j": overlapped.energy.static_j * longer,
            "idle_j": overlapped.energy.idle_j * longer,
        }
    )
    energy_j = overlapped.energy_j + idle * (longer - 1.0)
    return overlapped.model_copy(
        update={
            "latency_s": latency_s,
            "throughput_per_s": 1.0 / latency_s,
            "energy_j": energy_j,
            "energy": energy,
            "power_w": energy_j / latency_s,
            "edp_js": energy_j * latency_s,
            "operators": operators,
            "parts": [],
        }
    )
