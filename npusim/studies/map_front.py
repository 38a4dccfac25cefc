"""Pareto-optimal placements of blocks, layers or operators, and operating points of devices."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from npusim.arch import Soc, with_overrides
from npusim.config import full_factorial
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.graph import Graph
from npusim.mapping import (
    GRANULARITIES,
    ChainProblem,
    Granularity,
    Limit,
    Problem,
    Terms,
    chain_front,
    energy_limit,
    latency_limit,
    merged,
    placement_problem,
    planar_front,
    power_limit,
    share_limit,
    transitions_limit,
    units_of,
)
from npusim.scenario import Scenario
from npusim.studies.chain import Chain, ChainOnDevices, chain_of, letters_of, placement_of, written
from npusim.studies.evolution import Budget, Genes, SearchMethod, searched
from npusim.studies.pareto import hypervolume
from npusim.studies.placement_document import AloneOn, MapFront, PlacedChain


class PlacedUnits(NamedTuple):
    """Units to place on devices; a device that cannot run all of a unit does not run it.

    Costs are as in `npusim map` with one objective: a result in SRAM is transferred where another device
    reads it, and a device is launched whenever work passes to it.
    """

    problem: Problem
    terms: Terms

    @property
    def blocks(self) -> tuple[str, ...]:
        """Main operator of each unit, in order of execution."""
        return self.problem.names

    @property
    def units(self) -> tuple[str, ...]:
        """Devices."""
        return self.problem.devices

    @property
    def allowed(self) -> Any:
        """Which device may run which unit, shape (blocks, devices)."""
        return self.problem.allowed & np.isfinite(self.problem.time_s)

    def evaluate(self, placements: Any) -> Any:
        """Return latency (s) and energy (J) of placements, shape (placements, 2); infinite where impossible.

        Parameters
        ----------
        placements : array of int64, shape (placements, blocks)
        """
        problem, terms, rows = self.problem, self.terms, np.arange(len(self.blocks))
        times_s = problem.time_s[rows, placements]
        latency_s = times_s.sum(1)
        energy_j = problem.energy_j[rows, placements].sum(1)
        static_j = (times_s * terms.static_w[placements]).sum(1)
        entered = np.ones(placements.shape, bool)
        entered[:, 1:] = placements[:, 1:] != placements[:, :-1]
        launches_s = (problem.launch_s[placements] * entered).sum(1)
        for link in problem.links:
            users = np.array([link.maker, *link.readers])
            at_home = placements[:, users] == link.home
            paid = at_home & ~at_home.all(1, keepdims=True)
            loads = (link.write, *link.reads)
            added_s = paid @ np.array([load.time_s for load in loads])
            latency_s = latency_s + added_s
            static_j = static_j + added_s * terms.static_w[link.home]
            energy_j = energy_j + paid @ np.array([load.energy_j for load in loads])
        latency_s = latency_s + launches_s
        work_j = energy_j + static_j
        if terms.limit_w > terms.idle_w:
            latency_s = np.maximum(latency_s, work_j / (terms.limit_w - terms.idle_w))
        values = np.stack([latency_s, work_j + terms.idle_w * latency_s], -1)
        values[~self.allowed[rows, placements].all(1)] = np.inf
        return values


def placed_units(scenario: Scenario, devices: Sequence[str], granularity: Granularity) -> PlacedUnits:
    """Return the units of a network, of any shape, to place on devices."""
    soc, run = scenario.machine, scenario.run
    fine = placement_problem(scenario.graph, soc, run, devices)
    problem = merged(fine, units_of(scenario.graph, fine, granularity))
    return PlacedUnits(problem, Terms.of(soc, run, "latency", problem.devices))


def coarser_start(scenario: Scenario, units: PlacedUnits, granularity: Granularity, budget: Budget) -> Any:
    """Return placements of finer units that are good ones of coarser units, shape (placements, units).

    The front of a finer granularity is therefore never worse than that of a coarser one with the same seed.
    """
    coarse_of = GRANULARITIES[GRANULARITIES.index(granularity) + 1]
    coarse = placed_units(scenario, units.units, coarse_of)
    is_coarsest = coarse_of == GRANULARITIES[-1]
    first = None if is_coarsest else coarser_start(scenario, coarse, coarse_of, budget)
    best = searched(Genes(coarse.allowed, coarse.evaluate), "nsga2", budget, first)
    unit_of = {name: i for i, members in enumerate(coarse.problem.members) for name in members}
    return best.placements[:, [unit_of[members[0]] for members in units.problem.members]]


OperatingPoints = Mapping[str, str]
"""Operating point of each device that has been set; the others are as in the data sheet."""
_LIMITS: dict[str, Callable[[ChainProblem, Any], Limit]] = {
    "latency_s": latency_limit,
    "energy_j": energy_limit,
    "power_w": power_limit,
    "transitions": transitions_limit,
}
_BEYOND = 1.001
"""Latency and energy up to which hypervolumes count, over those of the worst device alone."""


@dataclass(frozen=True)
class Limits:
    """Limits that every placement must keep."""

    latency_s: float | None = None
    energy_j: float | None = None
    power_w: float | None = None
    transitions: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of the blocks that a device may run, by its name."""

    def of(self, problem: ChainProblem) -> list[Limit]:
        """Return the limits of a problem."""
        limits = [_LIMITS[name](problem, most) for name, most in self._amounts.items()]
        return [*limits, *(share_limit(problem, *share) for share in self._known_shares(problem.units))]

    @property
    def _amounts(self) -> dict[str, float]:
        """The limits other than shares that are set."""
        return {name: most for name in _LIMITS if (most := getattr(self, name)) is not None}

    def kept(self, values: Any, placements: Any, units: Sequence[str]) -> Any:
        """Return which placements keep the limits, array of bool; see `ChainProblem.evaluate`."""
        latency_s, energy_j = values.T
        most_j = np.inf if self.power_w is None else self.power_w * latency_s
        moves = (placements[:, 1:] != placements[:, :-1]).sum(1)
        amounts = {"latency_s": latency_s, "energy_j": energy_j, "transitions": moves}
        kept = np.isfinite(latency_s) & (energy_j <= most_j)
        for name, amount in amounts.items():
            kept &= amount <= self._amounts.get(name, np.inf)
        for unit, share in self._known_shares(units):
            kept &= (placements == units.index(unit)).mean(1) <= share
        return kept

    def _known_shares(self, units: Sequence[str]) -> Iterable[tuple[str, float]]:
        """Return each device with a limited share, and the share."""
        for device in self.shares:
            if device not in units:
                raise UnknownNameError("device to limit", device, units)
        return self.shares.items()

    @property
    def named(self) -> dict[str, float]:
        """The limits by name, in SI units."""
        shares = {f"share of {device}": share for device, share in self.shares.items()}
        return {name: float(value) for name, value in self._amounts.items()} | shares


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
        A placement to cost too, as `PlacedChain.mapping` is written.
    method : {"exact", "nsga2", "random"}, optional
        None: exact for chains of blocks, else NSGA-II.
    granularity : {"block", "layer", "operator"}
    budget : Budget, optional
    tell : callable
        Progress callback (settings done, settings in all).

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
    budget, chosen = budget or Budget(), devices_of(scenario.machine, devices)
    chain = _chain(scenario.graph, method, granularity)
    exact = chain is not None and method in (None, "exact")
    search: SearchMethod = "random" if method == "random" else "nsga2"
    if operating_points and not exact:
        raise NpusimError("operating points are tried with exact fronts of chains of blocks alone")
    settings = combinations_of(scenario.machine, chosen) if operating_points else [{}]
    share, problems = None, list[tuple[OperatingPoints, ChainProblem]]()
    problem: ChainProblem | PlacedUnits
    if chain is None:
        problem = placed_units(scenario, chosen, granularity)
    else:
        on_devices = ChainOnDevices(scenario, chain, chosen)
        problem = on_devices.problem(scenario.machine)
        for done, points in enumerate(settings if exact else ()):
            tell(done, len(settings))
            machine = at_points(scenario.machine, points)
            problems.append((points, on_devices.problem(machine) if points else problem))
    study = _Study(scenario, problem, limits or Limits(), granularity, budget)
    if exact:
        placements = study.exact(problems)
    else:
        placements, share = study.searched(search)
    alone = study.alone()
    front = [placements[i] for i in planar_front(_values(placements))]
    given = [study.requested(mapping, at, points) for points, at in problems if mapping and operating_points]
    return MapFront(
        workload=scenario.graph.name,
        soc=scenario.machine.name,
        techniques=scenario.graph.techniques,
        devices=study.letters,
        blocks=list(problem.blocks),
        placements=float(len(chosen)) ** len(problem.blocks) * len(settings),
        settings=len(settings),
        limits=study.limits.named,
        alone=alone,
        points=front,
        granularity=granularity,
        method="exact" if exact else search,
        evaluations=None if exact else budget.evaluations,
        hypervolume_share=share,
        chosen=_least_product(front, alone, exponents),
        exponents=exponents,
        given=study.requested(mapping, problem, {}) if mapping is not None else None,
        given_points=given,
        given_chosen=_least_product(given, alone, exponents) if given else None,
    )


