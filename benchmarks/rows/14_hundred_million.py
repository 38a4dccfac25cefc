WHAT = "10^8 points, `--keep pareto`"
WANTED = "40 s of processor time"
UNIT = "points"
CASES = ("",)
TURNS = 1
LIMIT_S = 150
_AXES = {
    "npu.tiles": {"from": 1, "to": 8, "step": 1},
    "npu.sram.per_tile": {"from": "384KiB", "to": "6MiB", "count": 5},
    "npu.dpu.grid.mpe": {"values": [2, 4]},
    "npu.dma.engines": {"values": [1, 2, 3, 4]},
    "npu.dpu.clock": {"from": "1GHz", "to": "2GHz", "count": 500},
    "dram.bandwidth": {"from": "30GB/s", "to": "270GB/s", "count": 625},
}


def work(case):
    import npusim

    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "axes": _AXES,
             "keep": "pareto"}  # fmt: skip
    return npusim.sweep(space, "kept").points
