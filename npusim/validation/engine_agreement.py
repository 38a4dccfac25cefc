"""Event against analytical engine, over machines, dataflows, memory levels, networks and stacks.

`validate/definitions/engines.yaml` lists the cases: one inference at a time, and some with several in flight.
Where the engines differ by more than 5 %, the timeline shows what the closed form does not see.
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
from npusim.graph import Graph
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
    notes = [f"worst: {worst.id}, analytical {_deviation(worst):+.1%}"]
    differing = [f"{row.id}: {why}" for row, why in by_size if why]
    notes += differing[:_MOST_REASONS]
    if len(differing) > _MOST_REASONS:
        notes.append(f"{len(differing)} of {len(rows)} rows differ by more than {_WORTH_A_REASON:.0%}")
    return [row for row, _ in rows], notes


def _deviation(row: Row) -> float:
    return row.predicted / row.measured - 1.0


@cache
def _rewritten(workload: str, stack: str, settings: tuple[str, ...]) -> Graph | None:
    """Return a network under a stack; None where the stack is illegal on it."""
    graph = load_workload(workload, settings)
    return apply(graph, stack) if legal(graph, stack) is None else None


def _rows() -> Iterator[tuple[Row, str]]:
    """Yield each comparison, with the reason of a large difference."""
    named = dict.fromkeys(str(stack) for listed in stacks().values() for stack in listed)
    definitions = load_model(resource("validate", "definitions", "engines.yaml"), EngineCases)
    for name, case in definitions.machines.items():
        of_networks = tuple(f"{k}={v}" for k, v in case.settings.items() if k.startswith("workload."))
        soc = load_soc(case.soc, {k: v for k, v in case.settings.items() if not k.startswith("workload.")})
        for workload in case.workloads if case.workloads is not None else workload_names("gnn"):
            for stack in case.stacks if case.stacks is not None else named:
                graph = _rewritten(workload, stack, of_networks)
                if graph is None:
                    continue
                parts = f"{name}.{workload}.{stack}"
                columns = {"soc": name, "workload": workload, "hint": "latency"}
                mapped = Scenario(graph, soc, device=case.device).mapped
                simulated = run_events(mapped)
                row = Row(parts, simulated.latency_s, float(mapped.total["latency_s"]), columns)
                is_far = abs(_deviation(row)) > _WORTH_A_REASON
                yield row, reasons(mapped, simulated.timeline) if is_far else ""
                in_flight = case.in_flight
                if in_flight is None and case.stacks is None:
                    in_flight = workload.endswith(_IN_FLIGHT_GRAPH) and stack in _IN_FLIGHT_STACKS
                if in_flight:
                    mapped = Scenario(graph, soc, device=case.device, hint="throughput").mapped
                    event_s = 1.0 / run_events(mapped).throughput_per_s
                    analytical_s = 1.0 / float(mapped.total["throughput_per_s"])
                    columns = {**columns, "hint": "throughput"}
                    yield Row(f"{parts}.throughput", event_s, analytical_s, columns), ""


def reasons(mapped: Mapped, line: Timeline) -> str:
    """Return which operator differs most between the engines, and what its timeline shows."""
    summary = path_summary(line, critical_path(line))
    on_path = np.array([summary.by_operator.get(name, 0.0) for name in line.operators])
    gap = on_path - mapped.results["latency_s"]
    total_s = line.makespan_s - float(mapped.total["latency_s"])
    worst = int(np.argmax(gap if total_s > 0.0 else -gap))
    name, size_us = line.operators[worst], gap[worst] * 1e6
    closed_us = float(mapped.results[worst]["latency_s"]) * 1e6
    return (
        f"{name} adds {size_us:+.0f} of {total_s * 1e6:+.0f} us: {on_path[worst] * 1e6:.0f} us on the "
        f"critical path, {closed_us:.0f} us in closed form; {_mechanism(line, worst, size_us)}"
    )


def _mechanism(line: Timeline, operator: int, size_us: float) -> str:
    """Return what the closed form does not see in an operator."""
    tasks = [task for task in critical_path(line) if line.operator[task.row] == operator]
    waited_us = sum(task.waited_s for task in tasks) * 1e6
    if size_us > 0.0 and waited_us > 0.5 * size_us:
        return f"DMA's latency stands open for {waited_us:.0f} us because SRAM holds too few pieces ahead"
    if size_us > 0.0:
        return "work and transfers of a piece follow each other where SRAM holds no further piece"
    first = line.span_s(operator)[0]
    others = line.working[(line.operator[line.working] < operator) & (line.operator[line.working] >= 0)]
    if len(others) and float(line.end[others].max()) > first:
        return "it is fetched, or begins, while operators before it still run"
    return "its first and last pieces are part of its DMA time, not on top of it"


ENGINES = RowPredictor(_compared)
"""Latency, and time between inferences with several in flight: "measured" is the event engine's."""
