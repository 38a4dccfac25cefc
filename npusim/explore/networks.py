"""The networks of a space: one operator table for each combination of its lowering axes.

Making one is slow (rewriting, mapping, lowering), evaluating points on it is quick. So each is made once,
when its first point is due, and only the latest few are kept. Where placement depends on the speed of
devices (a stack with graphsplit), nothing can be shared between points, and each is mapped alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from npusim.arch import Soc, load_soc, with_overrides
from npusim.config import SET_BY_STUDY, Override
from npusim.cost import ArchRow
from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.explore.axes import Axis, machine_row, run_on
from npusim.explore.spaces import RunSpec, Scalar, Space
from npusim.graph import Graph
from npusim.mapping import map_graph, plan_tables, wished
from npusim.scenario import Network, load_network
from npusim.techniques import apply

_WORKLOAD = "workload"


@dataclass(frozen=True)
class LoweredNetwork:
    """One network on one kind of machine."""

    ops: Any
    """Its `npusim.cost.plans.PlanTable`; None where the technique stack is not legal on the
    network."""
    row: ArchRow
    """The machine as a design point before machine axes set their columns."""
    reason: str = ""
    """Why there are no tables."""
    open_graph: Graph | None = None
    """The network, where its placement depends on the speed of devices: each point is then mapped alone."""
    soc: Soc | None = None
    """The machine that goes with it, before machine axes."""


def overrides_of(space: Space, chosen: Mapping[str, Scalar], of_workload: bool) -> list[Override]:
    """Return the settings of the workload, or those of the SoC, at a choice of the lowering axes."""
    settings = {**space.settings, **{path: value for path, value in chosen.items() if "." in path}}
    return [
        Override(tuple(path.split(".")), value, f"{path}: {value}", source=SET_BY_STUDY)
        for path, value in settings.items()
        if (path.split(".")[0] == _WORKLOAD) == of_workload
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
            Override(
                (npu, "tiles"), int(soc.array_devices[npu].tiles), f"axes.{npu}.tiles", source=SET_BY_STUDY
            )
            for npu in soc.array_devices
            if f"{npu}.tiles" in space.axes
        ]
        read[name] = with_overrides(soc, same) if same else soc
    changed = [o for o in overrides_of(space, chosen, of_workload=False) if ".".join(o.path) in chosen]
    return with_overrides(read[name], changed) if changed else read[name]


def lower_on(soc: Soc, space: Space, chosen: Mapping[str, Scalar]) -> LoweredNetwork:
    """Make the tables of a combination of the lowering axes for its machine."""
    row = machine_row(soc, space.run)
    try:
        graph = graph_at(space, chosen)
    except IllegalTechniqueError as error:
        return LoweredNetwork(None, row, str(error))
    placed = space.run.device == "auto" and soc.has("cpu") and wished(graph)
    if placed or space.run.swap_operands == "search":
        return LoweredNetwork(None, row, open_graph=graph, soc=soc)
    return LoweredNetwork(plan_tables(graph, soc, space.run.device, space.run.swap_operands).table, row)


def graph_at(space: Space, chosen: Mapping[str, Scalar]) -> Graph:
    """Return the network at a choice of axes, techniques applied; errors as for `npusim.techniques.apply`."""
    settings = tuple((".".join(o.path), o.value) for o in overrides_of(space, chosen, of_workload=True))
    network = chosen.get("workload", space.workload)
    return apply(_loaded(network, settings), str(chosen.get("techniques", space.techniques)))


@lru_cache(maxsize=8)
def _loaded(network: Network, settings: tuple[tuple[str, Scalar], ...]) -> Graph:
    return load_network(network, [Override(tuple(p.split(".")), v, f"{p}: {v}") for p, v in settings])


def place_each(network: LoweredNetwork, axes: Iterable[Axis], points: Any, run: RunSpec, totals: Any) -> None:
    """Map a network at each of some points.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)
        Written.
    """
    machine = [(i, axis) for i, axis in enumerate(axes) if not axis.is_lowered]
    for p, point in enumerate(points):
        settings = {axis.path: axis.text_at(point[i]) for i, axis in machine}
        totals[p] = _total(network, settings, run, totals[p])


def _total(network: LoweredNetwork, settings: Mapping[str, Any], run: RunSpec, empty: Any) -> Any:
    assert network.soc is not None and network.open_graph is not None
    overrides = [
        Override(tuple(path.split(".")), value, f"axes.{path}: {value}", source=SET_BY_STUDY)
        for path, value in settings.items()
    ]
    soc = with_overrides(network.soc, overrides)
    try:
        return map_graph(network.open_graph, soc, run_on(soc, run)).total
    except InfeasibleError:
        empty["latency_s"] = empty["energy_j"] = float("inf")
        return empty
