"""Which operators of a mapped graph work at the same time: the links of its bucket chains.

Buckets can be handed on only where everyone has a place to stand: a chain whose operators do not fit into
SRAM side by side, however fine the stripes, is worked off one operator after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from npusim.engines.event.emission import Job
from npusim.engines.event.jobs import Station, job_of
from npusim.engines.event.kept import Kept
from npusim.mapping import Mapped

__all__ = ["Chain", "chains_of"]

_FINEST = 6
"""Times that pieces are cut in two before a chain is given up."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Groups that work together."""

    members: tuple[int, ...]
    """In order; no group outside waits for another than the last."""
    pieces: int
    """Pieces that each is cut into at least; 0: as it would be alone."""


def chains_of(mapped: Mapped, kept: list[Kept]) -> dict[int, Chain]:
    """Return the chain of each group that works together with others.

    Parameters
    ----------
    mapped : Mapped
    kept : list of Kept
        Tensors that live across operators, stripes included.

    Notes
    -----
    A tensor that is handed on in stripes has one reader, and an operator one result: a chain is a tree whose
    root is its last group.
    """
    numbers = mapped.lowered.ops["chain"]
    found: dict[int, Chain] = {}
    for number in range(1, int(numbers.max(initial=0)) + 1):
        members = tuple(i for i, other in enumerate(numbers.tolist()) if other == number)
        pieces = _pieces(mapped, kept, members)
        if pieces:
            found.update(dict.fromkeys(members, Chain(members, pieces)))
    return found


def _pieces(mapped: Mapped, kept: list[Kept], members: tuple[int, ...]) -> int:
    """Pieces that make a chain fit, with two buffers if that can be, else with one; 0 where none do."""
    coarsest = int(mapped.arch["stream_pieces"])
    for buffers in (2.0, 1.0):
        for pieces in (coarsest << halved for halved in range(_FINEST + 1)):
            if _fits(mapped, kept, members, pieces, buffers):
                return pieces
    return 0


def _fits(mapped: Mapped, kept: list[Kept], members: tuple[int, ...], pieces: int, buffers: float) -> bool:
    """Whether steps of every operator, with what waits for them, have room beside the others."""
    arch, ops = mapped.arch, mapped.lowered.ops
    station = Station(arch)
    last = members[-1]
    beside = sum(
        k.bytes for k in kept if k.users[0] < last < k.users[-1] or not set(members).isdisjoint(k.users)
    )
    jobs = [job_of(arch, ops[i], mapped.results[i], i, 0.0, station, pieces) for i in members]
    room = float(arch["tiles"]) * float(arch["sram_tile_bytes"])
    return sum(_room(job, buffers) for job in jobs) + beside <= room


def _room(job: Job, buffers: float) -> float:
    """Room that an operator needs to go on with so many steps in SRAM."""
    streamed = max(job.a_sram * step.a + job.out_sram * step.out for step in job.steps)
    waiting = max(job.b_sram * step.b + job.sums_sram * step.sums for step in job.steps)
    held = max((job.a_sram * step.a for step in job.steps if step.a_until), default=0.0)
    return buffers * streamed + waiting + held + job.once_bytes
