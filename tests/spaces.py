"""Small design spaces for tests, and points as `--set` would write them."""

from functools import cache
from typing import Any

from npusim import estimate
from npusim.arch import load_soc
from npusim.engines import Estimate
from npusim.explore.campaign import Campaign
from npusim.techniques import apply
from npusim.workloads import load_workload

MIXED: dict[str, Any] = {
    "schema": "npusim.space/1",
    "workload": "gcn-cora",
    "run": {"tiles": "all"},
    "axes": {
        "dram.bandwidth": {"from": "20 GB/s", "to": "130 GB/s", "count": 7},
        "npu.tiles": {"from": 1, "to": 5, "step": 2},
        "techniques": {"values": ["stagr", "stagr+quantgr", "stagr+symg+cacheg", "stagr+grasp"]},
        "npu.sram.per_tile": {"from": "192 KiB", "to": "6 MiB", "count": 3, "scale": "log"},
        "npu.dpu.grid.vpe": {"values": [2, 4]},
        "npu.operating_point": {"values": ["dpu_900mhz", "dpu_1850mhz"]},
        "npu.dsp.per_tile": {"values": [1, 3]},
        "npu.dma.width": {"values": ["16 B/cycle", "64 B/cycle"]},
        "npu.sparsity.decompress_activations": {"values": [False, True]},
    },
    "keep": "all",
}
"""Every kind of axis: networks, what the search looks at, prices, a macro, a switch."""

QUICK: dict[str, Any] = {
    "schema": "npusim.space/1",
    "workload": "gcn-cora",
    "techniques": "stagr",
    "axes": {
        "npu.tiles": {"from": 1, "to": 6, "step": 1},
        "npu.dpu.clock": {"from": "0.9 GHz", "to": "2.1 GHz", "count": 10},
        "dram.bandwidth": {"from": "20 GB/s", "to": "130 GB/s", "count": 40},
        "npu.dsp.per_tile": {"values": [1, 2, 4]},
    },
}
"""7,200 points, a moment's work."""


def changed(space: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A space with some of its keys replaced."""
    return {**space, **parts}


@cache
def rewritten(workload: str, stack: str) -> Any:
    return apply(load_workload(workload), stack)


def estimated(campaign: Campaign, coordinates: Any) -> Estimate:
    """Estimate one point the way a user would: the same settings on the machine."""
    settings = campaign.settings_at(coordinates)
    stack = str(settings.pop("techniques", campaign.space.techniques))
    soc = load_soc(campaign.space.soc, {**campaign.space.settings, **settings})
    run = campaign.space.run
    tiles = int(soc.npu.tiles) if run.tiles == "all" else run.tiles and min(run.tiles, int(soc.npu.tiles))
    graph = rewritten(campaign.space.workload, stack)
    return estimate(graph, soc, hint=run.hint, requests=run.requests, tiles=tiles, device=run.device)
