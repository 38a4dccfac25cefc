"""Fits that anyone can rerun: least squares, held-out folds, data sheets, and the shipped numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.arch import Soc, load_soc
from npusim.arch.dsp import library_generation
from npusim.calibration.data_sheet import FittedNumber, as_written, with_numbers
from npusim.calibration.dsp_fit import DSP, LOOPS, Calls, FittedKernel, cycles_of, fit_numbers, kernel_of
from npusim.calibration.fits import (
    FOLDS,
    FiguresFit,
    FitPlan,
    cross_validate,
    fit_named,
    folds_of,
    linear_times,
    load_plan,
    main,
    shipped_rows,
)
from npusim.calibration.least_squares import FreeNumber, solve
from npusim.calibration.unit_fits import DMA, DPU
from npusim.config.reading import read_yaml
from npusim.errors import ConfigError, UnknownNameError
from npusim.locate import resource
from npusim.validation import load_suite, run_suite
from npusim.validation.running import machines_of

SOC = "core-ultra-series2"


def number(path: str, value: float, unit: str = "", sigma: float | None = 0.1, source: str = "[X] new"):
    return FittedNumber(path, value, unit, sigma, source, True)


def sheet() -> str:
    return resource("configs", "socs", f"{SOC}.yaml").read_text(encoding="utf-8")


class TestLeastSquares:
    FREE = (
        FreeNumber("start", 1.0, 1e-3, 1e3),
        FreeNumber("rate", 1.0, 1e-3, 1e3),
        FreeNumber("idle", 5.0, 1.0, 10.0),
    )

    def solution(self, seed: int, noise: float):
        random = np.random.default_rng(seed)
        size = np.geomspace(1, 1e4, 60)
        measured = (20.0 + size / 3.0) * np.exp(noise * random.normal(size=60))
        return solve(
            self.FREE, lambda n: np.log((n["start"] + size / n["rate"]) / measured), softness=max(noise, 1e-3)
        )

    def test_it_finds_the_numbers_behind_clean_figures(self):
        values = self.solution(0, 0.0).values
        assert values["start"] == pytest.approx(20.0, rel=1e-4)
        assert values["rate"] == pytest.approx(3.0, rel=1e-4)

    def test_its_error_bars_hold_the_truth_as_often_as_they_say(self):
        hits = 0
        for seed in range(40):
            found = self.solution(seed, 0.05)
            hits += abs(np.log(found.values["start"] / 20.0)) < 1.645 * found.relative_sigma["start"]
            hits += abs(np.log(found.values["rate"] / 3.0)) < 1.645 * found.relative_sigma["rate"]
        assert hits >= 0.8 * 80

    def test_it_names_a_number_that_no_figure_moves(self):
        assert "idle" in self.solution(0, 0.05).undetermined
        assert "rate" not in self.solution(0, 0.05).undetermined

    def test_the_same_input_gives_the_same_output(self):
        assert self.solution(3, 0.05).values == self.solution(3, 0.05).values


class LinearFit(FiguresFit):
    """A fit whose times come from `linear_times`."""

    def __init__(self, free, measured, times):
        super().__init__(FitPlan(cases={"x": free}), "x", ["a", "b", "c"], measured)
        self.times = linear_times(free, times, 1.5)

    def predicted(self, values):
        return self.times(values)


class TestLinearTimes:
    FREE = (FreeNumber("overhead", 2.0, 0.1, 10.0), FreeNumber("dram_bandwidth", 5.0, 0.1, 50.0))
    BYTES = np.array([1.0, 10.0, 100.0])

    def times(self, values):
        return 0.5 + values["overhead"] * np.array([1.0, 2.0, 1.0]) + self.BYTES / values["dram_bandwidth"]

    def test_times_linear_in_a_number_and_in_the_inverse_of_a_bandwidth_are_exact(self):
        truth = {"overhead": 3.0, "dram_bandwidth": 7.0}
        fit = LinearFit(self.FREE, self.times(truth), self.times)
        assert fit.predicted(truth) == pytest.approx(self.times(truth), rel=1e-12)
        assert fit.solve().values == pytest.approx(truth, rel=1e-4)

    def test_a_group_that_is_left_out_has_no_part_in_its_own_prediction(self):
        truth = {"overhead": 3.0, "dram_bandwidth": 7.0}
        spoilt = self.times(truth) * np.array([1.0, 1.0, 5.0])
        fit = LinearFit(self.FREE, spoilt, self.times)
        held_out, fits = fit.leave_one_out(fit.solve())
        assert held_out[2] == pytest.approx(self.times(truth)[2], rel=1e-3)
        assert len(fits) == 3


class TestFolds:
    @given(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from("gh"), st.integers(0, 30)),
            min_size=1,
            max_size=80,
        )
    )
    def test_near_twins_stay_together_and_groups_are_dealt_evenly(self, rows):
        machines = np.array([machine for machine, _, _ in rows], object)
        groups = [group for _, group, _ in rows]
        duplicates = [f"{machine}{group}{duplicate}" for machine, group, duplicate in rows]
        fold = folds_of(
            machines, groups, duplicates, np.array([float(duplicate) for _, _, duplicate in rows])
        )
        assert set(fold) <= set(range(FOLDS))
        for key in set(duplicates):
            assert len({f for f, own in zip(fold, duplicates, strict=True) if own == key}) == 1
        for part in {(m, g) for m, g, _ in rows}:
            dealt = {t: f for (m, g, _), t, f in zip(rows, duplicates, fold, strict=True) if (m, g) == part}
            counts = np.bincount(list(dealt.values()), minlength=FOLDS)
            assert counts.max() - counts.min() <= 1

    def test_a_cross_validation_predicts_no_row_with_the_shipped_numbers(self):
        shipped = run_suite("silicon-dma")
        ticks = []
        held_out = cross_validate(shipped, tick=lambda: ticks.append(1))
        assert held_out.name == "silicon-dma (held out)"
        assert len(ticks) == FOLDS * len(shipped.suite.machines)
        assert (held_out.evidence.predicted != shipped.evidence.predicted).all()
        assert np.array_equal(held_out.evidence.measured, shipped.evidence.measured)

    @pytest.mark.parametrize("name", ["silicon-dma", "costmodel-dma-rows", "dsp"])
    def test_held_out_rows_keep_the_limits(self, name):
        held_out = cross_validate(run_suite(name))
        assert [group.group for group in held_out.groups if not group.ok] == []

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["silicon-dpu", "costmodel-gemm", "costmodel-sparse"])
    def test_held_out_rows_of_the_grid_keep_the_limits(self, name):
        held_out = cross_validate(run_suite(name))
        assert [group.group for group in held_out.groups if not group.ok] == []


class TestDataSheet:
    def test_only_the_number_changes(self):
        path = "npu.dma.model.start_cycles"
        before, after = sheet(), with_numbers(sheet(), [number(path, 200.04, "cycle", 0.123)])
        differing = [
            (old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new
        ]
        assert len(differing) == 1
        assert differing[0][1].strip() == (
            'start_cycles:            {value: 200 cycle, source: "[X] new", uncertainty: 12 %}'
        )

    def test_a_longer_source_that_begins_the_same_stays(self):
        text = with_numbers(sheet(), [number("dram.bandwidth", 7e10, "B/s", 0.02, "[SILICON] fitted")])
        line = next(line for line in text.splitlines() if line.strip().startswith("bandwidth:"))
        assert "70 GB/s" in line
        assert "[READING]" in line

    def test_an_uncertainty_is_added_where_there_was_none(self):
        text = with_numbers(sheet(), [number("npu.dma.model.page_bytes", 4096.0, "B", 0.5)])
        assert 'page_bytes:              {value: 4096 B, source: "[X] new", uncertainty: 50 %}' in text

    def test_writing_what_stands_there_changes_nothing(self):
        model = load_soc(SOC).npu.dma.model
        numbers = [
            number(f"npu.dma.model.{name}", float(value), value.unit, value.uncertainty, value.source)
            for name, value in ((n, getattr(model, n)) for n in type(model).model_fields)
        ]
        assert with_numbers(sheet(), numbers) == sheet()

    def test_the_written_file_is_a_data_sheet(self, tmp_path):
        path = tmp_path / "fitted.yaml"
        path.write_text(with_numbers(sheet(), [number("npu.dma.model.ddr2cmx_share", 0.5)]), encoding="utf-8")
        soc = load_soc(path)
        assert isinstance(soc, Soc)
        assert soc.npu.dma.model.ddr2cmx_share == 0.5
        assert soc.npu.dma.model.ddr2cmx_share.uncertainty == pytest.approx(0.1)

    @pytest.mark.parametrize("path", ["npu.dma.model.nothing", "npu.nowhere.at_all", "npu.dpu.eltwise_ops"])
    def test_a_number_that_the_file_lacks_is_refused(self, path):
        with pytest.raises(ConfigError, match=r"no such number|without source"):
            with_numbers(sheet(), [number(path, 1.0)])

    def test_an_error_bar_beyond_all_measure_is_cut_short(self):
        assert as_written(number("a", 30.0, "B", 1e4)) == ("30 B", "1000 %")


class TestDspForms:
    @settings(max_examples=60)
    @given(st.sampled_from(sorted(LOOPS)), st.data())
    def test_the_fit_s_equation_is_the_cost_model_s(self, name, data):
        from npusim.cost.lowering.execution import fill_numbers
        from npusim.cost.lowering.tables import DSP_KERNEL_DTYPE
        from npusim.cost.units.dsp import dsp_kernel_cycles

        form = LOOPS[name]
        numbers = {key: data.draw(st.floats(0.5, 50.0), label=key) for key in form.numbers}
        if "step" in numbers:  # so that the main loop's own start is positive
            numbers["step"] += form.thresholds["small_below"] * numbers["per_element"]
        if "row_head_per_element" in numbers:  # a head is dearer than its body
            numbers["row_head_per_element"] = 3.0 * numbers["per_element"]
        rows = data.draw(st.integers(1, 40_000), label="rows")
        elements = rows * data.draw(st.sampled_from([1, 3, 16, 64, 300]), label="length")
        calls = Calls(np.array([float(elements)]), np.array([float(rows)]), np.ones(1))
        generation = library_generation("npu4000", "fitted")
        record = np.zeros(1, DSP_KERNEL_DTYPE)
        fill_numbers(record[0], generation, kernel_of(FittedKernel(name, 1, calls, numbers), numbers))
        lanes = float(generation.reference_lanes)
        cycles = dsp_kernel_cycles(record[0], float(elements), float(rows), lanes, False)
        assert cycles == pytest.approx(cycles_of(form, numbers, calls)[0], rel=1e-4)

    def test_a_line_is_found_exactly(self):
        elements = np.geomspace(1, 1e6, 7)
        calls = Calls(elements, np.ones(7), 100.0 + 0.25 * elements)
        found = fit_numbers(LOOPS["line"], calls, [])
        assert found == pytest.approx({"fixed": 100.0, "per_element": 0.25}, rel=1e-6)


class TestShippedNumbers:
    def test_the_dma_fit_gives_what_the_data_sheets_hold(self):
        for fitted in DMA.fitted().values():
            text = resource("configs", "socs", f"{fitted.machine.soc.name}.yaml").read_text(encoding="utf-8")
            assert with_numbers(text, fitted.numbers) == text
            assert fitted.undetermined  # the write latency of one, the page walk of the other

    def test_the_dsp_fit_gives_what_the_libraries_hold(self):
        for name, machine in machines_of(load_suite("dsp")).items():
            fitted = DSP.fit(machine, shipped_rows(name)).machine
            for source in ("fitted", "vpuem", "classic"):
                for kernel, shipped in machine.generation(source).kernels.items():
                    again = fitted.generation(source).kernels[kernel]
                    assert again.per_element == pytest.approx(shipped.per_element, rel=1e-3, abs=1e-6), kernel
                    assert again.fixed == pytest.approx(shipped.fixed, rel=1e-2, abs=0.1), kernel

    @pytest.mark.slow
    def test_the_grid_s_fit_gives_what_the_data_sheets_hold(self):
        for fitted in DPU.fitted().values():
            for found in fitted.numbers:
                shipped = getattr(fitted.machine.soc.npu.dpu.model, found.path.rpartition(".")[2])
                assert found.value == pytest.approx(float(shipped), rel=2e-2, abs=1e-2), found.path


class TestCommand:
    def test_it_prints_each_number_with_its_error_bar_and_what_is_unmeasured(self, capsys):
        assert main(["dma", "--soc", SOC]) == 0
        out = capsys.readouterr().out
        assert "npu.dma.model.start_cycles" in out
        assert "+-15 %" in out
        assert "undetermined" in out
        assert "on no measured row: npu.dma.model.ddr2cmx_row_cycles" in out
        assert "npu3720" not in out

    def test_it_writes_nothing_unless_told(self):
        before = {path: path.read_bytes() for path in resource("configs").rglob("*.yaml")}
        main(["dma"])
        assert {path: path.read_bytes() for path in resource("configs").rglob("*.yaml")} == before

    def test_an_unknown_soc_is_bad_input(self, capsys):
        assert main(["dma", "--soc", "core-ultra-series9"]) == 2
        assert "did you mean" in capsys.readouterr().err

    def test_every_suite_with_a_fit_names_one_that_exists(self):
        from npusim.validation import suite_names

        fits = {load_suite(name).fit for name in suite_names()} - {None}
        assert all(fit_named(name).unit == name for name in fits)
        with pytest.raises(UnknownNameError):
            fit_named("dsb")

    @pytest.mark.parametrize(
        "name", ["feature-decomposition", "gcnp", "hosts", "magnas", "networks", "nitro"]
    )
    def test_what_a_fit_declares_starts_between_its_bounds(self, name):
        plan = load_plan(name, FitPlan)
        assert any(plan.cases.values())
        for number in (number for numbers in plan.cases.values() for number in numbers):
            assert number.low <= number.start <= number.high, number.name

    def test_a_library_s_report_says_that_nothing_is_measured(self):
        fitted = DSP.fitted(SOC)["npu4000"]
        assert "on no measured row" in "\n".join(DSP.report("npu4000", fitted))


def test_a_fitted_number_stands_where_set_finds_it():
    document = read_yaml(resource("configs", "socs", f"{SOC}.yaml"))
    assert "devices" in document.data
    assert "bandwidth" in document.data["dram"]


def _shipped_kernels():
    for name, machine in machines_of(load_suite("dsp")).items():
        for source in ("fitted", "vpuem", "classic"):
            generation = machine.generation(source)
            for kernel_name, kernel in generation.kernels.items():
                yield f"{name}/{source}/{kernel_name}", generation, kernel


@pytest.fixture(scope="module")
def seconds():
    """Return cycles of every shipped kernel for some shapes: rows down, lengths across."""
    from npusim.cost.lowering.execution import fill_numbers
    from npusim.cost.lowering.tables import DSP_KERNEL_DTYPE
    from npusim.cost.units.dsp import dsp_kernel_cycles

    rows = [1.0, 2.0, 16.0, 31.0, 32.0, 33.0, 255.0, 1024.0, 16383.0, 16384.0, 50_000.0]
    lengths = [1.0, 2.0, 15.0, 16.0, 31.0, 33.0, 64.0, 255.0, 256.0, 1023.0, 1024.0, 5000.0]
    found = {}
    for name, generation, kernel in _shipped_kernels():
        record = np.zeros(1, DSP_KERNEL_DTYPE)
        fill_numbers(record[0], generation, kernel)
        lanes = float(generation.reference_lanes)
        found[name] = np.array(
            [[dsp_kernel_cycles(record[0], r * n, r, lanes, True) for n in lengths] for r in rows]
        )
    return found


class TestLawsOfTheDspLibraries:
    """An estimate lets the compiler pad, so that time never falls as work grows."""

    def test_longer_rows_never_take_less_time(self, seconds):
        assert [name for name, table in seconds.items() if (np.diff(table, axis=1) < -1e-6).any()] == []

    def test_more_rows_never_take_less_time(self, seconds):
        assert [name for name, table in seconds.items() if (np.diff(table, axis=0) < -1e-6).any()] == []