def _chain(graph: Graph, method: str | None, granularity: Granularity) -> Chain | None:
    """Return a network as a chain of blocks; None if it is no chain or is placed in finer units."""
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


class _Study(NamedTuple):
    """A network whose blocks are placed, and the limits of the placements."""

    scenario: Scenario
    problem: ChainProblem | PlacedUnits
    limits: Limits
    granularity: Granularity
    budget: Budget

    @property
    def letters(self) -> dict[str, str]:
        """Letter of each device in mappings."""
        return letters_of(self.problem.units)

    def exact(self, problems: Sequence[tuple[OperatingPoints, ChainProblem]]) -> list[PlacedChain]:
        """Return the exact front of each combination of operating points, one after the other."""
        placements: list[PlacedChain] = []
        refused: list[InfeasibleError] = []
        for points, problem in problems:
            try:
                front = chain_front(problem, self.limits.of(problem))
                placements += [self.placed(problem, placement, points) for placement in front.placements]
            except InfeasibleError as error:
                refused.append(error)
        if not placements:
            raise refused[0]
        return placements

    def searched(self, method: SearchMethod) -> tuple[list[PlacedChain], float | None]:
        """Return the front of a search, and its hypervolume over that of the exact front if that is known."""
        problem, start, share = self.problem, None, None

        def within_limits(placements: Any) -> Any:
            values = problem.evaluate(placements)
            values[~self.limits.kept(values, placements, problem.units)] = np.inf
            return values

        if isinstance(problem, PlacedUnits) and method == "nsga2" and self.granularity != "block":
            start = coarser_start(self.scenario, problem, self.granularity, self.budget)
        best = searched(Genes(problem.allowed, within_limits), method, self.budget, start)
        if not len(best.placements):
            raise InfeasibleError(f"none of {self.budget.evaluations} placements searched keeps all limits")
        if isinstance(problem, ChainProblem):
            front = chain_front(problem, self.limits.of(problem))
            exact = np.stack([front.latency_s, front.energy_j], -1)
            worst = np.maximum(_values(self.alone()).max(0), exact.max(0)) * _BEYOND
            share = hypervolume(best.values.T, worst) / hypervolume(exact.T, worst)
        return [self.placed(problem, placement, {}) for placement in best.placements], share

    def placed(
        self, problem: ChainProblem | PlacedUnits, placement: np.ndarray, points: OperatingPoints
    ) -> PlacedChain:
        """Return a placement with its figures as a row of the document."""
        latency_s, energy_j = (float(x) for x in problem.evaluate(placement[None])[0])
        units = [problem.units[u] for u in placement]
        counts, letters = Counter(units), [self.letters[unit] for unit in problem.units]
        return PlacedChain(
            mapping=written(self.problem.blocks, letters, placement[None])[0],
            latency_s=latency_s,
            energy_j=energy_j,
            power_w=energy_j / latency_s,
            transitions=sum(a != b for a, b in itertools.pairwise(units)),
            shares={unit: counts[unit] / len(units) for unit in problem.units},
            operating_points=dict(points),
        )

    def requested(
        self, mapping: str, problem: ChainProblem | PlacedUnits, points: OperatingPoints
    ) -> PlacedChain:
        """Return the placement that the user gave, at some operating points."""
        blocks, units = self.problem.blocks, self.problem.units
        placement = placement_of(blocks, units, mapping.split("/"), "--mapping")
        if not np.isfinite(self.problem.evaluate(placement[None])[0, 0]):
            raise InfeasibleError(f"--mapping {mapping}: a device cannot run a block that it is given")
        return self.placed(problem, placement, points)

    def alone(self) -> list[AloneOn]:
        """Return all blocks on one device, for each device that can run them."""
        count, units = len(self.problem.blocks), self.problem.units
        values = self.problem.evaluate(np.repeat(np.arange(len(units))[:, None], count, 1))
        return [
            AloneOn(device=device, latency_s=float(latency_s), energy_j=float(energy_j))
            for device, (latency_s, energy_j) in zip(units, values, strict=True)
            if np.isfinite(latency_s)
        ]


