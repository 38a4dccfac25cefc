"""Fits the kernels of the DSP libraries to the cost model's table, generation by generation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.arch import DspKernel
from npusim.calibrate.dsp_forms import FORMS, Calls, cycles_of, fit_numbers
from npusim.calibrate.dsp_ties import Sibling, ties_of
from npusim.calibrate.unit_fit import Fitted, TrainingRows
from npusim.units import Quantity
from npusim.validation.dsp_figures import SOURCES, row_counts
from npusim.validation.figures import Figures
from npusim.validation.machine import Machine

__all__ = ["fit", "fit_generation"]

_SCALAR_CYCLES = 150.0
"""A kernel dearer than this for a vector's worth of elements runs a plain scalar loop."""
_VECTOR_CYCLES = 1.0
"""A scalar loop cannot pass an element in less than a cycle: below, the kernel must be a vector kernel."""
_ALONG_ROWS = ("mvn", "normalizel2", "interpolatewh_1", "gptq")
"""Kernels that pay for each row, by the beginnings of their names."""
_CYCLES = {
    "fixed",
    "per_row",
    "small_fixed",
    "stream_per_row",
    "few_rows_fixed",
    "few_rows_per_position",
    "one_row_fixed",
}
_COUNTS = {
    "small_below",
    "small_counted",
    "row_head_elements",
    "stream_from_elements",
    "stream_from_rows",
    "few_rows_below",
}


def fit(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit the kernels of one machine's library.

    Parameters
    ----------
    machine : Machine
    rows : callable
        Training rows of `dsp`.

    Returns
    -------
    Fitted
        The machine with the fitted generations; it has no numbers of its own in the SoC's file.
    """
    figures = rows("dsp")
    generations = {}
    for source in SOURCES:
        mine = figures.where(figures["kernel_source"] == source)
        shipped = machine.generation(source)
        kernels = fit_generation(machine, source, mine)
        # A kernel without a training row stays as it was shipped.
        generations[source] = shipped.model_copy(update={"kernels": {**shipped.kernels, **kernels}})
    return Fitted(machine.with_generations(generations))


def fit_generation(machine: Machine, source: str, figures: Figures) -> dict[str, DspKernel]:
    """Fit all kernels of one source, by name; those of the file that is shipped leave out the unusable
    ones.
    """
    alone = {
        op: _alone(machine, source, op, figures.where(figures["op"] == op))
        for op in sorted(set(figures["op"]))
    }
    kernels = {}
    for op, sibling in alone.items():
        ties = ties_of(sibling, [other for name, other in alone.items() if name != op])
        numbers = fit_numbers(FORMS[sibling.form], sibling.calls, ties) if ties else sibling.numbers
        kernels[op] = kernel_of(sibling, numbers)
    return kernels


def _alone(machine: Machine, source: str, op: str, figures: Figures) -> Sibling:
    cycles = figures["time_s"] * float(machine.arch["vpu_clock_hz"][0])
    calls = Calls(figures["out_elements"], row_counts(figures), cycles)
    form = _form_of(machine, source, op, figures, calls)
    return Sibling(form, int(figures["inputs"].max()), calls, fit_numbers(FORMS[form], calls, []))


def _form_of(machine: Machine, source: str, op: str, figures: Figures, calls: Calls) -> str:
    """Return the loops of a kernel, by its generation and kind."""
    lanes = float(machine.arch["dsp_lanes"][0])
    wide = lanes >= 32
    if source == "classic" or op == "default":
        return "line"
    if op == "softmax_x":
        return "axis"
    if op.startswith(_ALONG_ROWS):
        return "rows"
    if source == "vpuem":
        return "plain" if wide else "stream"
    largest = int(np.argmax(calls.elements))
    scalar = calls.cycles[largest] / calls.elements[largest] * lanes > _SCALAR_CYCLES
    if not wide:
        return "line" if scalar else "flat"
    if op in ("softmax", "gather"):
        return "lanes" if op == "softmax" else "rows"
    binary = figures["inputs"].max() > 1
    if scalar:
        return "flat1024" if binary or op.startswith("logical") else "line"
    # A vector kernel of two tensors has one loop for all sizes; of one tensor, a plain one for few elements.
    return "line" if binary else "vector"


def kernel_of(sibling: Sibling, numbers: Mapping[str, float]) -> DspKernel:
    """Return fitted numbers as a kernel of a data sheet."""
    form = FORMS[sibling.form]
    main = numbers.get("stream_per_element") or numbers.get("per_element", 0.0)
    fields = {
        name: Quantity(float(f"{value:.6g}"), _unit(name))
        for name, value in form.fields(numbers).items()
        if value > 0.0
    }
    share = Quantity(1.0 if main < _VECTOR_CYCLES else 0.0)
    error = float(np.mean(np.abs(cycles_of(form, numbers, sibling.calls) / sibling.calls.cycles - 1.0)))
    source = f"fitted to {len(sibling.calls.cycles)} rows, mean error {100 * error:.1f} %"
    return DspKernel.model_construct(None, **fields, vector_share=share, source=source)


def _unit(name: str) -> str:
    if name in _COUNTS:
        return ""
    return "cycle" if name in _CYCLES else "cycle/element"
