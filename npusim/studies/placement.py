"""One network over several devices: the best placement, the cost of every cut in two, equal shares.

Over equal devices a network is divided by requests, rows, channels or layers. By requests each device runs
whole inferences. By rows or channels every device has its share of each operator (`npusim.system.demands`):
what all of them do at once takes as long as the busiest, or as DRAM needs for the bytes of all. By layers one
device follows the other, as the best placement has them for several in flight.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from math import inf
from typing import Any, NamedTuple

import numpy as np

from npusim import mapping
from npusim.arch import Soc
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Divided, Estimate, SplitWay
from npusim.engines.event.machine import transfer_rates
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.graph import Graph
from npusim.mapping import Granularity, Mapped, Objective, Problem, Split, Terms
from npusim.metrics import metrics_in
from npusim.scenario import Scenario
from npusim.studies.map_front import devices_of
from npusim.studies.placement_document import Alone, Cut, DeviceCost, PlacedGroup, Placement, Profiled
from npusim.system.demands import shares

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


class OperatorTime(NamedTuple):
    """Measured time of an executed operator."""

    originals: tuple[str, ...]
    """Operators of the network that it stands for, by name."""
    latency_s: float


class Profile(NamedTuple):
    """Measured times of a network's operators on one device."""

    device: str
    """Class of device: npu, cpu, gpu."""
    chip: str
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
        All operators are placed freely, whatever device GraphSplit prefers.
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
    chosen = devices_of(soc, devices)
    modelled = mapping.placement_problem(graph, soc, run, chosen)
    problem, measured = _profiled(modelled, soc, profiles)
    terms = Terms.of(soc, run, minimise, problem.devices)
    units, split, tried = _splits(graph, problem, terms, granularity)
    if profiles:
        value, placement = split.value, mapping.spread(units, split.placement)
        loads = problem.loads(placement)
        totals = {**_totals(terms, loads), "dram_bytes": float(loads[len(terms.contexts) + 1])}
        everywhere = ((i,) * len(problem.names) for i in range(len(chosen)))
        figures = [_totals(terms, problem.loads(place)) for place in everywhere]
    else:
        alone = [_mapped_alone(scenario, problem, i) for i in range(len(chosen))]
        placement, mapped = _best(scenario, problem, tried, alone, minimise)
        value, totals = mapping.objective_of(problem, terms, placement), metrics_in(Placement, mapped.total)
        figures = [_NOWHERE if each is None else metrics_in(Alone, each.total) for each in alone]
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
        exact=split.exact,
        value=value,
        bound=split.bound,
        **totals,
        transfer_bytes=problem.transfer_bytes(placement),
        switches=problem.switches(placement),
        groups=_groups(graph, problem, placement, modelled),
        alone=[Alone(device=device, **each) for device, each in zip(chosen, figures, strict=True)],
        cuts=_cuts(problem, terms),
        profiles=measured,
    )


_Nodes = tuple[int, ...]
"""Device of each node, or nodes of a unit."""
_NOWHERE = dict.fromkeys(("latency_s", "throughput_per_s", "energy_j"))


def _splits(
    graph: Graph, problem: Problem, terms: Terms, granularity: Granularity
) -> tuple[tuple[_Nodes, ...], Split, list[_Nodes]]:
    """Return units, their best split, and placements of nodes worth mapping in full.

    These include placements of coarser units, so a finer granularity is never worse.
    """
    coarser = mapping.GRANULARITIES[mapping.GRANULARITIES.index(granularity) :]
    units = list(dict.fromkeys(mapping.units_of(graph, problem, size) for size in coarser))
    splits = [mapping.best_placement(mapping.merged(problem, nodes), terms) for nodes in units]
    tried = (
        mapping.spread(nodes, placement)
        for nodes, split in zip(units, splits, strict=True)
        for placement in (split.placement, *split.others[:_TRIED])
    )
    return units[0], splits[0], list(dict.fromkeys(tried))


