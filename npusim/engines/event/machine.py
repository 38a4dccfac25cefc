"""Executes a program: units do one task at a time, SRAM is granted in program order, DRAM is shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from npusim.cost import CMX2DDR, DDR2CMX, ArchRow, dma_bytes_per_s, shared_bytes_per_s
from npusim.engines.event import simulation
from npusim.engines.event.program import Program
from npusim.engines.event.simulation import ENGINE, HOST, KINDS, TIMERS, State
from npusim.engines.timeline import EventLog, ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

_ON_FLOWS = (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER, TaskKind.CPU, TaskKind.GPU)


class TransferRates(NamedTuple):
    """Rates of transfers."""

    dram_bytes_per_s: float
    """What DRAM sustains for NPU, CPU and GPU together."""
    levels_bytes_per_s: tuple[float, ...]
    """Bandwidth of each memory level that devices share."""
    level_of: tuple[int, ...]
    """Place of each array device's shared level in `levels_bytes_per_s`; -1: none."""
    speed: tuple[dict[int, tuple[float, bool]], ...]
    """By array device and kind of transfer: how much faster it runs alone, whether it moves over DRAM."""


def transfer_rates(row: ArchRow) -> TransferRates:
    """Return bandwidths of DRAM and shared levels, and how much faster each kind of transfer runs alone.

    The model gives each DMA engine an even share of what all of them move together.

    Notes
    -----
    No data sheet says what DRAM sustains for several devices: it is assumed to be what the greediest of them
    draws alone, the least that is possible.
    """
    arrays = [row[name] for name in row.arrays]
    hosts = (float(row[name]["bytes_per_s"]) for name in row.hosts)
    level_of = tuple(int(arch["shared_level"]) - 1 for arch in arrays)  # counted from 1; 0: none
    levels_bytes_per_s = [0.0] * (1 + max(level_of, default=-1))
    for arch, level in zip(arrays, level_of, strict=True):
        if level >= 0:
            levels_bytes_per_s[level] = shared_bytes_per_s(arch)
    over_dram = True
    speed = tuple(
        {
            int(TaskKind.DMA_IN): (_speedup_alone(arch, DDR2CMX), over_dram),
            int(TaskKind.DMA_OUT): (_speedup_alone(arch, CMX2DDR), over_dram),
            int(TaskKind.TRANSFER): (1.0, not over_dram),
        }
        for arch in arrays
    )
    dram_bytes_per_s = max(float(row.shared["dram_bytes_per_s"]), *hosts, 0.0)
    return TransferRates(dram_bytes_per_s, tuple(levels_bytes_per_s), level_of, speed)


def _speedup_alone(arch: Any, direction: int) -> float:
    """Return the rate of a DMA engine that works alone over its even share of the rate of all engines."""
    engines = float(arch["dma_engines"])
    return dma_bytes_per_s(arch, direction, 1.0) * engines / dma_bytes_per_s(arch, direction, engines)


def simulate(
    program: Program, rates: TransferRates, inferences: int = 1, in_flight: int = 1, until: int | None = None
) -> EventLog:
    """Return the log of a run of a program on its machine; the same for the same input, to the bit.

    An inference works in one context of an NPU at a time, with the MAC grids, DSPs and SRAM of that context.
    It takes a free one when a phase of its work enters the NPU. Contexts of all NPUs are numbered one after
    the other.

    Parameters
    ----------
    inferences, in_flight : int
        Runs of the program, and how many of them go on at once.
    until : int, optional
        Inferences whose end ends the run; None: all.

    Raises
    ------
    InfeasibleError
        Where tensors do not fit into SRAM together; they are named.
    """
    in_flight, until = min(in_flight, inferences), inferences if until is None else until
    state = _begin_of_run(program, rates, inferences, in_flight)
    simulation.execute(state, in_flight, until)
    run = state.run[0]
    if run["ended"] < until:
        raise _stuck(program, state)
    executions = state.executions[: run["begun"] * len(program)]
    requests = state.inferences[: run["begun"]]
    sram, dram = state.sram[: run["sram_changes"]], state.dram[: run["dram_changes"]]
    log = {name: executions[name].copy() for name in ("ready", "start", "end", "cause")}
    return EventLog(
        **log,
        unit=executions["unit"].astype(np.int16),
        slot=requests["slot"].astype(np.int32),
        begun=requests["begun"].copy(),
        ended=requests["ended"].copy(),
        sram_time=sram["time_s"].copy(),
        sram_bytes=sram["value"].copy(),
        sram_peak_bytes=float(run["peak_bytes"]),
        dram_time=dram["time_s"].copy(),
        dram_bytes_per_s=dram["value"].copy(),
    )


