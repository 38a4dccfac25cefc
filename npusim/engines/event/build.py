"""Writes the program of a mapped graph: the tasks of every operator, and what each waits for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from npusim.cost import Group, Unit, host_waits_s, roots
from npusim.engines.event.emission import Emitted, Job, emit
from npusim.engines.event.fused_chains import FusedChain, fused_chains
from npusim.engines.event.jobs import NpuUnits, job_of
from npusim.engines.event.program import Program, ProgramBuilder
from npusim.engines.event.residents import ResidentTensor, resident_tensors
from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.mapping import Mapped
from npusim.ops import Family, TensorKind


def _ends(done: Emitted) -> list[int]:
    """Tasks after which nothing of an operator is left to do."""
    return [done.computed] if done.written == done.computed else [done.computed, done.written]


def build_program(mapped: Mapped, most: Callable[[int], int] = lambda operator: 0) -> Program:
    """Write the tasks of one inference.

    Parameters
    ----------
    most : callable
        Of an operator's number: turns of a loop of its tiling to write, where it has many more; 0: all.

    Returns
    -------
    Program
        Task 0 begins the inference, the last one ends it.
    """
    return _Build(mapped, most).run()


class _Build:
    def __init__(self, mapped: Mapped, most: Callable[[int], int]) -> None:
        self.mapped, self.arch, self.most = mapped, mapped.arch, most
        self.graph, self.groups = mapped.graph, mapped.decisions.groups
        self.root = roots(mapped.graph, self.groups)
        units: list[ExecutionUnit] = []
        self.npu_units: dict[str, NpuUnits] = {}
        """Units of each array device."""
        for name in self.arch.arrays:
            self.npu_units[name] = NpuUnits(self.arch[name], len(units))
            units += self.npu_units[name].units(name)
        self.host_unit = {name: len(units) + i for i, name in enumerate(self.arch.hosts)}
        units += [ExecutionUnit(name, name) for name in self.arch.hosts]
        capacities = tuple(
            float(self.arch[name]["tiles"]) * float(self.arch[name]["sram_tile_bytes"])
            for name in self.arch.arrays
        )
        self.builder = ProgramBuilder(units, [g.main for g in self.groups], capacities)
        self.dispatched: dict[str, list[int]] = {}
        """The last call by the management processor of each array device."""
        self.done: dict[int, Emitted] = {}
        """What is known of each group's tasks."""
        self.producer: dict[str, int] = {}
        """Group that produces a tensor."""
        for i, group in enumerate(self.groups):
            for name in (group.main, *group.fused):
                if group.unit is not Unit.VIEW:
                    self.producer.update(dict.fromkeys(self.graph.operators[name].outputs, i))
        self.residents = resident_tensors(mapped)
        self.resident_users: dict[int, list[ResidentTensor]] = {}
        """Resident tensors that a group uses."""
        for resident in self.residents:
            for user in resident.users:
                self.resident_users.setdefault(user, []).append(resident)
        self.buffers: dict[tuple[str, str], int] = {}
        """Buffer of each tensor that stays in the SRAM of a device."""
        self.phase: list[int] = []
        """Last tasks of the phase of work that is being written."""
        self.last_reserve: dict[str, int] = {}
        self.device = self.part = ""
        self.returns: dict[str, list[int]] = {name: [] for name in self.arch.arrays}
        """Groups at which each array device takes up work."""
        self.held = self._held_across()
        self.row_fused = mapped.decisions.residency.row_fused
        self.in_sram = mapped.decisions.residency.whole | self.row_fused
        self.chains = fused_chains(mapped, self.residents)

    def _held_across(self) -> set[int]:
        """Groups at which an array device takes up work again while a tensor still lies in its SRAM.

        Between two such phases no other inference may come in: it could take the room that the
        second one needs.
        """
        changes = {name: [0] * (len(self.groups) + 2) for name in self.arch.arrays}
        for resident in self.residents:
            changes[resident.device][resident.users[0] + 1] += 1
            changes[resident.device][resident.users[-1] + 1] -= 1
        alive = {name: list(accumulate(steps)) for name, steps in changes.items()}
        found: set[int] = set()
        before = ("", "")
        for i, group in enumerate(self.groups):
            if group.unit is Unit.VIEW:
                continue
            place = (group.device, self.graph.operators[group.main].part)
            if group.unit.is_array and before != place:
                self.returns[group.device].append(i)
                if alive[group.device][i]:
                    found.add(i)
            before = place
        return found

    def run(self) -> Program:
        self.last_end = self.builder.sync(())
        for i, group in enumerate(self.groups):
            if group.unit is Unit.VIEW:
                continue
            device, part = group.device, self.graph.operators[group.main].part
            if (device, part) != (self.device, self.part):
                self._leave(i)
                self.part = part
                self._enter(i, device, float(self.mapped.lowered.ops[i]["launches"]))
            if group.unit.is_array:
                self._on_npu(i)
            else:
                self._on_host(i, group)
        if not self.device:  # nothing but views: the runtime is called all the same
            self._enter(0, next(iter(self.arch.arrays), ""), float(self.mapped.lowered.ops["launches"].sum()))
        self._leave(len(self.groups))
        self.builder.sync([self.last_end])
        return self.builder.finish()

    def _enter(self, index: int, device: str, launches: float) -> None:
        self.device = device
        seconds = launches * float(self.arch[device]["launch_s"]) if device else 0.0
        if seconds > 0.0:
            self.last_end = self.builder.task(TaskKind.LAUNCH, duration_s=seconds, after=[self.last_end])
        if device in self.arch.arrays:
            self.builder.device = self.arch.place_of(device)
            self.builder.dispatched = self.dispatched.get(device, [])
            kind = TaskKind.SYNC if index in self.held else TaskKind.ENTER
            self.last_reserve[device] = self.builder.task(kind, after=[self.last_end])
        self.phase = [self.last_end]

    def _leave(self, index: int) -> None:
        """End a phase of work on one device; the next, at group `index`, begins when it is over."""
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
        op, result, host = self.mapped.lowered.ops[index], self.mapped.results[index], self.arch[group.device]
        kind, total_s = TaskKind.GPU if host["is_gpu"] else TaskKind.CPU, float(result["host_s"])
        fixed_s = float(host_waits_s(host, op))
        unit = self.host_unit[group.device]
        task = self.builder.task(
            kind, unit, index, max(0.0, total_s - fixed_s),
            after=[*self._inputs_written(index, group), self.phase[0]],
            fixed_s=fixed_s, bytes_=float(result["streamed_bytes"]), macs=self._macs(group),
        )  # fmt: skip
        self.done[index] = Emitted(task, task, -1, {})
        self.phase.append(task)

    def _macs(self, group: Group) -> float:
        return sum(self.graph.macs_of(self.graph.operators[name]) for name in (group.main, *group.fused))

    def _inputs_written(self, index: int, group: Group) -> list[int]:
        return [self.done[i].written for i in self._producers(index, self._inputs(group))]

    def _inputs(self, group: Group) -> list[str]:
        """Tensors a group reads, as those whose bytes they are, without what it makes itself."""
        inner = {t for name in (group.main, *group.fused) for t in self.graph.operators[name].outputs}
        read = (
            t
            for name in (group.main, *group.fused)
            for t in self.graph.operators[name].inputs
            if t not in inner
        )
        return list(dict.fromkeys(stored for t in read for stored in self.root[t]))

    def _producers(self, index: int, tensors: list[str]) -> list[int]:
        found = (
            self.producer[t]
            for t in tensors
            if self.graph.tensors[t].kind is TensorKind.ACTIVATION and t in self.producer
        )
        return [i for i in dict.fromkeys(found) if i in self.done and i != index]

    def _on_npu(self, index: int) -> None:
        chain = self.chains.get(index, FusedChain((index,), 0))
        members = chain.members
        if index != members[-1]:
            return  # written with the last of its chain, which has everything it needs by then
        place = {i: at for at, i in enumerate(members)}
        jobs = [self._job(i, place, chain.pieces) for i in members]
        device = self.groups[index].device
        emitted = emit(self.builder, jobs, self.last_reserve[device])
        for i, done in zip(members, emitted, strict=True):
            self.last_reserve[device] = done.last_reserve
            self.done[i] = done
            self.buffers.update(((device, name), b) for name, b in done.resident_buffers.items())
            self.phase += _ends(done)
        for i in members:
            self._release_residents(i)

    def _job(self, index: int, place: dict[int, int], pieces: int) -> Job:
        """Return the job of a group in a chain, given the place of each group of the chain."""
        op: Any = self.mapped.lowered.ops[index]
        group, result = self.groups[index], self.mapped.results[index]
        arch, units = self.arch[group.device], self.npu_units[group.device]
        # Steps of groups that run at the same time wait for each other: they are all written.
        most = self.most(index) if len(place) == 1 else 0
        job = job_of(arch, op, result, index, units, pieces, most)
        job.macs = self._macs(group)
        self._name(job, index, group)
        self._dependencies(job, index, group)
        if len(place) > 1:
            made = (self.producer.get(t, -1) for t in self._inputs(group) if t in self.row_fused)
            job.producers = tuple(place[i] for i in made if i in place and i != index)
        job.residents = [(r.name, r.bytes) for r in self.resident_users.get(index, ()) if r.first == index]
        return job

    def _release_residents(self, index: int) -> None:
        """Release resident tensors that this group uses; their room is free when all users have ended."""
        for resident in self.resident_users.get(index, ()):
            buffer = self.buffers.get((resident.device, resident.name))
            if buffer is not None:
                self.builder.release(buffer, _ends(self.done[index]))

    def _name(self, job: Job, index: int, group: Group) -> None:
        names = (self.root.get(name, {}) for name in self._operands(group))
        job.a_name, job.b_name, job.out_name = (" | ".join(stored) for stored in names)

    def _operands(self, group: Group) -> tuple[str, str, str]:
        """Names of the left (streamed) and right operand and of the result."""
        op = self.graph.operators[group.main]
        last = self.graph.operators[group.fused[-1]] if group.fused else op
        result = last.outputs[0]
        a = op.inputs[0] if op.inputs else result
        b = ""
        if group.unit is Unit.DPU and op.family in (Family.MATMUL, Family.CONVOLUTION):
            b = op.inputs[1]
            if group.swapped:
                a, b = b, a
        return a, b, result

    def _dependencies(self, job: Job, index: int, group: Group) -> None:
        """Find out what loads and work wait for."""
        weights = self.root.get(self._operands(group)[1], {})
        inputs = self._inputs(group)
        in_sram = [t for t in inputs if t in self.in_sram]
        in_dram = [t for t in inputs if t not in self.in_sram]
        start = [self.done[i].computed for i in self._producers(index, in_sram)]
        job.b_after = tuple(
            self.done[i].written for i in self._producers(index, [t for t in in_dram if t in weights])
        )
        job.a_after = tuple(
            self.done[i].written for i in self._producers(index, [t for t in in_dram if t not in weights])
        )
        job.start = tuple(start)
        if job.a_bytes <= 0.0:
            job.a_after = (*job.a_after, *start)  # nothing to fetch ahead: take no room before it is needed
