"""Executes a program: units do one task at a time, SRAM is granted in program order, DRAM is shared."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from npusim.engines.event.memory import TransferRates
from npusim.engines.event.places import COMPUTE, ENGINE, HOST, KINDS, TIMERS, Places
from npusim.engines.event.program import EventLog, Program
from npusim.engines.event.simulation import execute
from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

_ON_FLOWS = [int(kind) for kind in (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER)]


class Machine:
    """A run of a program: `inferences` times, `in_flight` at once.

    An inference works in one context of an NPU at a time, with the MAC grids, DSPs and SRAM of that context.
    It takes a free one when a phase of its work enters the NPU. Contexts of all NPUs are numbered one after
    the other.
    """

    def __init__(self, program: Program, rates: TransferRates, inferences: int, in_flight: int) -> None:
        self.program, self.inferences, self.in_flight = program, inferences, min(in_flight, inferences)
        devices = array_devices(program.units) or [""]
        counts = [
            1 + max((u.context for u in program.units if device_of(u) == d), default=0) for d in devices
        ]
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        """Where the contexts of each array device begin."""
        self._capacity = np.repeat(program.sram_bytes or (0.0,), counts)
        """SRAM of each context."""
        self.contexts, self._devices = int(sum(counts)), len(devices)
        self._reals, self._wholes = _Columns(np.float64), _Columns(np.int64)
        names = [unit.group for unit in program.units]
        engines = [i for i, name in enumerate(names) if name.endswith(".dma")]
        homes = [devices.index(device_of(program.units[i])) for i in engines]
        hosts = [i for i, name in enumerate(names) if "." not in name]
        sources = [i for i, waits in enumerate(program.waits) if waits == 0]
        kinds = np.array(program.kind, np.int64)
        found = {
            "tasks": len(program),
            "inferences": inferences,
            "room": 8 * (self.in_flight + len(names)),
            "contexts": self.contexts,
            "devices": self._devices,
            "units": len(names),
            "engines": len(engines),
            "flows": len(engines) + len(hosts),
            "levels": len(rates.levels_bytes_per_s),
            "buffers": len(program.buffer_bytes),
            "sources": len(sources),
            "reserves": max(1, self.in_flight * int(np.count_nonzero(kinds == TaskKind.RESERVE))),
            "enters": max(1, self.in_flight * int(np.count_nonzero(kinds == TaskKind.ENTER))),
        }
        flows = {unit: flow for flow, unit in enumerate((*engines, *hosts))}
        found |= self._tasks(sources, rates, found["room"])
        found |= self._units(flows, homes)
        found["near"] = self._reals.add(size=len(flows) * len(rates.levels_bytes_per_s))
        found |= self._log()
        self.at = Places(**found)
        self.real, self.whole = self._reals.joined(), self._wholes.joined()

    def _tasks(self, sources: list[int], rates: TransferRates, room: int) -> dict[str, int]:
        """Lay out what the program says."""
        program, times = self.program, self.inferences
        real, whole = self._reals.add, self._wholes.add
        speeds = [one.get(kind, (1.0, False)) for one in rates.speed for kind in range(KINDS)]
        stack = self.in_flight * len(program) + 1
        return {
            "now": real([0.0]), "since": real([0.0]), "peak": real([0.0]),
            "capacity": real(self._capacity), "dram": real([rates.dram_bytes_per_s]),
            "level_bytes_per_s": real(rates.levels_bytes_per_s), "level_of": whole(rates.level_of),
            "duration_s": real(program.duration_s), "fixed_s": real(program.fixed_s),
            "bytes": real(program.bytes), "shared_bytes": real(program.shared_bytes),
            "buffer_bytes": real(program.buffer_bytes),
            "top_speed": real([top for top, _ in speeds]),
            "on_dram": whole([on_dram for _, on_dram in speeds]),
            "kept_s": real(size=room), "kept": whole(size=1 + 3 * room),
            "actions": whole([0]), "begun": whole([0]), "ended": whole([0]), "hosts_active": whole([0]),
            "stacked": whole(size=stack), "kind": whole(program.kind), "unit": whole(program.unit),
            "device": whole(program.device),
            "next_start": whole(program.next_start), "next_task": whole(program.next_task),
            "free_start": whole(program.free_start), "free_buffer": whole(program.free_buffer),
            "source": whole(sources), "waits": whole(np.tile(program.waits, times)),
            "users": whole(np.tile(program.buffer_users, times)),
            "context": whole(np.tile(self._starts[:-1], times)),
            "buffer_owner": whole(program.buffer_owner), "freed": real(size=self.contexts),
        }  # fmt: skip

    def _units(self, flows: dict[int, int], homes: list[int]) -> dict[str, int]:
        """Lay out the state of contexts, units and flows."""
        program, contexts = self.program, self.contexts
        real, whole = self._reals.add, self._wholes.add
        count, stride = len(program.units), np.array(_strides(program.units), np.int64)
        on_unit = np.array(program.unit, np.int64)
        tasks = np.bincount(on_unit[on_unit >= 0], minlength=count)
        room = np.zeros(count, np.int64)
        names = array_devices(program.units)
        for unit in np.flatnonzero(tasks).tolist():
            copies = 1
            if stride[unit]:
                copies = int(np.diff(self._starts)[names.index(device_of(program.units[unit]))])
            for context in range(copies):
                room[unit + stride[unit] * context] = self.in_flight * tasks[unit]
        start = np.concatenate(([0], np.cumsum(np.maximum(room, 1))))
        reserves, enters = (
            self.in_flight * max(1, sum(kind == one for kind in program.kind))
            for one in (TaskKind.RESERVE, TaskKind.ENTER)
        )
        kinds = [
            COMPUTE if i not in flows else ENGINE if flows[i] < len(homes) else HOST for i in range(count)
        ]
        return {
            "free_bytes": real(self._capacity), "sram_since_s": real(size=contexts),
            "sram_before": real(size=contexts), "is_open": whole([1] * contexts),
            "is_seen": whole(size=contexts), "stride": whole(stride), "unit_kind": whole(kinds),
            "flow": whole([flows.get(i, -1) for i in range(count)]), "unit_of": whole(list(flows)),
            "left_s": real(size=len(flows)), "speed": real(size=len(flows)), "top": real(size=len(flows)),
            "rate": real(size=len(flows)), "asked": real(size=2 * len(flows)),
            "active": whole(size=len(flows) + 1), "ended_flows": whole(size=len(flows)),
            "current": whole([-1] * count), "woken": whole(size=count), "heap_start": whole(start),
            "heap_size": whole(size=count), "heap": whole(size=int(start[-1])),
            "pending_first": whole(size=count), "pending_end": whole(size=count),
            "pending": whole(size=int(start[-1])), "pending_s": real(size=int(start[-1])),
            "timers": whole(size=count + 1), "timer_s": real(size=(count + 1) * TIMERS),
            "reserved": whole(size=contexts * (reserves + 2)),
            "entering": whole(size=self._devices * (enters + 2)),
            "first_context": whole(self._starts), "home": whole(homes),
            "own_engines": whole(np.bincount(np.array(homes, np.int64), minlength=self._devices)),
            "moving": whole(size=self._devices), "moves": whole(size=len(flows)),
        }  # fmt: skip

    def _log(self) -> dict[str, int]:
        """Lay out what is written down."""
        program, times = self.program, self.inferences
        real, whole = self._reals.add, self._wholes.add
        total = times * len(program)
        kinds = np.array(program.kind, np.int64)
        moves = 2 + 2 * times * int(np.isin(kinds, [*_ON_FLOWS, TaskKind.CPU, TaskKind.GPU]).sum())
        frees = int(np.count_nonzero(np.diff(program.free_start)))
        changes = 1 + times * (frees + int(np.count_nonzero(kinds == TaskKind.RESERVE)))
        return {
            "ready_s": real([-1.0] * total), "start_s": real([-1.0] * total), "end_s": real([-1.0] * total),
            "begun_s": real([-1.0] * times), "ended_s": real([-1.0] * times),
            "sram_time": real(size=changes), "sram_bytes": real(size=changes),
            "dram_time": real(size=moves), "dram_bytes_per_s": real(size=moves),
            "sram_entries": whole([0]), "dram_entries": whole([0]), "cause": whole([-1] * total),
            "log_unit": whole([-1] * total), "slot": whole(size=times),
        }  # fmt: skip

    def run(self, until: int | None = None) -> EventLog:
        """Execute the program until so many inferences have ended, or all, and return its log.

        A run that was left is taken up again.

        Raises
        ------
        InfeasibleError
            Where tensors do not fit into SRAM together; they are named.
        """
        at, whole = self.at, self.whole
        wanted = self.inferences if until is None else until
        execute(self.real, whole, at, 0 if whole[at.begun] else self.in_flight, wanted)
        if whole[at.ended] < wanted:
            raise InfeasibleError(self._stuck())
        inferences = int(whole[at.begun])
        total = inferences * at.tasks
        return EventLog(
            self._times(at.ready_s, total), self._times(at.start_s, total), self._times(at.end_s, total),
            array("q", whole[at.cause : at.cause + total].tobytes()),
            array("h", whole[at.log_unit : at.log_unit + total].astype(np.int16).tobytes()),
            array("i", whole[at.slot : at.slot + inferences].astype(np.int32).tobytes()),
            self._times(at.begun_s, inferences), self._times(at.ended_s, inferences),
            self._times(at.sram_time, whole[at.sram_entries]),
            self._times(at.sram_bytes, whole[at.sram_entries]),
            float(self.real[at.peak]),
            self._times(at.dram_time, whole[at.dram_entries]),
            self._times(at.dram_bytes_per_s, whole[at.dram_entries]),
        )  # fmt: skip

    def _times(self, first: int, count: int) -> array[float]:
        return array("d", self.real[first : first + count].tobytes())

    def _stuck(self) -> str:
        """Say which tensors do not fit, and what is in their way."""
        program, at, real, whole = self.program, self.at, self.real, self.whole
        rings = [at.reserved + context * (at.reserves + 2) for context in range(self.contexts)]
        context = next((c for c, ring in enumerate(rings) if whole[ring] < whole[ring + 1]), -1)
        if context < 0:
            return "the run came to a halt: tasks wait for each other"
        ring = rings[context]
        local = int(whole[ring + 2 + whole[ring] % at.reserves]) % at.tasks
        wanted = [i for i, owner in enumerate(program.buffer_owner) if owner == local]
        held = []
        for i in range(at.buffers * self.inferences):
            inference, buffer = divmod(i, at.buffers)
            owner = inference * at.tasks + program.buffer_owner[buffer]
            is_taken = whole[at.users + i] and real[at.end_s + owner] >= 0.0
            device = program.device[program.buffer_owner[buffer]]
            if is_taken and whole[at.context + inference * at.devices + device] == context:
                held.append((program.buffer_bytes[buffer], program.buffer_tensor[buffer]))
        held.sort(reverse=True)
        name = program.operators[program.operator[local]]
        missing = ", ".join(
            f"{program.buffer_tensor[b]!r} ({program.buffer_bytes[b] / 1024:.0f} KiB)" for b in wanted
        )
        inside = ", ".join(f"{tensor!r} ({size / 1024:.0f} KiB)" for size, tensor in held[:5]) or "nothing"
        free = f"{real[at.free_bytes + context] / 1024:.0f} of {self._capacity[context] / 1024:.0f} KiB"
        chip = array_devices(program.units)[int(np.searchsorted(self._starts, context, "right")) - 1]
        return (
            f"deadlock in SRAM: operator {name!r} needs room for {missing}, but {free} are free and nothing "
            f"else will be; held: {inside}; give more: --set {chip}.sram.per_tile=..."
        )


class _Columns:
    """Columns of one type, joined to one array."""

    def __init__(self, dtype: Any) -> None:
        self._dtype, self._parts, self._size = dtype, list[Any](), 0

    def add(self, values: Any = None, size: int = 0) -> int:
        """Add a column, of zeros where only its size is given, and return where it begins."""
        part = np.zeros(size, self._dtype) if values is None else np.asarray(values, self._dtype)
        self._parts.append(part)
        self._size += len(part)
        return self._size - len(part)

    def joined(self) -> Any:
        """Return the array."""
        return np.concatenate(self._parts)


def device_of(unit: ExecutionUnit) -> str:
    """Return the name of the array device that a unit is part of; empty for a host."""
    return unit.group.rpartition(".")[0]


def array_devices(units: Sequence[ExecutionUnit]) -> list[str]:
    """Return the names of the array devices, in the order of their units."""
    return [name for name in dict.fromkeys(map(device_of, units)) if name]


def _strides(units: Sequence[ExecutionUnit]) -> list[int]:
    """Return for each unit how much higher the number of the same unit of the next context is; 0: shared."""
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
