"""Silicon: nothing is free, an unmodified sheet keeps its numbers, the laws of memories agree with CACTI."""

import itertools
import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.arch import load_soc, soc_names, with_overrides
from npusim.arch.silicon import process_named, sram_laws
from npusim.calibration.unit_fits import held_out, is_consistent
from npusim.cost import law_column, sram_law
from npusim.cost.machine.design_point import arch_row
from npusim.cost.machine.silicon import clock_at, supply_voltage
from npusim.errors import ConfigError
from npusim.explore.axes import axes_without_cost, resolve_axes
from npusim.explore.spaces import Space
from npusim.studies import pareto
from npusim.validation.running import run_suite
from npusim.validation.silicon import read_memories
from npusim.validation.suite import figures_path, load_suite

ROUNDING = 1 + 1e-12
SERIES2 = load_soc("core-ultra-series2")
L2 = "npu.levels.side_cache"
WITH_L2 = with_overrides(SERIES2, {f"{L2}.capacity": "8 MiB", "dram.peak_bandwidth": "1 TB/s"})
MORE = {
    f"{L2}.capacity": ("B", 2**16, 2**30),
    f"{L2}.bandwidth": ("B/s", 1e9, 1e12),
    f"{L2}.banks": ("", 1, 64),
    "npu.sram.per_tile": ("B", 2**16, 2**28),
    "npu.sram.reserved": ("B", 0, 2**20),
    "npu.sram.word": ("B", 8, 128),
    "npu.sram.read_ports": ("", 1, 32),
    "npu.dsp.lanes.fp16": ("element/cycle", 1, 256),
    "npu.dsp.per_tile": ("", 1, 16),
    "npu.dma.width": ("B/cycle", 8, 512),
    "npu.dma.engines": ("", 1, 16),
    "npu.tiles": ("", 1, 64),
    "npu.dpu.clock": ("Hz", 1e8, 2.6e9),
    "npu.dpu.grid.stages": ("", 1, 8),
    "npu.vpu_clock": ("Hz", 1e8, 1.5e9),
    "dram.bandwidth": ("B/s", 1e9, 5e11),
    "technology.rise": ("K", 1, 120),
}
"""Numbers of which more is never free, with unit and range."""
SCRATCH_PAD = "eyeriss.dpu.array.levels.filters"
PAD_SIZES = {f"{SCRATCH_PAD}.capacity": ("B", 1, 2**16), f"{SCRATCH_PAD}.width": ("B/cycle", 1, 64)}
"""Sizes of a memory in the PEs of Eyeriss."""
DRAM_KINDS = ["LPDDR5X-8533", "LPDDR4X", "HBM2E, a stack", "GDDR6", "DDR5-5600", "DDR3-1866"]


def row(soc):
    return arch_row(soc, float("inf"), 1, "latency")


def changed(path, value):
    unit = MORE[path][0]
    return row(with_overrides(WITH_L2, {path: f"{value:.9g} {unit}" if unit else round(value)}))


def drawn(path):
    _, low, high = (MORE | PAD_SIZES)[path]
    return st.tuples(st.just(path), *[st.floats(low, high)] * 2)


# --------------------------------------------------------------------------------------------------- laws
@given(st.sampled_from(sorted(MORE)).flatmap(drawn))
@settings(max_examples=60)
def test_more_of_a_part_never_takes_less_area_or_static_power(change):
    path, *values = change
    less, more = (changed(path, value) for value in sorted(values))
    assert less.shared["area_mm2"] <= more.shared["area_mm2"] * ROUNDING
    assert less["npu"]["static_w"] <= more["npu"]["static_w"] * ROUNDING
    assert less.shared["idle_w"] <= more.shared["idle_w"] * ROUNDING


@given(st.sampled_from(sorted(PAD_SIZES)).flatmap(drawn))
@settings(max_examples=30)
def test_larger_memories_in_the_pes_never_take_less_area_or_static_power(change):
    path, *values = change
    less, more = (
        row(with_overrides(load_soc("eyeriss"), {path: f"{value:.9g} {PAD_SIZES[path][0]}"}))["eyeriss"]
        for value in sorted(values)
    )
    assert less["area_mm2"] <= more["area_mm2"] * ROUNDING
    assert less["static_w"] <= more["static_w"] * ROUNDING


