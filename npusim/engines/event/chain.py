"""The longest chain of a program: what an inference takes on a machine with as many units, and as much room,
as one likes.

The length of a recipe when a whole brigade cooks: some steps just follow each other.
"""

from __future__ import annotations

from npusim.engines.event.tasks import Program
from npusim.engines.event.traffic import Road

__all__ = ["longest_chain_s"]


def longest_chain_s(program: Program, road: Road) -> float:
    """Return the length of the longest chain of tasks that wait for each other, each at its fastest (s)."""
    ready = [0.0] * len(program)
    longest = 0.0
    for task in range(len(program)):
        top, _ = road.speed.get(program.kind[task], (1.0, False))
        end = ready[task] + program.fixed_s[task] + program.duration_s[task] / top
        longest = max(longest, end)
        for follower in program.next_task[program.next_start[task] : program.next_start[task + 1]]:
            ready[follower] = max(ready[follower], end)
    return longest
