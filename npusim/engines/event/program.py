"""Program of the event engine: tasks, dependencies, SRAM buffers.

Columns are typed arrays instead of objects: a million tasks take some 60 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

PERIODS = (1, 2, 3, 4, 6, 8, 12, 24)
"""Turns after which a loop may repeat itself: divisors of the last."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of equal turns, some of them written; the last of `PERIODS` divides the number left out."""

    turns: int
    """All turns."""
    level: int
    """Depth of the loops inside it that are written in part as well."""
    starts: list[int]
    """First step (later: task) of each turn that is written, and the end of the last."""


@dataclass(slots=True)
class Program:
    """The tasks of one inference, in program order; read-only once built."""

    units: list[ExecutionUnit]
    """Units by number. A task names the unit of the first context, or one that all contexts share; tasks of
    SYNC, RESERVE, ENTER, LEAVE or LAUNCH name -1."""
    operators: list[str]
    """Operator names by number."""
    sram_bytes: tuple[float, ...]
    """SRAM of the tiles of one context, by array device."""
    kind: array[int] = field(default_factory=lambda: array("b"))
    unit: array[int] = field(default_factory=lambda: array("h"))
    operator: array[int] = field(default_factory=lambda: array("i"))
    """Number of the operator; -1 for none."""
    device: array[int] = field(default_factory=lambda: array("b"))
    """Array device that the inference is on, or was on last."""
    duration_s: array[float] = field(default_factory=lambda: array("d"))
    """Time alone on its unit; of DMA: with all engines at work."""
    fixed_s: array[float] = field(default_factory=lambda: array("d"))
    """DMA: latency, which overlaps other transfers. CPU and GPU: the part that moves nothing."""
    bytes: array[float] = field(default_factory=lambda: array("d"))
    """DRAM bytes moved; bytes reserved by RESERVE; SRAM bytes moved by TRANSFER."""
    shared_bytes: array[float] = field(default_factory=lambda: array("d"))
    """DMA: bytes of the memory level that devices share."""
    macs: array[float] = field(default_factory=lambda: array("d"))
    waits: array[int] = field(default_factory=lambda: array("i"))
    """Number of tasks that must end first."""
    next_start: array[int] = field(default_factory=lambda: array("q"))
    """Place of a task's first follower in `next_task`; one entry more than tasks."""
    next_task: array[int] = field(default_factory=lambda: array("i"))
    free_start: array[int] = field(default_factory=lambda: array("q"))
    """Place in `free_buffer` of the first buffer that a task is done with; one entry more than tasks."""
    free_buffer: array[int] = field(default_factory=lambda: array("i"))
    buffer_bytes: array[float] = field(default_factory=lambda: array("d"))
    buffer_users: array[int] = field(default_factory=lambda: array("i"))
    """Tasks that must end before a buffer's SRAM is free."""
    buffer_owner: array[int] = field(default_factory=lambda: array("i"))
    """RESERVE task of a buffer."""
    buffer_tensor: list[str] = field(default_factory=list)
    """Tensor that a buffer holds."""
    loops: list[tuple[int, Loop]] = field(default_factory=list)
    """Loops that are written in part, with their operator; inner ones first."""

    def __len__(self) -> int:
        return len(self.kind)


MOST_TASKS = 2_000_000
"""Tasks that the event engine simulates, over all inferences: about a minute and 1 GB."""
_REMEDY = "take the analytical engine, a smaller network, or fewer requests"


def refuse_many(tasks: int, inferences: int) -> None:
    """Raise an InfeasibleError where there are more tasks than can be simulated."""
    if tasks * inferences > MOST_TASKS:
        raise InfeasibleError(
            f"{tasks:,} tasks in each of {inferences:,} requests that are simulated: {_REMEDY}"
        )


class ProgramBuilder:
    """Writes a program task by task; a task may only wait for tasks written before it."""

    def __init__(
        self, units: list[ExecutionUnit], operators: list[str], sram_bytes: tuple[float, ...]
    ) -> None:
        self._program = Program(units, operators, sram_bytes)
        self._edges_from, self._edges_to = array("i"), array("i")
        self._frees_of, self._frees = array("i"), array("i")
        self.device = 0
        """Array device of the tasks that are written."""
        self.last_reserve = -1
        """Last task that grants SRAM: grants follow program order, so that the NPU cannot deadlock."""
        self.dispatched: list[int] = []
        """Last call of an operator by the management processor of that device, if any."""

    def __len__(self) -> int:
        return len(self._program)

    def loop(self, operator: int, loop: Loop) -> None:
        """Add a loop that is written in part; its starts are tasks."""
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
        """Write a task without work that ends after some others."""
        return self.task(TaskKind.SYNC, operator=operator, after=after)

    def buffer(self, owner: int, tensor: str, size: float) -> int:
        """Add a buffer to a RESERVE task and return its number."""
        p = self._program
        p.bytes[owner] += size
        p.buffer_bytes.append(size)
        p.buffer_users.append(0)
        p.buffer_owner.append(owner)
        p.buffer_tensor.append(tensor)
        return len(p.buffer_bytes) - 1

    def release(self, buffer: int, after: Sequence[int]) -> None:
        """Free a buffer's SRAM once some tasks have ended."""
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
    """Return values grouped by key, in the order of arrival: (place of each key's first value, values)."""
    of_value = np.array(keys, np.intp)
    starts = np.concatenate(([0], np.cumsum(np.bincount(of_value, minlength=count)))).astype("i8")
    grouped = np.array(values, "i4")[np.argsort(of_value, kind="stable")]
    return array("q", starts.tobytes()), array("i", grouped.tobytes())
