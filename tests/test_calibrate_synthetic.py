"""A fit to measurements of a machine that is known: does it find it, and is it as sure as it may be?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npusim.arch import Soc, load_soc
from npusim.calibration.device import statuses
from npusim.calibration.device_fit import DeviceFit, half_widths
from npusim.calibration.device_rows import INFLUENCE, candidates, chosen, map_rows
from npusim.measuring.document import Benchmark, Device, Measurement, Row, Spread

NOISE = 0.05
SEEDS, FEWER = 100, 10
ENOUGH = 0.85
"""Share of the seeds in which a 90 % interval has to hold the truth."""

PLANES = ((64, 64), (2708, 64), (2708, 2708))
PRODUCTS = ((64, 64, 64), (2708, 1433, 64), (1024, 1024, 1024), (2708, 2708, 64))
TABLES = ((10_000, 2708, 64), (60_000, 30_000, 32))


def benchmarks() -> list[tuple[str, dict[str, int]]]:
    found: list[tuple[str, dict[str, int]]] = [("Empty", {})] * 2
    found += [("MatMul", {"m": m, "k": k, "n": n}) for m, k, n in PRODUCTS]
    found += [(op, {"rows": r, "columns": c}) for op in ("Add", "Select") for r, c in PLANES]
    found += [
        (op, {"rows": r, "table": t, "features": f})
        for op in ("Gather", "ScatterElementsUpdate")
        for r, t, f in TABLES
    ]
    return [*found, *(("Copy", {"bytes": size}) for size in (1 << 14, 1 << 20, 1 << 25))]


def measurement(kind: str) -> Measurement:
    """Return rows whose spread says what their noise is; their times do not matter."""
    spread = Spread(median_s=1.0, low_s=np.exp(-1.2816 * NOISE), high_s=np.exp(1.2816 * NOISE), repetitions=1)
    precision = "f32" if kind == "cpu" else "f16"
    rows = tuple(
        Row(
            id=f"{operator} {number}",
            model=Benchmark(operator=operator, sizes=sizes),
            precision=precision,
            latency_s=spread,
        )
        for number, (operator, sizes) in enumerate(benchmarks())
    )
    return Measurement(npusim="0", device=Device(kind=kind, name="unknown"), rows=rows)


def prepared(kind: str, soc: Soc, free: tuple[str, ...] = ()) -> DeviceFit:
    rows, left_out = map_rows(measurement(kind), soc)
    assert not left_out
    full, listed = candidates(soc, kind, [row.mapped for row in rows])
    listed, may_move = chosen(soc, listed, free, ())
    fit = DeviceFit(full, rows, listed, may_move)
    return fit.restricted(fit.find_influence(fit.start).max(axis=0) >= INFLUENCE)


def simulated(base: DeviceFit, seed: int) -> tuple[DeviceFit, Any]:
    """Return the fit of a machine that the data sheet would allow, and its true logarithms."""
    random = np.random.default_rng(seed)
    truth = base.start + base.widths * random.standard_normal(len(base.start))
    truth = np.minimum(truth, np.log([parameter.high for parameter in base.parameters]))
    seconds = np.exp(base.predicted(truth) + NOISE * random.standard_normal(len(base.rows)))
    rows = [replace(row, measured_s=float(s)) for row, s in zip(base.rows, seconds, strict=True)]
    names = {p.name for p, free in zip(base.parameters, base.may_move, strict=True) if free}
    fit = DeviceFit(base.soc, rows, base.parameters, names)
    fit.affects = base.affects
    return fit, truth


def coverage(kind: str, seeds: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return how often each parameter was identified, how often the truth lay inside its interval then, and
    how often it moved at all.
    """
    base = prepared(kind, load_soc("core-ultra-series2"))
    known, inside, moved = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(seeds):
        fit, truth = simulated(base, seed)
        best = fit.fit()
        widths = half_widths(fit, best)
        holds = (best.logs - widths[0] <= truth) & (truth <= best.logs + widths[1])
        status = statuses(fit, best, widths)
        for j, parameter in enumerate(fit.parameters):
            moved[parameter.name] += bool(best.moving[j])
            if status[j] == "identified":
                known[parameter.name] += 1
                inside[parameter.name] += bool(holds[j])
    return known, inside, moved


def assert_covered(known: Counter[str], inside: Counter[str], seeds: int) -> None:
    often = [name for name, times in known.items() if times >= 0.8 * seeds]
    assert len(often) >= 2, known
    for name in often:
        assert inside[name] >= ENOUGH * known[name], f"{name}: {inside[name]} of {known[name]}"


class TestSyntheticTruth:
    @pytest.mark.laws
    @pytest.mark.parametrize("seeds", [FEWER, pytest.param(SEEDS, marks=pytest.mark.slow)])
    def test_intervals_of_a_cpu_hold_the_truth_as_often_as_they_say(self, seeds: int) -> None:
        known, inside, _ = coverage("cpu", seeds)
        print({name: f"{inside[name]} of {known[name]}" for name in known})
        assert_covered(known, inside, seeds)

    @pytest.mark.slow
    def test_intervals_of_an_npu_hold_the_truth_as_often_as_they_say(self) -> None:
        known, inside, _ = coverage("npu", SEEDS)
        print({name: f"{inside[name]} of {known[name]}" for name in known})
        assert_covered(known, inside, SEEDS)

    def test_what_no_row_depends_on_is_left_out_and_what_the_data_leave_open_stays_as_it_was(self) -> None:
        base = prepared("cpu", load_soc("core-ultra-series2"))
        names = [parameter.name for parameter in base.parameters]
        assert "dram.bandwidth" not in names  # the NPU's
        fit, _ = simulated(base, 0)
        best = fit.fit()
        status = dict(zip(names, statuses(fit, best, half_widths(fit, best)), strict=True))
        # Clock and efficiency only work as their product; the sheet knows the efficiency better.
        assert status["cpu.clock"] in ("identified", "tied")
        assert status["cpu.dense_efficiency"] == "not identified"
        for j, name in enumerate(names):
            if status[name] == "not identified":
                assert best.logs[j] == base.start[j]
                assert best.sigma[j] == pytest.approx(base.widths[j])
