"""How fast the event engine is: tasks per second, a whole estimate, and the memory of a million tasks."""

import subprocess
import sys
import time

import pytest

from npusim.arch import load_soc
from npusim.engines.event import event_estimate
from npusim.engines.event.build import build_program
from npusim.engines.event.machine import simulate, transfer_rates
from npusim.scenario import Scenario
from npusim.techniques import apply
from npusim.workloads import load_workload

SOC = load_soc("core-ultra-series2")
TASKS_PER_S = 60_000
ESTIMATE_S = 0.5
MILLION_TASKS_BYTES = 1e9


def million_tasks() -> tuple[int, float]:
    """Execute a million tasks with fair-share DRAM, SRAM accounting and the log; return (tasks, processor
    seconds).
    """
    mapped = Scenario("gat-cora", SOC, "effop", hint="throughput").mapped
    program = build_program(mapped)
    working = int((program.tasks["unit"] >= 0).sum())
    inferences = -(-1_000_000 // working)
    begin = time.process_time()
    simulate(program, transfer_rates(mapped.arch), inferences, 8)
    return working * inferences, time.process_time() - begin


@pytest.mark.parametrize(
    ("workload", "stack"), [("gcn-cora", "stagr"), ("gcn-cora", "none"), ("gat-cora", "effop")]
)
def test_tasks_a_second(benchmark, workload, stack):
    """Only tasks that take time on a unit count, not the points in time between them."""
    mapped = Scenario(workload, SOC, stack, hint="throughput").mapped
    program, rates = build_program(mapped), transfer_rates(mapped.arch)
    working = int((program.tasks["unit"] >= 0).sum())
    inferences = max(8, 30_000 // working)
    benchmark.pedantic(simulate, (program, rates, inferences, 8), rounds=5, warmup_rounds=1)
    rate = working * inferences / benchmark.stats["median"]
    benchmark.extra_info["tasks_per_s"] = rate
    assert rate > TASKS_PER_S


def test_gcn_cora_at_both_precisions(benchmark):
    graphs = [apply(load_workload("gcn-cora"), stack) for stack in ("stagr", "stagr+quantgr")]

    def both() -> None:
        for graph in graphs:
            event_estimate(Scenario(graph, SOC))

    benchmark.pedantic(both, rounds=5, warmup_rounds=1)
    assert benchmark.stats["median"] < ESTIMATE_S


def test_a_million_tasks_take_less_than_a_gigabyte():
    """In a process of its own, so that nothing else counts."""
    code = (
        "import resource, sys; sys.path.insert(0, 'benchmarks'); from test_event_speed import million_tasks; "
        "tasks, seconds = million_tasks(); used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024; "
        "print(tasks, seconds, used)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert float(out[0]) >= 1e6
    assert float(out[0]) / float(out[1]) > TASKS_PER_S
    assert float(out[2]) < MILLION_TASKS_BYTES