def test_a_scratch_pad_costs_its_law_in_every_pe():
    sheet, pads = load_soc("eyeriss"), 168
    double = with_overrides(sheet, {f"{SCRATCH_PAD}.capacity": "896 B"})
    law, npu = law_column(sram_laws().area.single_port), sheet.array_devices["eyeriss"]
    pad_m2 = sram_law(law, 896.0, 2.0, 4.0) - sram_law(law, 448.0, 2.0, 4.0)
    sram_bytes = float(npu.sram.per_tile) + float(npu.sram.reserved)
    rated = sram_law(law, sram_bytes, float(npu.sram.word), float(npu.sram.read_ports)) / sram_bytes
    pads_mm2 = 1e6 * pads * pad_m2 * float(sheet.technology.area.sram) / rated
    side = row(double)["eyeriss"]["area_mm2"] - row(sheet)["eyeriss"]["area_mm2"] - pads_mm2
    assert 0.0 <= side <= float(sheet.technology.area.fixed) * 1e6  # wires to a longer side
    single = with_overrides(sheet, {f"{SCRATCH_PAD}.ports": "one"})
    assert row(single)["eyeriss"]["area_mm2"] < row(sheet)["eyeriss"]["area_mm2"]


@pytest.mark.parametrize("title", DRAM_KINDS)
def test_a_dram_interface_of_any_kind_costs_area_and_power(title):
    base = SERIES2.model_copy(update={"dram": SERIES2.dram.model_copy(update={"title": title})})
    costs = []
    for bandwidth in ("20 GB/s", "80 GB/s", "120 GB/s", "300 GB/s"):
        at = row(with_overrides(base, {"dram.peak_bandwidth": "1 TB/s", "dram.bandwidth": bandwidth}))
        costs.append((at.shared["area_mm2"], at.shared["idle_w"]))
    assert all(less[i] < more[i] for less, more in itertools.pairwise(costs) for i in (0, 1))


@pytest.mark.parametrize("tiles", [1, 3, 24])
def test_sequencers_and_the_fabric_grow_with_the_tiles(tiles):
    other, fixed_mm2 = (
        with_overrides(SERIES2, {"npu.tiles": tiles}),
        1e6 * float(SERIES2.technology.area.fixed),
    )
    tile_mm2 = naive_side_mm(SERIES2) ** 2 / int(SERIES2.npu.tiles)
    ratio = tiles / int(SERIES2.npu.tiles)
    share = 0.15 * (ratio - 1) + 0.25 * (ratio * ratio**0.5 - 1)
    further_mm2 = row(other)["npu"]["area_mm2"] - row(SERIES2)["npu"]["area_mm2"]
    expected_mm2 = (tiles - int(SERIES2.npu.tiles)) * tile_mm2 + share * fixed_mm2
    assert further_mm2 == pytest.approx(expected_mm2, rel=1e-9)


@pytest.mark.parametrize("rise_k", [15.0, 65.0, 90.0])
def test_leakage_doubles_every_25_k(rise_k):
    hot = row(with_overrides(SERIES2, {"technology.rise": f"{rise_k} K"}))["npu"]
    usual = row(SERIES2)["npu"]
    leaks_w = float(SERIES2.technology.leakage) * usual["area_mm2"] * 1e-6
    assert hot["static_w"] - usual["static_w"] == pytest.approx(leaks_w * (2 ** ((rise_k - 40) / 25) - 1))
    assert hot["area_mm2"] == usual["area_mm2"]


@pytest.mark.parametrize("path", sorted(MORE))
def test_every_part_has_a_cost(path):
    _, low, high = MORE[path]
    less, more = changed(path, low), changed(path, high)
    costs = [(one.shared["area_mm2"], one["npu"]["static_w"], one.shared["idle_w"]) for one in (less, more)]
    assert costs[0] != costs[1]


