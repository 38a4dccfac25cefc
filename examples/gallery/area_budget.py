"""A search under an area budget: the fastest NPU for GCN on Cora that fits."""

import tempfile

from picture import Study, main

import npusim

BUDGETS = (6, 8, 12, 20)
AXES = {
    "npu.tiles": {"values": [1, 2, 3, 4, 6, 8]},
    "npu.sram.per_tile": {"values": ["512 KiB", "1 MiB", "2 MiB", "4 MiB"]},
    "npu.dpu.grid.vpe": {"values": [2, 4, 8]},
    "dram.bandwidth": {"values": ["40 GB/s", "80 GB/s", "120 GB/s"]},
}


def study() -> Study:
    """Search 216 designs by NSGA-II for each budget."""
    latency = {}
    for budget in BUDGETS:
        space = {
            "schema": "npusim.space/1",
            "title": "GCN on Cora",
            "workload": "gcn-cora",
            "soc": "core-ultra-series2",
            "techniques": "stagr",
            "run": {"hint": "latency", "tiles": "all"},
            "axes": AXES,
            "constraints": {"area_mm2": {"max": budget}},
            "minimise": ["latency_s", "area_mm2"],
            "keep": "pareto",
        }
        with tempfile.TemporaryDirectory() as folder:
            found = npusim.search(space, f"{folder}/search", budget=60, seed=1)
            latency[f"{budget} mm2"] = 1e6 * min(row["latency_s"] for row in found.records())
    small, large = f"{BUDGETS[0]} mm2", f"{BUDGETS[-1]} mm2"
    sentence = (
        f"A budget of {large} instead of {small} makes the fastest design "
        f"{latency[small] / latency[large]:.2f} times as fast."
    )
    return Study(sentence, "Least latency found by area budget (us)", latency, large)


if __name__ == "__main__":
    main(study, __file__)
