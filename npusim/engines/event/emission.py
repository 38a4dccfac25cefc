"""Writes the tasks of an operator's steps: reserve SRAM, DMA in, compute on every tile, DMA out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from npusim.engines.event.jobs import Job, TilingStep, apportion
from npusim.engines.event.program import Loop, ProgramBuilder
from npusim.engines.timeline import TaskKind

_ROUNDING = 1e-9
"""Share of the work that is rounding."""


@dataclass(slots=True)
class Emitted:
    """The tasks of an operator that others wait for."""

    computed: int
    """Task after which its results are in SRAM."""
    written: int
    """Task after which its results are in DRAM."""
    resident_buffers: dict[str, int]
    """Buffers of the resident tensors that it allocates."""


def emit(builder: ProgramBuilder, jobs: Sequence[Job]) -> list[Emitted]:
    """Write the tasks of an operator, or of a chain of operators that are fused row by row."""
    emissions: list[_Emission] = []
    for job in jobs:
        emissions.append(_Emission(builder, job, [emissions[place] for place in job.producers]))
    emissions[-1].advance(1.0)
    for loop in emissions[-1].job.loops:
        emissions[-1].add_loop(loop)
    return [emission.emitted() for emission in emissions]


class _Emission:
    """Tasks of one job, written step by step as its reader needs results."""

    def __init__(self, builder: ProgramBuilder, job: Job, producers: list[_Emission]) -> None:
        self.builder, self.job, self.producers = builder, job, producers
        steps = job.steps
        self.a = self._parts(job.a_bytes, [s.a for s in steps])
        self.b = self._parts(job.b_bytes, [s.b for s in steps])
        self.out = self._parts(job.out_bytes, [s.out for s in steps])
        self.macs = self._parts(job.macs, [s.work for s in steps])
        self.by_pass = any(s.last_of_pass for s in steps)
        """Whether copies follow the last step of a pass, not every step."""
        self.copies = sum(s.repeats for s in steps if s.last_of_pass or not self.by_pass)
        self.first_tasks: list[int] = []
        """The first task of each step."""
        self.ends = [*accumulate(s.work * s.repeats for s in steps[:-1]), 1.0]
        """Share of the work done after each step."""
        self.resident_buffers: dict[str, int] = {}
        self.waiting: dict[int, list[int]] = {}
        """Buffers that the work of a later step releases."""
        self.results: list[list[int]] = []
        """Tasks after which each step's results are in SRAM."""
        self.computed: list[int] = []
        self.written: list[int] = []
        self.b_ready: list[int] = []
        self.a_ready: dict[int, list[int]] = {}

    def _parts(self, total: float, shares: list[float]) -> list[float]:
        """Return each step's part of a total of one pass."""
        if self.job.loops:  # equal steps must be equal to the last bit
            return [total * share for share in shares]
        # The shares of all steps add up to a whole number of passes.
        return apportion(total * round(sum(shares)), shares)

    def _divided(self, total: float, parts: int) -> list[float]:
        """Return each unit's part of an amount: whole numbers, or equal ones where steps stand for others."""
        return [total / parts] * parts if self.job.loops else apportion(total, [1.0] * parts)

    def add_loop(self, loop: Loop) -> None:
        """Add a loop to the program, by the tasks of its turns."""
        tasks = [*self.first_tasks, len(self.builder)]
        starts = [tasks[step] for step in loop.starts]
        self.builder.loops.append((self.job.operator, Loop(loop.turns, loop.level, starts)))

    def advance(self, share: float) -> None:
        """Write steps until a share of the work is written, producers first.

        Rows are proportional to work. A chain may be thousands of operators long: no recursion.
        """
        unfinished = [(self, self._place(share))]
        while unfinished:
            emission, place = unfinished[-1]
            i = len(emission.results)
            if i > place:
                unfinished.pop()
                continue
            needed = [(p, p._place(emission.ends[i])) for p in emission.producers]
            missing = next((pair for pair in needed if len(pair[0].results) <= pair[1]), None)
            if missing:
                unfinished.append(missing)
            else:
                rows_ready = [task for producer, place in needed for task in producer.results[place]]
                emission._step(i, emission.job.steps[i], rows_ready)

    def _place(self, share: float) -> int:
        """Return the step after which a share of the work is done."""
        return min(bisect_left(self.ends, share - _ROUNDING), len(self.ends) - 1)

    def _step(self, i: int, step: TilingStep, rows_ready: list[int]) -> None:
        builder, job = self.builder, self.job
        self.first_tasks.append(len(builder))
        if self.b[i] > 0.0 or (i == 0 and job.once_bytes > 0.0 and job.b_bytes > 0.0):
            self.b_ready = self._bring_b(i, step)
        a_loads, out_buffer = self._bring_a(i, step)
        if a_loads:
            self.a_ready[i] = a_loads
        work = self._work(i, step, [*self._held(self.a_ready, i), *self.b_ready, *rows_ready])
        self.computed += work
        for buffer in self.waiting.pop(i, ()):
            builder.release(buffer, work)
        after = self._copy(step, work)
        if after is not work:
            self.computed += after
        if self.out[i] > 0.0:
            stores = self._move(TaskKind.DMA_OUT, self.out[i], job.dma.write_s_per_byte, after)
            self.written += stores
            if out_buffer >= 0:
                builder.release(out_buffer, stores)
        elif out_buffer >= 0:
            builder.release(out_buffer, after)
        self.results.append(after)

    def emitted(self) -> Emitted:
        """Return the tasks that others wait for, when all steps are written."""
        builder, operator = self.builder, self.job.operator
        done = builder.sync(self.computed, operator)
        stored = builder.sync(self.written, operator) if self.written else done
        return Emitted(done, stored, self.resident_buffers)

    def _held(self, a_ready: dict[int, list[int]], i: int) -> list[int]:
        """Return the loads of the activations of step `i`: its own, or those of an earlier step."""
        if i in a_ready:
            return a_ready[i]
        step = self.job.steps[i]
        if step.a > 0.0 or not a_ready:
            return []
        return a_ready[max(a_ready)]

    def _reserve(self, also_after: Sequence[int], buffers: Sequence[tuple[str, float]]) -> list[int]:
        wanted = [(name, size) for name, size in buffers if size > 0.0]
        if not wanted and not also_after:
            return []
        builder, after = self.builder, (self.builder.last_reserve, *also_after)
        builder.last_reserve = builder.task(TaskKind.RESERVE, operator=self.job.operator, after=after)
        return [builder.buffer(builder.last_reserve, name, size) for name, size in wanted]

    def _bring_b(self, i: int, step: TilingStep) -> list[int]:
        job = self.job
        extra = job.once_bytes if i == 0 else 0.0
        # Small tables lie in SRAM that tilings leave free: no tiling counts them.
        wanted = [(job.b_name, job.b_sram * step.b)]
        for buffer in self._reserve(job.b_after if i == 0 else (), wanted):
            self.waiting.setdefault(i + step.b_until, []).append(buffer)
        size, after = self.b[i] + extra, [self.builder.last_reserve]
        return self._move(TaskKind.DMA_IN, size, job.dma.read_s_per_byte, after)

    def _bring_a(self, i: int, step: TilingStep) -> tuple[list[int], int]:
        """Reserve SRAM for a step and fetch its activations: (loads, buffer of the results)."""
        job = self.job
        first = i == 0
        extra = job.once_bytes if first and job.b_bytes <= 0.0 else 0.0
        wanted = [(job.a_name, job.a_sram * step.a), (job.out_name, job.out_sram * step.out)]
        residents = job.residents if first else []
        buffers = iter(self._reserve(job.a_after if first else (), [*wanted, *residents]))
        if wanted[0][1] > 0.0:
            self.waiting.setdefault(i + step.a_until, []).append(next(buffers))
        out_buffer = next(buffers) if wanted[1][1] > 0.0 else -1
        self.resident_buffers.update((name, next(buffers)) for name, size in residents if size > 0.0)
        s_per_byte = job.a_s_per_byte if self.a[i] > 0.0 else job.dma.read_s_per_byte
        loads = self._move(TaskKind.DMA_IN, self.a[i] + extra, s_per_byte, [self.builder.last_reserve])
        # Sums have one place: activations are fetched while earlier sums are still added to.
        for buffer in self._reserve((), [(f"partial sums of {job.out_name}", job.sums_sram * step.sums)]):
            self.waiting.setdefault(i + step.sums_until, []).append(buffer)
        return loads, out_buffer

    def _move(self, kind: TaskKind, size: float, s_per_byte: float, after: Sequence[int]) -> list[int]:
        """Write one transfer, shared evenly by all engines; none for no bytes."""
        job = self.job
        parts = self._divided(size, len(job.engines))
        moves = []
        for engine, part in zip(job.engines, parts, strict=True):
            if part <= 0.0:
                continue
            latency, served = job.dma.write_latency_s, job.write_served
            if kind is TaskKind.DMA_IN:
                near = part <= job.dma.page_bytes
                latency = job.dma.read_latency_s if near else job.dma.far_read_latency_s
                served = job.read_served
            moved = job.repeats * part
            task = self.builder.task(
                kind,
                engine,
                job.operator,
                moved * len(parts) * s_per_byte,
                after=after,
                fixed_s=job.repeats * latency,
                bytes_=moved * (1.0 - served),
                shared_bytes=moved * served * job.shared_served,
            )
            moves.append(task)
        return moves

    def _work(self, i: int, step: TilingStep, after: Sequence[int]) -> list[int]:
        job = self.job
        waits = [*after, *job.start, self.builder.last_reserve]
        if i == 0 and job.dispatch_s > 0.0:
            # One management processor makes all calls, in program order; grids and DSPs wait for it.
            waits = [*waits, *self.builder.dispatched]
            dispatch_s = job.repeats * job.dispatch_s
            calls = [
                self.builder.task(TaskKind.LAUNCH, unit, job.operator, dispatch_s, after=waits)
                for unit in job.stopped
            ]
            waits = self.builder.dispatched = [self.builder.sync(calls, job.operator)]
        if job.kind is TaskKind.SYNC:
            return [self.builder.sync(waits, job.operator)]
        macs = self._divided(self.macs[i], len(job.units))
        return [
            self.builder.task(job.kind, unit, job.operator, job.work_s * step.work, after=waits, macs=part)
            for unit, part in zip(job.units, macs, strict=True)
        ]

    def _copy(self, step: TilingStep, after: list[int]) -> list[int]:
        """Write the copies between tiles, or within SRAM, that follow a step."""
        job, copies = self.job, self.copies
        if job.copy_s <= 0.0 or (self.by_pass and not step.last_of_pass):
            return after
        sizes = self._divided(job.copy_bytes / copies, len(job.engines))
        return [
            self.builder.task(
                TaskKind.TRANSFER,
                engine,
                job.operator,
                job.repeats * job.copy_s / copies,
                after=after,
                fixed_s=job.repeats * job.dma.copy_latency_s,
                bytes_=job.repeats * size,
            )
            for engine, size in zip(job.engines, sizes, strict=True)
        ]
