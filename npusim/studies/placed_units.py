"""Units of a network that is no chain, blocks, layers or operators, with what placements of them cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.mapping import GRANULARITIES, Granularity, Problem, Terms, merged, placement_problem, units_of
from npusim.scenario import Scenario
from npusim.studies.evolved_mapping import Budget, Genes, searched


@dataclass(frozen=True)
class PlacedUnits:
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
    """Return placements of finer units that come from good placements of coarser units.

    Their shape is (placements, units). With them the front of a finer granularity is never worse than that of
    a coarser one with the same seed.
    """
    coarse_of = GRANULARITIES[GRANULARITIES.index(granularity) + 1]
    coarse = placed_units(scenario, units.units, coarse_of)
    is_coarsest = coarse_of == GRANULARITIES[-1]
    first = None if is_coarsest else coarser_start(scenario, coarse, coarse_of, budget)
    best = searched(Genes(coarse.allowed, coarse.evaluate), "nsga2", budget, first)
    unit_of = {name: i for i, members in enumerate(coarse.problem.members) for name in members}
    return best.placements[:, [unit_of[members[0]] for members in units.problem.members]]