def _profiled(problem: Problem, soc: Soc, profiles: Sequence[Profile]) -> tuple[Problem, list[Profiled]]:
    """Return the problem with measured times in place of the model's, and a row per profile.

    A measured time of operators in several groups is divided in proportion to the groups' modelled times. A
    group takes the measured time of any of its operators, because the others are fused into it.
    """
    group_of = {name: i for i, members in enumerate(problem.members) for name in members}
    costs, rows = problem.costs.copy(), []
    for profile in profiles:
        home = next((d for d in (profile.device, soc.named(profile.device)) if d in problem.devices), None)
        if home is None:
            raise NpusimError(
                f"--profile: measured on the {profile.device}; allowed: one of the devices to choose from "
                f"({', '.join(problem.devices)})"
            )
        device, unused_s = problem.devices.index(home), 0.0
        measured_s: dict[int, float] = {}
        for operator in profile.operators:
            groups = sorted({group_of[name] for name in operator.originals if name in group_of})
            if not groups:
                unused_s += operator.latency_s
                continue
            weights = np.nan_to_num(problem.time_s[groups, device], posinf=0.0)
            shares = weights / weights.sum() if weights.sum() else np.full(len(groups), 1.0 / len(groups))
            for i, share in zip(groups, shares.tolist(), strict=True):
                measured_s[i] = measured_s.get(i, 0.0) + share * operator.latency_s
        for i, value_s in measured_s.items():
            costs[i, device, 0] = value_s
        seconds = {"used_s": sum(measured_s.values()), "unused_s": unused_s}
        row = Profiled(device=home, chip=profile.chip, row=profile.row, groups=len(measured_s), **seconds)
        rows.append(row)
    return replace(problem, costs=costs), rows


def _mapped_alone(scenario: Scenario, problem: Problem, device: int) -> Mapped | None:
    with suppress(InfeasibleError):
        graph = mapping.placed(scenario.graph, problem, (device,) * len(problem.names))
        return mapping.map_placed(graph, scenario.machine, scenario.run)
    return None


def _best(
    scenario: Scenario,
    problem: Problem,
    tried: Sequence[_Nodes],
    alone: Sequence[Mapped | None],
    minimise: Objective,
) -> tuple[_Nodes, Mapped]:
    """Map the given placements in full; return the best of them and of each device alone."""
    candidates: list[tuple[_Nodes, Mapped]] = []
    for placement in tried:
        graph = mapping.placed(scenario.graph, problem, placement)
        candidates.append((placement, mapping.map_placed(graph, scenario.machine, scenario.run)))
    for i, mapped in enumerate(alone):
        if mapped is not None:
            candidates.append(((i,) * len(problem.names), mapped))

    def value(candidate: tuple[_Nodes, Mapped]) -> float:
        total = candidate[1].total
        return float(1.0 / total["throughput_per_s"] if minimise == "latency" else total["energy_j"])

    return min(candidates, key=value)


def _groups(graph: Graph, problem: Problem, placement: _Nodes, modelled: Problem) -> list[PlacedGroup]:
    def cost(i: int, d: int) -> DeviceCost:
        time_s, energy_j = float(problem.time_s[i, d]), float(problem.energy_j[i, d])
        measured = bool(time_s != modelled.time_s[i, d])
        if time_s == inf:
            return DeviceCost(latency_s=None, energy_j=None, measured=measured)
        return DeviceCost(latency_s=time_s, energy_j=energy_j, measured=measured)

    return [
        PlacedGroup(
            name=name,
            region=graph.operators[name].region,
            block=graph.regions[name].block,
            device=problem.devices[placement[i]],
            costs={device: cost(i, d) for d, device in enumerate(problem.devices)},
        )
        for i, name in enumerate(problem.names)
    ]


def _totals(terms: Terms, loads: Any) -> dict[str, Any]:
    """Return latency, throughput and energy of a placement, from its loads; None where it is infeasible."""
    # The objective named "latency" is the time between two results: with one request in flight the sum of
    # all times, with several that of the busiest resource.
    interval_s = mapping.objective_of_loads(replace(terms, minimise="latency"), loads)
    if not interval_s < inf:
        return dict(_NOWHERE)
    one_request_s = float(loads[: len(terms.contexts) + 1].sum())  # each device's time, and all launches
    return {
        # Little's law: with `requests` in flight, one ends per interval.
        "latency_s": float(max(one_request_s, terms.requests * interval_s)),
        "throughput_per_s": float(1.0 / interval_s),
        "energy_j": float(mapping.objective_of_loads(replace(terms, minimise="energy"), loads)),
    }


