"""Tasks of one operator, or of a chain of operators that are fused row by row, step by step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from npusim.engines.event.jobs import Job, TilingStep, apportion
from npusim.engines.event.program import Loop, ProgramBuilder
from npusim.engines.timeline import TaskKind

# Share of the work that is rounding.
_ROUNDING = 1e-9


class Emitted(NamedTuple):
    """The tasks of an operator that others wait for."""

    computed: int
    """Task after which its results are in SRAM."""
    written: int
    """Task after which its results are in DRAM."""


def emit(builder: ProgramBuilder, jobs: Sequence[Job]) -> list[Emitted]:
    """Write the tasks of an operator, or of a chain of operators that are fused row by row."""
    emissions: list[_Emission] = []
    for job in jobs:
        emissions.append(_Emission(builder, job, [emissions[place] for place in job.producers]))
    emissions[-1].advance(1.0)
    emissions[-1].add_loops()
    return [emission.emitted() for emission in emissions]


class _Emission:
    """Tasks of one job, written step by step as its reader needs results."""

    def __init__(self, builder: ProgramBuilder, job: Job, producers: list[_Emission]) -> None:
        self.builder, self.job, self.producers = builder, job, producers
        self.steps = steps = job.tiling.steps
        self.a = self._parts(job.a.bytes, [s.a for s in steps])
        self.b = self._parts(job.b.bytes, [s.b for s in steps])
        self.out = self._parts(job.out.bytes, [s.out for s in steps])
        self.macs = self._parts(job.macs, [s.work for s in steps])
        # Whether copies follow the last step of a pass, not every step.
        self.by_pass = any(s.last_of_pass for s in steps)
        self.copies = sum(s.repeats for s in steps if s.last_of_pass or not self.by_pass)
        # The first task of each step.
        self.first_tasks: list[int] = []
        # Share of the work done after each step.
        self.ends = [*accumulate(s.work * s.repeats for s in steps[:-1]), 1.0]
        # Buffers that the work of a later step releases.
        self.held: dict[int, list[int]] = {}
        # Tasks after which each step's results are in SRAM.
        self.results: list[list[int]] = []
        self.computed: list[int] = []
        self.written: list[int] = []
        self.b_ready: list[int] = []
        # Loads of the activations and weights that are in SRAM.
        self.a_ready: list[int] = []

    def _parts(self, total: float, shares: list[float]) -> list[float]:
        """Return each step's amount, given the amount of one pass over the data and the steps' shares."""
        if self.job.tiling.loops:  # equal steps must be equal to the last bit
            return [total * share for share in shares]
        # The shares of all steps add up to a whole number of passes.
        return apportion(total * round(sum(shares)), shares)

    def _divided(self, total: float, parts: int) -> list[float]:
        """Return equal parts of an amount: whole numbers, except where steps stand for others (loops)."""
        return [total / parts] * parts if self.job.tiling.loops else apportion(total, [1.0] * parts)

    def add_loops(self) -> None:
        """Add to the program the loops of which only some turns are written."""
        tasks = [*self.first_tasks, len(self.builder)]
        for loop in self.job.tiling.loops:
            starts = [tasks[step] for step in loop.starts]
            self.builder.loops.append((self.job.operator, Loop(loop.turns, loop.level, starts)))

    def advance(self, share: float) -> None:
        """Write steps until a share of the work is written; producers of the needed rows come first.

        Rows are proportional to work. A chain may be thousands of operators long, so there is no recursion.
        """
        unfinished = [(self, self._place(share))]  # each with its last step to write
        while unfinished:
            emission, last = unfinished[-1]
            i = len(emission.results)
            if i > last:
                unfinished.pop()
                continue
            needed = [(producer, producer._place(emission.ends[i])) for producer in emission.producers]
            unwritten = [(producer, step) for producer, step in needed if len(producer.results) <= step]
            if unwritten:
                unfinished.append(unwritten[0])
            else:
                rows_ready = [task for producer, step in needed for task in producer.results[step]]
                emission._step(i, emission.steps[i], rows_ready)

    def _place(self, share: float) -> int:
        """Return the step after which a share of the work is done."""
        return min(bisect_left(self.ends, share - _ROUNDING), len(self.ends) - 1)

    def _step(self, i: int, step: TilingStep, rows_ready: list[int]) -> None:
        """Write the tasks of step `i`: fetch weights and activations, compute, copy, write back."""
        job = self.job
        self.first_tasks.append(len(self.builder))
        has_tables = i == 0 and job.once_bytes > 0.0 and job.b.bytes > 0.0  # these come with the weights
        if self.b[i] > 0.0 or has_tables:
            self.b_ready = self._fetch_b(i, step)
        loads, out_buffer = self._fetch_a(i, step)
        if loads:
            self.a_ready = loads
        # A step without activations of its own works on those of an earlier step.
        a_ready = loads if step.a > 0.0 else self.a_ready
        self._prefetch(i, step, [*loads, *self.b_ready])
        work = self._work(i, step, [*a_ready, *self.b_ready, *rows_ready])
        self.computed += work
        for buffer in self.held.pop(i, ()):
            self.builder.release(buffer, work)
        results = self._copy(step, work)
        if results is not work:
            self.computed += results
        stores = self._emit_transfer(TaskKind.DMA_OUT, self.out[i], job.write_s_per_byte, results)
        self.written += stores
        if out_buffer >= 0:
            self.builder.release(out_buffer, stores or results)
        self.results.append(results)

    def emitted(self) -> Emitted:
        """Return the tasks that later tasks wait for, once all steps are written."""
        done = self.builder.sync(self.computed, self.job.operator)
        return Emitted(done, self.builder.sync(self.written, self.job.operator) if self.written else done)

    def _reserve(self, also_after: Sequence[int], sizes: Sequence[tuple[str, float]]) -> list[int]:
        """Write an SRAM reservation; return its buffers, -1 where no bytes are needed."""
        builder = self.builder
        if also_after or any(size > 0.0 for _, size in sizes):
            after = (builder.last_reserve, *also_after)
            builder.last_reserve = builder.task(TaskKind.RESERVE, operator=self.job.operator, after=after)
        return [builder.buffer(builder.last_reserve, *size) if size[1] > 0.0 else -1 for size in sizes]

    def _hold(self, buffer: int, until: int) -> None:
        """Hold a buffer until the work of step `until` ends."""
        if buffer >= 0:
            self.held.setdefault(until, []).append(buffer)

    def _fetch_b(self, i: int, step: TilingStep) -> list[int]:
        """Reserve SRAM for a step's weights and fetch them; return the transfers."""
        job = self.job
        extra = job.once_bytes if i == 0 else 0.0
        # Small tables lie in SRAM that tilings leave free: no tiling counts them.
        (buffer,) = self._reserve(job.b_after if i == 0 else (), [(job.b.name, job.b.sram_bytes * step.b)])
        self._hold(buffer, i + step.b_until)
        return self._emit_transfer(TaskKind.DMA_IN, self.b[i] + extra, job.read_s_per_byte)

    def _fetch_a(self, i: int, step: TilingStep) -> tuple[list[int], int]:
        """Reserve SRAM for a step and fetch its activations; return (loads, buffer of the results)."""
        job, first = self.job, i == 0
        extra = job.once_bytes if first and job.b.bytes <= 0.0 else 0.0
        sizes = [(job.a.name, job.a.sram_bytes * step.a), (job.out.name, job.out.sram_bytes * step.out)]
        residents = job.residents if first else ()
        sizes += [(name, size) for (_, name), size in residents]
        a_buffer, out_buffer, *others = self._reserve(job.a_after if first else (), sizes)
        self._hold(a_buffer, i + step.a_until)
        self.builder.residents.update(zip((key for key, _ in residents), others, strict=True))
        s_per_byte = job.a_s_per_byte if self.a[i] > 0.0 else job.read_s_per_byte
        loads = self._emit_transfer(TaskKind.DMA_IN, self.a[i] + extra, s_per_byte)
        # Sums have one place: activations are fetched while earlier sums are still added to.
        (sums,) = self._reserve((), [(f"partial sums of {job.out.name}", job.sums_bytes * step.sums)])
        self._hold(sums, i + step.sums_until)
        return loads, out_buffer

    def _prefetch(self, step_index: int, step: TilingStep, loads: Sequence[int]) -> None:
        """Fetch a step's share of the weights of later operators, behind its own loads."""
        builder, npu = self.builder, self.job.npu
        granted = builder.last_reserve
        for prefetch in self.job.prefetches:
            if step_index == 0:  # SRAM is reserved once, in program order: each reservation follows the last
                granted = builder.task(TaskKind.RESERVE, operator=prefetch.operator, after=[granted])
                builder.last_reserve = granted
                prefetch.buffer = builder.buffer(granted, prefetch.name, prefetch.sram_bytes)
            step_bytes = prefetch.seconds / npu.read_s_per_byte * step.work
            bytes_per_engine = step_bytes / len(npu.engines)
            # The rate is that of all engines, which share the bandwidth.
            move_s = bytes_per_engine * len(npu.engines) * npu.read_s_per_byte
            prefetch.transfers += [
                builder.task(
                    TaskKind.DMA_IN,
                    engine,
                    prefetch.operator,
                    move_s,
                    after=[granted, *loads],
                    fixed_s=npu.read_latency_s(bytes_per_engine),
                    bytes_=bytes_per_engine,
                )
                for engine in npu.engines
            ]

    def _emit_transfer(
        self, kind: TaskKind, size: float, s_per_byte: float, after: Sequence[int] | None = None
    ) -> list[int]:
        """Write the tasks of one transfer of `size` bytes, one per DMA engine; return their numbers.

        They wait for the tasks `after`, by default for the last reservation of SRAM. `s_per_byte` is with all
        engines at work.
        """
        job = self.job
        after = [self.builder.last_reserve] if after is None else after
        parts = self._divided(size, len(job.npu.engines)) if size > 0.0 else []
        tasks = []
        for engine, part in zip(job.npu.engines, parts, strict=False):  # there may be no parts
            if part <= 0.0:
                continue
            latency_s, cached_share = job.npu.write_latency_s, job.write_served
            if kind is TaskKind.DMA_IN:
                latency_s, cached_share = job.npu.read_latency_s(part), job.read_served
            moved = job.repeats * part  # one task stands for all repeats of the operator
            # Memory levels supply the cached share; only levels that devices share are simulated.
            shared_bytes = moved * cached_share * job.shared_served
            dram_bytes = moved * (1.0 - cached_share)
            fixed_s, move_s = job.repeats * latency_s, moved * len(parts) * s_per_byte
            transfer = {"fixed_s": fixed_s, "bytes_": dram_bytes, "shared_bytes": shared_bytes}
            tasks.append(self.builder.task(kind, engine, job.operator, move_s, after=after, **transfer))
        return tasks

    def _work(self, i: int, step: TilingStep, after: Sequence[int]) -> list[int]:
        """Write the compute tasks of a step; the operator's dispatch precedes the first step."""
        job, builder = self.job, self.builder
        waits = [*after, *job.start, builder.last_reserve]
        if i == 0 and job.dispatch_s > 0.0:
            # One management processor makes all calls, in program order; grids and DSPs wait for it.
            waits = [*waits, *builder.dispatched.get(builder.device, ())]
            dispatch_s = job.repeats * job.dispatch_s
            calls = [
                builder.task(TaskKind.LAUNCH, unit, job.operator, dispatch_s, after=waits)
                for unit in (*job.npu.dpus(job.npu.tiles), *job.npu.dsp_units())
            ]
            waits = builder.dispatched[builder.device] = [builder.sync(calls, job.operator)]
        if job.kind is TaskKind.SYNC:
            return [builder.sync(waits, job.operator)]
        macs = self._divided(self.macs[i], len(job.units))
        return [
            builder.task(job.kind, unit, job.operator, job.work_s * step.work, after=waits, macs=part)
            for unit, part in zip(job.units, macs, strict=True)
        ]

    def _copy(self, step: TilingStep, after: list[int]) -> list[int]:
        """Write the copies between tiles, or within SRAM, that follow a step; return its last tasks."""
        job, engines = self.job, self.job.npu.engines
        if job.copy_s <= 0.0 or (self.by_pass and not step.last_of_pass):
            return after
        copy_s, fixed_s = job.repeats * job.copy_s / self.copies, job.repeats * job.npu.copy_latency_s
        sizes = [job.repeats * size for size in self._divided(job.copy_bytes / self.copies, len(engines))]
        return [
            self.builder.task(
                TaskKind.TRANSFER, engine, job.operator, copy_s, after=after, fixed_s=fixed_s, bytes_=size
            )
            for engine, size in zip(engines, sizes, strict=True)
        ]
