"""Executes a program: units do one task at a time, SRAM is granted in program order, DRAM is shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.cost import CMX2DDR, DDR2CMX, ArchRow, dma_bytes_per_s, shared_bytes_per_s
from npusim.engines.event import simulation
from npusim.engines.event.program import Program
from npusim.engines.event.simulation import COMPUTE, ENGINE, HOST, KINDS, TIMERS, State
from npusim.engines.timeline import EventLog, ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

_ON_FLOWS = [
    int(kind) for kind in (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER, TaskKind.CPU, TaskKind.GPU)
]


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Rates of transfers."""

    dram_bytes_per_s: float
    """What DRAM sustains for NPU, CPU and GPU together."""
    levels_bytes_per_s: tuple[float, ...]
    """Bandwidth of each memory level that devices share."""
    level_of: tuple[int, ...]
    """Shared level of each array device; -1: none."""
    speed: tuple[dict[int, tuple[float, bool]], ...]
    """Speed of one engine alone relative to one of all, and whether it moves over DRAM: by array device, then
    by kind of task."""


def transfer_rates(row: ArchRow) -> TransferRates:
    """Return the rates of a machine.

    Notes
    -----
    No data sheet says what DRAM sustains for several devices: it is assumed to be what the greediest of them
    draws alone, the least that is possible.
    """

    def alone(arch: Any, direction: int) -> float:
        engines = float(arch["dma_engines"])
        return dma_bytes_per_s(arch, direction, 1.0) * engines / dma_bytes_per_s(arch, direction, engines)

    hosts = (float(row[name]["bytes_per_s"]) for name in row.hosts)
    level_of = tuple(int(row[name]["shared_level"]) - 1 for name in row.arrays)
    levels = [0.0] * (1 + max(level_of, default=-1))
    for name, level in zip(row.arrays, level_of, strict=True):
        if level >= 0:
            levels[level] = shared_bytes_per_s(row[name])
    speed = tuple(
        {
            int(TaskKind.DMA_IN): (alone(row[name], DDR2CMX), True),
            int(TaskKind.DMA_OUT): (alone(row[name], CMX2DDR), True),
            int(TaskKind.TRANSFER): (1.0, False),
        }
        for name in row.arrays
    )
    return TransferRates(
        max(float(row.shared["dram_bytes_per_s"]), *hosts, 0.0), tuple(levels), level_of, speed
    )