def devices_of(soc: Soc, devices: Sequence[str] | None) -> tuple[str, ...]:
    """Return the named devices (names or kinds) in the order of the data sheet; all devices for None."""
    present = (*soc.array_devices, *soc.hosts)
    if devices is None:
        return present
    names = [soc.named(device) for device in devices]
    for device, name in zip(devices, names, strict=True):
        if name not in present:
            raise UnknownNameError(f"device of {soc.name}", device, present)
    if len(set(names)) < max(1, len(names)):
        raise NpusimError(f"--devices: found {','.join(devices)}; allowed: each device once, at least one")
    return tuple(device for device in present if device in names)


def combinations_of(soc: Soc, devices: Sequence[str]) -> list[dict[str, str]]:
    """Return each combination of operating points of devices and DRAM, the data sheet's included."""
    owners: dict[str, Any] = {**{name: soc.device(name) for name in devices}, "dram": soc.dram}
    choices: dict[str, list[str | None]] = {}
    for name, owner in owners.items():
        points = owner.operating_points
        is_set = any(_is_set(owner, point) for point in points.values())
        choices[name] = [*points] if is_set else [None, *points]
    if all(len(options) == 1 for options in choices.values()):
        raise NpusimError(f"{soc.name} has no operating points to try; leave out --dvfs")
    chosen = (point.items() for point in full_factorial(choices))
    return [{name: point for name, point in items if point is not None} for items in chosen]


