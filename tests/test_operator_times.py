"""Time per operator: both engines mean the same by busy, critical and span, and by the launch."""

import pytest

from npusim.cost import Unit
from npusim.engines import Estimate
from npusim.engines.analytical import mapped_estimate
from npusim.engines.event import run_events
from npusim.engines.timeline import TaskKind
from npusim.reporting.estimate import LAUNCH, PAUSES, WAITS, latency_by_cause
from npusim.scenario import Scenario

CASES = [
    ("gcn-cora", "none", "auto"),
    ("gcn-cora", "graphsplit", "auto"),
    ("gcn-cora", "stagr+quantgr", "auto"),
    ("gcn-cora", "stagr", "cpu"),
    ("gat-cora", "stagr+effop", "auto"),
    ("sage-max-cora", "stagr", "auto"),
    ("mobilenet-v2", "quantgr", "auto"),
]


def both(network: str, stack: str, device: str = "auto", hint: str = "latency") -> tuple[Estimate, Estimate]:
    mapped = Scenario(network, techniques=stack, device=device, hint=hint).mapped
    return mapped_estimate(mapped), run_events(mapped)


@pytest.mark.parametrize(("network", "stack", "device"), CASES)
def test_critical_times_and_the_launch_add_up_to_the_latency(network, stack, device):
    for e in both(network, stack, device):
        parts = sum(op.critical_s for op in e.operators)
        assert parts + e.launch_s == pytest.approx(e.latency_s, rel=1e-9)
        for op in e.operators:
            causes = op.critical.model_dump().values()
            assert min(causes) >= 0.0 and sum(causes) == pytest.approx(op.critical_s, rel=1e-9, abs=1e-15)
        assert sum(latency_by_cause(e).values()) == pytest.approx(e.latency_s, rel=1e-9)


def test_the_bar_of_the_latency_counts_launch_work_and_waits():
    for e in both("resnet-50", "none"):
        causes = latency_by_cause(e)
        assert causes[LAUNCH] == e.launch_s
        assert 0.0 < causes["npu.dpu"] <= e.units["npu.dpu"].busy_s * (1 + 1e-9)


def test_products_with_a_matrix_that_is_too_large_for_sram_wait_for_dma():
    for e in both("gcn-cora", "stagr"):
        assert latency_by_cause(e)[WAITS] > 0.1 * e.latency_s


def test_pauses_for_the_power_limit_are_part_of_the_latency():
    e = mapped_estimate(
        Scenario("resnet-50", settings=("package.throttle=true", "package.power_limit=4W")).mapped
    )
    causes = latency_by_cause(e)
    assert causes[PAUSES] > 0.0
    assert sum(causes.values()) == pytest.approx(e.latency_s, rel=1e-9)


@pytest.mark.parametrize(("network", "stack", "device"), CASES)
def test_both_engines_mean_the_same_launch_and_the_same_work(network, stack, device):
    added, acted = both(network, stack, device)
    assert added.launch_s == acted.launch_s > 0.0
    for one, other in zip(added.operators, acted.operators, strict=True):
        if one.unit != "npu.dma":  # what only lays out data again: copies within SRAM and DRAM overlap
            assert one.busy_s == pytest.approx(other.busy_s, rel=0.02, abs=1e-7), one.name


@pytest.mark.parametrize(("network", "stack", "device"), CASES)
def test_an_operator_is_no_shorter_than_its_work(network, stack, device):
    for e in both(network, stack, device):
        for op in e.operators:
            assert op.busy_s <= op.span_s * (1 + 1e-9) + 1e-12, op.name


def test_with_several_requests_in_flight_no_operator_has_a_part_in_the_latency():
    for e in both("gcn-cora", "stagr", hint="throughput"):
        assert all(op.critical_s is None and op.critical is None for op in e.operators)
        assert latency_by_cause(e) == {}


def test_a_scatter_occupies_one_dsp_of_the_time_line():
    mapped = Scenario("gcn-cora").mapped
    line = run_events(mapped).timeline
    serial = [i for i, op in enumerate(mapped.lowered.ops) if op["dsp"]["serial"]]
    assert serial
    for i, op in enumerate(mapped.lowered.ops):
        if op["unit"] == Unit.DSP:
            rows = line.rows_of(i)
            at_work = {int(line.unit[row]) for row in rows[line.kind[rows] == TaskKind.DSP]}
            assert len(at_work) == (1 if i in serial else 8)


def test_more_dsps_save_nothing_of_a_scatter():
    few, many = (Scenario("gcn-cora", settings=[f"npu.dsp.per_tile={n}"]).mapped for n in (1, 8))
    scatter = few.lowered.ops["dsp"]["serial"] > 0
    assert few.results["latency_s"][scatter] == pytest.approx(many.results["latency_s"][scatter])
    assert few.results["energy_j"][scatter] == pytest.approx(many.results["energy_j"][scatter])