def _begin_of_run(program: Program, rates: TransferRates, inferences: int, in_flight: int) -> State:
    """Return the state before the first inference begins."""
    units, names = program.units, array_devices(program.units) or [""]
    counts = [1 + max((u.context for u in units if device_of(u) == name), default=0) for name in names]
    first_context = np.cumsum([0, *counts])
    sram_bytes = np.repeat(program.sram_bytes or (0.0,), counts)
    engines = [i for i, unit in enumerate(units) if unit.group.endswith(".dma")]
    hosts = [i for i, unit in enumerate(units) if "." not in unit.group]
    homes = [names.index(device_of(units[i])) for i in engines]
    flows, memories = len(engines) + len(hosts), 1 + len(rates.levels_bytes_per_s)
    lines = len(names) + len(sram_bytes)
    kinds = program.tasks["kind"]
    waiting = max(1, *(int((kinds == kind).sum()) for kind in (TaskKind.ENTER, TaskKind.RESERVE)))
    releases = np.count_nonzero(program.tasks["end_freed"] > program.tasks["first_freed"])
    grants = np.count_nonzero(kinds == TaskKind.RESERVE)
    moves = np.count_nonzero(np.isin(kinds, _ON_FLOWS))
    speeds = [[speed.get(kind, (1.0, False)) for kind in range(KINDS)] for speed in rates.speed]
    top_speed, on_dram = np.reshape(np.array(speeds), (-1, KINDS, 2)).transpose(2, 0, 1)
    unit_records, places = _units(program, dict(zip(names, counts, strict=True)), in_flight)
    unit_records["kind"][engines], unit_records["kind"][hosts] = ENGINE, HOST
    unit_records["flow"][[*engines, *hosts]] = range(flows)
    state = State(
        run=np.zeros(1, simulation.RUN),
        tasks=program.tasks,
        followers=program.followers,
        freed=program.freed,
        buffers=program.buffers,
        executions=np.zeros(inferences * len(program), simulation.EXECUTION),
        inferences=np.zeros(inferences, simulation.INFERENCE),
        buffer_users=np.tile(program.buffers["users"], (inferences, 1)),
        context_of=np.tile(first_context[:-1], (inferences, 1)),
        ready=np.zeros(in_flight * len(program) + 1, np.int64),
        units=unit_records,
        queue=np.zeros(places, np.int64),
        pending=np.zeros(places, simulation.PENDING),
        timer_s=np.zeros((len(unit_records), TIMERS)),
        contexts=np.zeros(len(sram_bytes), simulation.CONTEXT),
        devices=np.zeros(len(names), simulation.DEVICE),
        lines=np.zeros(lines, simulation.LINE),
        waiting=np.zeros((lines, in_flight * waiting), np.int64),
        top_speed=np.ascontiguousarray(top_speed),
        on_dram=on_dram.astype(np.int64),
        flows=np.zeros(flows, simulation.FLOW),
        bandwidth=np.array([rates.dram_bytes_per_s, *rates.levels_bytes_per_s]),
        bytes_per_s=np.zeros((memories, flows)),
        active=np.zeros(flows, np.int64),
        sram=np.zeros(1 + inferences * (releases + grants), simulation.CHANGE),
        dram=np.zeros(2 + 2 * inferences * moves, simulation.CHANGE),
    )
    for name in ("ready", "start", "end", "cause", "unit"):
        state.executions[name] = -1
    state.executions["waits"] = np.tile(program.tasks["waits"], inferences)
    state.inferences["begun"] = state.inferences["ended"] = -1.0
    state.contexts["capacity_bytes"] = state.contexts["free_bytes"] = sram_bytes
    state.contexts["is_open"] = 1
    state.devices["first_context"], state.devices["end_context"] = first_context[:-1], first_context[1:]
    state.devices["level"] = rates.level_of or -1
    state.devices["engines"] = [homes.count(device) for device in range(len(names))]
    state.flows["unit"], state.flows["device"] = [*engines, *hosts], [*homes, *[-1] * len(hosts)]
    return state


