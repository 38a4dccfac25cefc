WHAT = "one space of dataflow x array shape x level between SRAM and DRAM x machine, with rates"
WANTED = "200,000 points/s"
UNIT = "points"
CASES = ("",)
TURNS = 1
_AXES = {
    "soc": {"values": ["core-ultra-series1", "core-ultra-series2"]},
    "npu.dpu.dataflow": {"values": ["grid", "weight_stationary", "output_stationary", "kcp_ws", "nlr"]},
    "npu.dpu.grid.mpe": {"values": [2, 4, 8]},
    "npu.levels.side_cache.capacity": {"values": ["0 B", "4 MiB", "8 MiB", "16 MiB"]},
    "npu.dma.engines": {"values": [1, 2, 4]},
    "dram.bandwidth": {"from": "30GB/s", "to": "270GB/s", "count": 60},
    "npu.dpu.clock": {"from": "1GHz", "to": "2GHz", "count": 20},
}
_ready = {}


def prepare(case):
    from npusim.explore.campaign import Campaign
    from npusim.explore.spaces import Space

    space = {
        "schema": "npusim.space/1",
        "workload": "gcn-cora",
        "techniques": "stagr",
        "soc": "core-ultra-series2",
        "axes": _AXES,
    }
    _ready["campaign"] = Campaign(Space.model_validate(space))
    _ready["campaign"].totals(0, 2)


def work(case):
    campaign = _ready["campaign"]
    campaign.totals(0, campaign.total)
    return campaign.total
