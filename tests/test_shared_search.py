"""One tiling search serves all sizes of SRAM in a range: every point costs what it costs with its own."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import convolutions, graphs

from npusim.cost.evaluation import POINTS, SHARED_SEARCH, evaluate_points
from npusim.cost.tables import TOTAL_DTYPE
from npusim.explore import load_space
from npusim.explore.campaign import Campaign

RELATIVE = 1e-9
AXES: dict[str, dict[str, Any]] = {
    "npu.tiles": {"values": [1, 3, 4]},
    "npu.sram.per_tile": {"from": "48 KiB", "to": "3 MiB", "count": 23, "scale": "log"},
    "npu.dpu.grid.mpe": {"values": [2, 4, 8]},
    "npu.dpu.grid.accumulator": {"values": ["2 B", "4 B"]},
    "npu.schedule.stream_pieces": {"values": [2, 8]},
    "dram.bandwidth": {"values": ["15 GB/s", "60 GB/s", "240 GB/s"]},
    "npu.dpu.clock": {"values": ["0.7 GHz", "1.9 GHz"]},
    "npu.dma.engines": {"values": [1, 2]},
}
"""Structure, sizes and prices."""


def one_search_a_point(campaign: Campaign) -> Any:
    """The slow way: each point a group of its own."""
    network = campaign._network(campaign.points.coordinates([0])[0])
    values = campaign._values(campaign.points.coordinates(np.arange(campaign.total)))
    totals = np.zeros(campaign.total, TOTAL_DTYPE)
    groups, plans = np.arange(campaign.total + 1), np.zeros(campaign.total, np.int64)
    evaluate_points(network.row, campaign._columns, values, groups, network.ops, totals, plans)
    return totals


@given(
    graphs() | convolutions(), st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=3, unique=True)
)
@settings(max_examples=25, deadline=None)
def test_points_that_share_a_search_cost_what_each_costs_with_its_own(network, names):
    axes = {name: AXES[name] for name in {"npu.sram.per_tile", *names}}
    campaign = Campaign(load_space({"schema": "npusim.space/1", "workload": network, "axes": axes}))
    together, alone = campaign.totals(0, campaign.total), one_search_a_point(campaign)
    scattered = campaign.scores_at(campaign.points.coordinates(np.arange(campaign.total)))
    for name in TOTAL_DTYPE.names or ():
        np.testing.assert_allclose(together[name], alone[name], rtol=RELATIVE, err_msg=name)
        np.testing.assert_allclose(scattered[name], alone[name], rtol=RELATIVE, err_msg=name)


def test_sizes_of_sram_share_a_search_all_of_them_where_no_rate_varies():
    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr"}
    sizes = {**AXES["npu.sram.per_tile"], "count": 100}
    alone = {"npu.sram.per_tile": sizes, "npu.tiles": {"values": [1, 2]}}
    searches = []
    for more in ({}, {"dram.bandwidth": {"values": ["20 GB/s", "90 GB/s"]}}):
        campaign = Campaign(load_space({**space, "axes": {**alone, **more}}))
        assert [axis.path for axis in campaign.axes] == ["npu.tiles", "npu.sram.per_tile", *more]
        values = campaign._values(campaign.points.coordinates(np.arange(campaign.total)))
        searches.append(len(campaign._groups(values)) - 1)
        assert campaign.points.total <= SHARED_SEARCH
    assert 2 <= searches[0] < searches[1] < 100


def test_a_long_group_of_several_sizes_of_sram_costs_what_each_costs_alone():
    """More points than have their rates looked at before the search, and than a batch holds."""
    sizes = {"from": "256 KiB", "to": "2 MiB", "count": 4, "scale": "log"}
    many = {"from": "10 GB/s", "to": "250 GB/s", "count": 331}
    axes = {"npu.sram.per_tile": sizes, "dram.bandwidth": many}
    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr+symg", "axes": axes}
    campaign = Campaign(load_space(space))
    assert campaign.total > max(SHARED_SEARCH, POINTS)
    network = campaign._network(campaign.points.coordinates([0])[0])
    values = campaign._values(campaign.points.coordinates(np.arange(campaign.total)))
    together, plans = np.zeros(campaign.total, TOTAL_DTYPE), np.zeros(campaign.total, np.int64)
    groups = np.array([0, campaign.total])
    evaluate_points(network.row, campaign._columns, values, groups, network.ops, together, plans)
    alone = one_search_a_point(campaign)
    for name in TOTAL_DTYPE.names or ():
        np.testing.assert_allclose(together[name], alone[name], rtol=RELATIVE, err_msg=name)