def _units(program: Program, contexts: dict[str, int], in_flight: int) -> tuple[Any, int]:
    """Return the records of units without kind and flow, and the total length of their queues."""
    units, on_unit = program.units, program.tasks["unit"]
    tasks = np.bincount(on_unit[on_unit >= 0], minlength=len(units))
    records, places = np.zeros(len(units) + 1, simulation.UNIT), np.ones(len(units) + 1, np.int64)
    records["stride"][:-1] = _strides(units)
    records["flow"] = records["current"] = -1
    for unit in np.flatnonzero(tasks).tolist():
        stride = records["stride"][unit]
        for context in range(contexts[device_of(units[unit])] if stride else 1):
            places[unit + stride * context] = in_flight * tasks[unit]
    records["first"] = np.cumsum(places) - places
    return records, int(places.sum())


def _stuck(program: Program, state: State) -> InfeasibleError:
    """Return the error about a deadlock: tensors that do not fit in SRAM, and tensors that occupy it."""
    buffers, devices = program.buffers, len(state.devices)
    blocked = np.flatnonzero(state.lines["first"] < state.lines["end"])
    blocked = blocked[blocked >= devices]  # lines of reservations
    if not len(blocked):
        return InfeasibleError("the run came to a halt: tasks wait for each other")
    place = state.lines[blocked[0]]["first"] % state.waiting.shape[1]
    task, number = int(state.waiting[blocked[0], place]) % len(program), int(blocked[0]) - devices
    task_record, context = program.tasks[task], state.contexts[number]
    is_granted = state.executions["end"].reshape(-1, len(program))[:, buffers["owner"]] >= 0.0
    is_here = state.context_of[:, program.tasks["device"][buffers["owner"]]] == number
    _, held = np.nonzero((state.buffer_users > 0) & is_granted & is_here)

    def listed(numbers: Any) -> str:
        named = ((buffers["bytes"][i] / 1024, program.tensors[i]) for i in numbers)
        return ", ".join(f"{tensor!r} ({size:.0f} KiB)" for size, tensor in named)

    largest = sorted(held, key=lambda i: (buffers["bytes"][i], program.tensors[i]), reverse=True)[:5]
    operator, needed = program.operators[task_record["operator"]], np.flatnonzero(buffers["owner"] == task)
    device = array_devices(program.units)[task_record["device"]]
    return InfeasibleError(
        f"deadlock in SRAM: operator {operator!r} needs room for {listed(needed)}, but "
        f"{context['free_bytes'] / 1024:.0f} KiB are free and nothing else will be; "
        f"held: {listed(largest) or 'nothing'}",
        available=context["capacity_bytes"] / 1024,
        unit="KiB",
        levers=[f"give more: --set {device}.sram.per_tile=..."],
    )


def device_of(unit: ExecutionUnit) -> str:
    """Return the name of the array device that a unit is part of; empty for a host."""
    return unit.group.rpartition(".")[0]


def array_devices(units: Sequence[ExecutionUnit]) -> list[str]:
    """Return the names of the array devices, in the order of their units."""
    return [name for name in dict.fromkeys(map(device_of, units)) if name]


def _strides(units: Sequence[ExecutionUnit]) -> list[int]:
    """Return the distance in numbers from each unit to the same unit of the next context; 0: shared."""
    own = Counter(unit.group for unit in units if unit.context == 0)
    repeated = {unit.group for unit in units if unit.context > 0}
    return [own[unit.group] if unit.group in repeated else 0 for unit in units]
