"""Groups fused row by row, which run at the same time, and the row blocks that fit into SRAM.

A chain that does not fit, however fine the pieces, runs one group after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusim.engines.event.emission import Job
from npusim.engines.event.jobs import NpuUnits, job_of
from npusim.engines.event.residents import ResidentTensor
from npusim.mapping import Mapped

_FINEST = 6
"""Times that pieces are cut in two before a chain is given up."""


@dataclass(frozen=True, slots=True)
class FusedChain:
    """Groups that run at the same time."""

    members: tuple[int, ...]
    """In order; no group outside waits for another than the last."""
    pieces: int
    """Pieces that each is cut into at least; 0: as it would be alone."""


def fused_chains(mapped: Mapped, residents: list[ResidentTensor]) -> dict[int, FusedChain]:
    """Return the chain of each group that runs at the same time as others.

    Parameters
    ----------
    residents : list of ResidentTensor
        Tensors that live across operators, those handed on row by row included.

    Notes
    -----
    A tensor that is handed on row by row has one reader, and an operator one result: a chain is a tree whose
    root is its last group.
    """
    numbers = mapped.lowered.ops["fused_chain"]
    chains: dict[int, list[int]] = {}
    for group in np.flatnonzero(numbers).tolist():
        chains.setdefault(int(numbers[group]), []).append(group)
    while True:
        found = _fitting(mapped, residents, list(map(tuple, chains.values())))
        if all(members[0] in found for members in chains.values()):
            return found
        # What runs one group after the other holds its blocks longer: others may not fit beside it.
        chains = {number: members for number, members in chains.items() if members[0] in found}


def _fitting(
    mapped: Mapped, residents: list[ResidentTensor], chains: list[tuple[int, ...]]
) -> dict[int, FusedChain]:
    """Return the chain of each group of those chains that fit, if all others are chains too."""
    found: dict[int, FusedChain] = {}
    ends = {i: members[-1] for members in chains for i in members}
    """A chain is written at its last group: what passes between its groups is in SRAM then only."""
    moments = [[ends.get(user, user) for user in r.users] for r in residents]
    first, last = (np.array([limit(times) for times in moments], int) for limit in (min, max))
    sizes = np.array([r.bytes for r in residents])
    homes = np.array([r.device for r in residents], object)
    for members in chains:
        mine = homes == mapped.decisions.groups[members[0]].device
        beside = float(sizes[mine & (first <= members[-1]) & (last >= members[-1])].sum())
        pieces = _pieces(mapped, members, beside)
        if pieces:
            found.update(dict.fromkeys(members, FusedChain(members, pieces)))
    return found


def _pieces(mapped: Mapped, members: tuple[int, ...], beside: float) -> int:
    """Return the pieces that make a chain fit beside other tensors, with two buffers or else one; 0: none."""
    coarsest = int(mapped.arch[mapped.decisions.groups[members[0]].device]["stream_pieces"])
    for buffers in (2.0, 1.0):
        for pieces in (coarsest << halved for halved in range(_FINEST + 1)):
            if _fits(mapped, members, pieces, buffers, beside):
                return pieces
    return 0


def _fits(mapped: Mapped, members: tuple[int, ...], pieces: int, buffers: float, beside: float) -> bool:
    """Whether steps of every operator, with what waits for them, fit into SRAM beside the others."""
    arch, ops = mapped.arch[mapped.decisions.groups[members[0]].device], mapped.lowered.ops
    units = NpuUnits(arch)
    jobs = [job_of(arch, ops[i], mapped.results[i], i, units, pieces) for i in members]
    sram_bytes = float(arch["tiles"]) * float(arch["sram_tile_bytes"])
    return sum(_needed_bytes(job, buffers) for job in jobs) + beside <= sram_bytes


def _needed_bytes(job: Job, buffers: float) -> float:
    """Room that an operator needs to go on with so many steps in SRAM."""
    streamed = max(job.a_sram * step.a + job.out_sram * step.out for step in job.steps)
    waiting = max(job.b_sram * step.b + job.sums_sram * step.sums for step in job.steps)
    held = max((job.a_sram * step.a for step in job.steps if step.a_until), default=0.0)
    return buffers * streamed + waiting + held + job.once_bytes
