"""Program of the event engine (tasks, dependencies, SRAM buffers) and log of what happened.

Columns are typed arrays, not objects: a million tasks take some 60 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

PERIODS = (1, 2, 3, 4, 6, 8, 12, 24)
"""Turns after which a loop may do the same again: divisors of the last."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of equal turns of which some are written; the last of `PERIODS` divides what is left out."""

    turns: int
    """All turns."""
    level: int
    """Loops inside it, one in the other, of which turns are left out as well."""
    starts: list[int]
    """The first step (later: task) of each turn that is written, and the end of the last."""


@dataclass(slots=True)
class Program:
    """The tasks of one inference, in program order; read-only once built."""

    units: list[ExecutionUnit]
    """Units by number. A task has that of the first context, or one that all contexts share; a task of SYNC,
    RESERVE, ENTER, LEAVE or LAUNCH has -1."""
    operators: list[str]
    """Operator names by number."""
    sram_bytes: tuple[float, ...]
    """Of each array device the capacity of the tiles that an inference uses: those of one context."""
    kind: array[int] = field(default_factory=lambda: array("b"))
    unit: array[int] = field(default_factory=lambda: array("h"))
    operator: array[int] = field(default_factory=lambda: array("i"))
    """Number of the operator; -1 for what belongs to none."""
    device: array[int] = field(default_factory=lambda: array("b"))
    """Number of the array device that an inference is on, or was on last, while a task is written."""
    duration_s: array[float] = field(default_factory=lambda: array("d"))
    """Time alone on its unit; of DMA: with all engines at work."""
    fixed_s: array[float] = field(default_factory=lambda: array("d"))
    """DMA: latency, over while others still move. CPU and GPU: the part that moves nothing."""
    bytes: array[float] = field(default_factory=lambda: array("d"))
    """DRAM bytes moved; bytes reserved by RESERVE; SRAM bytes moved by TRANSFER."""
    shared_bytes: array[float] = field(default_factory=lambda: array("d"))
    """Of DMA: bytes of the memory level that devices share."""
    macs: array[float] = field(default_factory=lambda: array("d"))
    waits: array[int] = field(default_factory=lambda: array("i"))
    """Tasks that must end first."""
    next_start: array[int] = field(default_factory=lambda: array("q"))
    """Where a task's followers begin in `next_task`; one entry more than tasks."""
    next_task: array[int] = field(default_factory=lambda: array("i"))
    free_start: array[int] = field(default_factory=lambda: array("q"))
    """Where the buffers that a task is done with begin in `free_buffer`."""
    free_buffer: array[int] = field(default_factory=lambda: array("i"))
    buffer_bytes: array[float] = field(default_factory=lambda: array("d"))
    buffer_users: array[int] = field(default_factory=lambda: array("i"))
    """Tasks that must be done with a buffer before its room is free."""
    buffer_owner: array[int] = field(default_factory=lambda: array("i"))
    """RESERVE task of a buffer."""
    buffer_tensor: list[str] = field(default_factory=list)
    """Whose bytes a buffer holds."""
    loops: list[tuple[int, Loop]] = field(default_factory=list)
    """Loops of which turns are left out, with their operator; inner ones first."""

    def __len__(self) -> int:
        return len(self.kind)


MOST_TASKS = 2_000_000
"""Tasks that the event engine acts out, over all inferences: about a minute and 1 GB."""
_REMEDY = "take the analytical engine, a smaller network, or fewer requests"


def refuse_many(tasks: int, inferences: int) -> None:
    """Refuse more tasks than can be acted out; an `InfeasibleError` says so."""
    if tasks * inferences > MOST_TASKS:
        raise InfeasibleError(
            f"{tasks:,} tasks in each of {inferences:,} requests that are acted out: {_REMEDY}"
        )