class Machine:
    """A run of a program: `inferences` times, `in_flight` at once.

    An inference works in one context of an NPU at a time, with the MAC grids, DSPs and SRAM of that context.
    It takes a free one when a phase of its work enters the NPU. Contexts of all NPUs are numbered one after
    the other.
    """

    def __init__(self, program: Program, rates: TransferRates, inferences: int, in_flight: int) -> None:
        self.program, self.inferences, self.in_flight = program, inferences, min(in_flight, inferences)
        units, names = program.units, array_devices(program.units) or [""]
        counts = [1 + max((u.context for u in units if device_of(u) == name), default=0) for name in names]
        first = np.concatenate(([0], np.cumsum(counts)))
        sram_bytes = np.repeat(program.sram_bytes or (0.0,), counts)
        engines = [i for i, unit in enumerate(units) if unit.group.endswith(".dma")]
        hosts = [i for i, unit in enumerate(units) if "." not in unit.group]
        homes = [names.index(device_of(units[i])) for i in engines]
        flow_of = {unit: flow for flow, unit in enumerate((*engines, *hosts))}
        flows = len(flow_of)
        flow_records = _records(simulation.FLOW, flows, unit=list(flow_of))
        flow_records["device"] = [*homes, *(-1 for _ in hosts)]
        unit_records, places = self._units(flow_of, len(engines), dict(zip(names, counts, strict=True)))
        speeds = [[speed.get(kind, (1.0, False)) for kind in range(KINDS)] for speed in rates.speed]
        sram_changes, dram_changes = self._most_changes()
        devices = _records(simulation.DEVICE, len(names), first_context=first[:-1], end_context=first[1:])
        devices["level"] = rates.level_of or -1
        devices["engines"] = np.bincount(np.array(homes, np.int64), minlength=len(names))
        executions = _records(simulation.EXECUTION, inferences * len(program), cause=-1, unit=-1)
        executions["ready_s"] = executions["start_s"] = executions["end_s"] = -1.0
        executions["waits"] = np.tile(program.waits, inferences)
        self._state = State(
            run=_records(simulation.RUN, 1),
            tasks=_tasks(program),
            followers=np.array(program.next_task, np.int64),
            freed=np.array(program.free_buffer, np.int64),
            buffers=_buffers(program),
            sources=np.flatnonzero(np.asarray(program.waits) == 0),
            executions=executions,
            inferences=_records(simulation.INFERENCE, inferences, begun_s=-1.0, ended_s=-1.0),
            buffer_users=np.tile(np.array(program.buffer_users, np.int64), (inferences, 1)),
            context_of=np.tile(first[:-1], (inferences, 1)),
            ready=np.zeros(self.in_flight * len(program) + 1, np.int64),
            units=unit_records,
            queue=np.zeros(places, np.int64),
            pending=_records(simulation.PENDING, places),
            timer_s=np.zeros((len(unit_records), TIMERS)),
            contexts=_contexts(sram_bytes),
            reservations=np.zeros((len(sram_bytes), self._places(TaskKind.RESERVE)), np.int64),
            devices=devices,
            phases=np.zeros((len(names), self._places(TaskKind.ENTER)), np.int64),
            top_speed=np.array([[top for top, _ in speed] for speed in speeds]).reshape(-1, KINDS),
            on_dram=np.array([[on for _, on in speed] for speed in speeds], np.int64).reshape(-1, KINDS),
            flows=flow_records,
            bandwidth=np.array([rates.dram_bytes_per_s, *rates.levels_bytes_per_s]),
            bytes_per_s=np.zeros((1 + len(rates.levels_bytes_per_s), flows)),
            active=np.zeros(flows, np.int64),
            ended_flows=np.zeros(flows, np.int64),
            demands=_records(simulation.DEMAND, flows),
            sram=_records(simulation.CHANGE, sram_changes),
            dram=_records(simulation.CHANGE, dram_changes),
            kept=_records(simulation.REQUEST, 8 * (self.in_flight + len(units))),
        )

    def _most_changes(self) -> tuple[int, int]:
        """Return the most changes of SRAM in use and of DRAM traffic that a run can log."""
        program, kinds = self.program, np.asarray(self.program.kind)
        releases = int(np.count_nonzero(np.diff(program.free_start)))
        grants = int(np.count_nonzero(kinds == TaskKind.RESERVE))
        transfers = int(np.isin(kinds, _ON_FLOWS).sum())
        return 1 + self.inferences * (releases + grants), 2 + 2 * self.inferences * transfers

    def _places(self, kind: TaskKind) -> int:
        """Return the places for tasks of a kind that wait."""
        return self.in_flight * max(1, sum(kind == one for one in self.program.kind))

    def _units(self, flow_of: dict[int, int], engines: int, contexts: dict[str, int]) -> tuple[Any, int]:
        """Return the records of units, with places for all tasks that may wait for each, and those places."""
        units, count = self.program.units, len(self.program.units)
        stride = np.array(_strides(units), np.int64)
        on_unit = np.asarray(self.program.unit, np.int64)
        tasks = np.bincount(on_unit[on_unit >= 0], minlength=count)
        room = np.ones(count + 1, np.int64)
        for unit in np.flatnonzero(tasks).tolist():
            for context in range(contexts[device_of(units[unit])] if stride[unit] else 1):
                room[unit + stride[unit] * context] = self.in_flight * tasks[unit]
        kind = np.full(count + 1, COMPUTE)
        flow = np.full(count + 1, -1)
        for unit, number in flow_of.items():
            kind[unit], flow[unit] = ENGINE if number < engines else HOST, number
        records = _records(
            simulation.UNIT,
            count + 1,
            kind=kind,
            flow=flow,
            stride=np.append(stride, 0),
            current=-1,
            first=np.cumsum(room) - room,
            room=room,
        )
        return records, int(room.sum())

    def run(self, until: int | None = None) -> EventLog:
        """Execute the program until some inferences have ended, or all, and return its log.

        A run that was left is resumed.

        Raises
        ------
        InfeasibleError
            Where tensors do not fit into SRAM together; they are named.
        """
        state, run = self._state, self._state.run[0]
        wanted = self.inferences if until is None else until
        simulation.execute(state, 0 if run["begun"] else self.in_flight, wanted)
        if run["ended"] < wanted:
            raise InfeasibleError(self._stuck())
        executions = state.executions[: run["begun"] * len(self.program)]
        inferences = state.inferences[: run["begun"]]
        sram, dram = state.sram[: run["sram_changes"]], state.dram[: run["dram_changes"]]
        return EventLog(
            ready=executions["ready_s"].copy(),
            start=executions["start_s"].copy(),
            end=executions["end_s"].copy(),
            cause=executions["cause"].copy(),
            unit=executions["unit"].astype(np.int16),
            slot=inferences["slot"].astype(np.int32),
            begun=inferences["begun_s"].copy(),
            ended=inferences["ended_s"].copy(),
            sram_time=sram["time_s"].copy(),
            sram_bytes=sram["value"].copy(),
            sram_peak_bytes=float(run["peak_bytes"]),
            dram_time=dram["time_s"].copy(),
            dram_bytes_per_s=dram["value"].copy(),
        )

    def _stuck(self) -> str:
        """Return a message that names the tensors that do not fit, and what is in their way."""
        program, state = self.program, self._state
        waiting = np.flatnonzero(state.contexts["first_waiting"] < state.contexts["end_waiting"])
        if not len(waiting):
            return "the run came to a halt: tasks wait for each other"
        number = int(waiting[0])
        context, ring = state.contexts[number], state.reservations[number]
        task = int(ring[context["first_waiting"] % len(ring)]) % len(program)
        held = []
        for (inference, buffer), users in np.ndenumerate(state.buffer_users):
            owner = program.buffer_owner[buffer]
            is_held = users and state.executions[inference * len(program) + owner]["end_s"] >= 0.0
            if is_held and state.context_of[inference, program.device[owner]] == number:
                held.append((program.buffer_bytes[buffer], program.buffer_tensor[buffer]))
        held.sort(reverse=True)
        missing = ", ".join(
            f"{tensor!r} ({size / 1024:.0f} KiB)"
            for tensor, size, owner in zip(
                program.buffer_tensor, program.buffer_bytes, program.buffer_owner, strict=True
            )
            if owner == task
        )
        inside = ", ".join(f"{tensor!r} ({size / 1024:.0f} KiB)" for size, tensor in held[:5]) or "nothing"
        free = f"{context['free_bytes'] / 1024:.0f} of {context['capacity_bytes'] / 1024:.0f} KiB"
        device = int(np.searchsorted(state.devices["end_context"], number, "right"))
        return (
            f"deadlock in SRAM: operator {program.operators[program.operator[task]]!r} needs room for "
            f"{missing}, but {free} are free and nothing else will be; held: {inside}; give more: "
            f"--set {array_devices(program.units)[device]}.sram.per_tile=..."
        )


