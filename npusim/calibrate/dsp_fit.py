"""Fits the kernels of the DSP libraries to the cost model's table, and writes the libraries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.arch import DspGeneration, DspKernel
from npusim.calibrate.dsp_loops import LOOPS, Calls, FittedKernel, cycles_of, fit_numbers, ties_of
from npusim.calibrate.unit_fit import Fitted, TrainingRows
from npusim.units import Quantity
from npusim.validation.dsp_figures import SOURCES, row_counts
from npusim.validation.figures import Figures
from npusim.validation.running import Judged
from npusim.validation.unit_models import Machine

_SCALAR_CYCLES = 150.0
"""A kernel that costs more than this for a vector's worth of elements runs a plain scalar loop."""
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
USABLE_ERROR = 0.25
"""A kernel whose held-out error is above this is left out: an estimate then takes the fallback's, and says
so."""

_HEADER = """\
# DSP kernels of {npu}, generation {generation}. Cycles of the VPU clock on one DSP. Fitted by
# `python -m npusim.calibrate.units dsp` to validate/figures/costmodel_dsp.csv
# (intel/npu-nn-cost-model@8a2ae92b); suite `dsp` gives the error. No measured row stands behind any.
# A kernel whose held-out rows are more than 25 % off is left out.
"""
_COLUMN = 20


def fit(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit the kernels of one machine's library.

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
    """Fit all kernels of one source, by name, unusable ones included."""
    alone = {
        op: _alone(machine, source, op, figures.where(figures["op"] == op))
        for op in sorted(set(figures["op"]))
    }
    kernels = {}
    for op, kernel in alone.items():
        ties = ties_of(kernel, [other for name, other in alone.items() if name != op])
        numbers = fit_numbers(LOOPS[kernel.loops], kernel.calls, ties) if ties else kernel.numbers
        kernels[op] = kernel_of(kernel, numbers)
    return kernels


def _alone(machine: Machine, source: str, op: str, figures: Figures) -> FittedKernel:
    cycles = figures["time_s"] * float(machine.arch["vpu_clock_hz"][0])
    calls = Calls(figures["out_elements"], row_counts(figures), cycles)
    loops = _loops_of(machine, source, op, figures, calls)
    return FittedKernel(loops, int(figures["inputs"].max()), calls, fit_numbers(LOOPS[loops], calls, []))


def _loops_of(machine: Machine, source: str, op: str, figures: Figures, calls: Calls) -> str:
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


def kernel_of(kernel: FittedKernel, numbers: Mapping[str, float]) -> DspKernel:
    """Return fitted numbers as a kernel of a data sheet."""
    loops = LOOPS[kernel.loops]
    main = numbers.get("stream_per_element") or numbers.get("per_element", 0.0)
    fields = {
        name: Quantity(float(f"{value:.6g}"), _unit(name))
        for name, value in loops.fields(numbers).items()
        if value > 0.0
    }
    share = Quantity(1.0 if main < _VECTOR_CYCLES else 0.0)
    error = float(np.mean(np.abs(cycles_of(loops, numbers, kernel.calls) / kernel.calls.cycles - 1.0)))
    source = f"fitted to {len(kernel.calls.cycles)} rows, mean error {100 * error:.1f} %"
    return DspKernel.model_construct(None, **fields, vector_share=share, source=source)


def _unit(name: str) -> str:
    if name in _COUNTS:
        return ""
    return "cycle" if name in _CYCLES else "cycle/element"


def held_out_errors(held_out: Judged, npu: str) -> dict[tuple[str, str], float]:
    """Return the mean held-out error of each (generation, kernel) of an NPU."""
    columns, errors = held_out.evidence.columns, held_out.evidence.errors
    found: dict[tuple[str, str], list[float]] = {}
    for row in np.flatnonzero(columns["npu"] == npu):
        found.setdefault((columns["kernel_source"][row], columns["op"][row]), []).append(float(errors[row]))
    return {key: float(np.mean(values)) for key, values in found.items()}


def library_text(
    shipped: str, npu: str, name: str, generation: DspGeneration, held_out: Mapping[tuple[str, str], float]
) -> str:
    """Return the text of a library file.

    Parameters
    ----------
    held_out : mapping
        Held-out error of each (generation, kernel).
    """
    preface = shipped[: shipped.index("\nkernels:") + len("\nkernels:\n")]
    preface = "".join(line for line in preface.splitlines(keepends=True) if not line.startswith("#"))
    lines = [_HEADER.format(npu=npu, generation=name), preface]
    for kernel_name, kernel in sorted(generation.kernels.items()):
        error = held_out.get((name, kernel_name), np.inf)
        if error <= USABLE_ERROR:
            key = f"{kernel_name}:".ljust(_COLUMN - 1)
            lines.append(f"  {key}{_kernel_text(kernel, error)}\n")
    return "".join(lines)


def _kernel_text(kernel: DspKernel, held_out: float) -> str:
    told = []
    for field in DspKernel.model_fields:
        value = getattr(kernel, field)
        if field not in ("source", "vector_share") and value > 0.0:
            told.append(f"{field}: {f'{float(value):.6g} {value.unit}'.strip()}")
    if kernel.vector_share:
        told.append("vector_share: 1")
    told.append(f'source: "{kernel.source}, held out {100 * held_out:.1f} %"')
    return f"{{{', '.join(told)}}}"