@given(st.floats(2**16, 2**28), st.floats(2**16, 2**28))
def test_a_byte_of_a_larger_memory_takes_more_energy(one, other):
    less, more = (
        changed("npu.sram.per_tile", size)["npu"]["sram_j_per_byte"] for size in sorted((one, other))
    )
    assert less <= more * ROUNDING
    less, more = (changed(f"{L2}.capacity", size)["npu"]["read_j"][0] for size in sorted((one, other)))
    assert less <= more * ROUNDING


def test_a_memory_sixteen_times_as_large_takes_three_to_six_times_the_energy():
    small, large = (changed("npu.sram.per_tile", size)["npu"]["sram_j_per_byte"] for size in (2**18, 2**22))
    assert 3.0 < large / small < 6.0


# ---------------------------------------------------------------------------------------- the sheet's point
@pytest.mark.parametrize("name", soc_names())
def test_a_sheet_keeps_its_area_and_energies_to_the_last_digit(name):
    soc = load_soc(name)
    found = row(soc)
    for device, npu in soc.array_devices.items():
        own, technology = found[device], soc.technology
        ratio = float(npu.voltage) / float(technology.nominal_voltage)
        assert own["supply_voltage"] == float(npu.voltage)
        assert own["sram_j_per_byte"] == float(technology.energy.sram) * (ratio * ratio)
        sram_m2 = float(technology.area.sram) * (float(npu.sram.per_tile) + float(npu.sram.reserved))
        engines_m2 = float(technology.area.dma_engine) * int(npu.dma.engines)
        macs_m2 = sum(rate * float(technology.area.mac[form]) for form, rate in npu.dpu.macs_per_mpe.items())
        pes = npu.dpu.macs_per_cycle(next(iter(npu.dpu.macs_per_mpe))) / next(
            iter(npu.dpu.macs_per_mpe.values())
        )
        tile_m2 = macs_m2 * pes + sram_m2 + float(technology.area.dsp) * int(npu.dsp.per_tile)
        area_m2 = int(npu.tiles) * tile_m2 + engines_m2 + float(technology.area.fixed)
        assert own["area_mm2"] == pytest.approx(area_m2 * 1e6, rel=1e-14)
    assert found.shared["idle_w"] == soc.idle_w
    assert found.shared["area_mm2"] == sum(found[device]["area_mm2"] for device in soc.array_devices)


def test_settings_keep_the_sheet_s_point():
    once = with_overrides(SERIES2, {"npu.sram.per_tile": "4 MiB"})
    back = with_overrides(once, {"npu.sram.per_tile": SERIES2.npu.sram.per_tile.text})
    assert once.sheet
    assert row(back)["npu"]["sram_j_per_byte"] == row(SERIES2)["npu"]["sram_j_per_byte"]
    twice = with_overrides(once, {"npu.dpu.clock": "1 GHz"})
    assert twice.sheet == once.sheet


# ------------------------------------------------------------------------------------------------- clocks
def test_a_clock_beyond_the_highest_voltage_is_refused_with_the_highest_clock():
    with pytest.raises(ConfigError, match=r"50GHz.*at most 2676 MHz, at 1\.10 V"):
        load_soc("core-ultra-series2", ["npu.dpu.clock=50GHz"])
    load_soc("core-ultra-series2", ["npu.dpu.clock=2676MHz"])


@pytest.mark.parametrize("name", ["core-ultra-series1", "core-ultra-series2"])
def test_clocks_of_intel_s_points_follow_their_voltages(name):
    npu, process = load_soc(name).npu, process_named(load_soc(name).technology.node)
    numbers = (float(process.threshold), float(process.alpha))
    for point in npu.operating_points.values():
        ratio = clock_at(float(point.voltage), *numbers) / clock_at(float(npu.voltage), *numbers)
        assert ratio * float(npu.dpu.clock) == pytest.approx(float(point.dpu_clock), rel=0.1)


