"""Measuring while other programs run: what they disturb is told, repeated and left out."""

import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

pytest.importorskip("openvino")

import openvino as ov

from npusim.measure import Benchmark, Spread, load_suite
from npusim.measure.loading import model_of
from npusim.measure.running import interleaved, measure
from npusim.measure.suites import Item
from npusim.measure.timing import Batch, CpuTimes, TimeBudget, TimedNetwork, background_cores


def product(size: int) -> Benchmark:
    return Benchmark(operator="MatMul", sizes={"m": size, "k": size, "n": size})


def test_a_row_that_others_disturb_throughout_is_told() -> None:
    """Programs that spin on every core leave no calm turn."""
    spins = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(psutil.cpu_count())]
    begun = CpuTimes.now()
    try:
        time.sleep(0.5)
        assert background_cores(begun, CpuTimes.now()) > 0.5 * psutil.cpu_count()
        found = measure([Item(id="busy", model=product(64))], "CPU", budget_s=0.5)
    finally:
        for spin in spins:
            spin.kill()
            spin.wait()
    assert any("other programs" in text and "busy" in text for text in found.warnings)


def test_work_of_our_own_is_no_disturbance() -> None:
    """15 s of all processors in 10 s, 10 of them ours."""
    assert background_cores(CpuTimes(0.0, 100.0, 50.0), CpuTimes(10.0, 115.0, 60.0)) == pytest.approx(
        0.5, abs=0.05
    )
    assert background_cores(CpuTimes(0.0, 100.0, 50.0), CpuTimes(10.0, 110.0, 60.0)) == 0.0


def test_what_this_program_takes_is_part_of_what_all_take() -> None:
    begun = CpuTimes.now()
    while time.process_time() - begun.own_s < 0.3:
        pass
    ended = CpuTimes.now()
    steps_s = 0.02 * psutil.cpu_count()
    assert ended.own_s - begun.own_s >= 0.3
    assert ended.busy_s - begun.busy_s >= ended.own_s - begun.own_s - steps_s


@pytest.mark.parametrize(("allowed", "turns"), [(-1.0, 2), (1e9, 1)])
def test_a_disturbed_turn_is_done_again_once(allowed: float, turns: int) -> None:
    budget = TimeBudget(row_s=0.05, max_background_cores=allowed)
    model, feed = model_of(ov.Core(), product(16), "f32", {})
    trial = TimedNetwork(ov.Core().compile_model(model, "CPU"), feed, 1)
    trial.warm_up(budget)
    while trial.turns_left:
        trial.run_turn(budget)
    assert len(trial.batches) == turns * budget.rounds


def test_disturbed_turns_are_dropped_where_enough_are_left() -> None:
    budget = TimeBudget()
    trial = TimedNetwork(
        ov.Core().compile_model(model_of(ov.Core(), product(16), "f32", {})[0], "CPU"), [], 1
    )
    calm, loud = Batch([1.0], 1.0, 0.0), Batch([9.0], 9.0, 1.0)
    trial.batches = [calm] * 4 + [loud] * 12
    assert trial.drop_disturbed(budget) and trial.latency().median_s == 1.0
    trial.batches = [calm] * 3 + [loud] * 13
    assert not trial.drop_disturbed(budget) and trial.latency().median_s == 9.0


def test_the_error_of_a_median_is_told_by_the_turns() -> None:
    """Readings of one turn are alike: a hundred of them say no more than one."""
    rng = np.random.default_rng(1)
    turns = [list(np.exp(rng.normal(0, 0.1) + rng.normal(0, 0.001, 100))) for _ in range(400)]
    errors = [Spread.of(turns[i : i + 8]).error for i in range(0, 400, 8)]
    medians = [Spread.of(turns[i : i + 8]).median_s for i in range(0, 400, 8)]
    assert np.median(errors) == pytest.approx(np.std(np.log(medians)), rel=0.4)
    assert Spread.of(turns[:2]).error is None


def test_each_group_has_some_of_every_part_of_the_suite() -> None:
    items = load_suite("default").items
    order = interleaved(items)
    assert sorted(map(id, order)) == sorted(map(id, items))
    products = [i for i, one in enumerate(order[:32]) if one.id.startswith("MatMul")]
    assert 5 <= len(products) <= 10  # 37 of 160 rows, and five groups
    at = {one.id: i for i, one in enumerate(order)}
    for one in items:
        if one.hint == "throughput":
            same = [other for other in items if other.hint == "latency" and other.model == one.model]
            assert all(abs(at[other.id] - at[one.id]) == 1 for other in same)
