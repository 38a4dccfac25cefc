"""Power follows clock and voltage: rated points, operating points, DRAM's clock, the package's limit."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import npusim
from npusim.arch import load_soc, soc_names, with_overrides
from npusim.cost.lowering.tables import Unit, empty_ops
from npusim.cost.machine.design_point import arch_row
from npusim.cost.units.hosts import cost_host, host_energy_j
from npusim.errors import ConfigError
from tests.naive_hosts import beyond_idle_w

ROUNDING = 1 + 1e-12

SERIES2 = load_soc("core-ultra-series2")
RATIO = st.floats(0.25, 1.5)


def row(soc, hint="latency"):
    return arch_row(soc, 4, 1, hint)


def volts(device, ratio):
    """Return the setting of a device's voltage at a ratio to its present one."""
    now = SERIES2.dram.voltage if device == "dram" else SERIES2.device(device).voltage
    return {f"{device}.voltage": f"{float(now) * ratio:.6g} V"}


def clock(device, ratio):
    """Return the settings of a device's clocks at a ratio to its present ones."""
    if device == "npu":
        vpu, dpu = float(SERIES2.npu.vpu_clock) * ratio, float(SERIES2.npu.dpu.clock) * ratio
        return {"npu.vpu_clock": f"{vpu:.6g} Hz", "npu.dpu.clock": f"{dpu:.6g} Hz"}
    now = SERIES2.dram.clock if device == "dram" else SERIES2.device(device).clock
    return {f"{device}.clock": f"{float(now) * ratio:.6g} Hz"}


def estimate(soc, device="auto", **run):
    techniques = "stagr" if device in ("auto", "npu") else "none"
    return npusim.estimate("gcn-cora", soc, techniques=techniques, device=device, **run)


# --------------------------------------------------------------------------------------------- rated points
@pytest.mark.few(8)
@pytest.mark.parametrize("name", soc_names())
@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_at_its_own_clock_a_device_draws_what_the_sheet_rates(name, hint):
    soc = load_soc(name)
    found = row(soc, hint)
    for host in ("cpu", "gpu"):
        if soc.has(host):
            power = soc.device(host).power
            assert found[host]["working_w"] == float(power.busy) - float(power.idle)
            most_w = (1.0 - float(power.waiting_share)) * found[host]["working_w"]
            assert 0.0 <= found[host]["saved_w"] <= most_w


def test_a_rated_point_that_a_sheet_states_holds_whatever_its_clock():
    told = {"cpu.power.rated_at.clock": "2 GHz"}
    assert row(with_overrides(SERIES2, told))["cpu"]["working_w"] > row(SERIES2)["cpu"]["working_w"]


def test_settings_leave_the_rated_point():
    once = with_overrides(SERIES2, {"cpu.clock": "2 GHz"})
    assert once.cpu.power.rated_at == SERIES2.cpu.power.rated_at
    assert with_overrides(once, {"cpu.clock": "3.3 GHz"}).cpu.power == SERIES2.cpu.power


@given(RATIO, RATIO, RATIO, RATIO, st.sampled_from([0.0, 0.2, 0.7]))
@settings(max_examples=25)
def test_power_of_a_host_is_its_slow_twin(cycles, supply, memory, supply_of_memory, leaks):
    soc = with_overrides(
        SERIES2,
        clock("cpu", cycles) | volts("cpu", supply) | clock("dram", memory) | volts("dram", supply_of_memory)
        | {"cpu.power.leakage_share": leaks, "dram.peak_bandwidth": "300 GB/s"},
    )  # fmt: skip
    found = row(soc)
    host = SimpleNamespace(**{name: found["cpu"][name] for name in found["cpu"].dtype.names})
    arch = SimpleNamespace(**{name: found.shared[name] for name in found.shared.dtype.names})
    assert found["cpu"]["working_w"] == pytest.approx(beyond_idle_w(host, arch), rel=1e-9)


# --------------------------------------------------------------------------------------------------- laws
@given(st.sampled_from(["npu", "cpu", "gpu", "dram"]), st.floats(0.3, 1.0))
@settings(max_examples=20)
def test_power_falls_with_voltage_and_time_does_not_move(device, ratio):
    run = device if device != "dram" else "npu"
    ratio = max(ratio, 0.98) if device == "npu" else ratio  # below, its clock is refused
    low, usual = estimate(with_overrides(SERIES2, volts(device, ratio)), run), estimate(SERIES2, run)
    assert low.latency_s == usual.latency_s
    assert low.energy_j <= usual.energy_j * ROUNDING
    if ratio < 0.9:
        assert low.energy_j < usual.energy_j


