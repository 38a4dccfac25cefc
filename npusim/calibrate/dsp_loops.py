"""Loops of a DSP kernel, its numbers by least squares, and ties between kernels of one generation.

The equation of `npusim.cost.dsp` is linear in a kernel's numbers once its thresholds are given, so the fit is
one linear problem, polished on log error. Ties decide what a single kernel's rows leave open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.calibrate.least_squares import Floats

_SOFTNESS = 0.005
"""Log error above which a row counts less than its square; the tables are smooth to about that."""
_NONE = 1e-9


@dataclass(frozen=True)
class Calls:
    """Bare calls of one kernel: elements, rows and measured cycles of each; arrays of shape (calls,)."""

    elements: Floats
    rows: Floats
    cycles: Floats

    def where(self, mask: NDArray[np.bool_]) -> Calls:
        """Return some of the calls."""
        return Calls(self.elements[mask], self.rows[mask], self.cycles[mask])


@dataclass(frozen=True)
class KernelLoops:
    """A kernel's loops: the numbers to fit and the thresholds between loops, by field of `DspKernel`.

    A `step` stands for `fixed`: the main loop begins that much above where the plain loop ends. A step is
    never negative, so more elements never take less time, whatever a noisy row says.
    """

    numbers: tuple[str, ...]
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def fields(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return a kernel's numbers and thresholds by field of `DspKernel`."""
        fields = {**numbers, **self.thresholds}
        if "step" in fields:
            end = fields["small_fixed"] + fields["small_counted"] * fields["small_per_element"]
            begin = end + fields.pop("step") - fields["small_below"] * fields["per_element"]
            fields["fixed"] = max(0.0, begin)
        return fields


@dataclass(frozen=True)
class Tie:
    """A linear relation that decides what rows leave open: sum of factor x number = value (cycles)."""

    factors: Mapping[str, float]
    value: float
    scale: float
    """Cycles that its error is relative to."""
    weight: float = 0.01
    """Weight beside 1 for a row; the default decides only what the rows leave open."""


_LINE = ("fixed", "per_element")
_PLAIN = ("small_fixed", "small_per_element")

LOOPS = {
    "line": KernelLoops(_LINE),
    "flat": KernelLoops(("small_fixed", *_LINE), {"small_below": 256}),
    "flat1024": KernelLoops(("small_fixed", *_LINE), {"small_below": 1024}),
    "vector": KernelLoops((*_PLAIN, "step", "per_element"), {"small_below": 1024, "small_counted": 32}),
    "plain": KernelLoops((*_PLAIN, *_LINE), {"small_below": 1024}),
    "stream": KernelLoops(
        (*_PLAIN, *_LINE, "stream_per_element"), {"small_below": 1024, "stream_from_elements": 16384}
    ),
    "rows": KernelLoops((*_LINE, "per_row")),
    "lanes": KernelLoops(
        (*_LINE, "per_row", "one_row_fixed", "few_rows_fixed", "few_rows_per_position"),
        {"few_rows_below": 32},
    ),
    "axis": KernelLoops(
        (*_LINE, "per_row", "row_head_per_element", "stream_per_element", "stream_per_row"),
        {"row_head_elements": 16, "stream_from_rows": 16384},
    ),
}
"""Loops by name. Thresholds are known to lie in (16, 256], (256, 1024], (4096, 16384] and between 16 and 32
rows."""


def design(loops: KernelLoops, calls: Calls) -> Floats:
    """Return the design matrix, shape (calls, numbers): its product with the numbers is the cycles."""
    elements, rows, limits = calls.elements, calls.rows, loops.thresholds
    stream = np.zeros(len(elements), bool)
    if "stream_from_elements" in limits:
        stream |= elements >= limits["stream_from_elements"]
    if "stream_from_rows" in limits:
        stream |= rows >= limits["stream_from_rows"]
    few = ~stream & (rows < limits.get("few_rows_below", 0))
    one = few & (rows <= 1)
    small = ~stream & ~few & (elements < limits.get("small_below", 0))
    main = ~stream & ~few & ~small
    head = elements <= limits.get("row_head_elements", 0) * rows
    stepped = "step" in loops.numbers
    beyond = limits["small_below"] if stepped else 0.0
    counted = np.minimum(elements, limits.get("small_counted", np.inf))
    columns: dict[str, NDArray[Any]] = {
        "fixed": main | stream,
        "step": main,
        "per_element": ((main & ~head) | one) * (elements - beyond),
        "per_row": main * rows,
        "row_head_per_element": (main & head) * elements,
        "small_fixed": small | (main & stepped),
        "small_per_element": (small | (main & stepped)) * counted,
        "stream_per_element": stream * elements,
        "stream_per_row": stream * rows,
        "one_row_fixed": one,
        "few_rows_fixed": few & ~one,
        "few_rows_per_position": (few & ~one) * elements / rows,
    }
    return np.stack([columns[name].astype(float) for name in loops.numbers], axis=1)


def fit_numbers(loops: KernelLoops, calls: Calls, ties: Sequence[Tie]) -> dict[str, float]:
    """Return a kernel's numbers, by field of `DspKernel`, thresholds not included."""
    from scipy.optimize import nnls  # slow to import

    matrix = design(loops, calls) / calls.cycles[:, None]
    factors = [[tie.factors.get(name, 0.0) for name in loops.numbers] for tie in ties]
    scales = np.array([tie.weight / tie.scale for tie in ties])
    tied = np.array(factors).reshape(len(ties), len(loops.numbers)) * scales[:, None]
    wanted = np.array([tie.value for tie in ties]) * scales
    target = np.concatenate([np.ones(len(matrix)), wanted])
    values = nnls(np.concatenate([matrix, tied]), target)[0]
    return dict(zip(loops.numbers, _polish(matrix, tied, wanted, values).tolist(), strict=True))


