"""An L2 for an NPU: what a software-managed side cache saves a graph network."""

from picture import Study, main

import npusim

SIZES = (0, 1, 2, 4, 8, 16)
LEVEL = "npu.levels.side_cache"


def study() -> Study:
    """Vary the capacity of the level under GCN on Cora."""
    estimates = {
        f"{size} MiB": npusim.estimate(
            "gcn-cora",
            techniques="stagr",
            settings=[f"{LEVEL}.capacity={size}MiB", f"{LEVEL}.managed_by=software"],
        )
        for size in SIZES
    }
    latency = {name: 1e6 * one.latency_s for name, one in estimates.items()}
    traffic = {name: one.dram_bytes for name, one in estimates.items()}
    fastest = min(latency.values())
    enough = next(name for name, us in latency.items() if us <= 1.01 * fastest)
    sentence = (
        f"{enough} of L2 give all but 1 % of its speed-up, {latency['0 MiB'] / latency[enough]:.2f} times, "
        f"and take DRAM traffic from {traffic['0 MiB'] / 1e6:.1f} to {traffic[enough] / 1e6:.1f} MB."
    )
    return Study(sentence, "Latency of GCN on Cora by L2 capacity (us)", latency, enough)


if __name__ == "__main__":
    main(study, __file__)