def _records(dtype: Any, count: int, **columns: Any) -> Any:
    """Return an array of records; columns that are not given are 0."""
    records = np.zeros(count, dtype)
    for name, values in columns.items():
        records[name] = values
    return records


def _tasks(program: Program) -> Any:
    """Return the tasks of a program as records."""
    same = ("duration_s", "fixed_s", "bytes", "shared_bytes", "kind", "unit", "device")
    return _records(
        simulation.TASK,
        len(program),
        **{name: getattr(program, name) for name in same},
        first_follower=program.next_start[:-1],
        end_follower=program.next_start[1:],
        first_freed=program.free_start[:-1],
        end_freed=program.free_start[1:],
    )


def _buffers(program: Program) -> Any:
    """Return the buffers of a program as records."""
    columns = {"bytes": program.buffer_bytes, "owner": program.buffer_owner}
    return _records(simulation.BUFFER, len(program.buffer_bytes), **columns)


def _contexts(sram_bytes: Any) -> Any:
    """Return open contexts with some SRAM each as records."""
    columns = {"capacity_bytes": sram_bytes, "free_bytes": sram_bytes, "is_open": 1}
    return _records(simulation.CONTEXT, len(sram_bytes), **columns)


def device_of(unit: ExecutionUnit) -> str:
    """Return the name of the array device that a unit is part of; empty for a host."""
    return unit.group.rpartition(".")[0]


def array_devices(units: Sequence[ExecutionUnit]) -> list[str]:
    """Return the names of the array devices, in the order of their units."""
    return [name for name in dict.fromkeys(map(device_of, units)) if name]


def _strides(units: Sequence[ExecutionUnit]) -> list[int]:
    """Return how much higher the same unit of the next context is numbered than each unit; 0: shared."""
    own = Counter(unit.group for unit in units if unit.context == 0)
    repeated = {unit.group for unit in units if unit.context > 0}
    return [own[unit.group] if unit.group in repeated else 0 for unit in units]


def simulate(program: Program, rates: TransferRates, inferences: int = 1, in_flight: int = 1) -> EventLog:
    """Run a program on its machine.

    Returns
    -------
    EventLog
        When every task was ready, started and ended; the same for the same input, to the bit.

    Raises
    ------
    InfeasibleError
        Where tensors do not fit into SRAM together; they are named.
    """
    return Machine(program, rates, inferences, in_flight).run()
