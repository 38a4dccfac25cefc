"""What each way to keep up costs, update by update.

Like the household book of a family with a growing child: so much for new shoes, so much for mending, so much
for walking in shoes too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from npusim.engines.stream.document import Strategy
from npusim.engines.stream.updates import Size
from npusim.engines.stream.workshop import Version, Workshop

__all__ = ["Bill", "padded", "recompiled"]

Name = Literal["recompile", "recompile on nodes", "pad and mask"]


@dataclass(frozen=True, slots=True)
class Bill:
    """The costs of one strategy, update by update; the first entry is what comes before them."""

    compile_s: list[float]
    mask_s: list[float]
    inference_s: list[float]
    versions: list[Version]
    """Every version that was compiled."""

    def strategy(self, name: Name, techniques: str) -> Strategy:
        """Add the bill up."""
        steps = [sum(parts) for parts in zip(self.compile_s, self.mask_s, self.inference_s, strict=True)]
        return Strategy(
            name=name,
            techniques=techniques,
            compilations=len(self.versions),
            versions=len(self.versions),
            compile_s=sum(self.compile_s),
            mask_s=sum(self.mask_s),
            inference_s=sum(self.inference_s),
            total_s=self.total_s,
            memory_bytes=self.memory_bytes,
            largest_version_bytes=max(version.memory_bytes for version in self.versions),
            cumulative_s=[float(value) for value in np.cumsum(steps)],
        )

    @property
    def total_s(self) -> float:
        """Time in all (s)."""
        return sum(self.compile_s) + sum(self.mask_s) + sum(self.inference_s)

    @property
    def memory_bytes(self) -> float:
        """Memory of all versions (B)."""
        return sum(version.memory_bytes for version in self.versions)


def recompiled(
    shop: Workshop,
    stack: str,
    course: Sequence[Size],
    mask_s: list[float],
    inferences: int,
    changed: Sequence[bool] | None,
) -> Bill:
    """Compile where `changed`, as baked-in edges need it; None: only for a number of nodes not seen before.

    A version for a number of nodes that was there before is taken from the shelf; baked-in edges never come
    back.

    Parameters
    ----------
    shop : Workshop
    stack : str
        Technique stack.
    course : sequence of Size
        The graph before the first update and after each.
    mask_s : list of float
        Time to correct the mask at each of them (s).
    inferences : int
        Inferences after each update.
    changed : sequence of bool, optional
        For each update, whether it changes anything.
    """
    by_nodes = shop.versions(stack, course)
    first = by_nodes[course[0].nodes]
    compile_s, inference_s, used = [first.compile_s], [0.0], [first]
    seen = {course[0].nodes}
    for i, size in enumerate(course[1:]):
        version = by_nodes[size.nodes]
        needed = size.nodes not in seen if changed is None else changed[i]
        seen.add(size.nodes)
        compile_s.append(version.compile_s if needed else 0.0)
        inference_s.append(inferences * version.latency_s)
        used += [version] if needed else []
    return Bill(compile_s, mask_s, inference_s, used)


def padded(
    shop: Workshop, stack: str, course: Sequence[Size], mask_s: list[float], inferences: int, capacity: int
) -> Bill:
    """Compile for a capacity, and anew with the same room to spare whenever the graph outgrows it."""
    spare = capacity - course[0].nodes
    version = shop.version(stack, course[0], capacity)
    compile_s, inference_s, used = [version.compile_s], [0.0], [version]
    for size in course[1:]:
        outgrown = size.nodes > capacity
        if outgrown:
            capacity = size.nodes + spare
            version = shop.version(stack, size, capacity)
            used.append(version)
        compile_s.append(version.compile_s if outgrown else 0.0)
        inference_s.append(inferences * version.latency_s)
    return Bill(compile_s, mask_s, inference_s, used)