@given(
    st.sampled_from(["cpu", "gpu"]), st.floats(0.05, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0),
    st.floats(0.0, 1e9), st.floats(0.0, 1e9),
)  # fmt: skip
@settings(max_examples=25)
def test_energy_never_rises_when_a_clock_falls_that_nobody_waits_for(
    device, ratio, leaks, waiting, macs, moved
):
    shares = {f"{device}.power.leakage_share": leaks, f"{device}.power.waiting_share": waiting}
    usual = with_overrides(SERIES2, shares)
    op = empty_ops(1)[0]
    op["unit"] = Unit.HOST
    op["host_read_bytes"], op["host_macs"] = moved, macs
    op["out_w"] = op["in_c"] = op["out_c"] = op["kernel_w"] = op["kernel_h"] = 64.0
    op["kernel_w"] = op["kernel_h"] = 1.0
    op["host_results"] = 4096.0
    hosts = [row(soc)[device] for soc in (usual, with_overrides(usual, clock(device, ratio)))]
    costs = [cost_host(host, op) for host in hosts]
    before, after = (host_energy_j(host, cost) for host, cost in zip(hosts, costs, strict=True))
    assert before >= 0.0
    assume(costs[1].time_s == costs[0].time_s)
    assert after <= before * ROUNDING


@pytest.mark.parametrize("setting", [clock("cpu", 0.5), clock("gpu", 0.5), {"npu.dpu.clock": "1.84 GHz"}])
def test_the_npu_waits_for_no_other_clock(setting):
    """Its network is bound by DRAM: a slower grid takes as long and no more energy."""
    usual, slow = estimate(SERIES2), estimate(with_overrides(SERIES2, setting))
    assume_same = slow.latency_s == pytest.approx(usual.latency_s, rel=1e-3)
    assert assume_same and slow.energy_j <= usual.energy_j * (1.0 + 1e-3)


def test_waiting_cores_draw_their_share_of_the_dynamic_power():
    half = with_overrides(SERIES2, {"cpu.power.waiting_share": 0.5})
    usual, less = estimate(SERIES2, "cpu"), estimate(half, "cpu")
    assert less.latency_s == usual.latency_s
    assert 0.5 * usual.energy.cpu_j < less.energy.cpu_j < usual.energy.cpu_j


# -------------------------------------------------------------------------------------------- DRAM's clock
def test_the_clock_of_dram_moves_the_bandwidth_of_everybody():
    usual, half = row(SERIES2), row(with_overrides(SERIES2, clock("dram", 0.5)))
    for before, after in (
        (usual.shared["dram_bytes_per_s"], half.shared["dram_bytes_per_s"]),
        *((usual[host]["bytes_per_s"], half[host]["bytes_per_s"]) for host in ("cpu", "gpu")),
    ):
        assert after == pytest.approx(0.5 * before)


def test_idle_power_of_dram_goes_with_its_clock_and_voltage():
    told = with_overrides(SERIES2, {"dram.power.idle": "1 W"})
    slow = with_overrides(told, clock("dram", 0.5) | volts("dram", 0.5))
    base = float(row(SERIES2).shared["idle_w"])
    assert row(told).shared["idle_w"] == pytest.approx(base + 1.0)
    assert row(slow).shared["idle_w"] == pytest.approx(base + 0.125)
    assert row(slow).shared["idle_w"] == pytest.approx(slow.idle_w)


# ---------------------------------------------------------------------------------------- operating points
def test_one_name_sets_the_points_of_several_devices():
    each = ["npu.operating_point=dpu_900mhz", *(f"{d}.operating_point=low" for d in ("cpu", "gpu", "dram"))]
    assert load_soc("core-ultra-series2", ["operating_point=battery"]) == load_soc("core-ultra-series2", each)
    later = load_soc("core-ultra-series2", ["operating_point=battery", "cpu.clock=2 GHz"])
    assert (later.cpu.clock, later.cpu.voltage) == (2e9, 0.65)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in soc_names() if load_soc(name).operating_points])
