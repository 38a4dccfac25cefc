"""A design space made ready to be evaluated: any range of its points, in any order.

A network has one operator table for each combination of the lowering axes. Making one is slow (rewriting,
mapping, lowering), evaluating points on it is quick: it is made when its first point is due, and the latest
few are kept. Where placement depends on the speed of devices (a stack with graphsplit), each point is mapped
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npusim import cost
from npusim.arch import Soc, load_soc, with_overrides
from npusim.config import Override
from npusim.errors import ConfigError, IllegalTechniqueError, InfeasibleError
from npusim.explore.axes import machine_row, resolve_axes, run_on, study_override
from npusim.explore.points import Points, Traversal, positions_in_unit_cube
from npusim.explore.spaces import Scalar, Space
from npusim.graph import Graph
from npusim.mapping import map_graph, plan_tables, refuse_too_large, wished
from npusim.metrics import METRICS
from npusim.scenario import Network, load_network
from npusim.techniques import apply

_TRIED_NETWORKS, _TRIED_POINTS, _TRIED_VALUES = 4, 32, 5
"""Choices of the lowering axes, points with each, and values of a continuous axis that judge an axis."""
_CHECKED_VALUES = 32
"""Values of a lowering axis that are tried before a sweep."""
_TOGETHER = 8
"""Points that a search is shared by, at least: for one point it ends so much earlier."""
_SIMILAR = 1.25
"""Ratio of the sizes of SRAM that share a search where rates vary."""
_MOST_NETWORKS = 64


class LoweredNetwork(NamedTuple):
    """One network on one kind of machine."""

    ops: Any
    """Its `npusim.cost.lowering.plans.PlanTable`; None where the stack is not legal, or each point is mapped
    alone."""
    row: cost.ArchRow
    """The machine as a design point before machine axes set their columns."""
    mapped_alone: tuple[Graph, Soc] | None = None
    """Network and machine before machine axes, where the placement depends on the speed of devices."""


def overrides_of(space: Space, chosen: Mapping[str, Scalar], of_workload: bool) -> list[Override]:
    """Return the settings of the workload, or of the SoC, at a choice of the lowering axes."""
    settings = {**space.settings, **{path: value for path, value in chosen.items() if "." in path}}
    return [
        study_override(path, value)
        for path, value in settings.items()
        if (path.split(".")[0] == "workload") == of_workload
    ]


def base_soc(space: Space) -> Soc:
    """Return the machine of a space with the settings that hold at every point."""
    return machine_at(space, {}, {})


def machine_at(space: Space, chosen: Mapping[str, Scalar], read: dict[str, Soc]) -> Soc:
    """Return the machine at a choice of the lowering axes; where tiles vary, a point uses all that it has.

    Parameters
    ----------
    read : dict of str to Soc
        Machines with the settings that hold at every point, by name; one that is not among them is added.
    """
    name = str(chosen.get("soc", space.soc))
    if name not in read:
        soc = load_soc(name, overrides_of(space, {}, of_workload=False))
        same = [
            study_override(f"{name}.tiles", int(npu.tiles))
            for name, npu in soc.array_devices.items()
            if f"{name}.tiles" in space.axes
        ]
        read[name] = with_overrides(soc, same) if same else soc
    changed = [o for o in overrides_of(space, chosen, of_workload=False) if ".".join(o.path) in chosen]
    return with_overrides(read[name], changed) if changed else read[name]


def graph_at(space: Space, chosen: Mapping[str, Scalar]) -> Graph:
    """Return the network at a choice of axes, techniques applied; errors as for `npusim.techniques.apply`."""
    settings = tuple((".".join(o.path), o.value) for o in overrides_of(space, chosen, of_workload=True))
    network = chosen.get("workload", space.workload)
    return apply(_loaded(network, settings), str(chosen.get("techniques", space.techniques)))


@lru_cache(maxsize=8)
def _loaded(network: Network, settings: tuple[tuple[str, Scalar], ...]) -> Graph:
    return load_network(network, [Override(tuple(p.split(".")), v, f"{p}: {v}") for p, v in settings])


class Campaign:
    """A space with its axes resolved."""

    def __init__(self, space: Space) -> None:
        self.space = space
        soc = base_soc(space)
        self.axes = tuple(resolve_axes(space, soc))
        self._base = machine_row(soc, space.run)
        self.points = Points(self.axes, space.design)
        self._machine = [i for i, axis in enumerate(self.axes) if not axis.is_lowered]
        self._columns = np.array([c for i in self._machine for c in self.axes[i].columns], np.int64)
        ranks = [2 * axis.is_searched - axis.is_sram for axis in self.axes]
        self._searched = np.array([ranks[i] for i in self._machine for _ in self.axes[i].columns], int)
        self._has_rates = any(ranks[i] == 0 for i in self._machine)
        self._socs: dict[str, Soc] = {}
        self._lowered = lru_cache(maxsize=_MOST_NETWORKS)(self._lower)

    @property
    def total(self) -> int:
        """How many points there are."""
        return self.points.total

    def scores(self, start: int, stop: int) -> dict[str, Any]:
        """Return the metrics of points `start` to `stop`: a mapping of metric to array of shape (points,).

        The latency of a point that cannot run the network is infinite.
        """
        totals = self.totals(start, stop)
        return {name: metric.values(totals) for name, metric in METRICS.items()}

    def totals(self, start: int, stop: int, scratch: Any = None, for_front: bool = False) -> Any:
        """Return the totals of points `start` to `stop`: array of TOTAL_DTYPE, shape (points,).

        Parameters
        ----------
        scratch : array of TOTAL_DTYPE, optional
            Where to write them, for at least so many points: fresh memory takes its time.
        for_front : bool
            Whether dominated points may be pruned: their latency is infinite then.
        """
        totals = np.empty(stop - start, cost.TOTAL_DTYPE) if scratch is None else scratch[: stop - start]
        if self._traversal is not None:
            self._full(self._traversal, start, stop, totals, self._incumbents() if for_front else None)
        else:
            self._scattered(self.points.coordinates(np.arange(start, stop)), totals)
        return totals

    def scores_at(self, coordinates: Any) -> dict[str, Any]:
        """Return the metrics of points by their coordinates (`Points.coordinates`), shape (points, axes)."""
        totals = np.zeros(len(coordinates), cost.TOTAL_DTYPE)
        self._scattered(np.asarray(coordinates, float), totals)
        return {name: metric.values(totals) for name, metric in METRICS.items()}

    def settings_at(self, coordinates: Any) -> dict[str, Any]:
        """Return what one point sets: a mapping of path to value, as `--set` takes it."""
        return {axis.path: axis.text_at(c) for axis, c in zip(self.axes, coordinates, strict=True)}

    def refuse_wrong_values(self) -> None:
        """Refuse a value that the network does not take, before any work; errors as for `load_network`.

        Of a long axis some values are tried, the ends among them; the other axes have their first value.
        """
        lowering = [axis for axis in self.axes if axis.is_lowered]
        usual = {axis.path: axis.texts[0] for axis in lowering}
        for axis in lowering:
            tried = np.unique(np.linspace(0, axis.size - 1, _CHECKED_VALUES).astype(int))
            for value in tried:
                with suppress(IllegalTechniqueError):  # such points are left out
                    graph_at(self.space, {**usual, axis.path: axis.texts[value]})

    def refuse_idle_axes(self) -> None:
        """Refuse an axis whose values move no metric at any point that is tried.

        Raises
        ------
        ConfigError
            Where there is one; names it.
        """
        for i, axis in enumerate(self.axes):
            if axis.size != 1 and self._is_idle(i):
                where = f"of {self.space.workload} on {self.space.soc}"
                raise ConfigError(
                    "an axis that changes nothing",
                    key=f"axes.{axis.path}",
                    allowed=f"axes that move a metric {where}; leave it out, or set it once under `set`",
                )

    def _is_idle(self, i: int) -> bool:
        axis = self.axes[i]
        values = np.arange(axis.size)
        if axis.is_continuous:
            values = np.linspace(axis.numbers[0], axis.numbers[-1], _TRIED_VALUES)
        values = np.roll(values, 1)  # the last value first: the ends differ where any do
        any_feasible = False
        for points in self._samples():
            first = None
            for value in values:
                points[:, i] = value
                totals = np.zeros(len(points), cost.TOTAL_DTYPE)
                self._scattered(points, totals)
                any_feasible = any_feasible or bool(np.isfinite(totals["latency_s"]).any())
                first = totals if first is None else first
                if not np.array_equal(first, totals):
                    return False
        return any_feasible

    def _samples(self) -> Iterator[Any]:
        """Yield groups of points drawn at random; all points of a group share their lowering axes."""
        random = np.random.default_rng(0)
        cube = random.random((_TRIED_NETWORKS, _TRIED_POINTS, len(self.axes)))
        for i, axis in enumerate(self.axes):
            if axis.is_lowered:
                cube[:, :, i] = cube[:, :1, i]
                cube[0, :, i] = 0.0
        yield positions_in_unit_cube(self.axes, cube[0, :2])  # two points tell most axes
        yield from (positions_in_unit_cube(self.axes, points) for points in cube)

    def _incumbents(self) -> cost.Incumbents:
        """Return empty storage for the best points of the space's front."""
        bounds = {str(name): bound.ends for name, bound in self.space.constraints.items()}
        return cost.incumbents_of([str(name) for name in self.space.objectives], bounds, cost.thread_count())

    def _full(
        self, traversal: Traversal, start: int, stop: int, totals: Any, incumbents: cost.Incumbents | None
    ) -> None:
        """Evaluate consecutive points of a full design: one network after the other."""
        block = prod(self.axes[i].size for i in self._machine)
        for number in range(start // block, -(-stop // block)):
            origin = number * block
            first, last = max(start, origin), min(stop, origin + block)
            network = self._network(self.points.coordinates([origin])[0])
            points = traversal.points(first - origin, last - origin)
            alone = None if network.ops is not None else self.points.coordinates(np.arange(first, last))
            self._evaluate(network, points, totals[first - start : last - start], alone, incumbents)

    @cached_property
    def _traversal(self) -> Traversal | None:
        """The groups of points that share a search; None where these are so short that sizes of SRAM do.

        A sampled design has none.
        """
        axes = [self.axes[i] for i in self._machine]
        others = [axis for axis in axes if not axis.is_searched]
        if not self.points.is_full or prod(axis.size for axis in others) <= cost.SHARED_SEARCH:
            return None
        return Traversal(axes[: len(axes) - len(others)], others)

    def _groups(self, values: Any) -> Any:
        """Return where groups of points begin that share a search; the number of points last.

        Neighbours are compared. Long groups are cut where there are fewer of them than cores.

        Where rates vary, only similar sizes of SRAM share one: few candidates can be ruled out for all rates
        and a wide range of sizes, and comparing what is left takes longer than several searches.
        """
        count = len(values)
        searched, sram = (values[:, self._searched == rank] for rank in (2, 1))
        keys = [searched]
        if self._has_rates:
            keys.append(np.floor(np.log(np.maximum(sram, 1.0)) / np.log(_SIMILAR)))
        together = np.concatenate(keys, axis=1)
        begins = np.ones(count + 1, np.bool_)
        begins[1:-1] = np.any(together[1:] != together[:-1], axis=1)
        lengths = np.diff(np.flatnonzero(begins))
        # Each piece of a group searches again, so there are only as many as give all cores work.
        most = int(
            np.clip(count // cost.thread_count(), min(cost.BLOCK, cost.SHARED_SEARCH), cost.SHARED_SEARCH)
        )
        pieces = np.where(lengths < _TOGETHER, lengths, -(-lengths // most))
        ends = np.cumsum(lengths)
        parts = [np.arange(n) * length // n for n, length in zip(pieces, lengths, strict=True)]
        return np.append(np.repeat(ends - lengths, pieces) + np.concatenate(parts), count)

    def _scattered(self, coordinates: Any, totals: Any) -> None:
        """Evaluate any points: network by network, sorted by what the search looks at."""
        lowered = [i for i, axis in enumerate(self.axes) if axis.is_lowered]
        which, values = np.zeros(len(coordinates), np.int64), self._values(coordinates)
        if lowered:
            digits = coordinates[:, lowered].astype(np.int64).T
            numbers = np.ravel_multi_index(tuple(digits), [self.axes[i].size for i in lowered])
            _, which = np.unique(numbers, return_inverse=True)
        for group in range(int(which.max(initial=-1)) + 1):
            rows = np.flatnonzero(which == group)
            searched, sram = (values[rows][:, self._searched == rank] for rank in (2, 1))
            if searched.shape[1] + sram.shape[1]:
                rows = rows[np.lexsort([*sram.T[::-1], *searched.T[::-1]])]
            members, own = coordinates[rows], np.ascontiguousarray(values[rows])
            group_totals = np.zeros(len(rows), cost.TOTAL_DTYPE)
            points = cost.points_in_groups(self._columns, own, self._groups(own))
            self._evaluate(self._network(members[0]), points, group_totals, members)
            totals[rows] = group_totals

    def _values(self, coordinates: Any) -> Any:
        """Return what points set the machine's columns to, shape (points, columns)."""
        parts = [np.empty((len(coordinates), 0))]
        for i in self._machine:
            column, table = coordinates[:, i, None], self.axes[i].column_values
            parts.append(column if self.axes[i].is_continuous else table[column[:, 0].astype(int)])
        return np.concatenate(parts, axis=1)

    def _evaluate(
        self,
        network: LoweredNetwork,
        points: cost.PointGroups,
        totals: Any,
        coordinates: Any,
        incumbents: cost.Incumbents | None = None,
    ) -> None:
        """Write the totals of points of one network; `coordinates` are needed where each is mapped alone."""
        if network.ops is not None:
            plans = np.empty(len(totals), np.int64)
            known = self._known(points, network.row)
            cost.evaluate_points(network.row, known, network.ops, totals, plans, incumbents)
            return
        totals[:] = np.zeros(1, cost.TOTAL_DTYPE)
        totals["latency_s"] = totals["energy_j"] = np.inf
        if network.mapped_alone is None:
            return
        graph, soc = network.mapped_alone
        for number, point in enumerate(coordinates):
            settings = [(self.axes[i].path, self.axes[i].text_at(point[i])) for i in self._machine]
            own = with_overrides(soc, [study_override(path, value, "axes.") for path, value in settings])
            with suppress(InfeasibleError):
                totals[number] = map_graph(graph, own, run_on(own, self.space.run)).total

    def _known(self, points: cost.PointGroups, row: cost.ArchRow) -> cost.PointGroups:
        """Return points without the columns of devices that a machine lacks and the space's own has."""
        if (row.arrays, row.hosts) == (self._base.arrays, self._base.hosts):
            return points
        of_group, of_place = (
            self._base.places_in(row, columns) for columns in (points.group_columns, points.columns)
        )
        return points._replace(
            group_columns=of_group[of_group >= 0],
            group_values=np.ascontiguousarray(points.group_values[:, of_group >= 0]),
            columns=of_place[of_place >= 0],
            values=np.ascontiguousarray(points.values[:, of_place >= 0]),
        )

    def _network(self, coordinates: Any) -> LoweredNetwork:
        """Return the network that a point belongs to; the latest few are kept."""
        return self._lowered(*(int(coordinates[i]) for i, a in enumerate(self.axes) if a.is_lowered))

    def _lower(self, *places: int) -> LoweredNetwork:
        """Return the network at places of the lowering axes' values."""
        lowering = [axis for axis in self.axes if axis.is_lowered]
        named = {axis.path: axis.texts[place] for axis, place in zip(lowering, places, strict=True)}
        soc = machine_at(self.space, named, self._socs)
        run, row = self.space.run, machine_row(soc, self.space.run)
        try:
            graph = graph_at(self.space, named)
            refuse_too_large(graph, soc)
        except (IllegalTechniqueError, InfeasibleError) as error:
            if isinstance(error, InfeasibleError) and not lowering:
                raise  # no point of the space fits
            return LoweredNetwork(None, row)
        is_placed = run.device == "auto" and soc.has("cpu") and wished(graph)
        if is_placed or run.swap_operands == "search":
            return LoweredNetwork(None, row, (graph, soc))
        return LoweredNetwork(plan_tables(graph, soc, run.device, run.swap_operands).table, row)


@lru_cache(maxsize=4)
def campaign_of(space: Space) -> Campaign:
    """Return the campaign of a space; a process makes it once."""
    return Campaign(space)
