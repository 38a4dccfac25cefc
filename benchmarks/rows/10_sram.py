WHAT = "sweep over SRAM sizes and grids, each point a tiling search"
WANTED = "100,000 points/s on 2 cores, 1.9 times one"
UNIT = "points"
CASES = ("one core", "two cores", "grids alone, two cores", "a convolutional network, two cores")
_SRAM = {"npu.sram.per_tile": {"from": "256KiB", "to": "8MiB", "count": 2048}}
_GRIDS = {
    "npu.tiles": {"from": 1, "to": 8, "step": 1},
    "npu.dpu.grid.vpe": {"values": [1, 2, 3, 4, 5, 6, 7, 8]},
    "npu.dpu.grid.mpe": {"values": [1, 2, 3, 4, 5, 6, 7, 8]},
}
_SPACES = {
    "grids alone, two cores": ("gcn-cora", "stagr", _GRIDS),
    "a convolutional network, two cores": (
        "mobilenet-v2", "none", {"npu.sram.per_tile": {"from": "256KiB", "to": "8MiB", "count": 256}}
    ),
}  # fmt: skip
_ready = {}


def prepare(case):
    import numba

    from npusim.explore.campaign import Campaign
    from npusim.explore.spaces import Space

    some = {"npu.tiles": {"from": 1, "to": 4, "step": 1}, "npu.dpu.grid.mpe": {"values": [2, 4]}, **_SRAM}
    workload, techniques, axes = _SPACES.get(case, ("gcn-cora", "stagr", some))
    space = {"schema": "npusim.space/1", "workload": workload, "techniques": techniques, "axes": axes}
    _ready["campaign"] = Campaign(Space.model_validate(space))
    _ready["campaign"].totals(0, 2)
    numba.set_num_threads(1 if case == "one core" else min(2, numba.config.NUMBA_NUM_THREADS))


def work(case):
    campaign = _ready["campaign"]
    campaign.totals(0, campaign.total)
    return campaign.total
