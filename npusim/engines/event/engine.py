"""The event engine: executes a mapped graph as discrete events; returns an estimate and a time line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from npusim.cost import throttled_interval_s
from npusim.engines.analytical import contexts_with, mapped_estimate
from npusim.engines.estimate import Estimate, OperatorCost, UnitUse
from npusim.engines.event.build import build_program
from npusim.engines.event.folding import simulate_folded
from npusim.engines.event.machine import simulate, transfer_rates
from npusim.engines.event.program import EventLog, Program, refuse_many
from npusim.engines.event.requests import Measured, simulate_requests, single
from npusim.engines.operators import grid_utilisation
from npusim.engines.parts import language_figures, part_costs
from npusim.engines.timeline import TaskKind, Timeline, critical_path, path_summary
from npusim.mapping import Mapped
from npusim.scenario import Scenario

_ON_DRAM = [int(TaskKind.DMA_IN), int(TaskKind.DMA_OUT)]
_WORK = [
    int(kind)
    for kind in (TaskKind.TRANSFER, TaskKind.DPU, TaskKind.DSP, TaskKind.CPU, TaskKind.GPU)
]  # fmt: skip
_BOUND_BY = {"dma": "dma", "dsp": "dsp"}
"""What an operator waits for, by the part of a device that is busiest with it; of others it is compute."""


@dataclass(frozen=True, slots=True)
class EventRun:
    """What the event engine returns."""

    estimate: Estimate
    timeline: Timeline


def estimate_with_timeline(scenario: Scenario, every_tile: bool = False) -> EventRun:
    """Estimate what an inference costs by acting it out.

    Parameters
    ----------
    every_tile : bool
        As for `run_events`.

    Raises
    ------
    InfeasibleError
        Where tensors do not fit into SRAM together; they are named.

    Examples
    --------
    >>> run = estimate_with_timeline(Scenario("gcn-cora"))
    >>> run.estimate.engine, run.timeline.makespan_s == run.estimate.latency_s
    ('event', True)
    """
    return run_events(scenario.mapped, every_tile)


def event_estimate(scenario: Scenario, every_tile: bool = False) -> Estimate:
    """Return the estimate of `estimate_with_timeline` alone."""
    return estimate_with_timeline(scenario, every_tile).estimate


def run_events(mapped: Mapped, every_tile: bool = False) -> EventRun:
    """Execute a mapped graph as discrete events.

    Parameters
    ----------
    every_tile : bool
        Whether to act out all that repeats: of one request each of a loop's equal steps
        (`npusim.engines.event.folding`), of several in flight each inference
        (`npusim.engines.event.requests`). Else the period that they come to is repeated: figures differ by
        less than 0.1 %.

    Notes
    -----
    With R > 1 requests in flight, R inferences fill the machine, at least R more are measured, and R keep it
    full meanwhile. Throughput is the number measured over the time between the end of the first R and the
    end of those; busy times and energy are means of the same.
    """
    requests, rates = mapped.run.requests, transfer_rates(mapped.arch)
    times = None
    if requests > 1:
        program = build_program(mapped)
        log, measured = simulate_requests(program, rates, requests, mapped.contexts, not every_tile)
    elif every_tile:
        program = build_program(mapped)
        refuse_many(len(program), 1)
        log = simulate(program, rates)
        measured = single(log)
    else:
        program, log, times = simulate_folded(partial(build_program, mapped), rates)
        measured = single(log)
    line = _timeline(mapped, program, log, np.ones(len(program)) if times is None else times)
    line = replace(line, left_out=measured.left_out)
    return EventRun(_estimate(mapped, line, measured), line)


def _timeline(mapped: Mapped, program: Program, log: EventLog, times: Any) -> Timeline:
    graph, each, inferences = mapped.graph, len(program), len(log.ended)

    def column(values: Any, dtype: str) -> Any:
        return np.asarray(values, dtype)

    kind, operator = column(program.kind, "i1"), column(program.operator, "i4")
    sizes = column(program.bytes, "f8") * np.where(kind == TaskKind.RESERVE, 1.0, times)
    energy = _energy(mapped, kind, operator, column(program.duration_s, "f8") * times, sizes)
    return Timeline(
        workload=graph.name,
        soc=mapped.soc.name,
        techniques=graph.techniques,
        units=tuple(program.units),
        operators=tuple(program.operators),
        types=tuple(graph.operators[name].type for name in program.operators),
        parts=tuple(graph.operators[name].part for name in program.operators),
        kind=np.tile(kind, inferences),
        unit=column(log.unit, "i2"),
        operator=np.tile(operator, inferences),
        inference=np.repeat(np.arange(inferences, dtype="i4"), each),
        ready=column(log.ready, "f8"),
        start=column(log.start, "f8"),
        end=column(log.end, "f8"),
        cause=column(log.cause, "i8"),
        bytes=np.tile(sizes, inferences),
        macs=np.tile(column(program.macs, "f8") * times, inferences),
        times=np.tile(times, inferences),
        energy_j=np.tile(energy, inferences),
        idle_w=float(mapped.arch.shared["idle_w"]),
        static_w={name: float(mapped.arch[name]["static_w"]) for name in mapped.arch.arrays},
        followers=(column(program.next_start, "i8"), column(program.next_task, "i4")),
        slot=column(log.slot, "i4"),
        begun=column(log.begun, "f8"),
        ended=column(log.ended, "f8"),
        sram_time=column(log.sram_time, "f8"),
        sram_bytes=column(log.sram_bytes, "f8"),
        dram_time=column(log.dram_time, "f8"),
        dram_bytes_per_s=column(log.dram_bytes_per_s, "f8"),
        dram_limit_bytes_per_s=transfer_rates(mapped.arch).dram_bytes_per_s,
        sram_capacity=sum(
            size * float(mapped.arch[name]["contexts"])
            for name, size in zip(mapped.arch.arrays, program.sram_bytes, strict=True)
        ),
        sram_peak_bytes=log.sram_peak_bytes,
    )


def _energy(mapped: Mapped, kind: Any, operator: Any, duration: Any, sizes: Any) -> Any:
    """Spread the energy of each operator's work over its tasks: per byte of DRAM, the rest by their times."""
    energy = np.zeros(len(kind))
    arrays = {name: mapped.arch[name] for name in mapped.arch.arrays}
    per_byte = {d: float(arch["dram_j_per_byte"] + arch["sram_j_per_byte"]) for d, arch in arrays.items()}
    each = np.array([per_byte.get(group.device, 0.0) for group in mapped.decisions.groups])
    moves = np.isin(kind, _ON_DRAM)
    energy[moves] = sizes[moves] * each[operator[moves]]
    works = np.isin(kind, _WORK)
    count = len(mapped.decisions.groups)
    left = mapped.results["energy_j"] - np.bincount(operator[moves], energy[moves], count)
    weight = np.where(works, duration + 1e-18, 0.0)
    total = np.bincount(operator[works], weight[works], count)
    energy[works] = left[operator[works]] * weight[works] / total[operator[works]]
    return energy


