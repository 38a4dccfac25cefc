"""What a time line says about itself: shares add up, the critical path is as long as the run, curves hold
what was moved.
"""

from functools import cache

import numpy as np
import pytest
from naive_event import integral

from npusim import Estimate, estimate
from npusim.arch import load_soc
from npusim.engines.event import event_estimate
from npusim.engines.timeline import (
    CAUSES,
    TaskKind,
    critical_path,
    dram_bandwidth,
    idle_causes,
    path_summary,
    power,
    queueing_s,
    sram_in_use,
)
from npusim.scenario import Scenario
from npusim.studies.elasticity import elasticities
from npusim.techniques import apply
from npusim.workloads import load_workload

CASES = [
    ("none", "latency"),
    ("stagr", "latency"),
    ("stagr+quantgr+symg+cacheg", "latency"),
    ("graphsplit", "throughput"),
]


@cache
def acted(stack: str, hint: str) -> Estimate:
    graph = apply(load_workload("gcn-cora"), stack)
    return event_estimate(Scenario(graph, hint=hint), every_tile=True)


@pytest.mark.parametrize("case", CASES)
def test_busy_and_idle_time_add_up_to_the_run(case):
    line = acted(*case).timeline
    busy, idle = line.busy_s(), idle_causes(line)
    for unit in line.units:
        assert set(idle[unit.name]) == set(CAUSES)
        assert busy[unit.name] + sum(idle[unit.name].values()) == pytest.approx(line.makespan_s)
    assert all(0.0 <= busy_s <= line.makespan_s * (1.0 + 1e-9) for busy_s in line.busy_s().values())
    assert all(waited >= 0.0 for waited in queueing_s(line).values())


@pytest.mark.parametrize("case", CASES)
def test_the_critical_path_is_as_long_as_the_inference_and_every_task_has_a_reason(case):
    line = acted(*case).timeline
    path = critical_path(line)
    last = int(np.argmax(line.ended))
    begin = line.begun[line.inference[path[0].row]]
    assert sum(task.waited_s + task.worked_s for task in path) == pytest.approx(
        float(line.ended[last] - begin)
    )
    assert {task.reason for task in path} <= {"begin", "data", "sram", "unit", "launch"}
    assert all(task.waited_s >= -1e-15 for task in path)
    found = path_summary(line, path)
    assert sum(found.by_unit.values()) + found.waiting_s == pytest.approx(sum(found.by_operator.values()))


@pytest.mark.parametrize("case", CASES)
def test_curves_hold_what_was_moved_and_used(case):
    run = acted(*case)
    line = run.timeline
    on_dram = np.isin(
        line.kind, [int(k) for k in (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.CPU, TaskKind.GPU)]
    )
    assert integral(dram_bandwidth(line), line.makespan_s) == pytest.approx(
        line.bytes[on_dram].sum(), rel=1e-6
    )
    sram = sram_in_use(line)
    assert (np.diff(sram.time_s) > 0.0).all()
    peak, contexts = run.sram_peak_bytes, run.contexts
    assert peak <= sram.value.max() <= contexts * peak
    assert peak * contexts <= line.sram_capacity
    curve = power(line)
    beyond_idle_j = integral(curve, line.makespan_s) - line.idle_w * (line.makespan_s - curve.time_s[0])
    begin, end = line.npu_phases["npu"]
    static_j = line.static_w["npu"] * (end - begin).sum()
    assert beyond_idle_j == pytest.approx(line.energy_j.sum() + static_j, rel=1e-6)


def test_the_document_is_that_of_the_analytical_engine():
    """Same keys, work, bytes and area; only time, and what follows from it, is another."""
    graph, soc = apply(load_workload("gcn-cora"), "stagr"), load_soc("core-ultra-series2")
    closed, acted_out = estimate(graph, soc).model_dump(), acted("stagr", "latency").model_dump()
    assert closed.keys() == acted_out.keys()
    for name in ("workload", "techniques", "requests", "tiles", "macs", "area_mm2", "dram_bytes"):
        assert closed[name] == acted_out[name]
    assert acted_out["latency_s"] == pytest.approx(closed["latency_s"], rel=0.05)
    assert closed["units"].keys() == acted_out["units"].keys()


def test_what_bounds_a_network_is_what_would_help_it():
    """GCN after StaGr is bound by DRAM: bandwidth helps most, MACs do not."""
    found = elasticities(
        Scenario("gcn-cora", techniques="stagr", hint="throughput", requests=2), event_estimate
    )
    by_name = {e.resource: e for e in found}
    assert found[0].resource == "DRAM bandwidth"
    assert found[0].elasticity > 0.7
    assert abs(by_name["DPU clock"].elasticity) < 0.1
    assert [e.elasticity for e in found] == sorted((e.elasticity for e in found), reverse=True)