def _polish(matrix: Floats, tied: Floats, wanted: Floats, values: Floats) -> Floats:
    """Return the numbers after robust least squares on log error, from the linear solution."""
    from scipy.optimize import least_squares  # slow to import

    free = (values > _NONE) & (matrix.any(axis=0) | tied.any(axis=0))
    if not free.any():
        return values
    held = np.where(free, 0.0, values)

    def residual(logs: Floats) -> Floats:
        trial = held.copy()
        trial[free] = np.exp(logs)
        return np.concatenate([np.log(np.maximum(matrix @ trial, _NONE)), tied @ trial - wanted])

    found = least_squares(residual, np.log(values[free]), loss="soft_l1", f_scale=_SOFTNESS)
    polished = held
    polished[free] = np.exp(found.x)
    return polished


def cycles_of(loops: KernelLoops, numbers: Mapping[str, float], calls: Calls) -> Floats:
    """Return the cycles of bare calls under a kernel's numbers; shape (calls,)."""
    cycles: Floats = design(loops, calls) @ np.array([numbers[name] for name in loops.numbers])
    return cycles


_SAME = 0.02
"""Kernels whose main loops differ by less run the same code but for one instruction: Add and Multiply."""
_DUPLICATE_WEIGHT = 0.1
"""Weight of a call of a kernel that runs the same code, beside 1 for a call of one's own."""
_SPREAD = 0.05
"""Weight of the cycles of an odd element: kernels differ in it by a factor of two, and repeats of a call by
5 to 10 %."""


@dataclass(frozen=True)
class FittedKernel:
    """One kernel of a generation as it was fitted alone."""

    loops: str
    """Name of its loops, a key of `LOOPS`."""
    inputs: int
    """Tensors it reads."""
    calls: Calls
    """What it was fitted to."""
    numbers: Mapping[str, float]
    """Its numbers."""

    @property
    def main(self) -> float:
        """Cycles per element in its fastest loop."""
        return self.numbers.get("stream_per_element") or self.numbers.get("per_element", 0.0)

    def sizes_of_plain_loop(self) -> int:
        """Return the number of different sizes below the plain loop's threshold."""
        limits = LOOPS[self.loops].thresholds
        small = self.calls.elements[self.calls.elements < limits.get("small_below", 0)]
        return len(np.unique(np.minimum(small, limits.get("small_counted", np.inf))))


def ties_of(kernel: FittedKernel, others: Sequence[FittedKernel]) -> list[Tie]:
    """Return the ties of a kernel to the others of its generation."""
    if kernel.loops == "axis":
        # The streaming loop saves the set-up of a row; what it does with an element stays the same.
        scale = max(kernel.numbers["row_head_per_element"], 1.0)
        return [Tie({"stream_per_element": 1.0, "row_head_per_element": -1.0}, 0.0, scale)]
    if "small_fixed" not in kernel.numbers:
        return []
    alike = [other for other in others if other.loops == kernel.loops]
    peers = [other for other in alike if other.inputs == kernel.inputs]
    same = [peer for peer in peers if peer.main and abs(peer.main / max(kernel.main, 1e-12) - 1.0) < _SAME]
    pools = [same, peers, alike]
    ties: list[Tie] = []
    if kernel.loops == "vector":
        ties += [replace(tie, weight=_SPREAD) for tie in _level([peers, alike], "small_per_element")]
        ties += _share(pools, "step", "small_fixed", kernel) if not kernel.sizes_of_plain_loop() else []
    elif kernel.loops in ("flat", "flat1024"):
        # A call costs the same whatever it then computes, but more tensors take longer to set up.
        ties += _level([same, peers], "small_fixed") or _share([alike], "small_fixed", "fixed", kernel)
    else:
        ties += [tie for duplicate in same for tie in _calls_of(duplicate)]
        ties += _start_of_plain_loop([same, peers, alike])
        ties += _share(pools, "small_per_element", _main_name(kernel), kernel)
    if kernel.loops == "stream":
        ties += _share(pools, "per_element", "stream_per_element", kernel)
    return ties


def _main_name(kernel: FittedKernel) -> str:
    return "stream_per_element" if kernel.loops == "stream" else "per_element"


def _level(pools: Sequence[Sequence[FittedKernel]], name: str) -> list[Tie]:
    """Tie a number to the median of those that know theirs."""
    least = 2 if name == "small_per_element" else 1
    for pool in pools:
        known = [peer.numbers[name] for peer in pool if peer.sizes_of_plain_loop() >= least]
        if any(known):
            level = float(np.median([value for value in known if value > 0.0]))
            return [Tie({name: 1.0}, level, level)]
    return []


def _share(pools: Sequence[Sequence[FittedKernel]], name: str, of: str, kernel: FittedKernel) -> list[Tie]:
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


def _calls_of(duplicate: FittedKernel) -> list[Tie]:
    """Tie the numbers to the calls of a kernel that runs the same code."""
    loops = LOOPS[duplicate.loops]
    return [
        Tie(
            dict(zip(loops.numbers, row.tolist(), strict=True)),
            float(cycles),
            float(cycles),
            _DUPLICATE_WEIGHT,
        )
        for row, cycles in zip(design(loops, duplicate.calls), duplicate.calls.cycles, strict=True)
    ]


def _start_of_plain_loop(pools: Sequence[Sequence[FittedKernel]]) -> list[Tie]:
    """Tie the start of the plain loop to its cycles per element: a longer body fills a longer pipeline."""
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
