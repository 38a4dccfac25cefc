WHAT = "dataflow x grid x SRAM x level x clock x bandwidth of real networks, one core"
WANTED = "5,000 points/s"
UNIT = "points"
CASES = ("resnet-50", "bert-base", "yolov8n")
TURNS = 1
_AXES = {
    "npu.dpu.dataflow": {"values": ["grid", "weight_stationary", "output_stationary"]},
    "npu.dpu.grid.mpe": {"values": [2, 4, 8]},
    "npu.sram.per_tile": {"values": ["1 MiB", "2 MiB", "4 MiB"]},
    "npu.levels.side_cache.capacity": {"values": ["0 B", "8 MiB"]},
    "npu.dpu.clock": {"from": "1GHz", "to": "2GHz", "count": 10},
    "dram.bandwidth": {"from": "30GB/s", "to": "270GB/s", "count": 20},
}
_ready = {}


def prepare(case):
    import numba

    from npusim.explore.campaign import Campaign
    from npusim.explore.spaces import Space

    space = {"schema": "npusim.space/1", "workload": case, "soc": "core-ultra-series2", "axes": _AXES}
    _ready["campaign"] = Campaign(Space.model_validate(space))
    _ready["campaign"].totals(0, 2)
    numba.set_num_threads(1)


def work(case):
    campaign = _ready["campaign"]
    campaign.totals(0, campaign.total)
    return campaign.total
