"""Writes the program of a mapped graph: the tasks of every operator, and their dependencies.

The tasks of a step reserve SRAM, fetch by DMA, compute on every tile, and write back by DMA.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from npusim.cost import Group, Unit, host_waits_s, packing, roots, row_block_sizes
from npusim.engines.event.jobs import Ahead, Job, NpuUnits, TilingStep, apportion, job_of, leave_out
from npusim.engines.event.program import Loop, Program, ProgramBuilder
from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.mapping import Mapped, held_ahead, stored_inputs
from npusim.ops import Family, Storage, TensorKind

# Times that pieces are halved before a chain runs one group after the other.
_MOST_HALVINGS = 6
# Share of the work that is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ResidentTensor:
    """A tensor that stays in the SRAM of a device, in bytes over all tiles that an inference uses.

    `users` are the groups that use it, in order; the first produces it, or reads it first.
    """

    device: str
    name: str
    bytes: float
    users: tuple[int, ...]


def resident_tensors(mapped: Mapped) -> list[ResidentTensor]:
    """Return the tensors that the mapping keeps in SRAM, in the order of their first use.

    Notes
    -----
    Every tile holds the right operand of a product; any other tensor is spread over the tiles. This is the
    rule of `npusim.cost.liveness`, which counts the same bytes without the names.
    """
    graph, residency = mapped.graph, mapped.decisions.residency
    root = roots(graph, mapped.decisions.groups)
    # Groups that use a tensor, by array device and tensor.
    users: dict[tuple[str, str], list[int]] = {}
    copied: set[tuple[str, str]] = set()
    for i, group in enumerate(mapped.decisions.groups):
        if not group.unit.is_array:
            continue
        op = graph.operators[group.main]
        if group.unit is Unit.DPU and op.family is Family.MATMUL:
            weights = root[op.inputs[0 if group.swapped else 1]]
            copied.update((group.device, stored) for stored in weights)
        members = (graph.operators[name] for name in group.members)
        tensors = (tensor for member in members for tensor in (*member.inputs, *member.outputs))
        for name in {stored for tensor in tensors for stored in root[tensor]}:
            users.setdefault((group.device, name), []).append(i)
    blocks = row_block_sizes(graph, mapped.decisions, root, mapped.soc)
    residents = []
    for (device, name), used in users.items():
        tensor, is_copied = graph.tensors[name], (device, name) in copied or name in blocks
        size = 0.0
        if name in residency.cached or name in residency.resident:
            whole = tensor.stored_bytes
            if tensor.storage is not Storage.TRIANGLE:
                whole = tensor.bytes * packing(tensor, is_copied, mapped.soc.array_devices[device])
            size = whole * max(residency.cached.get(name, 0.0), residency.resident.get(name, 0.0))
        elif name in blocks:
            size = blocks[name].copied + blocks[name].spread / float(mapped.arch[device]["tiles"])
        elif name in residency.whole:
            size = tensor.bytes
        if size > 0.0:
            copies = float(mapped.arch[device]["tiles"]) if is_copied else 1.0
            if name in residency.resident:  # from the begin to the end of each inference
                used = [i for i, g in enumerate(mapped.decisions.groups) if g.device == device]
            residents.append(ResidentTensor(device, name, size * copies, tuple(used)))
    return sorted(residents, key=lambda resident: (resident.users[0], resident.name))


@dataclass(frozen=True, slots=True)
class FusedChain:
    """Groups fused row by row, which run at the same time.

    A tensor that passes row by row has one reader, and an operator one result: a chain is a tree whose root
    is its last group. A chain whose row blocks do not fit into SRAM runs one group after the other.
    """

    members: tuple[int, ...]
    """Groups in order; groups outside the chain wait for the last one only."""
    pieces: int
    """Least number of row pieces of each group; 0: the number that it has on its own."""


def fused_chains(mapped: Mapped, residents: list[ResidentTensor]) -> dict[int, FusedChain]:
    """Return the chain of each group that runs at the same time as others; keys are groups."""
    numbers = mapped.lowered.ops["fused_chain"]
    chains = [tuple(np.flatnonzero(numbers == n).tolist()) for n in dict.fromkeys(numbers.tolist()) if n]
    while True:
        fitting = _fitting(mapped, residents, chains)
        if len(fitting) == sum(map(len, chains)):
            return fitting
        # Groups that run one after the other hold their blocks longer: other chains may no longer fit.
        chains = [members for members in chains if members[0] in fitting]


def _fitting(
    mapped: Mapped, residents: list[ResidentTensor], chains: list[tuple[int, ...]]
) -> dict[int, FusedChain]:
    """Return the chains that fit into SRAM if the others run as chains too; keys are groups."""
    fitting: dict[int, FusedChain] = {}
    # Last group of the chain of each group: tensors within a chain are in SRAM only while it is written.
    last_of_chain = {i: members[-1] for members in chains for i in members}
    use_times = [[last_of_chain.get(user, user) for user in r.users] for r in residents]
    first, last = (np.array([limit(times) for times in use_times], int) for limit in (min, max))
    sizes = np.array([r.bytes for r in residents])
    devices, ahead = np.array([r.device for r in residents], object), held_ahead(mapped)
    for members in chains:
        on_device = devices == mapped.decisions.groups[members[0]].device
        held_bytes = float(sizes[on_device & (first <= members[-1]) & (last >= members[-1])].sum())
        held_bytes += float(ahead[members[-1]])
        pieces = _pieces(mapped, members, held_bytes)
        if pieces:
            fitting.update(dict.fromkeys(members, FusedChain(members, pieces)))
    return fitting


def _pieces(mapped: Mapped, members: tuple[int, ...], held_bytes: float) -> int:
    """Return into how many pieces a chain is cut to fit into SRAM with `held_bytes` of others; 0: never."""
    arch = mapped.arch[mapped.decisions.groups[members[0]].device]
    npu, coarsest = NpuUnits(arch), int(arch["stream_pieces"])
    sram_bytes = float(arch["tiles"]) * float(arch["sram_tile_bytes"])
    for buffers in (2.0, 1.0):
        for pieces in (coarsest << halvings for halvings in range(_MOST_HALVINGS + 1)):
            jobs = (job_of(mapped, i, npu, pieces) for i in members)
            if sum(_needed_bytes(job, buffers) for job in jobs) + held_bytes <= sram_bytes:
                return pieces
    return 0


def _needed_bytes(job: Job, buffers: float) -> float:
    """Return the SRAM that a job needs if streamed tensors have `buffers` buffers each."""
    a, b, out, steps = job.a.sram_bytes, job.b.sram_bytes, job.out.sram_bytes, job.tiling.steps
    streamed = max(a * step.a + out * step.out for step in steps)
    waiting = max(b * step.b + job.sums_bytes * step.sums for step in steps)
    held = max((a * step.a for step in steps if step.a_until), default=0.0)
    return buffers * streamed + waiting + held + job.once_bytes


def build_program(mapped: Mapped, most_turns: Callable[[int], int] = lambda operator: 0) -> Program:
    """Write the tasks of one inference; task 0 begins it, the last one ends it.

    Parameters
    ----------
    most_turns : callable
        Returns the turns to write of a loop that has many more, by number of the operator; 0: all.
    """
    return _Build(mapped, most_turns).run()


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
                emission._step(i, emission.steps[i], rows_ready)

    def _place(self, share: float) -> int:
        """Return the step after which a share of the work is done."""
        return min(bisect_left(self.ends, share - _ROUNDING), len(self.ends) - 1)

    def _step(self, i: int, step: TilingStep, rows_ready: list[int]) -> None:
        """Write the tasks of a step."""
        job = self.job
        self.first_tasks.append(len(self.builder))
        if self.b[i] > 0.0 or (i == 0 and job.once_bytes > 0.0 and job.b.bytes > 0.0):
            self.b_ready = self._fetch_b(i, step)
        loads, out_buffer = self._fetch_a(i, step)
        if loads:
            self.a_ready = loads
        a_ready = loads if step.a > 0.0 else self.a_ready
        self._fetch_ahead(i, step, [*loads, *self.b_ready])
        work = self._work(i, step, [*a_ready, *self.b_ready, *rows_ready])
        self.computed += work
        for buffer in self.held.pop(i, ()):
            self.builder.release(buffer, work)
        after = self._copy(step, work)
        if after is not work:
            self.computed += after
        stores = self._move(TaskKind.DMA_OUT, self.out[i], job.dma.write_s_per_byte, after)
        self.written += stores
        if out_buffer >= 0:
            self.builder.release(out_buffer, stores or after)
        self.results.append(after)

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
        return self._move(TaskKind.DMA_IN, self.b[i] + extra, job.dma.read_s_per_byte)

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
        s_per_byte = job.a_s_per_byte if self.a[i] > 0.0 else job.dma.read_s_per_byte
        loads = self._move(TaskKind.DMA_IN, self.a[i] + extra, s_per_byte)
        # Sums have one place: activations are fetched while earlier sums are still added to.
        (sums,) = self._reserve((), [(f"partial sums of {job.out.name}", job.sums_bytes * step.sums)])
        self._hold(sums, i + step.sums_until)
        return loads, out_buffer

    def _fetch_ahead(self, i: int, step: TilingStep, loads: Sequence[int]) -> None:
        """Fetch a part of the weights of later operators behind the loads of a step."""
        builder, job, dma = self.builder, self.job, self.job.npu.dma
        granted = builder.last_reserve
        for ahead in job.ahead:
            if i == 0:
                granted = builder.task(TaskKind.RESERVE, operator=ahead.operator, after=[granted])
                builder.last_reserve = granted
                buffer = builder.buffer(granted, ahead.name, ahead.sram_bytes)
                builder.ahead_buffers.setdefault(ahead.operator, []).append(buffer)
            part = ahead.bytes * step.work / len(job.npu.engines)
            builder.fetched.setdefault(ahead.operator, []).extend(
                builder.task(
                    TaskKind.DMA_IN,
                    engine,
                    ahead.operator,
                    part * len(job.npu.engines) * dma.read_s_per_byte,
                    after=[granted, *loads],
                    fixed_s=dma.read_latency_s if part <= dma.page_bytes else dma.far_read_latency_s,
                    bytes_=part,
                )
                for engine in job.npu.engines
            )

    def _move(
        self, kind: TaskKind, size: float, s_per_byte: float, after: Sequence[int] | None = None
    ) -> list[int]:
        """Write one transfer, divided evenly over all DMA engines; it waits for the last reservation."""
        job, dma = self.job, self.job.dma
        after = [self.builder.last_reserve] if after is None else after
        parts = self._divided(size, len(job.npu.engines)) if size > 0.0 else []
        moves = []
        for engine, part in zip(job.npu.engines, parts, strict=False):
            if part <= 0.0:
                continue
            latency_s, served = dma.write_latency_s, job.write_served
            if kind is TaskKind.DMA_IN:
                latency_s = dma.read_latency_s if part <= dma.page_bytes else dma.far_read_latency_s
                served = job.read_served
            moved = job.repeats * part
            task = self.builder.task(
                kind,
                engine,
                job.operator,
                moved * len(parts) * s_per_byte,
                after=after,
                fixed_s=job.repeats * latency_s,
                bytes_=moved * (1.0 - served),
                shared_bytes=moved * served * job.shared_served,
            )
            moves.append(task)
        return moves

    def _work(self, i: int, step: TilingStep, after: Sequence[int]) -> list[int]:
        """Write the compute tasks of a step; the operator's dispatch precedes the first step."""
        job, builder = self.job, self.builder
        waits = [*after, *job.start, builder.last_reserve]
        if i == 0 and job.dispatch_s > 0.0:
            # One management processor makes all calls, in program order; grids and DSPs wait for it.
            waits = [*waits, *builder.dispatched]
            dispatch_s = job.repeats * job.dispatch_s
            calls = [
                builder.task(TaskKind.LAUNCH, unit, job.operator, dispatch_s, after=waits)
                for unit in (*job.npu.dpus(job.npu.tiles), *job.npu.dsp_units())
            ]
            waits = builder.dispatched = [builder.sync(calls, job.operator)]
        if job.kind is TaskKind.SYNC:
            return [builder.sync(waits, job.operator)]
        macs = self._divided(self.macs[i], len(job.units))
        return [
            builder.task(job.kind, unit, job.operator, job.work_s * step.work, after=waits, macs=part)
            for unit, part in zip(job.units, macs, strict=True)
        ]

    def _copy(self, step: TilingStep, after: list[int]) -> list[int]:
        """Write the copies between tiles, or within SRAM, that follow a step."""
        job, engines = self.job, self.job.npu.engines
        if job.copy_s <= 0.0 or (self.by_pass and not step.last_of_pass):
            return after
        copy_s, fixed_s = job.repeats * job.copy_s / self.copies, job.repeats * job.dma.copy_latency_s
        sizes = [job.repeats * size for size in self._divided(job.copy_bytes / self.copies, len(engines))]
        return [
            self.builder.task(
                TaskKind.TRANSFER, engine, job.operator, copy_s, after=after, fixed_s=fixed_s, bytes_=size
            )
            for engine, size in zip(engines, sizes, strict=True)
        ]


