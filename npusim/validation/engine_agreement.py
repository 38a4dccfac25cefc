"""Event against analytical engine, for every named workload, allowed stack and SoC with an NPU.

One inference at a time, and some of them with several in flight. Where the engines differ by more than 5 %,
the timeline tells what the closed form does not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npusim.arch import load_soc, soc_names
from npusim.engines.event import run_events
from npusim.engines.timeline import Timeline, critical_path, path_summary
from npusim.mapping import Mapped
from npusim.scenario import Scenario
from npusim.techniques import apply, stacks
from npusim.techniques.stack import legal
from npusim.validation.evidence import Evidence
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine
from npusim.workloads import load_workload, workload_names

_WORTH_A_REASON = 0.05
_MOST_REASONS = 12
_IN_FLIGHT_STACKS = ("none", "graphsplit", "stagr", "graphsplit+preg+stagr")
_IN_FLIGHT_GRAPH = "-cora"
"""What is compared with several inferences in flight, too: simulating that takes many inferences."""


@dataclass(frozen=True)
class _Row:
    id: str
    soc: str
    workload: str
    hint: str
    analytical_s: float
    event_s: float
    why: str


class _Engines:
    """Makes its own rows: "measured" is the event engine, "predicted" the analytical one."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Run both engines on everything; see `npusim.validation.evidence.Predictor`."""
        rows = list(_rows())
        event = np.array([row.event_s for row in rows])
        analytical = np.array([row.analytical_s for row in rows])
        worst = int(np.argmax(np.abs(analytical / event - 1.0)))
        notes = [f"worst: {rows[worst].id}, analytical {analytical[worst] / event[worst] - 1.0:+.1%}"]
        differing = sorted(
            (row for row in rows if row.why), key=lambda row: -abs(row.analytical_s / row.event_s - 1.0)
        )
        notes += [f"{row.id}: {row.why}" for row in differing[:_MOST_REASONS]]
        if len(differing) > _MOST_REASONS:
            notes.append(f"{len(differing)} of {len(rows)} rows differ by more than {_WORTH_A_REASON:.0%}")
        return Evidence(
            ids=[row.id for row in rows],
            columns={
                "soc": np.array([row.soc for row in rows]),
                "workload": np.array([row.workload for row in rows]),
                "hint": np.array([row.hint for row in rows]),
            },
            measured=event,
            predicted=analytical,
            unit="s",
            dimensions=("workload",),
            notes=notes,
        )


def _rows() -> Iterator[_Row]:
    graphs = {name: load_workload(name) for name in workload_names("gnn")}
    listed = dict.fromkeys(str(stack) for named in stacks().values() for stack in named)
    rewritten = {
        (name, stack): apply(graph, stack)
        for name, graph in graphs.items()
        for stack in listed
        if legal(graph, stack) is None
    }
    for name in soc_names(variants=False):
        soc = load_soc(name)
        if soc.has("npu"):
            for (workload, stack), graph in rewritten.items():
                yield _compare(workload, stack, Scenario(graph, soc).mapped)
                if workload.endswith(_IN_FLIGHT_GRAPH) and stack in _IN_FLIGHT_STACKS:
                    yield _compare_in_flight(workload, stack, Scenario(graph, soc, hint="throughput").mapped)


def _compare(workload: str, stack: str, mapped: Mapped) -> _Row:
    """Compare the latency of one inference."""
    simulated = run_events(mapped)
    analytical_s, event_s = float(mapped.total["latency_s"]), simulated.estimate.latency_s
    differing = abs(analytical_s / event_s - 1.0) > _WORTH_A_REASON
    why = reasons(mapped, simulated.timeline) if differing else ""
    soc = mapped.soc.name
    return _Row(f"{soc}.{workload}.{stack}", soc, workload, mapped.run.hint, analytical_s, event_s, why)


def _compare_in_flight(workload: str, stack: str, mapped: Mapped) -> _Row:
    """Compare the time between two inferences with several in flight."""
    event_s = 1.0 / run_events(mapped).estimate.throughput_per_s
    analytical_s = 1.0 / float(mapped.total["throughput_per_s"])
    soc, hint = mapped.soc.name, mapped.run.hint
    return _Row(f"{soc}.{workload}.{stack}.{hint}", soc, workload, hint, analytical_s, event_s, "")


def reasons(mapped: Mapped, line: Timeline) -> str:
    """Return which operator differs most between the engines, and what its timeline shows."""
    found = path_summary(line, critical_path(line))
    on_path = np.array([found.by_operator.get(name, 0.0) for name in line.operators])
    gap = on_path - mapped.results["latency_s"]
    total_s = line.makespan_s - float(mapped.total["latency_s"])
    worst = int(np.argmax(gap if total_s > 0.0 else -gap))
    name, size_us = line.operators[worst], gap[worst] * 1e6
    closed = mapped.results[worst]
    return (
        f"{name} adds {size_us:+.0f} of {total_s * 1e6:+.0f} us: {on_path[worst] * 1e6:.0f} us "
        "on the critical path, "
        f"{float(closed['latency_s']) * 1e6:.0f} us in closed form; {_mechanism(line, worst, size_us)}"
    )


def _mechanism(line: Timeline, operator: int, size_us: float) -> str:
    """Return what the closed form does not see in an operator."""
    mine = [task for task in critical_path(line) if line.operator[task.row] == operator]
    waited_us = sum(task.waited_s for task in mine) * 1e6
    if size_us > 0.0 and waited_us > 0.5 * size_us:
        return f"DMA's latency stands open for {waited_us:.0f} us because SRAM holds too few pieces ahead"
    if size_us > 0.0:
        return "work and transfers of a piece follow each other where SRAM holds no further piece"
    first = line.span_s(operator)[0]
    others = line.working[(line.operator[line.working] < operator) & (line.operator[line.working] >= 0)]
    if len(others) and float(line.end[others].max()) > first:
        return "it is fetched, or begins, while operators before it still run"
    return "its first and last pieces are part of its DMA time, not on top of it"


ENGINES = _Engines()
"""Latency with one request in flight, time between inferences with several; event and analytical."""
