"""The best placement of a network over the devices of a SoC, and what every other cut would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.graph import Graph
from npusim.mapping import (
    GRANULARITIES,
    Granularity,
    Mapped,
    Objective,
    Problem,
    Run,
    Split,
    Terms,
    best_placement,
    cut_loads,
    cut_transfer_bytes,
    map_placed,
    merged,
    objective_of,
    objective_of_loads,
    placed,
    placement_problem,
    spread,
    units_of,
)
from npusim.metrics import metrics_in
from npusim.scenario import Scenario
from npusim.studies.placement_document import Alone, Cut, DeviceCost, PlacedGroup, Placement, Profiled

_TRIED = 7
"""Further placements found that are mapped in full."""
_METHOD = (
    "dynamic programming over the order of execution, exact on chains and series-parallel graphs for any "
    "number of devices"
)
_METHOD_IN_FLIGHT = (
    "the slowest device sets the pace: devices get weights until their load is even, each round is solved by "
    "dynamic programming, and duality bounds what is left to gain"
)


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Measured time of an executed operator."""

    originals: tuple[str, ...]
    """Operators of the network that it stands for, by name."""
    latency_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured times of a network's operators on one device."""

    device: str
    """Class of device: npu, cpu, gpu."""
    chip: str
    """Name of the chip."""
    row: str
    """Where the times stand."""
    operators: tuple[OperatorTime, ...]


def place(
    scenario: Scenario,
    *,
    minimise: Objective = "latency",
    devices: Sequence[str] | None = None,
    profiles: Sequence[Profile] = (),
    granularity: Granularity = "operator",
) -> Placement:
    """Find the best placement of a network over the devices of a SoC.

    Parameters
    ----------
    scenario : Scenario
        All operators are placed freely, whatever GraphSplit wishes.
    devices : sequence of str, optional
        Devices to choose from; None: all that the SoC has, of npu, cpu and gpu.
    profiles : sequence of Profile
        Measured times, which replace the model's where they exist.

    Raises
    ------
    UnknownNameError
        For a device that the SoC lacks.
    InfeasibleError
        Where none of the devices can run some operator.

    Examples
    --------
    >>> place(Scenario("gcn-cora"), devices=["npu"]).switches
    0
    """
    soc, graph, run = scenario.machine, scenario.graph, scenario.run
    chosen = _devices_of(soc, devices)
    modelled = placement_problem(graph, soc, run, chosen)
    problem, measured = _profiled(modelled, soc, profiles)
    terms = Terms.of(soc, run, minimise, problem.devices)
    units, found, tried = _splits(graph, problem, terms, granularity)
    if profiles:
        value, bound, placement = found.value, found.bound, spread(units, found.placement)
        totals, alone = _by_costs(problem, soc, run, placement), _alone_by_costs(problem, soc, run)
    else:
        everywhere = {d: _mapped_alone(graph, problem, soc, run, i) for i, d in enumerate(chosen)}
        placement, mapped = _best(graph, problem, tried, everywhere, soc, run, minimise)
        value, bound = objective_of(problem, terms, placement), found.bound
        totals, alone = metrics_in(Placement, mapped.total), [_alone(d, m) for d, m in everywhere.items()]
    main = soc.array_devices.get(soc.main_device) or next(iter(soc.array_devices.values()), None)
    return Placement(
        workload=graph.name,
        soc=soc.name,
        techniques=graph.techniques,
        **{name: getattr(run, name) for name in ("hint", "requests", "tiles")},
        npu_tiles=int(main.tiles) if main is not None else 0,
        contexts=int(terms.contexts.max()),
        minimise=minimise,
        devices=list(chosen),
        granularity=granularity,
        units=len(units),
        kinds={device: soc.devices[device].kind for device in chosen},
        method=_METHOD if run.requests <= 1 else _METHOD_IN_FLIGHT,
        exact=found.exact,
        value=value,
        bound=bound,
        **totals,
        transfer_bytes=problem.transfer_bytes(placement),
        switches=problem.switches(placement),
        groups=_groups(graph, problem, placement, modelled),
        alone=alone,
        cuts=_cuts(problem, soc, run),
        profiles=measured,
    )


def _splits(
    graph: Graph, problem: Problem, terms: Terms, granularity: Granularity
) -> tuple[tuple[tuple[int, ...], ...], Split, tuple[tuple[int, ...], ...]]:
    """Return units, their best split, and placements of nodes worth mapping in full.

    Placements of coarser units are among these: so a finer granularity is never worse.
    """
    coarser = GRANULARITIES[GRANULARITIES.index(granularity) :]
    units = list(dict.fromkeys(units_of(graph, problem, one) for one in coarser))
    splits = [best_placement(merged(problem, one), terms) for one in units]
    tried = (
        spread(nodes, placement)
        for nodes, one in zip(units, splits, strict=True)
        for placement in (one.placement, *one.others[:_TRIED])
    )
    return units[0], splits[0], tuple(dict.fromkeys(tried))


