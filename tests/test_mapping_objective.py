"""Mappings that are chosen for energy, or for its product with latency."""

from itertools import product

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from naive_records import record
from one_point import evaluate
from spaces import changed
from strategies import tight_convolutions, tight_products

import npusim
from npusim.arch.npu import MAPPING_OBJECTIVES
from npusim.cost.lowering.tables import RESULT_DTYPE, TOTAL_DTYPE
from npusim.explore.campaign import campaign_of
from npusim.explore.spaces import load_space


@given(st.one_of(tight_products(), tight_products(triangle=True), tight_convolutions()), st.booleans())
@hypothesis_settings(max_examples=40)
def test_no_mapping_is_better_for_an_objective_than_the_chosen_one(row_and_op, by_energy):
    row, op = row_and_op
    row["npu"]["objective"] = MAPPING_OBJECTIVES.index("energy" if by_energy else "edp")
    arch, plain = record(row.archs.arrays[0]), record(op)
    results, total = np.zeros(1, RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
    evaluate(row, np.array([op]), results, total[0])
    every = naive.product_choices(arch, plain)
    if not every:
        assert np.isinf(results[0]["latency_s"])
        return

    def objective(dynamic_j: float, latency_s: float, common_s: float) -> float:
        own_s = latency_s - common_s
        return (dynamic_j + (arch.static_w + row.shared["idle_w"]) * own_s) * (1.0 if by_energy else own_s)

    least = min(objective(naive.energy_j(arch, plain, c), c.latency_s, c.common_s) for c in every)
    chosen = objective(results[0]["energy_j"], results[0]["latency_s"], every[0].common_s)
    assert chosen == pytest.approx(least, rel=1e-9)


SETTINGS = ("npu.sram.per_tile=512KiB",)


@pytest.mark.parametrize("workload", ["gcn-cora", "bert-base", "yolo-v3-tiny"])
def test_an_objective_is_served_best_by_mappings_that_are_chosen_for_it(workload):
    def operators(objective: str) -> npusim.Estimate:
        return npusim.estimate(workload, settings=SETTINGS, mapping_objective=objective)

    latency, energy, edp = (operators(objective) for objective in MAPPING_OBJECTIVES)
    assert latency.latency_s <= min(energy.latency_s, edp.latency_s) * 1.005
    assert energy.energy_j <= min(latency.energy_j, edp.energy_j) * 1.001  # plans are chosen by latency
    assert edp.energy_j * edp.latency_s <= min(e.energy_j * e.latency_s for e in (latency, energy)) * 1.005


def test_a_sweep_over_energies_chooses_each_points_own_mappings():
    """Points with equal rates and other energies have mappings of their own."""
    axes = {
        "npu.sram.per_tile": {"values": ["256 KiB", "512 KiB"]},
        "technology.energy.dram": {"values": ["0.01 pJ/B", "50 pJ/B"]},
        "technology.energy.sram": {"values": ["0.1 pJ/B", "80 pJ/B"]},
    }
    sheet = {"npu.schedule.objective": "energy"}
    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "axes": axes}
    scores = campaign_of(load_space(changed(space, set=sheet))).scores(0, 8)
    for point, values in enumerate(product(*(axis["values"] for axis in axes.values()))):
        settings = [f"{path}={value}" for path, value in zip(axes, values, strict=True)]
        alone = npusim.estimate("gcn-cora", techniques="stagr", settings=settings, mapping_objective="energy")
        assert scores["energy_j"][point] == pytest.approx(alone.energy_j, rel=1e-9)
        assert scores["latency_s"][point] == pytest.approx(alone.latency_s, rel=1e-9)
