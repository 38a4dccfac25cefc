"""The machine step by step: counters end at the analytical engine's, and each multiplication happens once."""

import naive_event
import numpy as np
import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from hypothesis import given, settings
from hypothesis import strategies as st
from naive_arrays import Walk, moved

from npusim.course.machine_view import COUNTERS, FLOWS, MOST, MachineSteps, machine_steps, mapped_product
from npusim.engines.analytical import mapped_estimate
from npusim.engines.event import run_events
from npusim.engines.event.build import build_program
from npusim.engines.event.machine import transfer_rates

SIZES = st.integers(1, MOST)
pytestmark = pytest.mark.usefixtures("_plain")


@pytest.fixture(autouse=True, scope="module")
def _plain() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPUSIM_KERNELS", "plain")
        yield


def counted(steps: MachineSteps) -> dict[str, float]:
    """Return what the tasks add up to."""
    return {name: sum(task.amounts[name] for task in steps.tasks) for name in COUNTERS}


@settings(max_examples=12)
@given(m=SIZES, k=SIZES, n=SIZES, flow=st.sampled_from(FLOWS))
def test_counters_end_where_both_engines_and_the_twin_end(m: int, k: int, n: int, flow: str) -> None:
    steps, mapped = machine_steps(m, k, n, flow), mapped_product(m, k, n, flow)
    analytical, event = mapped_estimate(mapped), run_events(mapped)
    total = counted(steps)
    assert total == pytest.approx(steps.counters, rel=1e-9, abs=1e-9)
    assert total["macs"] == m * k * n
    for engine in (analytical, event):
        assert total["dram_read"] + total["dram_written"] == pytest.approx(engine.dram_bytes)
        busy_s = engine.units["npu.dpu"].busy_s
        assert total["cycles"] == pytest.approx(busy_s * float(mapped.soc.npu.dpu.clock))
    assert total["dram_read"] >= m * k + k * n and total["dram_written"] == m * n
    # Times are those of the event engine, and of its twin.
    assert max(task.end_s for task in steps.tasks) <= event.latency_s
    twin = naive_event.simulate(build_program(mapped), transfer_rates(mapped.arch))
    starts = sorted(float(start) for start in twin.start)
    for task in steps.tasks:
        assert np.min(np.abs(np.array(starts) - task.start_s)) < 1e-12


@settings(max_examples=12)
@given(m=SIZES, k=SIZES, n=SIZES, flow=st.sampled_from(FLOWS))
def test_each_multiplication_happens_once_after_its_operands_came(m: int, k: int, n: int, flow: str) -> None:
    steps = machine_steps(m, k, n, flow)
    done = np.zeros((m, k, n), int)
    came = {"activations": np.full((m, k), np.inf), "weights": np.full((k, n), np.inf)}
    for task in sorted(steps.tasks, key=lambda each: each.end_s):
        if task.box is None:
            continue
        rows, sums, columns = (slice(*ends) for ends in task.box)
        if task.what == "product":
            done[rows, sums, columns] += 1
            for operand in (came["activations"][rows, sums], came["weights"][sums, columns]):
                assert operand.max() <= task.start_s * (1 + 1e-9)
        else:
            place = (rows, sums) if task.what == "activations" else (sums, columns)
            came[task.what][place] = np.minimum(came[task.what][place], task.end_s)
    assert (done == 1).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("flow", FLOWS[:3])
@pytest.mark.parametrize("sizes", [(16, 16, 32), (32, 16, 16), (16, 32, 32)])
def test_sram_moves_what_a_walk_of_the_nest_moves(sizes: tuple[int, int, int], flow: str) -> None:
    steps = machine_steps(*sizes, flow)
    letters, lanes = {"m": "B", "k": "C", "n": "K"}, dict(steps.lanes)
    order = [(letters[loop], steps.sizes[loop] // lanes.get(loop, 1)) for loop in reversed(steps.order)]
    elements = {}
    for operand, name in (("I", "inputs"), ("W", "weights"), ("O", "outputs")):
        stays = int(steps.stationary == name)
        spans = [[False, False]] * stays + [[True, True]]
        axes = [(letters[loop], count) for loop, count in steps.lanes]
        inner = next((i for i, each in enumerate(order) if _concerns(operand, each[0])), len(order))
        walk = Walk(order, axes, spans, [inner] * stays + [len(order)])
        elements[operand] = moved(walk, operand, stays)[1]
    m, k, n = sizes
    sums = elements["O"] * (1 if steps.stationary == "outputs" else 8)
    product_read = elements["I"] + elements["W"] + sums - m * n
    # The Gelu reads sums and writes results; DMA writes operands and reads results.
    assert steps.counters["sram_read"] == product_read + 2 * m * n
    assert steps.counters["sram_written"] == m * k + k * n + 2 * m * n


def _concerns(operand: str, loop: str) -> bool:
    return loop in {"I": "BC", "W": "CK", "O": "BK"}[operand]
