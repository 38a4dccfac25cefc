"""Pareto-optimal placements of a chain of blocks in latency and energy, and operating points."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from npusim.arch import Soc, with_overrides
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.graph import Graph
from npusim.mapping import (
    ChainProblem,
    Granularity,
    Limit,
    chain_front,
    energy_limit,
    latency_limit,
    power_limit,
    share_limit,
    transitions_limit,
)
from npusim.scenario import Scenario
from npusim.studies.chain import Chain, ChainOnDevices, chain_of, chain_problem
from npusim.studies.evolved_mapping import Budget, Genes, SearchMethod, hypervolume, searched
from npusim.studies.map_front_document import AloneOn, MapFront, PlacedChain
from npusim.studies.mapping_letters import letters_of, placement_of, written
from npusim.studies.placed_units import PlacedUnits, coarser_start, placed_units

_AtPoints = tuple[Mapping[str, str], ChainProblem]
"""Operating points, and a chain under them."""
_BEYOND = 1.001
"""Latency and energy up to which hypervolumes count, over those of the worst device alone."""


@dataclass(frozen=True)
class Limits:
    """What every placement has to keep."""

    latency_s: float | None = None
    energy_j: float | None = None
    power_w: float | None = None
    transitions: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    def of(self, problem: ChainProblem) -> list[Limit]:
        """Return the limits of a problem."""
        made: list[tuple[float | None, Callable[[ChainProblem, Any], Limit]]] = [
            (self.latency_s, latency_limit),
            (self.energy_j, energy_limit),
            (self.power_w, power_limit),
            (self.transitions, transitions_limit),
        ]
        found = [make(problem, most) for most, make in made if most is not None]
        for device, share in self.shares.items():
            if device not in problem.units:
                raise UnknownNameError("device to limit", device, problem.units)
            found.append(share_limit(problem, device, share))
        return found

    def kept(self, values: Any, placements: Any, units: Sequence[str]) -> Any:
        """Return which placements keep the limits, array of bool; see `ChainProblem.evaluate`."""
        latency_s, energy_j = values.T
        moves = (placements[:, 1:] != placements[:, :-1]).sum(1)
        kept = np.isfinite(latency_s)
        for amount, most in (
            (latency_s, self.latency_s),
            (energy_j, self.energy_j),
            (moves, self.transitions),
        ):
            kept = kept if most is None else kept & (amount <= most)
        if self.power_w is not None:
            kept = kept & (energy_j <= self.power_w * latency_s)
        for device, share in self.shares.items():
            if device not in units:
                raise UnknownNameError("device to limit", device, units)
            kept = kept & ((placements == list(units).index(device)).mean(1) <= share)
        return kept


def map_front(
    scenario: Scenario,
    *,
    devices: Sequence[str] | None = None,
    limits: Limits | None = None,
    operating_points: bool = False,
    exponents: tuple[float, float] = (1.0, 1.0),
    mapping: str | None = None,
    method: Literal["exact", "nsga2", "random"] | None = None,
    granularity: Granularity = "block",
    budget: Budget | None = None,
    tell: Callable[[int, int], object] = lambda done, of: None,
) -> MapFront:
    """Return the placements of a network's blocks that no other beats in latency and energy.

    Of a chain of blocks the front is exact. Other networks, and finer units, are searched by NSGA-II.

    Parameters
    ----------
    scenario : Scenario
        Of one inference at a time.
    devices : sequence of str, optional
        Devices to choose from; None: all that the SoC has.
    operating_points : bool
        Whether every combination of the operating points of devices and DRAM is tried.
    exponents : tuple of float
        See `fitness`.
    mapping : str, optional
        A placement to cost beside the front, as `PlacedChain.mapping` is written.
    method : {"exact", "nsga2", "random"}, optional
        None: exact for chains of blocks, else NSGA-II.
    granularity : {"block", "layer", "operator"}
    budget : Budget, optional
    tell : callable
        Called with settings done, and in all.

    Raises
    ------
    NpusimError
        Where several requests are in flight, or an exact front or clocks are asked of what is no chain.
    InfeasibleError
        Where no placement keeps the limits.

    Examples
    --------
    >>> map_front(Scenario("vit"), devices=["npu", "gpu"]).points[0].transitions
    0
    """
    if scenario.run.requests > 1:
        raise NpusimError("several objectives are for one inference at a time; use the latency hint")
    limits, budget = limits or Limits(), budget or Budget()
    chosen, chain = devices_of(scenario.machine, devices), _chain(scenario.graph, method, granularity)
    exact = chain is not None and method in (None, "exact")
    if operating_points and not exact:
        raise NpusimError("operating points are tried with exact fronts of chains of blocks alone")
    combinations = list(combinations_of(scenario.machine, chosen)) if operating_points else [{}]
    first = chain_problem(scenario, chain, chosen) if chain else placed_units(scenario, chosen, granularity)
    made, share, problems = _Made(first, letters_of(chosen), mapping), None, list[_AtPoints]()
    how: SearchMethod = "random" if method == "random" else "nsga2"
    if exact and chain is not None and isinstance(first, ChainProblem):
        problems = list(_problems(scenario, chain, first, combinations, tell))
        points = _points(problems, made, limits)
    else:
        points, share = _searched(scenario, made, limits, how, budget, granularity)
    return _document(
        scenario, made, points, limits, exponents, problems if operating_points else (),
        granularity=granularity, settings=len(combinations), hypervolume_share=share,
        placements=float(len(chosen)) ** len(first.blocks) * len(combinations),
        method="exact" if exact else how, evaluations=None if exact else budget.evaluations,
    )  # fmt: skip


def _document(
    scenario: Scenario,
    made: _Made,
    points: Sequence[PlacedChain],
    limits: Limits,
    exponents: tuple[float, float],
    problems: Sequence[_AtPoints],
    **told: Any,
) -> MapFront:
    """Return the document of all placements that were found, and of the one that was asked for."""
    front, alone = _not_beaten(points), _alone(made.problem)
    given = made.asked(made.problem, {})
    at_points = [one for named, problem in problems if (one := made.asked(problem, named))]
    return MapFront(
        workload=scenario.graph.name,
        soc=scenario.machine.name,
        techniques=scenario.graph.techniques,
        devices=dict(made.letters),
        blocks=list(made.problem.blocks),
        limits=_told(limits),
        alone=alone,
        points=front,
        chosen=_chosen(front, alone, exponents),
        given=given,
        given_points=at_points,
        given_chosen=_chosen(at_points, alone, exponents) if at_points else None,
        exponents=exponents,
        **told,
    )


def _chain(graph: Graph, method: str | None, granularity: Granularity) -> Chain | None:
    """Return a network as a chain of blocks; None where it is none, or placed by finer units."""
    if granularity != "block":
        if method == "exact":
            raise NpusimError("exact fronts are of chains of blocks: --granularity block")
        return None
    try:
        return chain_of(graph)
    except NpusimError:
        if method == "exact":
            raise
        return None


def _searched(
    scenario: Scenario,
    made: _Made,
    limits: Limits,
    method: SearchMethod,
    budget: Budget,
    granularity: Granularity,
) -> tuple[list[PlacedChain], float | None]:
    """Return what a search finds, and its hypervolume over that of the exact front where there is one."""
    problem = made.problem

    def values(placements: Any) -> Any:
        found = problem.evaluate(placements)
        found[~limits.kept(found, placements, problem.units)] = np.inf
        return found

    start = None
    if isinstance(problem, PlacedUnits) and method == "nsga2" and granularity != "block":
        start = coarser_start(scenario, problem, granularity, budget)
    found = searched(Genes(problem.allowed, values), method, budget, start)
    if not len(found.placements):
        raise InfeasibleError(f"none of {budget.evaluations} placements searched keeps all limits")
    share = None
    if isinstance(problem, ChainProblem):
        best = chain_front(problem, limits.of(problem))
        exact = np.stack([best.latency_s, best.energy_j], -1)
        worst = np.array([(one.latency_s, one.energy_j) for one in _alone(problem)]).max(0)
        worst = np.maximum(worst, exact.max(0)) * _BEYOND
        share = hypervolume(found.values, worst) / hypervolume(exact, worst)
    return [made.placed(problem, one, {}) for one in found.placements], share


@dataclass(frozen=True)
class _Made:
    """Makes rows of the document."""

    problem: ChainProblem | PlacedUnits
    letters: Mapping[str, str]
    mapping: str | None
    """The placement asked for."""

    def placed(
        self, problem: ChainProblem | PlacedUnits, placement: np.ndarray, points: Mapping[str, str]
    ) -> PlacedChain:
        latency_s, energy_j = (float(x) for x in problem.evaluate(placement[None])[0])
        units = [problem.units[u] for u in placement]
        counts = Counter(units)
        return PlacedChain(
            mapping=written(self.problem.blocks, self.letters, units),
            latency_s=latency_s,
            energy_j=energy_j,
            power_w=energy_j / latency_s,
            transitions=sum(a != b for a, b in itertools.pairwise(units)),
            shares={unit: counts[unit] / len(units) for unit in problem.units},
            operating_points=dict(points),
        )

    def asked(self, problem: ChainProblem | PlacedUnits, points: Mapping[str, str]) -> PlacedChain | None:
        """Return the placement that was asked for, under operating points; None where none was."""
        if self.mapping is None:
            return None
        said = self.mapping.split("/")
        placement = placement_of(self.problem.blocks, self.problem.units, said, "--mapping")
        if not np.isfinite(self.problem.evaluate(placement[None])[0, 0]):
            raise InfeasibleError(f"--mapping {self.mapping}: a device cannot run a block that it is given")
        return self.placed(problem, placement, points)


def _problems(
    scenario: Scenario,
    chain: Chain,
    first: ChainProblem,
    combinations: Sequence[Mapping[str, str]],
    tell: Callable[[int, int], object],
) -> Iterator[_AtPoints]:
    """Yield the chain under each combination of operating points; `first` where nothing is set."""
    on_devices = ChainOnDevices(scenario, chain, first.units) if any(combinations) else None
    for done, points in enumerate(combinations):
        tell(done, len(combinations))
        machine = at_points(scenario.machine, points)
        yield points, first if not points or on_devices is None else on_devices.problem(machine)


def _points(problems: Sequence[_AtPoints], made: _Made, limits: Limits) -> list[PlacedChain]:
    """Return the fronts under all combinations of operating points, one behind the other."""
    points: list[PlacedChain] = []
    refused: list[InfeasibleError] = []
    for named, problem in problems:
        try:
            placements = chain_front(problem, limits.of(problem)).placements
        except InfeasibleError as error:
            refused.append(error)
            continue
        points += [made.placed(problem, one, named) for one in placements]
    if not points:
        raise refused[0]
    return points


def devices_of(soc: Soc, devices: Sequence[str] | None) -> tuple[str, ...]:
    """Return the devices named, in the order of the data sheet; all for None."""
    have = (*soc.array_devices, *soc.hosts)
    for device in devices or ():
        if device not in have:
            raise UnknownNameError(f"device of {soc.name}", device, have)
    return have if devices is None else tuple(device for device in have if device in devices)


def combinations_of(soc: Soc, devices: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield every combination of operating points of the devices and of DRAM, that of the data sheet too."""
    sections: dict[str, Mapping[str, Any]] = {name: soc.device(name).operating_points for name in devices}
    sections["dram"] = soc.dram.operating_points
    owners: dict[str, Any] = {**soc.devices, "dram": soc.dram}
    choices = []
    for name, points in sections.items():
        own: list[dict[str, str]] = (
            [] if any(_is_set(owners[name], point) for point in points.values()) else [{}]
        )
        choices.append([*own, *({name: point} for point in points)])
    if all(len(options) == 1 for options in choices):
        raise NpusimError(f"{soc.name} has no operating points to try; leave out --dvfs")
    for chosen in itertools.product(*choices):
        yield {name: point for one in chosen for name, point in one.items()}


