"""Ties between kernels of one generation, which decide what a single kernel's rows leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npusim.calibrate.dsp_forms import FORMS, Calls, Tie, design

__all__ = ["Sibling", "ties_of"]

_SAME = 0.02
"""Kernels whose main loops differ by less run the same code but for one instruction: Add and Multiply."""
_TWIN = 0.1
"""Weight of a call of a kernel that runs the same code, beside 1 for a call of one's own."""
_SPREAD = 0.05
"""Weight of the price of an odd element: kernels differ in it by a factor of two, and repeats of a call by
5 to 10 %."""


@dataclass(frozen=True)
class Sibling:
    """One kernel of a generation as it was fitted alone.

    Attributes
    ----------
    form : str
        Name of its form.
    inputs : int
        Tensors it reads.
    calls : Calls
        What it was fitted to.
    numbers : mapping
        Its numbers.
    """

    form: str
    inputs: int
    calls: Calls
    numbers: Mapping[str, float]

    @property
    def main(self) -> float:
        """Cycles of an element in its fastest loop."""
        return self.numbers.get("stream_per_element") or self.numbers.get("per_element", 0.0)

    def sizes_of_plain_loop(self) -> int:
        """Count the different sizes it was called with below the plain loop's threshold."""
        limits = FORMS[self.form].thresholds
        small = self.calls.elements[self.calls.elements < limits.get("small_below", 0)]
        return len(np.unique(np.minimum(small, limits.get("small_counted", np.inf))))


def ties_of(kernel: Sibling, others: Sequence[Sibling]) -> list[Tie]:
    """Return the ties of a kernel to the others of its generation.

    Parameters
    ----------
    kernel : Sibling
        Fitted alone.
    others : sequence of Sibling
        The generation's other kernels.
    """
    if kernel.form == "axis":
        # The streaming loop saves the set-up of a row; what it does with an element stays the same.
        scale = max(kernel.numbers["row_head_per_element"], 1.0)
        return [Tie({"stream_per_element": 1.0, "row_head_per_element": -1.0}, 0.0, scale)]
    if "small_fixed" not in kernel.numbers:
        return []
    alike = [other for other in others if other.form == kernel.form]
    peers = [other for other in alike if other.inputs == kernel.inputs]
    same = [peer for peer in peers if peer.main and abs(peer.main / max(kernel.main, 1e-12) - 1.0) < _SAME]
    pools = [same, peers, alike]
    ties: list[Tie] = []
    if kernel.form == "vector":
        ties += [replace(tie, weight=_SPREAD) for tie in _level([peers, alike], "small_per_element")]
        ties += _share(pools, "step", "small_fixed", kernel) if not kernel.sizes_of_plain_loop() else []
    elif kernel.form in ("flat", "flat1024"):
        # A call costs the same whatever it then computes, but more tensors take longer to set up.
        ties += _level([same, peers], "small_fixed") or _share([alike], "small_fixed", "fixed", kernel)
    else:
        ties += [tie for twin in same for tie in _calls_of(twin)]
        ties += _start_of_plain_loop([same, peers, alike])
        ties += _share(pools, "small_per_element", _main_name(kernel), kernel)
    if kernel.form == "stream":
        ties += _share(pools, "per_element", "stream_per_element", kernel)
    return ties


def _main_name(kernel: Sibling) -> str:
    return "stream_per_element" if kernel.form == "stream" else "per_element"


def _level(pools: Sequence[Sequence[Sibling]], name: str) -> list[Tie]:
    """Tie a number to the median of those that know theirs."""
    least = 2 if name == "small_per_element" else 1
    for pool in pools:
        known = [peer.numbers[name] for peer in pool if peer.sizes_of_plain_loop() >= least]
        if any(known):
            level = float(np.median([value for value in known if value > 0.0]))
            return [Tie({name: 1.0}, level, level)]
    return []


def _share(pools: Sequence[Sequence[Sibling]], name: str, of: str, kernel: Sibling) -> list[Tie]:
    """Tie a number to another by the median of their ratio."""
    least = 2 if name == "small_per_element" else 1
    for pool in pools:
        known = [
            peer.numbers[name] / peer.numbers[of]
            for peer in pool
            if peer.numbers[name] > 0.0 and peer.numbers[of] > 0.0 and peer.sizes_of_plain_loop() >= least
        ]
        if known:
            scale = max(kernel.numbers[of], kernel.main, 1e-9)
            return [Tie({name: 1.0, of: -float(np.median(known))}, 0.0, scale)]
    return []


def _calls_of(twin: Sibling) -> list[Tie]:
    """Tie the numbers to the calls of a kernel that runs the same code."""
    form = FORMS[twin.form]
    return [
        Tie(dict(zip(form.numbers, row.tolist(), strict=True)), float(cycles), float(cycles), _TWIN)
        for row, cycles in zip(design(form, twin.calls), twin.calls.cycles, strict=True)
    ]


def _start_of_plain_loop(pools: Sequence[Sequence[Sibling]]) -> list[Tie]:
    """Tie the start of the plain loop to the price of its element: a longer body also fills a longer
    pipeline.
    """
    for pool in pools:
        known = [peer for peer in pool if peer.sizes_of_plain_loop() >= 2]
        if len(known) >= 3:
            slope, start = np.polyfit(
                [peer.numbers["small_per_element"] for peer in known],
                [peer.numbers["small_fixed"] for peer in known],
                1,
            )
            if slope >= 0.0 and start >= 0.0:
                factors = {"small_fixed": 1.0, "small_per_element": -float(slope)}
                return [Tie(factors, float(start), max(float(start), 1.0))]
        if known:
            level = float(np.median([peer.numbers["small_fixed"] for peer in known]))
            return [Tie({"small_fixed": 1.0}, level, max(level, 1.0))]
    return []