def _cuts(problem: Problem, terms: Terms) -> list[Cut]:
    """Return the network cut in two at each place of its order, for each pair of devices."""
    cuts, devices = [], problem.devices
    crossing = mapping.cut_transfer_bytes(problem).tolist()
    for first, rest in permutations(range(len(devices)), 2):
        for i, loads in enumerate(mapping.cut_loads(problem, first, rest)):
            ends = {"after": problem.names[i], "first": devices[first], "rest": devices[rest]}
            cuts.append(Cut(**ends, **_totals(terms, loads), transfer_bytes=crossing[i]))
    return cuts


_MOST_DEVICES = 16
_FIGURES = ("latency_s", "throughput_per_s", "energy_j", "dram_bytes")


def on_equal_devices(soc: Soc, count: int) -> tuple[Soc, list[str]]:
    """Return a machine with so many devices equal to its main one, and their names.

    Devices that it lacks are added.

    Raises
    ------
    ConfigError
        For an impossible number of devices, or a machine without an NPU or accelerator.
    """
    main = soc.main_device
    if not 2 <= count <= _MOST_DEVICES:
        raise ConfigError(f"{count} devices", file="--split", allowed=f"from 2 to {_MOST_DEVICES}")
    if main not in soc.array_devices:
        raise ConfigError(f"`{main}`", file="--split", allowed="a machine whose main device is no host")
    equal = [name for name, device in soc.array_devices.items() if device == soc.devices[main]][:count]
    added = {f"{main}{number}": main for number in range(len(equal) + 1, count + 1)}
    return soc.with_copies(added), [*equal, *added]


def divided(scenario: Scenario, count: int) -> Divided:
    """Return what a network costs on several devices equal to the main one, by each way to divide it.

    Parameters
    ----------
    scenario : Scenario
        With one request the way of least latency is chosen, with several the one of most throughput.

    Raises
    ------
    ConfigError
        As for `on_equal_devices`, and for a scenario on a chosen device.

    Examples
    --------
    >>> [way.name for way in divided(Scenario("gcn-cora", techniques="stagr"), 2).ways]
    ['one device', 'requests', 'rows', 'channels', 'layers']
    """
    if scenario.device != "auto":
        raise ConfigError(f"--device {scenario.device}", file="--split", allowed="--device auto")
    soc, names = on_equal_devices(scenario.machine, count)
    run = scenario.run
    here = scenario.on(soc)
    alone = mapped_estimate(here.mapped)
    rate = transfer_rates(here.mapped.arch).dram_bytes_per_s
    together = here.with_(requests=max(run.requests, count))
    each = mapped_estimate(here.with_(requests=-(-together.run.requests // count)).mapped)
    whole_per_s = min(count * each.throughput_per_s, rate / each.dram_bytes)
    ways = [
        _way("one device", alone, alone.latency_s, alone.throughput_per_s, 1),
        _way("requests", each, alone.latency_s, whole_per_s, 1),
    ]
    for share in shares(here, count):
        result, sharding = share.estimate, share.sharding
        bound_per_s = min(result.throughput_per_s, rate / (count * result.dram_bytes))
        per_s = 1.0 / share.latency_s if run.requests == 1 else bound_per_s
        way = _way(sharding.way, result, share.latency_s, per_s, count)
        exchanged = {"exchanged_bytes": count * sharding.exchanged_bytes, "exchanges": sharding.exchanges}
        ways.append(way.model_copy(update=exchanged))
    layers = place(together, devices=names)
    figures = {name: getattr(layers, name) for name in _FIGURES}
    figures |= {"exchanged_bytes": layers.transfer_bytes, "exchanges": layers.switches}
    ways.append(SplitWay(name="layers", **figures))
    by_cost = (lambda way: way.latency_s) if run.requests == 1 else (lambda way: -way.throughput_per_s)
    return Divided(
        devices=names, requests=together.run.requests, ways=ways, chosen=min(ways, key=by_cost).name
    )


def _way(name: str, share: Estimate, latency_s: float, throughput_per_s: float, count: int) -> SplitWay:
    """Return a way in which each of some devices does a share; the idle package counts once."""
    idle_w = share.energy.idle_j * share.throughput_per_s
    return SplitWay(
        name=name,
        latency_s=latency_s,
        throughput_per_s=throughput_per_s,
        energy_j=count * (share.energy_j - share.energy.idle_j) + idle_w / throughput_per_s,
        dram_bytes=count * share.dram_bytes,
    )