def _profiled(problem: Problem, soc: Soc, profiles: Sequence[Profile]) -> tuple[Problem, list[Profiled]]:
    """Let measured times stand in a problem where they exist.

    A time of several operators that stand in several groups is shared out as the model's times of these are.
    A group of which anything was measured takes what was: the rest of it rode along.
    """
    group_of = {name: i for i, members in enumerate(problem.members) for name in members}
    time_s, told = problem.time_s.copy(), []
    for profile in profiles:
        home = next((d for d in (profile.device, soc.named(profile.device)) if d in problem.devices), None)
        if home is None:
            raise NpusimError(
                f"--profile: measured on the {profile.device}; allowed: one of the devices to choose from "
                f"({', '.join(problem.devices)})"
            )
        device, unused_s = problem.devices.index(home), 0.0
        found_s: dict[int, float] = {}
        for one in profile.operators:
            groups = sorted({group_of[name] for name in one.originals if name in group_of})
            if not groups:
                unused_s += one.latency_s
                continue
            weights = np.nan_to_num(problem.time_s[groups, device], posinf=0.0)
            shares = weights / weights.sum() if weights.sum() else np.full(len(groups), 1.0 / len(groups))
            for i, share in zip(groups, shares.tolist(), strict=True):
                found_s[i] = found_s.get(i, 0.0) + share * one.latency_s
        for i, value_s in found_s.items():
            time_s[i, device] = value_s
        told.append(
            Profiled(
                device=home, chip=profile.chip, row=profile.row, groups=len(found_s),
                used_s=sum(found_s.values()), unused_s=unused_s,
            )
        )  # fmt: skip
    return replace(problem, time_s=time_s), told


def _devices_of(soc: Soc, devices: Sequence[str] | None) -> tuple[str, ...]:
    have = (*soc.array_devices, *soc.hosts)
    if devices is None:
        return have
    named = [soc.named(device) for device in devices]
    for device, name in zip(devices, named, strict=True):
        if name not in have:
            raise UnknownNameError(f"device of {soc.name}", device, have)
    if len(set(named)) < max(1, len(named)):
        raise NpusimError(f"--devices: found {','.join(devices)}; allowed: each device once, at least one")
    return tuple(device for device in have if device in named)


def _mapped_alone(graph: Graph, problem: Problem, soc: Soc, run: Run, device: int) -> Mapped | None:
    try:
        return map_placed(placed(graph, problem, (device,) * len(problem.names)), soc, run)
    except InfeasibleError:
        return None


def _best(
    graph: Graph,
    problem: Problem,
    tried: tuple[tuple[int, ...], ...],
    alone: dict[str, Mapped | None],
    soc: Soc,
    run: Run,
    minimise: Objective,
) -> tuple[tuple[int, ...], Mapped]:
    """Map the best placements in full, and each device alone; what the engine finds best is taken."""

    def value(candidate: tuple[tuple[int, ...], Mapped]) -> float:
        total = candidate[1].total
        return float(1.0 / total["throughput_per_s"] if minimise == "latency" else total["energy_j"])

    candidates = [(placement, map_placed(placed(graph, problem, placement), soc, run)) for placement in tried]
    for i, mapped in enumerate(alone.values()):
        if mapped is not None:
            candidates.append(((i,) * len(problem.names), mapped))
    return min(candidates, key=value)


def _groups(
    graph: Graph, problem: Problem, placement: tuple[int, ...], modelled: Problem
) -> list[PlacedGroup]:
    return [
        PlacedGroup(
            name=name,
            region=graph.operators[name].region,
            block=graph.regions[name].block,
            device=problem.devices[placement[i]],
            costs={
                device: DeviceCost(
                    latency_s=_finite(problem.time_s[i, d], problem.time_s[i, d]),
                    energy_j=_finite(problem.energy_j[i, d], problem.time_s[i, d]),
                    measured=bool(problem.time_s[i, d] != modelled.time_s[i, d]),
                )
                for d, device in enumerate(problem.devices)
            },
        )
        for i, name in enumerate(problem.names)
    ]


def _alone(device: str, mapped: Mapped | None) -> Alone:
    if mapped is None:
        return Alone(device=device, latency_s=None, throughput_per_s=None, energy_j=None)
    return Alone(device=device, **metrics_in(Alone, mapped.total))


def _alone_by_costs(problem: Problem, soc: Soc, run: Run) -> list[Alone]:
    found = []
    for i, device in enumerate(problem.devices):
        totals = _by_costs(problem, soc, run, (i,) * len(problem.names))
        del totals["dram_bytes"]
        found.append(Alone(device=device, **totals))
    return found


def _by_costs(problem: Problem, soc: Soc, run: Run, placement: tuple[int, ...]) -> dict[str, Any]:
    """Return latency, throughput, energy and traffic of a placement by the costs alone; None: infeasible."""
    return _totals(_both_terms(problem, soc, run), problem.loads(placement))


def _both_terms(problem: Problem, soc: Soc, run: Run) -> tuple[Terms, Terms]:
    latency = Terms.of(soc, run, "latency", problem.devices)
    return latency, replace(latency, minimise="energy")


def _totals(terms: tuple[Terms, Terms], loads: Any) -> dict[str, Any]:
    """Return what `_by_costs` does, given the loads of a placement."""
    latency, energy = terms
    interval_s, k = objective_of_loads(latency, loads), len(latency.contexts)
    return {
        "latency_s": _finite(max(float(loads[: k + 1].sum()), latency.requests * interval_s), interval_s),
        "throughput_per_s": _finite(1.0 / interval_s, interval_s),
        "energy_j": _finite(objective_of_loads(energy, loads), interval_s),
        "dram_bytes": float(loads[k + 1]),
    }


def _cuts(problem: Problem, soc: Soc, run: Run) -> list[Cut]:
    found, terms, crossing = [], _both_terms(problem, soc, run), cut_transfer_bytes(problem).tolist()
    for first, rest in permutations(range(len(problem.devices)), 2):
        for i, loads in enumerate(cut_loads(problem, first, rest)):
            totals = _totals(terms, loads)
            del totals["dram_bytes"]
            found.append(
                Cut(
                    after=problem.names[i],
                    first=problem.devices[first],
                    rest=problem.devices[rest],
                    transfer_bytes=crossing[i],
                    **totals,
                )
            )
    return found


def _finite(value: float, test: float) -> float | None:
    return float(value) if test < float("inf") else None