def _estimate(mapped: Mapped, line: Timeline, measured: Measured) -> Estimate:
    """Return the analytical estimate's document with what the run shows in its place."""
    base = mapped_estimate(mapped)
    timed = _times_and_energies(mapped, line, base, measured)
    interval_s = 1.0 / timed["throughput_per_s"]
    count = len(measured.numbers)
    busy = {name: value / count for name, value in line.group_busy_s(measured.numbers).items()}
    operators = _operators(line, base.operators, measured.shown, mapped.run.requests)
    changes = {
        "engine": "event",
        **timed,
        "grid_utilisation": grid_utilisation(mapped, interval_s),
        "folded_tasks": line.folded,
        "sram_peak_bytes": line.sram_peak_bytes,
        "units": {
            name: UnitUse(
                busy_s=value,
                utilisation=value / (interval_s * contexts_with(mapped, name)) if value else 0.0,
            )
            for name, value in busy.items()
        },
        "operators": operators,
        "parts": part_costs(mapped, operators),
    }
    changes["language"] = language_figures(mapped, float(changes["latency_s"]), float(changes["energy_j"]))
    return base.model_copy(update=changes)


def _times_and_energies(mapped: Mapped, line: Timeline, base: Estimate, measured: Measured) -> dict[str, Any]:
    """Return the figures of time, energy and power: static and idle power count as long as the run took.

    A limit of the package stretches the run: by pauses in which nothing but idle power is drawn.
    """
    latency_s, interval_s = measured.latency_s, measured.interval_s
    span_s = measured.begin_s, measured.end_s
    phases_s = {
        name: float((np.clip(end, *span_s) - np.clip(begin, *span_s)).sum())
        for name, (begin, end) in line.npu_phases.items()
    }
    count = len(measured.numbers)
    static_j = sum(line.static_w[name] * busy_s / count for name, busy_s in phases_s.items())
    work_j = float(mapped.results["energy_j"].sum()) + static_j
    throttled_s = float(
        throttled_interval_s(interval_s, work_j, line.idle_w, float(mapped.arch.shared["limit_w"]))
    )
    if throttled_s > interval_s:
        latency_s *= throttled_s / interval_s
    energy_j = work_j + line.idle_w * throttled_s
    changed = {"static_j": static_j, "idle_j": line.idle_w * throttled_s}
    return {
        "latency_s": latency_s,
        "throughput_per_s": 1.0 / throttled_s if throttled_s > 0.0 else np.inf,
        "energy": base.energy.model_copy(update=changed),
        "energy_j": energy_j,
        "power_w": energy_j / throttled_s if throttled_s > 0.0 else 0.0,
        "edp_js": energy_j * latency_s,
        "ops_per_j": 2.0 * base.macs / energy_j if energy_j > 0.0 else 0.0,
    }


def _bound_by(unit: str) -> str:
    return _BOUND_BY.get(unit.rpartition(".")[2], "compute")


def _operators(
    line: Timeline, costs: Sequence[OperatorCost], inference: int, requests: int
) -> list[OperatorCost]:
    """Return what the run shows of each operator; its part of the critical path of a single request."""
    if requests == 1:
        on_path = path_summary(line, critical_path(line)).by_operator
        return [_operator(line, i, op, inference, on_path.get(op.name, 0.0)) for i, op in enumerate(costs)]
    return [_operator(line, i, op, inference, None) for i, op in enumerate(costs)]


def _operator(
    line: Timeline, index: int, op: OperatorCost, inference: int, critical_s: float | None
) -> OperatorCost:
    begin, end = line.span_s(index, inference)
    rows = line.rows_of(index, inference)
    lengths_s, called = line.end[rows] - line.start[rows], line.kind[rows] == TaskKind.LAUNCH
    by_unit = np.bincount(line.unit[rows], np.where(called, 0.0, lengths_s), len(line.units))
    busiest = int(np.argmax(by_unit))
    busy_s = float(by_unit[busiest])
    bound = _bound_by(line.units[busiest].group) if busy_s else op.bound
    took_s = busy_s + lengths_s[called].max(initial=0.0) if critical_s is None else critical_s
    if took_s > 2.0 * busy_s:
        bound = "launch"
    update = {"latency_s": end - begin, "busy_s": busy_s, "critical_s": critical_s, "span_s": end - begin}
    return op.model_copy(update={**update, "bound": bound})
