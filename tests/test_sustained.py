"""What a package sustains: limits of power and heat, against a simulation in small steps and by laws."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.cli.program import run
from npusim.errors import ConfigError
from npusim.studies.sustained import energy_in_period, with_sustained

PARTS = ("die", "skin")
PACKAGE = {
    "power_limit": st.floats(8.0, 40.0),
    "burst_limit": st.floats(8.0, 80.0),
    "averaging_time": st.floats(1.0, 100.0),
    "thermal.die.resistance": st.floats(0.1, 3.0),
    "thermal.die.capacity": st.floats(5.0, 100.0),
    "thermal.die.most_rise": st.floats(20.0, 90.0),
    "thermal.skin.resistance": st.floats(0.1, 3.0),
    "thermal.skin.capacity": st.floats(50.0, 1000.0),
    "thermal.skin.most_rise": st.floats(10.0, 40.0),
}
UNITS = dict(zip(PACKAGE, ("W", "W", "s", "K/W", "J/K", "K", "K/W", "J/K", "K"), strict=True))
PACKAGES = st.fixed_dictionaries(PACKAGE)


def machine(package: dict[str, float]) -> npusim.Soc:
    overrides = [f"package.{key}={value} {UNITS[key]}" for key, value in package.items()]
    return npusim.load_soc("core-ultra-series2", overrides)


def sustained(package: dict[str, float]):
    soc = machine(package)
    estimate = npusim.estimate("gcn-cora", soc, techniques="stagr", device="cpu")
    try:
        return estimate, with_sustained(estimate, soc).sustained
    except ConfigError:
        return estimate, None


def naive_burst_s(
    package: dict[str, float], idle_w: float, power_w: float, step_s: float
) -> tuple[float, str]:
    """Follow mean power, die and skin in explicit steps from idle until the first limit is reached."""
    die_r, die_c, die_most, skin_r, skin_c, skin_most = (package[key] for key in [*PACKAGE][3:])
    mean, die, skin = idle_w, idle_w * (die_r + skin_r), idle_w * skin_r
    for step in range(200_000):
        for name, value, most in (
            ("power limit", mean, package["power_limit"]),
            ("die", die, die_most),
            ("skin", skin, skin_most),
        ):
            if value >= most:
                return step * step_s, name
        flow = (die - skin) / die_r
        mean += step_s * (power_w - mean) / package["averaging_time"]
        die, skin = die + step_s * (power_w - flow) / die_c, skin + step_s * (flow - skin / skin_r) / skin_c
    return float("inf"), ""


@given(PACKAGES)
@settings(max_examples=25, deadline=None)
def test_a_burst_ends_when_a_simulation_in_small_steps_says_so(package):
    estimate, s = sustained(package)
    if s is None or s.burst_s is None:
        return
    idle_w = estimate.energy.idle_j * estimate.throughput_per_s
    step_s = s.burst_s / 20_000
    naive_s, name = naive_burst_s(package, idle_w, s.burst_w, step_s)
    assert naive_s == pytest.approx(s.burst_s, rel=0.02, abs=2 * step_s)
    assert name == s.ends_by or naive_s == pytest.approx(s.burst_s, rel=0.001)


@pytest.mark.laws
@given(PACKAGES, st.sampled_from([*PACKAGE]), st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_looser_limits_sustain_no_less_and_nothing_beats_the_burst(package, key, factor):
    estimate, s = sustained(package)
    is_loss = key.endswith("resistance")
    _, looser = sustained(package | {key: package[key] / factor if is_loss else package[key] * factor})
    if s is None:
        return
    assert looser is not None
    assert s.throughput_per_s <= s.burst_per_s <= estimate.throughput_per_s * (1 + 1e-12)
    assert looser.throughput_per_s >= s.throughput_per_s * (1 - 1e-9)
    assert s.energy_j >= estimate.energy_j * (1 - 1e-9)  # pauses idle
    assert s.energy_j * s.throughput_per_s == pytest.approx(s.power_w)


@given(PACKAGES)
@settings(max_examples=25, deadline=None)
def test_the_course_keeps_every_limit_and_ends_at_the_sustained_power(package):
    _, s = sustained(package)
    if s is None:
        return
    most = {"power limit": package["power_limit"]} | {
        name: package[f"thermal.{name}.most_rise"] for name in PARTS
    }
    for moment in s.course:
        for name, limit in most.items():
            assert moment.figures[name] <= limit * (1 + 1e-6)
    assert s.course[-1].power_w == pytest.approx(s.power_w, rel=0.05)
    assert [moment.time_s for moment in s.course] == sorted(moment.time_s for moment in s.course)


def test_a_throttled_estimate_has_the_throughput_that_is_sustained():
    loose = npusim.load_soc("core-ultra-series2", ["package.power_limit=6W", "package.thermal=null"])
    tight = npusim.load_soc(
        "core-ultra-series2", ["package.power_limit=6W", "package.thermal=null", "package.throttle=true"]
    )
    free = npusim.estimate("resnet-50", loose, device="cpu", sustained=True)
    throttled = npusim.estimate("resnet-50", tight, device="cpu")
    assert free.power_w > 6.0
    assert free.sustained.throughput_per_s == pytest.approx(throttled.throughput_per_s)
    assert free.sustained.energy_j == pytest.approx(throttled.energy_j)


def test_energy_in_a_period_is_that_of_an_inference_and_of_idling():
    e = npusim.estimate("resnet-50")
    idle_w = e.energy.idle_j * e.throughput_per_s
    assert energy_in_period(e, 1.0 / e.throughput_per_s) == pytest.approx(e.energy_j)
    assert energy_in_period(e, 1.0) - energy_in_period(e, 0.5) == pytest.approx(0.5 * idle_w)
    assert energy_in_period(e, 0.5 * e.latency_s) == np.inf


def test_the_command_shows_and_writes_it(capsys):
    argv = ["estimate", "gcn-cora", "--device", "cpu", "--set", "package.power_limit=6W", "--sustained"]
    assert run([*argv, "--format", "json"]) == 0
    figures = json.loads(capsys.readouterr().out)["sustained"]
    assert figures["ends_by"] == "power limit"
    assert run(argv) == 0
    assert "sustained" in capsys.readouterr().out


def test_intervals_hold_the_figures_and_widen_with_what_is_uncertain():
    wide = npusim.load_soc("core-ultra-series2", ["package.power_limit={value: 6 W, uncertainty: 40 %}"])
    sure, unsure = (
        npusim.estimate("gcn-cora", soc, device="cpu", sustained=True, interval=True).sustained
        for soc in (npusim.load_soc("core-ultra-series2", ["package.power_limit=6W"]), wide)
    )
    for name, (low, high) in sure.intervals.items():
        assert low <= getattr(sure, name) <= high
    assert set(sure.intervals) == {
        *("burst_per_s", "burst_w", "burst_s", "throughput_per_s", "power_w", "energy_j")
    }
    assert sure.intervals["power_w"] == (6.0, 6.0)
    low, high = unsure.intervals["power_w"]
    assert low < 4.0 and high > 8.0
    assert unsure.intervals["throughput_per_s"][1] > sure.intervals["throughput_per_s"][1]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("package.power_limit=0.5W", "power limit"),
        ("package.burst_limit=0.5W", "package.burst_limit"),
        ("package.thermal.skin.most_rise=0.1K", "skin"),
        ("package=null", "package"),
    ],
)
def test_limits_below_idle_power_and_sheets_without_them_are_refused(setting, named, capsys):
    assert run(["estimate", "gcn-cora", "--sustained", "--set", setting]) == 2
    assert named in capsys.readouterr().err