class ProgramBuilder:
    """Writes a program, task by task; a task may only wait for tasks written before it."""

    def __init__(
        self, units: list[ExecutionUnit], operators: list[str], sram_bytes: tuple[float, ...]
    ) -> None:
        self._program = Program(units, operators, sram_bytes)
        self._edges_from, self._edges_to = array("i"), array("i")
        self._frees_of, self._frees = array("i"), array("i")
        self.device = 0
        """Array device that tasks belong to from here on."""
        self.dispatched: list[int] = []
        """The last call of an operator by the management processor of that device, if any."""

    def __len__(self) -> int:
        return len(self._program)

    def loop(self, operator: int, loop: Loop) -> None:
        """Note a loop of which turns are left out: its starts are tasks."""
        self._program.loops.append((operator, loop))

    def task(
        self,
        kind: TaskKind,
        unit: int = -1,
        operator: int = -1,
        duration_s: float = 0.0,
        *,
        after: Iterable[int] = (),
        fixed_s: float = 0.0,
        bytes_: float = 0.0,
        shared_bytes: float = 0.0,
        macs: float = 0.0,
    ) -> int:
        """Write a task and return its number; see `Program` for the columns."""
        p = self._program
        number = len(p.kind)
        if number >= MOST_TASKS:
            raise InfeasibleError(f"more than {MOST_TASKS:,} tasks: {_REMEDY}")
        p.kind.append(kind)
        p.unit.append(unit)
        p.operator.append(operator)
        p.device.append(self.device)
        p.duration_s.append(duration_s)
        p.fixed_s.append(fixed_s)
        p.bytes.append(bytes_)
        p.shared_bytes.append(shared_bytes)
        p.macs.append(macs)
        p.waits.append(0)
        for other in after:
            self._edges_from.append(other)
            self._edges_to.append(number)
            p.waits[number] += 1
        return number

    def sync(self, after: Iterable[int], operator: int = -1) -> int:
        """Write a point in time after some tasks."""
        return self.task(TaskKind.SYNC, operator=operator, after=after)

    def buffer(self, owner: int, tensor: str, size: float) -> int:
        """Add a buffer to what a RESERVE task takes and return its number."""
        p = self._program
        p.bytes[owner] += size
        p.buffer_bytes.append(size)
        p.buffer_users.append(0)
        p.buffer_owner.append(owner)
        p.buffer_tensor.append(tensor)
        return len(p.buffer_bytes) - 1

    def release(self, buffer: int, after: Sequence[int]) -> None:
        """Let a buffer's room be free once some tasks have ended."""
        for task in after:
            self._frees_of.append(task)
            self._frees.append(buffer)
        self._program.buffer_users[buffer] += len(after)

    def finish(self) -> Program:
        """Return the program."""
        p = self._program
        p.next_start, p.next_task = _grouped(len(p), self._edges_from, self._edges_to)
        p.free_start, p.free_buffer = _grouped(len(p), self._frees_of, self._frees)
        return p


def _grouped(count: int, keys: array[int], values: array[int]) -> tuple[array[int], array[int]]:
    """Group values by key, in the order of arrival: (where each key's values begin, the values)."""
    found = np.array(keys, np.intp)
    starts = np.concatenate(([0], np.cumsum(np.bincount(found, minlength=count)))).astype("i8")
    grouped = np.array(values, "i4")[np.argsort(found, kind="stable")]
    return array("q", starts.tobytes()), array("i", grouped.tobytes())


@dataclass(slots=True)
class EventLog:
    """Times of every task of every inference, in s; -1 where it did not happen.

    A task's row is inference x tasks of the program + number in the program.
    """

    ready: Any
    """End of the last task that each task waits for: float64 array, shape (tasks,)."""
    start: Any
    end: Any
    cause: Any
    """Task whose end made it ready, or freed SRAM for it; -1: the begin of the inference; int64."""
    unit: Any
    """Unit that ran it, -1 for none; int16."""
    slot: Any
    """Request in flight that each inference is; int32, shape (inferences,)."""
    begun: Any
    """When each inference was requested."""
    ended: Any
    sram_time: Any
    """When the bytes in use in SRAM changed."""
    sram_bytes: Any
    """Bytes in use from then on, over all contexts."""
    sram_peak_bytes: float
    """Most bytes in use at any time in one context."""
    dram_time: Any
    """When the traffic on DRAM changed."""
    dram_bytes_per_s: Any
    """Traffic from then on, over all devices."""

    def first(self, inferences: int, tasks: int) -> EventLog:
        """Return the log of the first inferences of so many tasks each; memories stay as they were."""
        rows = inferences * tasks
        cause = self.cause[:rows]
        return replace(
            self,
            ready=self.ready[:rows],
            start=self.start[:rows],
            end=self.end[:rows],
            # An inference that is left out may have caused one that is not.
            cause=np.where(cause < rows, cause, -1),
            unit=self.unit[:rows],
            slot=self.slot[:inferences],
            begun=self.begun[:inferences],
            ended=self.ended[:inferences],
        )
