"""Points of a sweep share searches and what operators come to: each costs what it costs alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import convolutions, graphs

from npusim.cost.batch.design_batch import POINTS, points_in_groups
from npusim.cost.batch.evaluation import SHARED_SEARCH, evaluate_points
from npusim.cost.lowering.tables import TOTAL_DTYPE
from npusim.cost.units.rates import BLOCK
from npusim.explore.campaign import Campaign
from npusim.explore.fronts import keep_points
from npusim.explore.points import in_boxes
from npusim.explore.spaces import load_space

RELATIVE = 1e-9
SRAM, LEVEL = "npu.sram.per_tile", "npu.levels.side_cache.capacity"
AXES: dict[str, dict[str, Any]] = {
    "npu.tiles": {"values": [1, 3, 4]},
    SRAM: {"from": "48 KiB", "to": "3 MiB", "count": 23, "scale": "log"},
    "npu.dpu.grid.mpe": {"values": [2, 4, 8]},
    "npu.dpu.grid.vpe": {"values": [2, 4]},
    "npu.dpu.grid.accumulator": {"values": ["2 B", "4 B"]},
    "npu.schedule.stream_pieces": {"values": [2, 8]},
    "dram.bandwidth": {"values": ["15 GB/s", "60 GB/s", "240 GB/s"]},
    "npu.dpu.clock": {"values": ["0.7 GHz", "1.9 GHz"]},
    "npu.dma.engines": {"values": [1, 2]},
}
"""Structure, sizes and prices."""
DATAFLOWS = {"values": ["grid", "weight_stationary", "nlr"]}
MANY: dict[str, dict[str, Any]] = {
    "npu.dma.engines": {"values": [1, 2]},
    "npu.dpu.clock": {"from": "0.7 GHz", "to": "1.9 GHz", "count": 12},
    "npu.dsp.per_tile": {"values": [1, 2, 4]},
    "dram.bandwidth": {"from": "15 GB/s", "to": "240 GB/s", "count": 29},
}
"""More points than share a search of several sizes of SRAM."""


def campaign_over(network: Any, axes: dict[str, Any]) -> Campaign:
    return Campaign(load_space({"schema": "npusim.space/1", "workload": network, "axes": axes}))


def check(campaign: Campaign, numbers: Any, found: Any) -> None:
    """Compare totals of some points with those of each evaluated alone."""
    alone = np.concatenate([campaign.totals(n, n + 1) for n in numbers])
    for name in TOTAL_DTYPE.names or ():
        np.testing.assert_allclose(found[name], alone[name], rtol=RELATIVE, err_msg=name)


@given(
    graphs() | convolutions(), st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=3, unique=True)
)
@settings(max_examples=10, deadline=None)
def test_points_that_share_a_search_cost_what_each_costs_with_its_own(network, names):
    campaign = campaign_over(network, {name: AXES[name] for name in {SRAM, *names}})
    numbers = np.arange(campaign.total)
    check(campaign, numbers, campaign.totals(0, campaign.total))
    scattered = campaign.scores_at(campaign.points.coordinates(numbers))
    together = campaign.scores(0, campaign.total)
    for name, values in scattered.items():
        np.testing.assert_allclose(values, together[name], rtol=RELATIVE, err_msg=name)


@given(
    graphs() | convolutions(), st.sampled_from(["npu.tiles", "npu.dpu.dataflow", LEVEL, SRAM]),
    st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=6, deadline=None)
def test_neighbours_in_rates_cost_what_each_costs_alone(network, structural, random):
    three = {SRAM: {**AXES[SRAM], "count": 3}, "npu.tiles": AXES["npu.tiles"], "npu.dpu.dataflow": DATAFLOWS,
             LEVEL: {"values": ["0 B", "16 KiB", "8 MiB"]}}  # fmt: skip
    campaign = campaign_over(network, {structural: three[structural], **MANY})
    per_search = campaign.total // 3
    assert per_search > SHARED_SEARCH
    start = random.randrange(per_search)
    found = campaign.totals(start, campaign.total)
    numbers = sorted(random.sample(range(start, campaign.total), 24))
    check(campaign, numbers, found[np.array(numbers) - start])


FRONTS: list[dict[str, Any]] = [
    {"minimise": ["latency_s", "energy_j", "area_mm2"]},
    {"minimise": ["latency_s", "energy_j"], "constraints": {"npu_s": {"max": 2e-3}}},
    {"minimise": ["energy_j", "area_mm2"]},
]


@pytest.mark.laws
@given(
    graphs() | convolutions(), st.sampled_from(["npu.tiles", "npu.dpu.dataflow", LEVEL, SRAM]),
    st.sampled_from(FRONTS),
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_points_that_a_front_leaves_out_are_not_on_it(network, structural, front):
    three = {SRAM: {**AXES[SRAM], "count": 3}, "npu.tiles": AXES["npu.tiles"], "npu.dpu.dataflow": DATAFLOWS,
             LEVEL: {"values": ["0 B", "16 KiB", "8 MiB"]}}  # fmt: skip
    axes = {structural: three[structural], **MANY}
    space = {"schema": "npusim.space/1", "workload": network, "axes": axes, "keep": "pareto", **front}
    campaign = Campaign(load_space(space))
    every, quick = (campaign.totals(0, campaign.total, for_front=quick) for quick in (False, True))
    kept = keep_points(campaign.space, every)
    assert np.array_equal(kept, keep_points(campaign.space, quick))
    assert np.array_equal(every[kept], quick[kept])


def test_a_front_leaves_out_most_points_that_are_not_on_it():
    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "keep": "pareto"}
    axes = {"npu.tiles": {"values": [1, 2, 4]}, **MANY}
    campaign = Campaign(load_space({**space, "axes": axes, **FRONTS[0]}))
    quick = campaign.totals(0, campaign.total, for_front=True)
    # A clock changes energies within a batch, and bandwidth its area, so bounds of a batch are not tight.
    assert np.count_nonzero(np.isinf(quick["latency_s"])) > campaign.total / 5
    told = Campaign(load_space({**space, "axes": axes, "minimise": ["latency_s", "dram_bytes"]}))
    assert np.isfinite(told.totals(0, told.total, for_front=True)["latency_s"]).all()


def test_boxes_hold_every_combination_once_and_are_narrow_in_rates():
    values = [np.array([[1.0], [2.0], [4.0]]), np.geomspace(1.0, 9.0, 50)[:, np.newaxis], np.arange(1.0, 6.0)]
    values[2] = np.stack([values[2], values[2] ** 2], axis=1)
    order, cuts = in_boxes(values, [False, True, True])
    assert sorted(order) == list(range(3 * 50 * 5))
    assert np.diff(cuts).max() <= BLOCK and cuts[-1] == len(order)
    _, second, third = np.unravel_index(order, (3, 50, 5))
    widest = values[2][third[: cuts[1]], 1]  # 25 between its ends, the second axis 9
    assert widest.max() / widest.min() == 4.0
    # The same box follows for each value of an axis that changes no rate.
    assert np.array_equal(second[cuts[0] : cuts[1]], second[cuts[1] : cuts[2]])


def test_boxes_of_equal_values_are_cut_all_the_same():
    order, cuts = in_boxes([np.ones((40, 1)), np.ones((40, 1))], [True, True])
    assert sorted(order) == list(range(1600)) and np.diff(cuts).max() <= BLOCK


def test_sizes_of_sram_share_a_search_all_of_them_where_no_rate_varies():
    sizes = {**AXES[SRAM], "count": 100}
    alone = {SRAM: sizes, "npu.tiles": {"values": [1, 2]}}
    searches = []
    for more in ({}, {"dram.bandwidth": {"values": ["20 GB/s", "90 GB/s"]}}):
        space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr"}
        campaign = Campaign(load_space({**space, "axes": {**alone, **more}}))
        assert [axis.path for axis in campaign.axes] == ["npu.tiles", SRAM, *more]
        values = campaign._values(campaign.points.coordinates(np.arange(campaign.total)))
        searches.append(len(campaign._groups(values)) - 1)
        assert campaign.points.total <= SHARED_SEARCH
    assert 2 <= searches[0] < searches[1] < 100


def test_a_long_group_of_several_sizes_of_sram_costs_what_each_costs_alone():
    """More points than have their rates looked at before the search, and than a batch holds."""
    sizes = {"from": "256 KiB", "to": "2 MiB", "count": 4, "scale": "log"}
    axes = {SRAM: sizes, "dram.bandwidth": {"from": "10 GB/s", "to": "250 GB/s", "count": 331}}
    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr+symg", "axes": axes}
    campaign = Campaign(load_space(space))
    assert campaign.total > max(SHARED_SEARCH, POINTS)
    network = campaign._network(campaign.points.coordinates([0])[0])
    values = campaign._values(campaign.points.coordinates(np.arange(campaign.total)))
    together, plans = np.zeros(campaign.total, TOTAL_DTYPE), np.zeros(campaign.total, np.int64)
    points = points_in_groups(campaign._columns, values, np.array([0, campaign.total]))
    evaluate_points(network.row, points, network.ops, together, plans)
    numbers = np.arange(0, campaign.total, 17)
    check(campaign, numbers, together[numbers])