def at_points(soc: Soc, points: OperatingPoints) -> Soc:
    """Return a SoC at operating points, names by device."""
    if not points:
        return soc
    return with_overrides(soc, [f"{device}.operating_point={name}" for device, name in points.items()])


def _is_set(owner: Any, point: Any) -> bool:
    """Return whether a device, or DRAM, of the data sheet works at an operating point."""
    settings = {name: value for name, value in point if value is not None}
    stated = {name: owner.dpu.clock if name == "dpu_clock" else getattr(owner, name) for name in settings}
    return all(float(stated[name]) == float(value) for name, value in settings.items())


def fitness(latency_s: Any, energy_j: Any, alone: Any, exponents: tuple[float, float]) -> Any:
    """Return energy times latency, relative to the best device alone (MaGNAS, Eq. 13).

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


def _values(rows: Sequence[PlacedChain | AloneOn]) -> Any:
    """Return latency (s) and energy (J) of document rows, shape (rows, 2)."""
    return np.array([(row.latency_s, row.energy_j) for row in rows]).reshape(-1, 2)


def _least_product(
    rows: Sequence[PlacedChain], alone: Sequence[AloneOn], exponents: tuple[float, float]
) -> int:
    """Return the number of the placement with the least `fitness`."""
    latency_s, energy_j = _values(rows).T
    return int(np.argmin(fitness(latency_s, energy_j, _values(alone), exponents)))
