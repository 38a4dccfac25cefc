"""The event engine: simulates a mapped graph as discrete events; returns an estimate and a time line."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from npusim.cost import throttled_interval_s
from npusim.engines import analytical
from npusim.engines.estimate import CriticalTime, Estimate, OperatorCost, UnitUse
from npusim.engines.event.build import build_program
from npusim.engines.event.machine import transfer_rates
from npusim.engines.event.steady_state import Measured, Run, simulate_folded, simulate_requests
from npusim.engines.operators import grid_utilisation
from npusim.engines.timeline import TaskKind, Timeline, critical_path
from npusim.mapping import Mapped
from npusim.scenario import Scenario

_ON_DRAM = (TaskKind.DMA_IN, TaskKind.DMA_OUT)
_COMPUTING = (TaskKind.DPU, TaskKind.DSP, TaskKind.CPU, TaskKind.GPU)
_OFF_PATH = CriticalTime(work_s=0.0, calls_s=0.0, waits_s=0.0)
_WORK = (TaskKind.TRANSFER, TaskKind.DPU, TaskKind.DSP, TaskKind.CPU, TaskKind.GPU)


def event_estimate(scenario: Scenario, every_tile: bool = False) -> Estimate:
    """Estimate what an inference costs by simulating it.

    Parameters
    ----------
    every_tile : bool
        See `run_events`.

    Raises
    ------
    InfeasibleError
        Where tensors do not fit into SRAM together; they are named.

    Examples
    --------
    >>> estimate = event_estimate(Scenario("gcn-cora"))
    >>> estimate.engine, estimate.timeline.makespan_s == estimate.latency_s
    ('event', True)
    """
    return run_events(scenario.mapped, every_tile)


def run_events(mapped: Mapped, every_tile: bool = False) -> Estimate:
    """Simulate a mapped graph as discrete events; return its estimate, with the time line attached.

    Parameters
    ----------
    every_tile : bool
        Whether to simulate every turn of a loop and every inference. Default: until their period is known;
        the rest is extrapolated (`npusim.engines.event.steady_state`), which moves figures by less than
        0.1 %.

    Notes
    -----
    With R > 1 requests in flight, R inferences fill the machine, at least 3 R more are measured, and R keep
    it full meanwhile. Throughput is the number of measured inferences over the time from the end of the first
    R to the end of the last measured one. Busy times and energy are means over the measured inferences.
    """
    requests, rates = mapped.run.requests, transfer_rates(mapped.arch)
    if every_tile:
        run = simulate_requests(build_program(mapped), rates, requests, mapped.contexts, fold=False)
    else:
        run = simulate_folded(partial(build_program, mapped), rates, requests, mapped.contexts)
    line = build_timeline(mapped, run)
    estimate = _estimate(mapped, line, run.measured)
    vars(estimate)["timeline"] = line
    return estimate


def build_timeline(mapped: Mapped, run: Run) -> Timeline:
    """Return the time line of a run."""
    program, log, repeats, measured = run
    graph, tasks, inferences = mapped.graph, program.tasks, len(log.ended)
    energy_j = np.array([_energy_of_tasks(mapped, tasks, of_one) for of_one in repeats])
    sizes = tasks["bytes"] * np.where(tasks["kind"] == TaskKind.RESERVE, 1.0, repeats)
    per_task: dict[str, Any] = {
        "bytes": sizes,
        "macs": tasks["macs"] * repeats,
        "repeats": repeats,
        "energy_j": energy_j,
    }
    per_task |= {"kind": tasks["kind"].astype("i1"), "operator": tasks["operator"].astype("i4")}
    shape = (inferences, len(program))
    per_task = {name: np.broadcast_to(values, shape).flatten() for name, values in per_task.items()}
    return Timeline(
        **vars(log),
        **per_task,
        workload=graph.name,
        soc=mapped.soc.name,
        techniques=graph.techniques,
        units=tuple(program.units),
        operators=tuple(program.operators),
        types=tuple(graph.operators[name].type for name in program.operators),
        parts=tuple(graph.operators[name].part for name in program.operators),
        inference=np.repeat(np.arange(inferences, dtype="i4"), len(program)),
        idle_w=float(mapped.arch.shared["idle_w"]),
        static_w={name: float(mapped.arch[name]["static_w"]) for name in mapped.arch.arrays},
        followers=(np.append(0, tasks["end_follower"]), program.followers),
        dram_limit_bytes_per_s=transfer_rates(mapped.arch).dram_bytes_per_s,
        sram_capacity=sum(
            size * float(mapped.arch[name]["contexts"])
            for name, size in zip(mapped.arch.arrays, program.sram_bytes, strict=True)
        ),
        left_out=measured.left_out,
    )


def _energy_of_tasks(mapped: Mapped, tasks: Any, repeats: Any) -> Any:
    """Return the energy of each task (J): transfers by their DRAM bytes, other work by its time."""
    groups, arch, operator = mapped.decisions.groups, mapped.arch, tasks["operator"]
    per_byte = {
        name: float(arch[name]["dram_j_per_byte"] + arch[name]["sram_j_per_byte"]) for name in arch.arrays
    }
    j_per_byte = np.array([per_byte.get(group.device, 0.0) for group in groups])
    moves, works = np.isin(tasks["kind"], _ON_DRAM), np.isin(tasks["kind"], _WORK)
    energy_j = np.zeros(len(tasks))
    energy_j[moves] = (tasks["bytes"] * repeats)[moves] * j_per_byte[operator[moves]]
    rest_j = mapped.results["energy_j"] - np.bincount(operator[moves], energy_j[moves], len(groups))
    weight = (tasks["duration_s"] * repeats + 1e-18)[works]
    total = np.bincount(operator[works], weight, len(groups))
    energy_j[works] = rest_j[operator[works]] * weight / total[operator[works]]
    return energy_j


def _estimate(mapped: Mapped, line: Timeline, measured: Measured) -> Estimate:
    """Return the analytical estimate with the figures of the simulated run in place of its own."""
    base = analytical.mapped_estimate(mapped)
    totals = _times_and_energies(mapped, line, base, measured)
    interval_s, units = 1.0 / totals["throughput_per_s"], {}
    for name, all_s in line.group_busy_s(measured.numbers).items():
        busy_s = all_s / len(measured.numbers)
        share = busy_s / (interval_s * analytical.contexts_with(mapped, name)) if busy_s else 0.0
        units[name] = UnitUse(busy_s=busy_s, utilisation=share)
    for name, busy_s in analytical.levels_busy_s(mapped).items():
        units[name] = UnitUse(busy_s=busy_s, utilisation=busy_s / interval_s)
    critical: dict[str, CriticalTime] | None = None
    if mapped.run.requests == 1:
        critical = _critical_times(line)
    operators = [
        _operator_from_timeline(line, i, op, measured.shown, critical) for i, op in enumerate(base.operators)
    ]
    changes = {
        "engine": "event",
        **totals,
        "grid_utilisation": grid_utilisation(mapped, interval_s),
        "folded_tasks": line.folded,
        "sram_peak_bytes": line.sram_peak_bytes,
        "units": units,
        "operators": operators,
        "parts": analytical.part_costs(mapped, operators),
        "language": analytical.language_figures(mapped, totals["latency_s"], totals["energy_j"]),
    }
    return base.model_copy(update=changes)


def _times_and_energies(mapped: Mapped, line: Timeline, base: Estimate, measured: Measured) -> dict[str, Any]:
    """Return the estimate's times, energies and power per inference, as measured in the simulated run.

    Static power counts while an NPU works, idle power all the time. A package power limit stretches the run
    by pauses at idle power.
    """
    latency_s, interval_s = measured.latency_s, measured.interval_s
    static_j = 0.0
    for name, phases in line.npu_phases.items():
        begin_s, end_s = (np.clip(times, measured.begin_s, measured.end_s) for times in phases)
        static_j += line.static_w[name] * float((end_s - begin_s).sum()) / len(measured.numbers)
    work_j = float(mapped.results["energy_j"].sum()) + static_j
    limit_w = float(mapped.arch.shared["limit_w"])
    throttled_s = float(throttled_interval_s(interval_s, work_j, line.idle_w, limit_w))
    if throttled_s > interval_s:
        latency_s *= throttled_s / interval_s
    idle_j = line.idle_w * throttled_s
    energy_j = work_j + idle_j
    return {
        "latency_s": latency_s,
        "throughput_per_s": 1.0 / throttled_s if throttled_s > 0.0 else np.inf,
        "energy": base.energy.model_copy(update={"static_j": static_j, "idle_j": idle_j}),
        "energy_j": energy_j,
        "power_w": energy_j / throttled_s if throttled_s > 0.0 else 0.0,
        "edp_js": energy_j * latency_s,
        "ops_per_j": 2.0 * base.macs / energy_j if energy_j > 0.0 else 0.0,
    }


def _operator_from_timeline(
    line: Timeline, index: int, op: OperatorCost, inference: int, critical: dict[str, CriticalTime] | None
) -> OperatorCost:
    """Return an operator's cost with times of one inference; `critical` are critical times by operator."""
    begin, end = line.span_s(index, inference)
    rows = line.rows_of(index, inference)
    lengths_s, is_call = line.end[rows] - line.start[rows], line.kind[rows] == TaskKind.LAUNCH
    by_unit = np.bincount(line.unit[rows], np.where(is_call, 0.0, lengths_s), len(line.units))
    busiest, busy_s = int(np.argmax(by_unit)), float(by_unit.max())
    on_path = None if critical is None else critical.get(op.name, _OFF_PATH)
    on_path_s = None if on_path is None else on_path.work_s + on_path.calls_s + on_path.waits_s
    spent_s = busy_s + lengths_s[is_call].max(initial=0.0) if on_path_s is None else on_path_s
    bound: str = op.bound
    if spent_s > 2.0 * busy_s:
        bound = "launch"
    elif busy_s:
        part = line.units[busiest].group.rpartition(".")[2]
        bound = part if part in ("dma", "dsp") else "compute"
        if part == "dma" and op.bound == "level":  # DMA transfers at the level's rate
            bound = "level"
    times = {"latency_s": end - begin, "busy_s": busy_s, "critical_s": on_path_s, "span_s": end - begin}
    return op.model_copy(update={**times, "critical": on_path, "bound": bound})


def _critical_times(line: Timeline) -> dict[str, CriticalTime]:
    """Return the time of each operator on the critical path by cause, by name."""
    causes: dict[str, dict[str, float]] = {}
    for task in critical_path(line):
        kind = int(line.kind[task.row])
        cause = "calls_s" if kind == TaskKind.LAUNCH else "work_s" if kind in _COMPUTING else "waits_s"
        times = causes.setdefault(line.operator_of(task.row), dict.fromkeys(CriticalTime.model_fields, 0.0))
        times[cause] += task.worked_s
        times["waits_s"] += task.waited_s
    return {name: CriticalTime(**times) for name, times in causes.items()}