def test_npu_4_does_twice_the_work_of_npu_3_at_equal_power():
    """Intel's presentations of Lunar Lake say 2; power without DRAM and idle power."""

    def rate_and_power(name, tiles, clock):
        changes = {"npu.tiles_for.latency": tiles, "npu.launch_overhead": "0 s", "npu.dpu.clock": clock}
        estimate = npusim.estimate("resnet-50", load_soc(name, changes))
        parts = estimate.energy
        work_j = parts.mac_j + parts.sram_j + parts.dsp_j + parts.static_j
        return 1.0 / estimate.latency_s, work_j / estimate.latency_s

    rate, power_w = rate_and_power("core-ultra-series1", 2, "1400 MHz")
    clocks = (f"{mhz} MHz" for mhz in (900, 1300, 1700))
    rates, powers = zip(*(rate_and_power("core-ultra-series2", 6, clock) for clock in clocks), strict=True)
    assert powers[0] < power_w < powers[-1]
    assert np.interp(power_w, powers, rates) / rate == pytest.approx(2.0, rel=0.1)


def test_clocks_of_published_operating_points_are_predicted(tmp_path):
    groups = run_suite("clocks").result().groups
    assert groups[0].ok
    text = figures_path(load_suite("clocks")).read_text()
    file = tmp_path / "points.csv"
    file.write_text(text.replace("0.750,800,", "0.750,1600,"))
    assert not run_suite("clocks", file).result().groups[0].ok


@given(st.floats(0.3, 1.4), st.floats(0.6, 1.0), st.floats(0.15, 0.4), st.floats(1.3, 2.0))
def test_the_voltage_of_a_clock_supports_it(ratio, voltage, threshold, alpha):
    supply = supply_voltage(voltage, ratio, threshold, alpha, 0.0)
    wanted = ratio * clock_at(voltage, threshold, alpha)
    assert clock_at(supply, threshold, alpha) == pytest.approx(wanted, rel=1e-9)


def test_a_clock_carries_its_voltage_unless_a_setting_or_the_sheet_says_otherwise():
    slow = {"npu.dpu.clock": "1 GHz"}
    assert row(with_overrides(SERIES2, slow))["npu"]["supply_voltage"] < 0.7
    fixed = with_overrides(SERIES2, slow | {"npu.voltage": "0.84 V"})
    assert row(fixed)["npu"]["supply_voltage"] == 0.84
    point = with_overrides(SERIES2, {"npu.operating_point": "dpu_900mhz"})
    assert row(point)["npu"]["supply_voltage"] == 0.55


@given(st.integers(1, 8), st.floats(1e8, 2.6e9))
def test_further_pipeline_stages_take_energy_unless_they_save_voltage(stages, clock_hz):
    rows = [
        row(with_overrides(SERIES2, {"npu.dpu.grid.stages": n, "npu.dpu.clock": clock_hz}))["npu"]
        for n in (1, stages)
    ]
    dynamic = [at["mac_j"][1] / at["supply_voltage"] ** 2 for at in rows]
    assert dynamic[1] == pytest.approx(dynamic[0] * (1 + 0.3 * (stages - 1)))
    assert rows[1]["supply_voltage"] <= rows[0]["supply_voltage"]
    if clock_hz <= float(SERIES2.npu.dpu.clock):
        assert rows[1]["supply_voltage"] == rows[0]["supply_voltage"]


def test_further_pipeline_stages_reach_clocks_that_one_does_not():
    assert SERIES2.highest_clocks("npu")["dpu.clock"] < 2.7e9
    fast = with_overrides(SERIES2, {"npu.dpu.grid.stages": 2, "npu.dpu.clock": "4.6 GHz"})
    cycle = 0.85 / 2 + 0.15  # of logic and of a register
    assert fast.highest_clocks("npu")["dpu.clock"] == pytest.approx(
        SERIES2.highest_clocks("npu")["dpu.clock"] / cycle
    )
    with pytest.raises(ConfigError, match="at most 46"):
        with_overrides(fast, {"npu.dpu.clock": "4.7 GHz"})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["npu.voltage=5V"], r"5V.*at most 1\.10 V in 3 nm"),
        (["npu.voltage=0.1V"], r"enough for dpu\.clock, 1\.85 GHz"),
        (["npu.voltage=0.6V", "npu.dpu.clock=1GHz"], "enough for vpu_clock"),
    ],
)
def test_a_voltage_that_the_clocks_or_the_process_do_not_allow_is_refused(settings, named):
    with pytest.raises(ConfigError, match=named):
        load_soc("core-ultra-series2", settings)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", soc_names())
