"""Turns and readings, also while other programs run: what they disturb is told, repeated and left out."""

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

pytest.importorskip("openvino")

import openvino as ov
from simulated_device import SimulatedDevice

from npusim.measuring import Benchmark, Spread, load_suite, timing
from npusim.measuring.models import model_of
from npusim.measuring.running import interleaved, measure
from npusim.measuring.suites import Item
from npusim.measuring.timing import Batch, CpuTimes, TimeBudget, TimedNetwork, background_cores


def product(size: int) -> Benchmark:
    return Benchmark(operator="MatMul", sizes={"m": size, "k": size, "n": size})


@pytest.mark.laws
@pytest.mark.parametrize("others", [0.0, 1000.0])
def test_a_row_that_others_disturb_throughout_is_told(others: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is real; what processors did meanwhile is not."""

    def now() -> CpuTimes:
        wall_s, own_s = time.perf_counter(), time.process_time()
        return CpuTimes(wall_s, own_s + others * wall_s, own_s)

    monkeypatch.setattr(CpuTimes, "now", now)
    found = measure([Item(id="it", model=product(64))], "CPU", budget_s=0.1)
    told = [text for text in found.warnings if text.startswith("other programs")]
    assert bool(told) == bool(others)
    assert all("while these ran: it" in text for text in told)


@pytest.mark.calm
def test_programs_that_spin_on_every_core_are_seen() -> None:
    spins = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(psutil.cpu_count())]
    begun = CpuTimes.now()
    try:
        time.sleep(0.5)
        assert background_cores(begun, CpuTimes.now()) > 0.5 * psutil.cpu_count()
    finally:
        for spin in spins:
            spin.kill()
            spin.wait()


def test_work_of_our_own_is_no_disturbance() -> None:
    """15 s of all processors in 10 s, 10 of them ours."""
    assert background_cores(CpuTimes(0.0, 100.0, 50.0), CpuTimes(10.0, 115.0, 60.0)) == pytest.approx(
        0.5, abs=0.05
    )
    assert background_cores(CpuTimes(0.0, 100.0, 50.0), CpuTimes(10.0, 110.0, 60.0)) == 0.0


def test_processors_are_busy_with_everything_but_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = SimpleNamespace(
        user=5.0, nice=1.0, system=2.0, idle=100.0, iowait=7.0, irq=0.1, softirq=0.2, steal=0.7, guest=3.0
    )
    clocks = SimpleNamespace(perf_counter=lambda: 50.0, process_time=lambda: 4.0)
    monkeypatch.setattr(timing, "psutil", SimpleNamespace(cpu_times=lambda: recorded))
    monkeypatch.setattr(timing, "time", clocks)
    times = CpuTimes.now()
    assert (times.wall_s, times.own_s) == (50.0, 4.0)
    assert times.busy_s == pytest.approx(9.0)  # a guest's time is part of user's


@pytest.mark.calm
def test_what_this_program_takes_is_part_of_what_all_take() -> None:
    begun = CpuTimes.now()
    while time.process_time() - begun.own_s < 0.3:
        pass
    ended = CpuTimes.now()
    steps_s = 0.02 * psutil.cpu_count()
    assert ended.own_s - begun.own_s >= 0.3
    assert ended.busy_s - begun.busy_s >= ended.own_s - begun.own_s - steps_s


def timed(device: SimulatedDevice, budget: TimeBudget, monkeypatch: pytest.MonkeyPatch) -> TimedNetwork:
    """Return a simulated device's network after all its turns."""
    device.replace_clocks(monkeypatch)
    network = TimedNetwork(device, [], 1)
    network.warm_up(budget)
    while network.turns_left:
        network.run_turn(budget)
    return network


@pytest.mark.laws
@pytest.mark.parametrize(("others", "turns"), [(1.0, 2), (0.0, 1)])
def test_a_disturbed_turn_is_done_again_once(
    others: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = TimeBudget()
    network = timed(SimulatedDevice(1e-3, others=lambda now: others), budget, monkeypatch)
    assert len(network.batches) == turns * budget.rounds
    assert network.drop_disturbed(budget) == (others == 0.0)


def test_turns_of_a_disturbed_while_are_made_up_for_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others take a core for half a second: its turns are repeated later, and only calm ones count."""
    budget = TimeBudget()
    device = SimulatedDevice(1e-3, others=lambda now: 1.0 if 0.5 < now < 1.0 else 0.0)
    network = timed(device, budget, monkeypatch)
    disturbed = [batch for batch in network.batches if batch.background_cores > 0.25]
    assert 3 <= len(disturbed) <= 5  # turns of 0.15 s
    assert network.drop_disturbed(budget)
    assert len(network.batches) == budget.rounds


def test_a_time_is_the_devices_own_without_what_python_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    network = timed(SimulatedDevice(2e-3, call_s=1e-3), TimeBudget(), monkeypatch)
    latency = network.latency()
    assert latency is not None and latency.median_s == pytest.approx(2e-3)
    assert network.throughput_per_s() == pytest.approx(500.0)
    assert max(batch.background_cores for batch in network.batches) == 0.0  # our own work is no disturbance


@pytest.mark.parametrize("inference_s", [1e-6, 1e-3, 0.05, 1.0, 30.0])
def test_a_row_takes_its_time_or_the_fewest_readings(
    inference_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = TimeBudget(row_s=2.0)
    device = SimulatedDevice(inference_s)
    network = timed(device, budget, monkeypatch)
    readings = sum(len(batch.latencies_s) for batch in network.batches)
    assert readings >= budget.min_readings
    assert device.now <= budget.row_s + 2.0 * budget.rounds * inference_s
    assert network.run_for(1.0) * inference_s >= 1.0


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
