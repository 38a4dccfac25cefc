"""`npusim map --minimise latency,energy`: fronts of real networks, their documents and refusals."""

import json

import numpy as np
import pytest

from npusim import Scenario, estimate
from npusim.cli.program import run
from npusim.studies.chain import letters_of
from npusim.studies.map_front import Limits, map_front

SETTING = "workload.layers=2"
SMALL = Scenario("vit", settings=[SETTING])


@pytest.fixture(scope="module")
def front():
    return map_front(SMALL)


def test_all_blocks_on_one_device_cost_what_its_estimate_says(front):
    assert len(front.alone) == 3
    for alone in front.alone:
        found = estimate(SMALL.with_(device=alone.device))
        assert alone.latency_s == pytest.approx(found.latency_s, rel=1e-9)
        assert alone.energy_j == pytest.approx(found.energy_j, rel=1e-9)


def test_no_device_alone_beats_the_front_and_energy_falls_as_latency_rises(front):
    assert (np.diff([p.latency_s for p in front.points]) > 0).all()
    assert (np.diff([p.energy_j for p in front.points]) < 0).all()
    for alone in front.alone:
        assert any(
            p.latency_s <= alone.latency_s * (1 + 1e-9) and p.energy_j <= alone.energy_j * (1 + 1e-9)
            for p in front.points
        )


def test_a_point_of_the_front_costs_the_same_when_it_is_asked_for(front):
    for point in (front.points[0], front.points[-1]):
        given = map_front(SMALL, mapping=point.mapping.lower()).given
        assert given is not None
        assert (given.mapping, given.transitions) == (point.mapping, point.transitions)
        assert (given.latency_s, given.energy_j) == pytest.approx((point.latency_s, point.energy_j))


@pytest.mark.parametrize(
    ("limits", "keeps"),
    [
        (Limits(transitions=1), lambda p: p.transitions <= 1),
        (Limits(shares={"gpu": 0.5}), lambda p: p.shares["gpu"] <= 0.5),
        (Limits(power_w=4.0), lambda p: p.power_w <= 4.0 * (1 + 1e-9)),
    ],
)
def test_limits_hold_and_never_help(front, limits, keeps):
    within = map_front(SMALL, limits=limits)
    assert all(keeps(point) for point in within.points)
    assert within.points[0].latency_s >= front.points[0].latency_s * (1 - 1e-9)
    assert within.points[-1].energy_j >= front.points[-1].energy_j * (1 - 1e-9)


def test_operating_points_add_placements_and_every_one_is_told(front):
    found = map_front(SMALL, devices=["npu", "gpu"], operating_points=True, mapping="GNNNG")
    fixed = map_front(SMALL, devices=["npu", "gpu"])
    assert found.settings > 1
    assert found.points[-1].energy_j <= fixed.points[-1].energy_j
    assert any(point.operating_points for point in found.points)
    given = [one.latency_s * one.energy_j for one in found.given_points]
    assert len(given) == found.settings
    assert found.given_chosen == int(np.argmin(given))


def test_the_command_writes_a_document_of_its_own(capsys, tmp_path):
    command = ["map", "vit", "--set", SETTING, "--minimise", "latency,energy"]
    assert run([*command, "--devices", "npu,gpu", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "npusim.map-front/1"
    assert document["placements"] == 2**5
    assert run([*command, "--devices", "npu,gpu"]) == 0
    assert "no other of 32 placements is better in both" in capsys.readouterr().out
    assert run([*command, "-o", str(tmp_path / "front.html")]) == 0
    assert "Energy over latency" in (tmp_path / "front.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-latency", "1us"], "the least is"),
        (["--max-latency", "soon"], "--max-latency: found `soon`; allowed: a duration"),
        (["--mapping", "NNNN"], "4 letters; allowed: 5 letters"),
        (["--mapping", "XNNNN"], "found `X` in `XNNNN`; allowed: N (npu)"),
        (["--max-share", "dla=0.5"], "unknown device to limit `dla`"),
        (["--max-share", "gpu=2"], "allowed: DEVICE=SHARE"),
        (["--exponents", "1"], "allowed: two numbers"),
        (["--profile", "a.json"], "it goes with one objective"),
        (["--devices", "dla"], "unknown device of core-ultra-series2 `dla`"),
        (["--hint", "throughput"], "one inference at a time"),
    ],
)
def test_what_cannot_be_met_is_refused(options, message, capsys):
    command = ["map", "vit", "--set", SETTING, "--minimise", "latency,energy"]
    assert run([*command, *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_what_is_no_chain_and_options_of_the_front_alone_are_refused(capsys):
    assert run(["map", "gcn-cora", "--minimise", "latency,energy", "--method", "exact"]) == 2
    assert "is no chain of blocks" in capsys.readouterr().err
    assert run(["map", "gcn-cora", "--dvfs"]) == 2
    assert "--minimise latency,energy" in capsys.readouterr().err


def test_letters_of_devices_are_told_apart():
    assert letters_of(["gpu", "dla"]) == {"gpu": "G", "dla": "D"}
    assert letters_of(["npu", "vision", "cpu", "gpu"]) == {"npu": "N", "vision": "V", "cpu": "C", "gpu": "G"}
    many = letters_of([f"dsa_{i}" for i in "kydkkyy"[:3]] + ["dsa_kk", "dsp"])
    assert many["dsa_k"] == "K" and len(set(many.values())) == 5
