"""Interface of a unit's fit: one command runs all, one cross-validation tests all.

A fit is a function `fit(machine, rows) -> Fitted`: it gets a machine with shipped numbers and a function that
returns the training rows of a suite for that machine, and gives back the machine with fitted numbers. It
reads no file, so a cross-validation can hold rows back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from npusim.calibrate.data_sheet import FittedNumber
from npusim.errors import UnknownNameError
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures
from npusim.validation.running import figures_path, predictor_of
from npusim.validation.suite import Suite, load_suite
from npusim.validation.unit_models import Machine

TrainingRows = Callable[[str], Figures]
"""From a suite's name to the rows that may be fitted to, of one machine."""


@dataclass(frozen=True)
class Fitted:
    """The outcome of a fit."""

    machine: Machine
    """With the fitted numbers in place."""
    numbers: list[FittedNumber] = field(default_factory=list)
    """Numbers of the SoC's file."""
    undetermined: tuple[str, ...] = ()
    """Paths of the numbers that the figures leave open."""


Fit = Callable[[Machine, TrainingRows], Fitted]

FITS = {
    "dma": "npusim.calibrate.dma_fit:fit",
    "dpu": "npusim.calibrate.dpu_fit:fit",
    "dsp": "npusim.calibrate.dsp_fit:fit",
}
"""Module and function of each unit's fit."""


def fit_named(name: str) -> Fit:
    """Return a unit's fit."""
    if name not in FITS:
        raise UnknownNameError("fit", name, FITS)
    module, function = FITS[name].split(":")
    found: Fit = getattr(import_module(module), function)
    return found


def table_of(suite: Suite) -> TablePredictor:
    """Return the predictor of a suite whose figures are a table."""
    predictor = predictor_of(suite)
    if not isinstance(predictor, TablePredictor):
        raise TypeError(f"suite {suite.title!r} has no table of figures")
    return predictor


def shipped_rows(machine: str) -> TrainingRows:
    """Return the function that reads all shipped rows of a machine."""

    def rows(name: str) -> Figures:
        figures = _shipped(name)
        return figures.where(figures["npu"] == machine)

    return rows


@cache
def _shipped(name: str) -> Figures:
    suite = load_suite(name)
    path = figures_path(suite)
    assert path is not None, "a table has a file"
    return table_of(suite).read(suite, path)