class _Build:
    """Writes a program group by group."""

    def __init__(self, mapped: Mapped, most_turns: Callable[[int], int]) -> None:
        self.mapped, self.arch, self.most_turns = mapped, mapped.arch, most_turns
        self.graph, self.groups = mapped.graph, mapped.decisions.groups
        self.root = roots(mapped.graph, self.groups)
        units: list[ExecutionUnit] = []
        # Units of each array device.
        self.npu_units: dict[str, NpuUnits] = {}
        for name in self.arch.arrays:
            self.npu_units[name] = NpuUnits(self.arch[name], len(units))
            units += self.npu_units[name].units(name)
        self.host_unit = {name: len(units) + i for i, name in enumerate(self.arch.hosts)}
        units += [ExecutionUnit(name, name) for name in self.arch.hosts]
        arrays = (self.arch[name] for name in self.arch.arrays)
        capacities = tuple(float(arch["tiles"]) * float(arch["sram_tile_bytes"]) for arch in arrays)
        self.builder = ProgramBuilder(units, [g.main for g in self.groups], capacities)
        # Last call by the management processor of each array device.
        self.dispatched: dict[str, list[int]] = {}
        # Last tasks of each group.
        self.done: dict[int, Emitted] = {}
        # Group that produces a tensor.
        self.producer = {
            tensor: i
            for i, group in enumerate(self.groups)
            if group.unit is not Unit.VIEW
            for name in group.members
            for tensor in self.graph.operators[name].outputs
        }
        self.residents = resident_tensors(mapped)
        # Residents by the groups that use them, in their order.
        self.used_by: dict[int, list[ResidentTensor]] = {}
        for resident in self.residents:
            for user in resident.users:
                self.used_by.setdefault(user, []).append(resident)
        # Last tasks of the current phase of work.
        self.phase: list[int] = []
        self.device = self.part = ""
        # Groups at which work returns to each array device.
        self.returns: dict[str, list[int]] = {name: [] for name in self.arch.arrays}
        self.held = self._held_across()
        self.row_fused = mapped.decisions.residency.row_fused
        self.in_sram = mapped.decisions.residency.whole | self.row_fused
        self.chains = fused_chains(mapped, self.residents)
        self.held_ahead = held_ahead(mapped)
        # Prefetched transfers by the group that they are made during, and by their own.
        self.ahead: dict[int, list[Any]] = {}
        self.prefetched: dict[int, list[Any]] = {}
        for transfer in mapped.transfers:
            at, operator = int(transfer["during"]), int(transfer["operator"])
            if at < operator or operator in self.chains:  # a chain that does not fit runs earlier
                self.ahead.setdefault(at, []).append(transfer)
                self.prefetched.setdefault(operator, []).append(transfer)

    def _held_across(self) -> set[int]:
        """Return the groups at which work comes back to an array device that still holds tensors in SRAM.

        No other inference may enter between two such phases: it could take SRAM that the second phase needs.
        """
        changes = {name: [0] * (len(self.groups) + 2) for name in self.arch.arrays}
        for resident in self.residents:
            changes[resident.device][resident.users[0] + 1] += 1
            changes[resident.device][resident.users[-1] + 1] -= 1
        alive = {name: list(accumulate(steps)) for name, steps in changes.items()}
        held: set[int] = set()
        previous = ("", "")
        for i, group in enumerate(self.groups):
            if group.unit is Unit.VIEW:
                continue
            place = (group.device, self.graph.operators[group.main].part)
            if group.unit.is_array and previous != place:
                self.returns[group.device].append(i)
                if alive[group.device][i]:
                    held.add(i)
            previous = place
        return held

    def run(self) -> Program:
        """Write all groups."""
        self.last_end = self.builder.sync(())
        launches = self.mapped.lowered.ops["launches"]
        for i, group in enumerate(self.groups):
            if group.unit is Unit.VIEW:
                continue
            device, part = group.device, self.graph.operators[group.main].part
            if (device, part) != (self.device, self.part):
                self._leave(i)
                self.part = part
                self._enter(i, device, float(launches[i]))
            if not group.unit.is_array:
                self._on_host(i, group)
            elif (chain := self.chains.get(i, FusedChain((i,), 0))).members[-1] == i:
                self._on_npu(chain, self.npu_units[device])
        if not self.device:  # views alone: the runtime is called all the same
            self._enter(0, next(iter(self.arch.arrays), ""), float(launches.sum()))
        self._leave(len(self.groups))
        self.builder.sync([self.last_end])
        return self.builder.finish()

    def _enter(self, index: int, device: str, launches: float) -> None:
        """Begin a phase of work on a device, with its runtime calls."""
        self.device = device
        seconds = launches * float(self.arch[device]["launch_s"]) if device else 0.0
        if seconds > 0.0:
            self.last_end = self.builder.task(TaskKind.LAUNCH, duration_s=seconds, after=[self.last_end])
        if device in self.arch.arrays:
            self.builder.device = self.arch.place_of(device)
            self.builder.dispatched = self.dispatched.get(device, [])
            kind = TaskKind.SYNC if index in self.held else TaskKind.ENTER
            self.builder.last_reserve = self.builder.task(kind, after=[self.last_end])
        self.phase = [self.last_end]

    def _leave(self, index: int) -> None:
        """End the current phase of work; the next phase begins at group `index`."""
        if not self.device:
            return
        self.last_end = self.builder.sync(self.phase)
        if self.device not in self.arch.arrays:
            return
        self.dispatched[self.device] = self.builder.dispatched
        following = next((i for i in self.returns[self.device] if i >= index), -1)
        if following not in self.held:
            self.builder.task(TaskKind.LEAVE, after=[self.last_end])

    def _on_host(self, index: int, group: Group) -> None:
        """Write the task of a group on a CPU or GPU."""
        op, result, host = self.mapped.lowered.ops[index], self.mapped.results[index], self.arch[group.device]
        fixed_s = float(host_waits_s(host, op))
        task = self.builder.task(
            TaskKind.GPU if host["is_gpu"] else TaskKind.CPU,
            self.host_unit[group.device],
            index,
            max(0.0, float(result["host_s"]) - fixed_s),
            after=[*(done.written for done in self._producers(index, self._inputs(group))), self.phase[0]],
            fixed_s=fixed_s,
            bytes_=float(result["streamed_bytes"]),
            macs=self._macs(group),
        )
        self.done[index] = Emitted(task, task)
        self.phase.append(task)

    def _macs(self, group: Group) -> float:
        return sum(self.graph.macs_of(self.graph.operators[name]) for name in group.members)

    def _inputs(self, group: Group) -> list[str]:
        return stored_inputs(self.graph, group, self.root)

    def _producers(self, index: int, tensors: Iterable[str]) -> list[Emitted]:
        """Return the last tasks of the groups that produce some tensors, except group `index`."""
        results = (t for t in tensors if self.graph.tensors[t].kind is TensorKind.ACTIVATION)
        producers = dict.fromkeys(self.producer[t] for t in results if t in self.producer)
        return [self.done[i] for i in producers if i in self.done and i != index]

    def _on_npu(self, chain: FusedChain, npu: NpuUnits) -> None:
        """Write the tasks of a chain on an array device; one group alone is a chain too."""
        place = {i: at for at, i in enumerate(chain.members)}
        jobs = [self._job(i, place, npu, chain.pieces) for i in chain.members]
        self.done.update(zip(chain.members, emit(self.builder, jobs), strict=True))
        for i in chain.members:
            self.phase += dict.fromkeys(self.done[i])
        for i in chain.members:
            for resident in self.used_by.get(i, ()):
                if (resident.device, resident.name) in self.builder.residents:
                    # Its SRAM is free when all users have ended.
                    buffer = self.builder.residents[resident.device, resident.name]
                    self.builder.release(buffer, dict.fromkeys(self.done[i]))
            for buffer in self.builder.ahead_buffers.pop(i, ()):
                self.builder.release(buffer, [self.done[i].computed])

    def _job(self, index: int, place: dict[int, int], npu: NpuUnits, pieces: int) -> Job:
        """Return the job of a group; `place` gives the position of each group in its chain."""
        group = self.groups[index]
        # Steps of groups that run at the same time wait for each other: all are written.
        most_turns = self.most_turns(index) if len(place) == 1 else 0
        job = job_of(self.mapped, index, npu, pieces, most_turns, float(self.held_ahead[index]))
        job.macs = self._macs(group)
        a, b, out = (self.root.get(name, {}) for name in self._operands(group))
        job.a.name, job.b.name, job.out.name = (" | ".join(stored) for stored in (a, b, out))
        inputs = self._inputs(group)
        in_dram = [t for t in inputs if t not in self.in_sram]
        in_sram = (t for t in inputs if t in self.in_sram)
        job.start = [done.computed for done in self._producers(index, in_sram)]
        job.b_after = [done.written for done in self._producers(index, (t for t in in_dram if t in b))]
        job.a_after = [done.written for done in self._producers(index, (t for t in in_dram if t not in b))]
        if job.a.bytes <= 0.0:
            job.a_after = [*job.a_after, *job.start]  # nothing to prefetch: reserve SRAM late
        producers = (self.producer.get(t, -1) for t in inputs if t in self.row_fused)
        job.producers = [place[i] for i in producers if i in place and i != index]
        first_used = (r for r in self.used_by.get(index, ()) if r.users[0] == index)
        job.residents = [((r.device, r.name), r.bytes) for r in first_used]
        self._prefetch(job)
        return job

    def _prefetch(self, job: Job) -> None:
        """Add to a job what it fetches for later ones, and leave out what earlier ones fetched for it."""
        read_s_per_byte = job.npu.dma.read_s_per_byte
        job.ahead = [
            Ahead(
                int(transfer["operator"]),
                f"weights of {self.groups[transfer['operator']].main}",
                float(transfer["seconds"]) / read_s_per_byte,
                float(transfer["held_bytes"]),
            )
            for transfer in self.ahead.get(job.operator, ())
        ]
        if transfers := self.prefetched.get(job.operator):
            op, seconds = self.mapped.lowered.ops[job.operator], sum(t["seconds"] for t in transfers)
            leave_out(job, op, float(seconds) / read_s_per_byte, bool(transfers[0]["is_own"]))
            job.start = [*job.start, *self.builder.fetched.pop(job.operator)]

    def _operands(self, group: Group) -> tuple[str, str, str]:
        """Return the names of the left (streamed) and right operand and of the result."""
        op = self.graph.operators[group.main]
        result = self.graph.operators[group.members[-1]].outputs[0]
        if group.unit is Unit.DPU and op.family in (Family.MATMUL, Family.CONVOLUTION):
            left, right = op.inputs[:2]
            return (right, left, result) if group.swapped else (left, right, result)
        return op.inputs[0] if op.inputs else result, "", result
