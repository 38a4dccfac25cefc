"""MaGNAS's mappings: tables and figures beside the paper's, what clocks and further devices change."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim import Scenario, estimate
from npusim.cli.program import run
from npusim.magnas.figures import magnas_figures
from npusim.magnas.page import figures_page
from npusim.studies.chain import ChainOnDevices, chain_of, chain_problem
from npusim.studies.map_front import at_points, combinations_of, map_front

DEPTH = "workload.depth=1"
ON_GPU = Scenario("magnas-vig", "jetson-agx-xavier", device="gpu", settings=[DEPTH])
LOWER = {"gpu": "gpu_900", "dla": "dla_1050", "dram": "emc_1065"}
ROUNDING = 1 + 1e-9


def covers(better, worse):
    """Whether a front has for each point of another one that is as good in both."""
    return all((better <= one * ROUNDING).all(1).any() for one in worse)


def values(front):
    return np.array([(one.latency_s, one.energy_j) for one in front.points])


# ----------------------------------------------------------------------------------- tables and figures
def test_the_command_shows_table_3_beside_the_paper(capsys):
    assert run(["magnas", "figures", "--only", "table3", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {(one["what"], one["quantity"]): one for one in document["figures"]}
    assert rows["G/GGGGGGGG/GGGGGGGG/G", "latency"]["paper"] == pytest.approx(13.42e-3)
    assert rows["D/GGGGGGGG/GDDDDGDD/D", "energy"]["paper"] is None
    least = [row["ours"] for (what, kind), row in rows.items() if "that time" in what and kind == "energy"]
    assert len(least) == 6
    assert all(more <= fewer * ROUNDING for fewer, more in pairwise(least))
    assert all(one["holds"] for one in document["statements"])


@pytest.mark.laws
def test_the_share_of_the_gpu_falls_with_the_latency_allowed_and_levels_off():
    found = magnas_figures(["table4"])
    shares = [one.ours for one in found.figures if one.quantity == "share of the GPU"]
    assert shares[0] > 0.9 and shares == sorted(shares, reverse=True)
    assert all(one.holds for one in found.statements)
    assert figures_page(found)


@pytest.mark.laws
def test_a_pyramid_has_a_more_convex_front_than_an_isotropic_backbone():
    assert all(one.holds for one in magnas_figures(["figure8"]).statements)


def test_an_unknown_figure_is_refused(capsys):
    assert run(["magnas", "figures", "--only", "table9"]) == 2
    assert "table3" in capsys.readouterr().err


@pytest.mark.slow
def test_of_all_that_the_paper_says_one_thing_does_not_hold():
    missed = {one.says.partition(": ")[2] for one in magnas_figures().statements if not one.holds}
    assert missed == {"they take less energy than the slowest"}


# --------------------------------------------------------------------------------------------------- clocks
@settings(max_examples=8)
@given(st.sampled_from(["dla.dpu.clock", "dla.vpu_clock", "cpu.clock"]), st.floats(0.2, 1.7))
def test_a_clock_that_nobody_waits_for_changes_no_latency_and_saves_no_less_when_it_falls(clock, ratio):
    usual = estimate(ON_GPU)
    hertz = {"cpu.clock": 2265e6}.get(clock, 1395e6) * ratio
    found = estimate(ON_GPU.with_settings([f"{clock}={hertz:.6g} Hz"]))
    assert found.latency_s == usual.latency_s
    if ratio < 1.0:
        assert found.energy_j <= usual.energy_j


def test_lower_operating_points_are_never_quicker_and_draw_less_power():
    scenario = Scenario("magnas-vig", "jetson-agx-xavier", settings=[DEPTH, "workload.operator=gin"])
    chain = chain_of(scenario.graph)
    points = list(combinations_of(scenario.machine, ("gpu", "dla", "cpu")))
    assert len(points) == 24
    chosen = [points[0], *(points[0] | {device: name} for device, name in LOWER.items())]
    placements = np.random.default_rng(0).integers(0, 2, (50, len(chain.blocks)))

    devices = ChainOnDevices(scenario, chain, ("gpu", "dla"))

    def at(point):
        return devices.problem(at_points(scenario.machine, point)).evaluate(placements)

    fastest, *lower = (at(point) for point in chosen)
    slowest = at(points[-1])
    for one in (*lower, slowest):
        assert (one[:, 0] >= fastest[:, 0] / ROUNDING).all()
    named = [f"{device}.operating_point={name}" for device, name in points[-1].items()]
    again = chain_problem(scenario.with_settings(named), chain, ("gpu", "dla"))
    assert (again.evaluate(placements) == slowest).all()
    assert (slowest[:, 1] / slowest[:, 0] < fastest[:, 1] / fastest[:, 0]).all()


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("N/NNNN", "1/4 letters; allowed: 1/4/4/1 letters"),
        ("X/NNNN/NNNN/N", "found `X` in `X/NNNN/NNNN/N`; allowed: N (npu)"),
    ],
)
def test_a_mapping_has_a_letter_for_each_block_of_each_part(mapping, message, capsys):
    command = ["map", "magnas-vig", "--set", DEPTH, "--minimise", "latency,energy", "--mapping", mapping]
    assert run(command) == 2
    assert message in " ".join(capsys.readouterr().err.split())


# -------------------------------------------------------------------------------------------------- devices
ADDED = """
schema: npusim.soc/1
extends: core-ultra-series2
name: with-a-spare
title: a machine with an NPU more
devices:
  spare:
    kind: npu
    like: npu
    title: an NPU more that draws nothing idle
    tiles: {value: 2, source: "[EST]"}
    power: {idle: {value: 0 W, source: "[EST]"}}
"""


def test_a_device_more_never_makes_the_front_worse(tmp_path):
    path = tmp_path / "with-a-spare.yaml"
    path.write_text(ADDED)
    before = map_front(Scenario("magnas-vig", settings=[DEPTH]))
    after = map_front(Scenario("magnas-vig", path, settings=[DEPTH]))
    assert len(after.devices) == len(before.devices) + 1
    assert covers(values(after), values(before))