def test_every_operating_point_of_a_sheet_may_be_set(name):
    for device, array in load_soc(name).array_devices.items():
        for point in array.operating_points:
            load_soc(name, [f"{device}.operating_point={point}"])


# --------------------------------------------------------------------------------------------------- wires
def naive_side_mm(soc):
    """The side of a square of all tiles, part by part."""
    npu, area = soc.npu, soc.technology.area
    macs = sum(rate * float(area.mac[form]) for form, rate in npu.dpu.macs_per_mpe.items()) * npu.dpu.mpes
    sram = (float(npu.sram.per_tile) + float(npu.sram.reserved)) * float(area.sram)
    return (int(npu.tiles) * (macs + sram + int(npu.dsp.per_tile) * float(area.dsp)) * 1e6) ** 0.5


@pytest.mark.parametrize("settings", [{"npu.tiles": 3}, {"npu.tiles": 24}, {"npu.dpu.grid.mpe": 8}])
def test_a_byte_from_dram_pays_for_half_the_side_of_all_tiles(settings):
    other = with_overrides(SERIES2, settings)
    moved_mm = 0.5 * (naive_side_mm(other) - naive_side_mm(SERIES2))
    voltage = (float(SERIES2.npu.voltage) / float(SERIES2.technology.nominal_voltage)) ** 2
    expected_pj = 0.63 * moved_mm * voltage
    found_j = row(other)["npu"]["dram_j_per_byte"] - row(SERIES2)["npu"]["dram_j_per_byte"]
    assert found_j * 1e12 == pytest.approx(expected_pj, rel=1e-9)


# ------------------------------------------------------------------------------------------------- formats
def test_a_format_that_no_sheet_states_costs_by_its_ratio_to_the_nearest():
    costs = SERIES2.technology.mac_energy
    assert costs["int8"] == float(SERIES2.technology.energy.mac["int8"])
    assert costs["int4"] == pytest.approx(costs["int8"] * 0.15 / 0.30)
    assert costs["fp32"] == pytest.approx(costs["fp16"] * 4.6 / 1.5)
    areas = SERIES2.technology.mac_area
    assert areas["int4"] < areas["int8"] < areas["int16"]
    assert areas["fp8_e4m3"] < areas["bf16"] < areas["fp16"] < areas["fp32"]
    grid = with_overrides(SERIES2, {"npu.dpu.macs_per_mpe.int4": "16 MAC/cycle"})
    assert row(grid)["npu"]["area_mm2"] > row(SERIES2)["npu"]["area_mm2"]


# ------------------------------------------------------------------------------------------------ memories
@cache
def cacti():
    figures = read_memories(load_suite("memories"), figures_path(load_suite("memories")))
    return figures.where(is_consistent(figures))


def test_laws_predict_rows_left_out():
    for quantity, errors in held_out(cacti()).items():
        for cell in sram_laws().area.scale if quantity in ("read_energy", "area") else ():
            own = errors[cacti()["cells"] == cell]
            assert np.median(own) <= 0.15
            assert np.quantile(own, 0.9) <= 0.40


@given(st.floats(64, 2**30), st.floats(1, 256), st.floats(1, 64))
def test_a_law_is_its_slow_twin(capacity, word, banks):
    for terms in (sram_laws().area.single_port, sram_laws().read_energy.dual_port):
        twin = sum(factor * capacity**a * word**b * banks**c for factor, a, b, c in terms)
        assert sram_law(law_column(terms), capacity, word, banks) == pytest.approx(twin, rel=1e-9)


# --------------------------------------------------------------------------------------------------- chips
def test_a_chip_s_own_area_has_no_part_in_its_prediction(tmp_path):
    text = figures_path(load_suite("silicon-area")).read_text()
    file = tmp_path / "chips.csv"
    file.write_text(text.replace(",12.25,", ",120,"))
    rows, others = ({r.id: r for r in run_suite("silicon-area", f).result().rows} for f in (None, file))
    assert len(rows) >= 12
    assert rows["eyeriss"].predicted == others["eyeriss"].predicted
    assert rows["eie"].predicted != others["eie"].predicted
    file.write_text("\n".join(text.splitlines()[:4]))
    with pytest.raises(ConfigError, match="at least 5 chips"):
        run_suite("silicon-area", file)