def at_points(soc: Soc, points: Mapping[str, str]) -> Soc:
    """Return a SoC at operating points, names by device."""
    if not points:
        return soc
    return with_overrides(soc, [f"{device}.operating_point={name}" for device, name in points.items()])


def _is_set(owner: Any, point: Any) -> bool:
    """Whether a device, or DRAM, of the data sheet works at an operating point."""
    return all(
        value is None
        or float(owner.dpu.clock if name == "dpu_clock" else getattr(owner, name)) == float(value)
        for name, value in point
    )


def _not_beaten(points: Sequence[PlacedChain]) -> list[PlacedChain]:
    front: list[PlacedChain] = []
    for point in sorted(points, key=lambda one: (one.latency_s, one.energy_j)):
        if not front or point.energy_j < front[-1].energy_j:
            front.append(point)
    return front


def _alone(problem: ChainProblem | PlacedUnits) -> list[AloneOn]:
    found = []
    for d, device in enumerate(problem.units):
        latency_s, energy_j = problem.evaluate(np.full((1, len(problem.blocks)), d))[0]
        if np.isfinite(latency_s):
            found.append(AloneOn(device=device, latency_s=float(latency_s), energy_j=float(energy_j)))
    return found


def fitness(latency_s: Any, energy_j: Any, alone: Any, exponents: tuple[float, float]) -> Any:
    """Return the product of energy and latency over those of the best device alone (MaGNAS, Eq. 13).

    Parameters
    ----------
    latency_s, energy_j : array
        Of placements.
    alone : array, shape (devices, 2)
        Latency and energy of all blocks on each device that can run them.
    exponents : tuple of float
        Of energy and of latency.
    """
    best = np.min(alone, axis=0, initial=np.inf)
    latency, energy = np.where(np.isfinite(best), best, 1.0)
    return (np.asarray(energy_j) / energy) ** exponents[0] * (np.asarray(latency_s) / latency) ** exponents[1]


def _chosen(front: Sequence[PlacedChain], alone: Sequence[AloneOn], exponents: tuple[float, float]) -> int:
    each = np.array([(one.latency_s, one.energy_j) for one in alone]).reshape(-1, 2)
    found = [np.array([getattr(one, name) for one in front]) for name in ("latency_s", "energy_j")]
    return int(np.argmin(fitness(found[0], found[1], each, exponents)))


def _told(limits: Limits) -> dict[str, float]:
    said = {name: getattr(limits, name) for name in ("latency_s", "energy_j", "power_w", "transitions")}
    found = {name: float(value) for name, value in said.items() if value is not None}
    return found | {f"share of {device}": share for device, share in limits.shares.items()}
