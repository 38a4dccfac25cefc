"""Event against analytical engine, over machines, dataflows, memory levels, networks and stacks.

`validate/definitions/engines.yaml` lists the cases: one inference at a time, and some with several in flight.
Where the engines differ by more than 5 %, the time line shows which operator parts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from npusim.arch import load_soc
from npusim.config import Section, load_model
from npusim.engines.event import run_events
from npusim.engines.timeline import Timeline, critical_path, path_summary
from npusim.locate import resource
from npusim.mapping import Mapped
from npusim.scenario import Scenario
from npusim.techniques import apply, stacks
from npusim.techniques.stack import legal
from npusim.validation.figures import Row, RowPredictor
from npusim.validation.suite import Suite
from npusim.workloads import load_workload, workload_names

_WORTH_A_REASON = 0.05
_MOST_REASONS = 12
_IN_FLIGHT_STACKS = ("none", "graphsplit", "stagr", "graphsplit+preg+stagr")
# Networks that are compared with several inferences in flight where a case does not say.
_IN_FLIGHT_GRAPH = "-cora"


class EngineCase(Section):
    """A machine that both engines are run on."""

    soc: str
    """Name of a shipped SoC."""
    settings: dict[str, str] = Field(default_factory=dict, alias="set")
    """Changes to the data sheet by path, and `workload.KEY` of the networks."""
    device: str = "auto"
    """Preferred device."""
    workloads: list[str] | None = None
    """Named workloads. None: all GNNs."""
    stacks: list[str] | None = None
    """Technique stacks; a network skips those that are illegal on it. None: all named ones."""
    in_flight: bool | None = None
    """Whether several inferences in flight are compared, too. None: for some stacks on Cora."""


class EngineCases(Section):
    """Machines of the suite: `validate/definitions/engines.yaml`."""

    schema_name: Literal["npusim.engines-definitions/1"] = Field(alias="schema")
    """Version of this file format: npusim.engines-definitions/1."""
    machines: dict[str, EngineCase]
    """By the name that groups and rows use."""


def _compared(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    """Run both engines on all cases; return the rows, and notes on the largest differences."""
    rows = list(_rows())
    by_size = sorted(rows, key=lambda pair: -abs(_deviation(pair[0])))
    worst = by_size[0][0]
    differing = [f"{row.id}: {why}" for row, why in by_size if why]
    notes = [f"worst: {worst.id}, analytical {_deviation(worst):+.1%}", *differing[:_MOST_REASONS]]
    if len(differing) > _MOST_REASONS:
        notes.append(f"{len(differing)} of {len(rows)} rows differ by more than {_WORTH_A_REASON:.0%}")
    return [row for row, _ in rows], notes


_graph = cache(load_workload)


def _deviation(row: Row) -> float:
    return row.predicted / row.measured - 1.0


def _rows() -> Iterator[tuple[Row, str]]:
    """Yield each comparison, with the reason of a large difference."""
    named = dict.fromkeys(str(stack) for listed in stacks().values() for stack in listed)
    definitions = load_model(resource("validate", "definitions", "engines.yaml"), EngineCases)
    for name, case in definitions.machines.items():
        of_networks = tuple(f"{k}={v}" for k, v in case.settings.items() if k.startswith("workload."))
        soc = load_soc(case.soc, {k: v for k, v in case.settings.items() if not k.startswith("workload.")})
        workloads = workload_names("gnn") if case.workloads is None else case.workloads
        for workload in workloads:
            graph = _graph(workload, of_networks)
            for stack in (stack for stack in case.stacks or named if legal(graph, stack) is None):
                id_ = f"{name}.{workload}.{stack}"
                scenario = Scenario(apply(graph, stack), soc, device=case.device)
                yield _compare(id_, scenario, name, workload)
                in_flight = case.in_flight
                if in_flight is None and case.stacks is None:
                    in_flight = workload.endswith(_IN_FLIGHT_GRAPH) and stack in _IN_FLIGHT_STACKS
                if in_flight:
                    yield _compare(f"{id_}.throughput", scenario.with_(hint="throughput"), name, workload)


def _compare(id_: str, scenario: Scenario, soc: str, workload: str) -> tuple[Row, str]:
    """Return the times of both engines, and the reason of a large difference between latencies."""
    mapped, hint = scenario.mapped, scenario.hint
    simulated = run_events(mapped)
    columns = {"soc": soc, "workload": workload, "hint": hint}
    if hint == "throughput":
        event_s, closed_s = 1.0 / simulated.throughput_per_s, 1.0 / float(mapped.total["throughput_per_s"])
        return Row(id_, event_s, closed_s, columns), ""
    row = Row(id_, simulated.latency_s, float(mapped.total["latency_s"]), columns)
    is_far = abs(_deviation(row)) > _WORTH_A_REASON
    return row, reasons(mapped, simulated.timeline) if is_far else ""


def reasons(mapped: Mapped, line: Timeline) -> str:
    """Return which operator differs most between the engines, and its time on the critical path."""
    summary = path_summary(line, critical_path(line))
    on_path = np.array([summary.by_operator.get(name, 0.0) for name in line.operators])
    gap = on_path - mapped.results["latency_s"]
    total_s = line.makespan_s - float(mapped.total["latency_s"])
    worst = int(np.argmax(gap if total_s > 0.0 else -gap))
    closed_us = float(mapped.results[worst]["latency_s"]) * 1e6
    return (
        f"{line.operators[worst]} adds {gap[worst] * 1e6:+.0f} of {total_s * 1e6:+.0f} us: "
        f"{on_path[worst] * 1e6:.0f} us on the critical path, {closed_us:.0f} us in closed form"
    )


ENGINES = RowPredictor(_compared)
"""Latency, and time between inferences with several in flight: "measured" is the event engine's."""
