"""The table of metrics: one entry says all that totals, documents, sweeps and pages need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npusim
from npusim.cost.lowering.tables import TOTAL_DTYPE
from npusim.engines import Estimate
from npusim.metrics import METRICS, Metric, metrics_in, objectives, unit_of


def test_a_metric_is_a_column_of_totals_or_follows_from_them() -> None:
    columns = [name for name, metric in METRICS.items() if metric.of is None]
    assert list(TOTAL_DTYPE.names or ()) == columns
    assert all(unit_of(name) for name in METRICS), "a name ends with its unit"
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


def test_every_unit_of_a_machine_has_one_metric_of_its_busy_time() -> None:
    busy = [metric.unit for metric in METRICS.values() if metric.unit]
    assert sorted(busy) == sorted(["npu.dpu", "npu.dsp", "npu.dma", "cpu", "gpu"])


@given(st.sampled_from(sorted(METRICS)), st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_the_better_of_two_points_has_the_smaller_objective(name: str, a: float, b: float) -> None:
    first, second = objectives({name: np.array([a, b])}, [name])[0]
    better = min if METRICS[name].sense == "min" else max
    assert (first < second) == (better(a, b) == a and a != b)


def test_a_document_takes_the_metrics_that_it_has_fields_for() -> None:
    totals = np.ones(1, TOTAL_DTYPE)[0]
    assert set(metrics_in(Estimate, totals)) == set(METRICS) & set(Estimate.model_fields)


def test_a_metric_that_follows_from_others_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    power = Metric("power_w", "power", of=lambda t: t["energy_j"] * t["throughput_per_s"])
    monkeypatch.setitem(METRICS, power.name, power)
    totals = np.zeros(3, TOTAL_DTYPE)
    totals["energy_j"], totals["throughput_per_s"] = (1.0, 2.0, 3.0), (5.0, 2.0, 1.0)
    names = ["power_w", "throughput_per_s"]
    values = objectives({name: METRICS[name].values(totals) for name in names}, names)
    assert values.tolist() == [[5.0, 4.0, 3.0], [-5.0, -2.0, -1.0]]
    assert unit_of(power.name) == "W"


@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_a_metric_may_have_the_name_of_any_field_of_an_estimate(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = npusim.estimate("gcn-cora", techniques="stagr", engine=engine)
    macs = Metric("macs", "multiply-accumulates", of=lambda totals: 0.0 * totals["area_mm2"] + before.macs)
    monkeypatch.setitem(METRICS, macs.name, macs)
    assert npusim.estimate("gcn-cora", techniques="stagr", engine=engine) == before