def test_a_clock_follows_from_the_voltages_of_its_process_alone():
    process = process_named("65 nm").model_copy(update={"threshold": 0.35, "alpha": 1.5})
    assert process.clock_ratio(0.82, 1.17) == pytest.approx((0.47**1.5 / 0.82) / (0.82**1.5 / 1.17))
    assert process.clock_ratio(0.3, 1.0) == 0.0


# -------------------------------------------------------------------------------------------------- fronts
def _naive_stand_ins(values, tolerance):
    stands_in = np.full(values.shape[1], -1)
    most, sums = values * (1 + tolerance), pareto.scaled(values, pareto.corner_of(values)).sum(axis=0)
    for point in np.argsort(sums, kind="stable"):
        if stands_in[point] < 0:
            stands_in[np.all(values[:, [point]] <= most, axis=0) & (stands_in < 0)] = point
    return stands_in


@given(
    st.lists(st.tuples(*[st.sampled_from([1.0, 1.001, 1.004, 2.0, 3.0])] * 3), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.005]),
)
def test_a_point_is_merged_into_one_that_exceeds_it_by_no_more_than_the_tolerance(points, tolerance):
    values = np.array(points).T
    values = values[:, pareto.front(values)]
    stands_in = pareto.stand_ins(values, tolerance)
    assert np.array_equal(stands_in, _naive_stand_ins(values, tolerance))
    assert np.all(values[:, stands_in] <= values * (1 + tolerance) * ROUNDING)
    assert np.array_equal(stands_in[stands_in], stands_in)
    distinct = np.unique(stands_in)
    assert len(np.unique(values[:, distinct], axis=1).T) == len(distinct)


def test_axes_without_a_cost_are_named():
    values = {
        "npu.dpu.clock": ["1 GHz", "1.85 GHz"],
        "npu.launch_overhead": ["0.1 ms", "0.25 ms"],
        "npu.schedule.prefetch": [False, True],
        "dram.bandwidth": ["40 GB/s", "80 GB/s"],
        "npu.sram.per_tile": ["1 MiB", "2 MiB"],
    }
    space = Space.model_validate(
        {
            "schema": "npusim.space/1",
            "workload": "gcn-cora",
            "axes": {p: {"values": v} for p, v in values.items()},
        }
    )
    free = axes_without_cost(resolve_axes(space, SERIES2), SERIES2, space.run)
    assert set(free) == {"npu.launch_overhead", "npu.schedule.prefetch"}


def test_points_of_a_front_that_differ_only_in_an_axis_without_effect_are_one(tmp_path):
    axes = {"npu.dpu.clock": ["1.2 GHz", "1.85 GHz"], f"{L2}.capacity": ["0 B", "8 MiB"]}
    axes |= {f"{L2}.bandwidth": ["50 GB/s", "100 GB/s", "150 GB/s"]}  # no effect where there is no level
    data = {"schema": "npusim.space/1", "workload": "gcn-cora", "keep": "all"}
    data |= {"axes": {path: {"values": values} for path, values in axes.items()}}
    data |= {"minimise": ["latency_s", "energy_j", "area_mm2"]}
    space = tmp_path / "space.yaml"
    space.write_text(json.dumps(data))
    front = npusim.pareto(npusim.sweep(str(space), str(tmp_path / "results")), tolerance=0.0)
    distinct = [row for i, row in enumerate(front.rows) if front.stands_in[i] == i]
    assert len({tuple(row[name] for name in front.minimise) for row in distinct}) == len(distinct)
    without = [row["npu.dpu.clock"] for row in distinct if not row[f"{L2}.capacity"]]
    assert without and len(without) == len({*without})
    assert sum(not row[f"{L2}.capacity"] for row in front.rows) == 3 * len(without)
    data["axes"]["cpu.clock"] = {"values": ["1 GHz", "2 GHz"]}
    space.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="an axis that changes nothing"):
        npusim.sweep(str(space), str(tmp_path / "others"))
