"""Writes the DSP libraries: a file per generation, a line per kernel, with its held-out error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.arch import DspGeneration, DspKernel
from npusim.validation.running import Judged

__all__ = ["USABLE_ERROR", "held_out_errors", "library_text"]

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


def held_out_errors(held_out: Judged, npu: str) -> dict[tuple[str, str], float]:
    """Return the mean held-out error of each (generation, kernel) of an NPU.

    Parameters
    ----------
    held_out : Judged
        Cross-validation of suite `dsp`.
    npu : str
        As the figures call it.
    """
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
    shipped : str
        The file as it is; title, lanes and fallback are kept.
    npu, name : str
        NPU and generation.
    generation : DspGeneration
        With fitted kernels.
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
