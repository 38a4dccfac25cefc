"""Pareto-optimal placements of chains: beside brute force, under every kind of limit."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.errors import InfeasibleError
from npusim.mapping import (
    ChainProblem,
    chain_front,
    energy_limit,
    latency_limit,
    power_limit,
    share_limit,
    transitions_limit,
)


def chain(seed: int, blocks: int, units: int, alike: bool = False) -> ChainProblem:
    """A random chain; where its blocks are `alike`, half of them are one and half another."""
    random = np.random.default_rng(seed)
    time, energy = random.uniform(1, 10, (2, blocks, units))
    crossing = random.uniform(0, 3, (2, blocks - 1, units, units))
    if alike:
        time, energy = time[np.arange(blocks) % 2], energy[np.arange(blocks) % 2]
        crossing[:] = crossing[:, :1]
    elif blocks > 2:
        time[random.integers(blocks), random.integers(units)] = np.inf
        if not np.isfinite(time).any(1).all():
            time[~np.isfinite(time)] = 1.0
    names = tuple(f"b{i}" for i in range(blocks)), tuple("udtq"[:units])
    return ChainProblem(*names, time, energy, *crossing)


def amounts(problem: ChainProblem, placement: tuple[int, ...]) -> tuple[float, float]:
    """Latency and energy, block by block."""
    latency = energy = 0.0
    for i, unit in enumerate(placement):
        latency += problem.time_s[i, unit]
        energy += problem.energy_j[i, unit]
        if i and placement[i - 1] != unit:
            latency += problem.crossing_s[i - 1, placement[i - 1], unit]
            energy += problem.crossing_j[i - 1, placement[i - 1], unit]
    return latency, energy


def every(problem: ChainProblem):
    for placement in product(range(len(problem.units)), repeat=len(problem.blocks)):
        latency, energy = amounts(problem, placement)
        if np.isfinite(latency):
            yield placement, latency, energy


def best_of(points):
    """The points that no other beats, by latency."""
    front, least = [], np.inf
    for latency, energy in sorted(points):
        if energy < least * (1 - 1e-9):
            front.append((latency, energy))
            least = energy
    return front


def bounds_of(problem: ChainProblem, tightness: float, kinds: tuple[str, ...]):
    """Limits, and for each what a placement must keep; between what is least and what is most."""
    found = list(every(problem))
    switches = [sum(a != b for a, b in pairwise(p)) for p, _, _ in found]
    between = lambda values: min(values) + tightness * (max(values) - min(values))  # noqa: E731
    blocks = len(problem.blocks)
    latency = between([t for _, t, _ in found])
    energy = between([e for _, _, e in found])
    power = between([e / t for _, t, e in found])
    most = int(between(switches))
    share = round(tightness * blocks) / blocks
    made = {
        "latency": (latency_limit(problem, latency), lambda p, t, e: t <= latency),
        "energy": (energy_limit(problem, energy), lambda p, t, e: e <= energy),
        "power": (power_limit(problem, power), lambda p, t, e: e / t <= power),
        "transitions": (
            transitions_limit(problem, most),
            lambda p, t, e: sum(a != b for a, b in pairwise(p)) <= most,
        ),
        "share": (share_limit(problem, "u", share), lambda p, t, e: p.count(0) <= share * blocks + 1e-9),
    }
    return [made[kind] for kind in kinds]


KINDS = ("latency", "energy", "power", "transitions", "share")


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    blocks=st.integers(1, 7),
    units=st.integers(1, 3),
    alike=st.booleans(),
    kinds=st.lists(st.sampled_from(KINDS), unique=True, max_size=3).map(tuple),
    tightness=st.sampled_from([0.0, 0.2, 0.5, 0.9]),
)
def test_the_front_is_that_of_all_placements(seed, blocks, units, alike, kinds, tightness):
    problem = chain(seed, blocks, units, alike)
    limits = bounds_of(problem, tightness, kinds)
    slack = 1 + 1e-9
    want = best_of(
        (t, e)
        for p, t, e in every(problem)
        if all(keeps(p, t / slack, e / slack) if kind != "power" else keeps(p, t * slack, e)
               for kind, (_, keeps) in zip(kinds, limits, strict=True))
    )  # fmt: skip
    if not want:
        with pytest.raises(InfeasibleError):
            chain_front(problem, [limit for limit, _ in limits])
        return
    front = chain_front(problem, [limit for limit, _ in limits])
    got = list(zip(front.latency_s, front.energy_j, strict=True))
    assert np.allclose(got, want, rtol=1e-9)
    for placement, point in zip(front.placements, got, strict=True):
        assert np.allclose(amounts(problem, tuple(placement)), point)
    assert np.allclose(problem.evaluate(front.placements), got)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_blocks_under_each_limit(kind):
    problem = chain(7, 10, 2)
    ((limit, keeps),) = bounds_of(problem, 0.4, (kind,))
    front = chain_front(problem, [limit])
    want = best_of((t, e) for p, t, e in every(problem) if keeps(p, t, e))
    assert np.allclose(list(zip(front.latency_s, front.energy_j, strict=True)), want)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(0, 5))
def test_more_transitions_and_more_units_are_never_worse(seed, most):
    problem = chain(seed, 8, 3, alike=True)
    few = chain_front(problem, [transitions_limit(problem, most)])
    more = chain_front(problem, [transitions_limit(problem, most + 1)])
    fewer_units = ChainProblem(
        problem.blocks, problem.units[:2], problem.time_s[:, :2], problem.energy_j[:, :2],
        problem.crossing_s[:, :2, :2], problem.crossing_j[:, :2, :2],
    )  # fmt: skip
    for worse, better in ((few, more), (chain_front(fewer_units), chain_front(problem))):
        for latency, energy in zip(worse.latency_s, worse.energy_j, strict=True):
            beats = (better.latency_s <= latency * (1 + 1e-9)) & (better.energy_j <= energy * (1 + 1e-9))
            assert beats.any()


def test_34_blocks_on_3_units_that_differ():
    problem = chain(3, 34, 3)
    front = chain_front(problem)
    assert len(front.latency_s) > 100
    assert (np.diff(front.latency_s) > 0).all()
    assert (np.diff(front.energy_j) < 0).all()
    least = min(front.latency_s[0], front.energy_j[-1])
    random = np.random.default_rng(0).integers(0, 3, (2000, 34))
    for latency, energy in problem.evaluate(random):
        if np.isfinite(latency):
            assert ((front.latency_s <= latency) & (front.energy_j <= energy)).any()
    assert least > 0


def test_a_mean_power_that_nothing_meets_names_the_least():
    problem = chain(2, 6, 3)
    least = min(energy / latency for _, latency, energy in every(problem))
    with pytest.raises(InfeasibleError, match=f"mean_power_w of at most 0.01; the least is {least:.4g}"):
        chain_front(problem, [power_limit(problem, 0.01)])
    assert len(chain_front(problem, [power_limit(problem, least * (1 + 1e-5))]).latency_s)


def test_a_limit_that_nothing_meets_names_the_nearest():
    problem = chain(1, 4, 2)
    least = min(t for _, t, _ in every(problem))
    with pytest.raises(InfeasibleError, match=f"latency_s of at most 0.5; the least is {least:.4g}"):
        chain_front(problem, [latency_limit(problem, 0.5)])
    with pytest.raises(InfeasibleError, match="without that on"):
        chain_front(
            problem, [latency_limit(problem, least), energy_limit(problem, chain_front(problem).energy_j[-1])]
        )
