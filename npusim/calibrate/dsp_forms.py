"""Loops of a DSP kernel, and its numbers by least squares.

The equation of `npusim.cost.dsp` is linear in a kernel's numbers once its thresholds are given, so the fit is
one linear problem, polished on log error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMS", "Calls", "Form", "Tie", "cycles_of", "fit_numbers"]

Floats = NDArray[np.float64]

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
class Form:
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
    """Cycles that the relation is worth relative to."""
    weight: float = 0.01
    """Weight beside 1 for a row; the default decides only what the rows leave open."""


_LINE = ("fixed", "per_element")
_PLAIN = ("small_fixed", "small_per_element")

FORMS = {
    "line": Form(_LINE),
    "flat": Form(("small_fixed", *_LINE), {"small_below": 256}),
    "flat1024": Form(("small_fixed", *_LINE), {"small_below": 1024}),
    "vector": Form((*_PLAIN, "step", "per_element"), {"small_below": 1024, "small_counted": 32}),
    "plain": Form((*_PLAIN, *_LINE), {"small_below": 1024}),
    "stream": Form(
        (*_PLAIN, *_LINE, "stream_per_element"), {"small_below": 1024, "stream_from_elements": 16384}
    ),
    "rows": Form((*_LINE, "per_row")),
    "lanes": Form(
        (*_LINE, "per_row", "one_row_fixed", "few_rows_fixed", "few_rows_per_position"),
        {"few_rows_below": 32},
    ),
    "axis": Form(
        (*_LINE, "per_row", "row_head_per_element", "stream_per_element", "stream_per_row"),
        {"row_head_elements": 16, "stream_from_rows": 16384},
    ),
}
"""Loops by name. Thresholds are known to lie in (16, 256], (256, 1024], (4096, 16384] and between 16 and 32
rows."""


def design(form: Form, calls: Calls) -> Floats:
    """Return the matrix whose product with a form's numbers is the cycles of each call; shape (calls,
    numbers).
    """
    elements, rows, limits = calls.elements, calls.rows, form.thresholds
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
    stepped = "step" in form.numbers
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
    return np.stack([columns[name].astype(float) for name in form.numbers], axis=1)


def fit_numbers(form: Form, calls: Calls, ties: Sequence[Tie]) -> dict[str, float]:
    """Return a kernel's numbers, by field of `DspKernel`, thresholds not included.

    Parameters
    ----------
    form : Form
    calls : Calls
        What to fit to.
    ties : sequence of Tie
        What decides where the calls do not.
    """
    from scipy.optimize import nnls  # slow to import

    matrix = design(form, calls) / calls.cycles[:, None]
    factors = [[tie.factors.get(name, 0.0) for name in form.numbers] for tie in ties]
    scales = np.array([tie.weight / tie.scale for tie in ties])
    tied = np.array(factors).reshape(len(ties), len(form.numbers)) * scales[:, None]
    wanted = np.array([tie.value for tie in ties]) * scales
    target = np.concatenate([np.ones(len(matrix)), wanted])
    values = nnls(np.concatenate([matrix, tied]), target)[0]
    return dict(zip(form.numbers, _polish(matrix, tied, wanted, values).tolist(), strict=True))


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


def cycles_of(form: Form, numbers: Mapping[str, float], calls: Calls) -> Floats:
    """Return the cycles of bare calls under a kernel's numbers; shape (calls,)."""
    cycles: Floats = design(form, calls) @ np.array([numbers[name] for name in form.numbers])
    return cycles