def test_on_battery_every_shipped_machine_draws_less(name):
    """A point is the clock that cores sustain: the share of a turbo clock does not apply to it."""
    soc = load_soc(name, ["operating_point=battery"])
    assert soc.cpu.sustained_clock_share is None
    usual, low = (npusim.estimate("gcn-cora", one, device="cpu") for one in (load_soc(name), soc))
    assert low.latency_s > usual.latency_s
    assert low.power_w < 0.6 * usual.power_w


def test_an_operating_point_of_all_is_an_axis_of_a_sweep(tmp_path: Path):
    space = {
        "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr",
        "axes": {"operating_point": {"values": ["battery"]}, "npu.tiles": {"values": [2, 4]}},
        "minimise": ["latency_s", "energy_j"],
    }  # fmt: skip
    npusim.sweep(space, tmp_path / "found")
    front = npusim.pareto(tmp_path / "found", minimise=["latency_s"])
    best = front.rows[0]
    told = ["operating_point=battery", f"npu.tiles={best['npu.tiles']}"]
    found = estimate(load_soc("core-ultra-series2", told))
    assert best["energy_j"] == pytest.approx(found.energy_j)


CHILD = """schema: npusim.soc/1
extends: core-ultra-series2
name: mine
title: Mine
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("operating_points: {fast: {cpu: lw}}", ("operating_points.fast.cpu", "which cpu lacks", "`low`")),
        ("operating_points: {fast: {gpo: low}}", ("operating_points.fast.gpo", "device `gpo`", "`gpu`")),
        ("dram: {clock: null}", ("a clock too",)),
        ("package: {throttle: true, power_limit: 1 W}", ("package.power_limit", "draw idle", "1.35 W")),
        ("devices: {cpu: {power: {leakage_share: 2}}}", ("cpu.power.leakage_share", "from 0 to 1")),
    ],
)
def test_bad_sheets_are_told_by_file_and_key(tmp_path: Path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(CHILD + text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_soc(path)
    message = str(caught.value)
    assert message.count("\n") <= 3 and all(part in message for part in said), message


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("operating_point=batery", ("unknown operating point `batery`", "did you mean `battery`")),
        ("dram.operating_point=fast", ("unknown operating point `fast`", "low")),
    ],
)
def test_an_unknown_point_is_refused_with_those_there_are(setting, said):
    with pytest.raises(ConfigError) as caught:
        load_soc("core-ultra-series2", [setting])
    assert all(part in str(caught.value) for part in said)


def test_a_sheet_without_a_device_leaves_it_out_of_inherited_points(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(CHILD + "devices: {gpu: null}\n")
    assert set(load_soc(path).operating_points["battery"]) == {"npu", "cpu", "dram"}


# ----------------------------------------------------------------------------------------- package's limit
def limited(limit_w):
    return with_overrides(SERIES2, {"package.throttle": True, "package.power_limit": f"{limit_w:.6g} W"})


@given(st.integers(1500, 30_000), st.sampled_from(["npu", "cpu"]), st.sampled_from(["latency", "throughput"]))
@settings(max_examples=15)
def test_a_throttled_package_stays_within_its_limit_and_no_slower_than_that_takes(limit_mw, device, hint):
    limit_w = limit_mw / 1e3
    free, found = estimate(SERIES2, device, hint=hint), estimate(limited(limit_w), device, hint=hint)
    assert found.power_w <= limit_w * ROUNDING
    if free.power_w <= limit_w:
        assert found.energy_j == free.energy_j and found.latency_s == free.latency_s
    else:
        assert found.power_w == pytest.approx(limit_w)
        work_j = free.energy_j - free.energy.idle_j
        assert found.energy_j - found.energy.idle_j == pytest.approx(work_j)
        assert any("throttled" in note for note in found.provenance["notes"])
    wider = estimate(limited(2.0 * limit_w), device, hint=hint)
    assert wider.throughput_per_s >= found.throughput_per_s / ROUNDING


def test_both_engines_throttle_alike():
    soc = limited(2.0)
    one, other = (
        npusim.estimate("gcn-cora", soc, techniques="stagr", engine=engine)
        for engine in ("analytical", "event")
    )
    assert other.power_w == pytest.approx(2.0) and one.power_w == pytest.approx(2.0)
    assert other.latency_s == pytest.approx(one.latency_s, rel=0.05)


def test_a_limit_alone_changes_nothing():
    lower = with_overrides(SERIES2, {"package.power_limit": "2 W"})
    assert estimate(lower).energy_j == estimate(SERIES2).energy_j
