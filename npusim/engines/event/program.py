"""Program of the event engine: tasks, dependencies and SRAM buffers, as arrays of records."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

# Turns after which a loop may repeat itself: divisors of the last.
PERIODS = (1, 2, 3, 4, 6, 8, 12, 24)
# Tasks that the event engine simulates, over all inferences: about a minute and 1 GB.
MOST_TASKS = 2_000_000
_REMEDY = "take the analytical engine, a smaller network, or fewer requests"


def record_type(reals: str = "", integers: str = "") -> np.dtype[Any]:
    """Return a record type with some float64 and int64 fields."""
    return np.dtype([*((name, "f8") for name in reals.split()), *((name, "i8") for name in integers.split())])


# A task. `duration_s`: alone on its unit; of DMA with all engines at work. `fixed_s`: of DMA the latency,
# of a host the part that moves nothing. `bytes`: moved over DRAM, moved within SRAM by TRANSFER, or
# reserved by RESERVE. `shared_bytes`: of the level that devices share. `unit`: of the first context, or
# shared by all; -1: none. `device`: the last array device in use. `waits`: tasks that must end first.
# Followers and freed buffers are ranges of columns of `Program`.
TASK = record_type(
    "duration_s fixed_s bytes shared_bytes macs",
    "kind unit device operator waits first_follower end_follower first_freed end_freed",
)
# SRAM that the RESERVE task `owner` grants; it is free when `users` tasks have ended.
BUFFER = record_type("bytes", "owner users")
# Fields that `ProgramBuilder.task` writes.
_WRITTEN = ("kind", "unit", "operator", "device", "duration_s", "fixed_s", "bytes", "shared_bytes", "macs")


class Loop(NamedTuple):
    """A loop of equal turns, of which only some are written to the program.

    The number of turns left out is a multiple of the last of `PERIODS`. `level` counts the nested loops that
    are written in part too. `starts` has the first step (later: task) of each written turn, and the end of
    the last.
    """

    turns: int
    level: int
    starts: list[int]


@dataclass(frozen=True, slots=True)
class Program:
    """The tasks of one inference, in program order.

    `operators` and `tensors` are the names of operators and buffers by number, `sram_bytes` the SRAM of the
    tiles of one context by array device. `tasks` are records of TASK, `buffers` of BUFFER. Each task has a
    range of `followers` (tasks) and of `freed` (buffers), int64. `loops` are written in part, with the number
    of their operator; inner ones come first.
    """

    units: list[ExecutionUnit]
    operators: list[str]
    sram_bytes: tuple[float, ...]
    tasks: Any
    followers: Any
    freed: Any
    buffers: Any
    tensors: list[str]
    loops: list[tuple[int, Loop]]

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def unfolded(self) -> int:
        """Tasks with all turns of the loops."""
        each = np.ones(len(self), np.int64)
        for _, loop in self.loops:
            middle = len(loop.starts) // 2
            each[loop.starts[middle - 1] : loop.starts[middle]] *= 2 + loop.turns - len(loop.starts)
        return int(each.sum())


def refuse_many(tasks: int, inferences: int) -> None:
    """Raise an InfeasibleError where there are more tasks than the simulation can hold."""
    if tasks * inferences > MOST_TASKS:
        raise InfeasibleError(
            f"too many tasks to simulate, {tasks:,} in each of {inferences:,} requests",
            needed=tasks * inferences,
            available=MOST_TASKS,
            unit="tasks",
            levers=[_REMEDY],
        )


class ProgramBuilder:
    """Writes a program task by task; a task may only wait for tasks written before it."""

    def __init__(
        self, units: list[ExecutionUnit], operators: list[str], sram_bytes: tuple[float, ...]
    ) -> None:
        self._machine = (units, operators, sram_bytes)
        self._count = 0
        # Numbers of all tasks, in the order of `_WRITTEN`; owner and bytes of all buffers.
        self._tasks, self._buffers = array("d"), array("d")
        # Pairs of a task and its follower; of a task and a buffer that it is done with.
        self._edges, self._frees = array("q"), array("q")
        self._tensors: list[str] = []
        self.loops: list[tuple[int, Loop]] = []
        """See `Program`; starts are tasks."""
        self.device = 0
        """Array device of the tasks that are written."""
        self.last_reserve = -1
        """Last task that grants SRAM: grants follow program order, so that the NPU cannot deadlock."""
        self.dispatched: dict[int, list[int]] = {}
        """Last call of an operator by the management processor of each device, if any."""
        self.residents: dict[tuple[str, str], int] = {}
        """Buffer of each tensor that stays in SRAM, by device and name."""

    def __len__(self) -> int:
        return self._count

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
        """Write a task and return its number; see `TASK` for the fields."""
        number = self._count
        if number >= MOST_TASKS:
            raise InfeasibleError(
                "too many tasks to simulate", available=MOST_TASKS, unit="tasks", levers=[_REMEDY]
            )
        self._tasks.extend(
            (kind, unit, operator, self.device, duration_s, fixed_s, bytes_, shared_bytes, macs)
        )
        for other in after:
            self._edges.append(other)
            self._edges.append(number)
        self._count += 1
        return number

    def sync(self, after: Iterable[int], operator: int = -1) -> int:
        """Write a task without work that ends once some other tasks have ended; return its number."""
        return self.task(TaskKind.SYNC, operator=operator, after=after)

    def buffer(self, owner: int, tensor: str, size: float) -> int:
        """Add an SRAM buffer to a RESERVE task; return the buffer's number."""
        self._buffers.extend((owner, size))
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def release(self, buffer: int, after: Iterable[int]) -> None:
        """Free a buffer's SRAM once some tasks have ended."""
        for task in after:
            self._frees.extend((task, buffer))

    def finish(self) -> Program:
        """Return the program: tasks with their followers, buffers with the tasks that free them."""
        tasks = np.zeros(len(self), TASK)
        for name, values in zip(_WRITTEN, np.array(self._tasks).reshape(-1, len(_WRITTEN)).T, strict=True):
            tasks[name] = values
        edges, frees = (np.array(pairs).reshape(-1, 2).T for pairs in (self._edges, self._frees))
        tasks["waits"] = np.bincount(edges[1], minlength=len(self))
        tasks["first_follower"], tasks["end_follower"], followers = _grouped(len(self), *edges)
        tasks["first_freed"], tasks["end_freed"], freed = _grouped(len(self), *frees)
        buffers = np.zeros(len(self._tensors), BUFFER)
        buffers["owner"], buffers["bytes"] = np.array(self._buffers).reshape(-1, 2).T
        buffers["users"] = np.bincount(frees[1], minlength=len(buffers))
        np.add.at(tasks["bytes"], buffers["owner"], buffers["bytes"])
        return Program(*self._machine, tasks, followers, freed, buffers, self._tensors, self.loops)


def _grouped(count: int, keys: Any, values: Any) -> tuple[Any, Any, Any]:
    """Return values grouped by key, in order of arrival: (begin per key, end per key, values)."""
    sizes = np.bincount(keys, minlength=count)
    ends = np.cumsum(sizes)
    return ends - sizes, ends, values[np.argsort(keys, kind="stable")]
