"""Writes the program of a mapped graph: the tasks of every operator, and their dependencies.

The tasks of a step reserve SRAM, fetch by DMA, compute on every tile, and write back by DMA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from npusim.cost import Group, Liveness, ResidentTensor, Unit, host_waits_s, roots
from npusim.engines.event.emission import Emitted, emit
from npusim.engines.event.jobs import Job, NpuUnits, Prefetch, job_of, use_prefetched
from npusim.engines.event.program import Program, ProgramBuilder
from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.mapping import Mapped, held_ahead, stored_inputs
from npusim.ops import Family, TensorKind

# Times that pieces are halved before a chain runs one group after the other.
_MOST_HALVINGS = 6


def resident_tensors(mapped: Mapped) -> list[ResidentTensor]:
    """Return the tensors that the mapping keeps in SRAM, in the order of their first use."""
    tiles = {name: float(mapped.arch[name]["tiles"]) for name in mapped.arch.arrays}
    return Liveness(mapped.graph, mapped.decisions, mapped.soc).residents(tiles)


class FusedChain(NamedTuple):
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
        self.row_fused = mapped.decisions.residency.row_fused
        self.in_sram = mapped.decisions.residency.whole | self.row_fused
        self.chains = fused_chains(mapped, self.residents)
        self.prefetched_bytes = held_ahead(mapped)
        # Prefetches by the group during which they are made, and by the group that uses them.
        self.made_during: dict[int, list[Prefetch]] = {}
        self.used_from: dict[int, list[Prefetch]] = {}
        for transfer in mapped.transfers:
            during, user = int(transfer["during"]), int(transfer["operator"])
            if during < user or user in self.chains:  # a chain that does not fit runs earlier
                name, times = f"weights of {self.groups[user].main}", float(transfer["seconds"])
                sram_bytes, is_own = float(transfer["held_bytes"]), bool(transfer["is_own"])
                prefetch = Prefetch(user, name, times, sram_bytes, is_own)
                self.made_during.setdefault(during, []).append(prefetch)
                self.used_from.setdefault(user, []).append(prefetch)

    def _device(self, phase: Sequence[int]) -> str:
        """Return the device of a phase; where there are views alone, the runtime of the first is called."""
        return self.groups[phase[0]].device if phase else next(iter(self.arch.arrays))

    def _is_held(self, phase: Sequence[int], device: str) -> bool:
        """Return whether work comes back to an array device that still holds tensors in SRAM.

        No other inference may enter between two such phases: it could take SRAM that the second phase needs.
        """
        residents = (r for r in self.residents if r.device == device)
        return any(r.users[0] < phase[0] <= r.users[-1] for r in residents) if phase else False

    def run(self) -> Program:
        """Write all groups, phase by phase: groups of a part that run on one device, one after the other."""
        builder, arrays, launches = self.builder, self.arch.arrays, self.mapped.lowered.ops["launches"]
        working = [i for i, group in enumerate(self.groups) if group.unit is not Unit.VIEW]
        parts = [self.graph.operators[group.main].part for group in self.groups]
        runs = groupby(working, key=lambda i: (self.groups[i].device, parts[i]))
        phases = [list(phase) for _, phase in runs] or [[]] * bool(arrays)
        last_end = builder.sync(())
        for number, phase in enumerate(phases):
            device = self._device(phase)
            calls = float(launches[phase[0]] if phase else launches.sum())
            seconds = calls * float(self.arch[device]["launch_s"])
            if seconds > 0.0:
                last_end = builder.task(TaskKind.LAUNCH, duration_s=seconds, after=[last_end])
            if device in arrays:
                builder.device = self.arch.place_of(device)
                kind = TaskKind.SYNC if self._is_held(phase, device) else TaskKind.ENTER
                builder.last_reserve = builder.task(kind, after=[last_end])
            self.phase = [last_end]
            for i in phase:
                if device not in arrays:
                    self._on_host(i, self.groups[i])
                elif (chain := self.chains.get(i, FusedChain((i,), 0))).members[-1] == i:
                    self._on_npu(chain, self.npu_units[device])
            last_end = builder.sync(self.phase)
            if device in arrays:
                following = next((p for p in phases[number + 1 :] if self._device(p) == device), [])
                if not self._is_held(following, device):
                    builder.task(TaskKind.LEAVE, after=[last_end])
        builder.sync([last_end])
        return builder.finish()

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
            for buffer in sorted(prefetch.buffer for prefetch in self.used_from.get(i, ())):
                self.builder.release(buffer, [self.done[i].computed])

    def _job(self, index: int, place: dict[int, int], npu: NpuUnits, pieces: int) -> Job:
        """Return the job of a group; `place` gives the position of each group in its chain."""
        group = self.groups[index]
        # Steps of groups that run at the same time wait for each other: all are written.
        most_turns = self.most_turns(index) if len(place) == 1 else 0
        job = job_of(self.mapped, index, npu, pieces, most_turns, float(self.prefetched_bytes[index]))
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
        job.prefetches = self.made_during.get(index, ())
        if prefetches := self.used_from.get(index):
            use_prefetched(job, self.mapped.lowered.ops[index], prefetches)
        return job

    def _operands(self, group: Group) -> tuple[str, str, str]:
        """Return the names of the left (streamed) and right operand and of the result."""
        op = self.graph.operators[group.main]
        result = self.graph.operators[group.members[-1]].outputs[0]
        if group.unit is Unit.DPU and op.family in (Family.MATMUL, Family.CONVOLUTION):
            left, right = op.inputs[:2]
            return (right, left, result) if group.swapped else (left, right, result)
        return op.inputs[0] if op.inputs else result, "", result
