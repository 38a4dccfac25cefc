"""Fronts are exact, knees are where they should be, volumes are volumes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from npusim.explore.fronts import knee, share_on_front
from npusim.explore.spaces import load_space
from npusim.metrics import METRICS
from npusim.studies import pareto
from npusim.studies.pareto import front, hypervolume
from npusim.studies.uncertainty import SAMPLES

SMALL = st.integers(1, 5).flatmap(
    lambda count: st.integers(0, 60).flatmap(
        lambda points: arrays(
            float, (count, points), elements=st.sampled_from([0.0, 1.0, 2.0, 3.0, 3.5, 1e300, np.inf, -1.0])
        )
    )
)


def naive_front(values):
    """The definition: nobody is at least as good in all respects and better in one."""
    points = values.T
    return [
        i
        for i, p in enumerate(points)
        if not any(np.all(q <= p) and np.any(q < p) for j, q in enumerate(points) if j != i)
    ]


@given(SMALL)
@settings(max_examples=150)
def test_front_is_that_of_the_definition_with_ties_and_infinities(values):
    assert front(values).tolist() == naive_front(values)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_front_of_many_points_is_that_of_the_definition(monkeypatch, count, seed):
    monkeypatch.setattr(pareto, "_MANY", 64)
    random = np.random.default_rng(seed)
    values = random.integers(0, 30, (count, 500)).astype(float)
    assert front(values).tolist() == naive_front(values)


def test_large_front_equals_the_front_of_the_fronts_of_parts():
    values = np.random.default_rng(0).random((3, 50_000))
    whole = front(values)
    parts = np.concatenate(
        [start + front(values[:, start : start + 7000]) for start in range(0, 50_000, 7000)]
    )
    assert np.array_equal(np.sort(parts[front(values[:, parts])]), whole)


def test_points_that_are_equal_all_stay():
    assert front(np.array([[1.0, 1.0, 2.0], [2.0, 2.0, 1.0]])).tolist() == [0, 1, 2]


def test_nan_is_worse_than_anything():
    assert front(np.array([[np.nan, 1.0], [0.0, 1.0]])).tolist() == [0, 1]
    assert front(np.array([[np.nan, 1.0], [1.0, 1.0]])).tolist() == [1]


@given(arrays(float, (3, 8), elements=st.integers(0, 4).map(float)))
@settings(max_examples=100)
def test_hypervolume_counts_the_cells_that_are_dominated(values):
    cells = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    covered = np.any(np.all(values.T[:, np.newaxis] <= cells, axis=2), axis=0).sum()
    assert hypervolume(values, np.array([5.0, 5.0, 5.0])) == pytest.approx(covered)


@given(arrays(float, (2, 8), elements=st.integers(0, 4).map(float)))
def test_hypervolume_of_two_objectives_is_an_area(values):
    cells = np.stack(np.meshgrid(*[np.arange(5)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    covered = np.any(np.all(values.T[:, np.newaxis] <= cells, axis=2), axis=0).sum()
    assert hypervolume(values, np.array([5.0, 5.0])) == pytest.approx(covered)


def test_the_knee_is_the_corner_of_an_l():
    values = np.array([[1.0, 1.1, 1.2, 5.0, 9.0], [9.0, 5.0, 1.3, 1.2, 1.0]])
    assert knee(values) == 2


@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_share_on_front_counts_the_samples_in_which_nobody_dominates_a_point(points, count, seed):
    names = ["latency_s", "energy_j", "throughput_per_s"][:count]
    values = np.random.default_rng(seed).integers(1, 4, (count, points, SAMPLES)).astype(float)
    signs = np.array([METRICS[name].sign for name in names])[:, None]
    expected = np.zeros(points)
    for s in range(SAMPLES):
        expected[naive_front(signs * values[:, :, s])] += 1 / SAMPLES
    more = {"maximise": names[2:]} if count > 2 else {}
    space = load_space({"workload": "gcn-cora", "minimise": names[:2], **more, "axes": {"npu.tiles": [1, 2]}})
    shares = share_on_front(dict(zip(names, values, strict=True)), space)
    assert shares == pytest.approx(expected)
