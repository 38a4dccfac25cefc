"""Fit of the laws of SRAM arrays to rows of CACTI, by non-negative least squares."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import nnls

from npusim.arch.silicon import SramLaws
from npusim.calibration.fits import FOLDS
from npusim.calibration.least_squares import Floats
from npusim.locate import resource
from npusim.validation.figures import Figures
from npusim.validation.silicon import QUANTITIES, predicted_memories, read_memories
from npusim.validation.suite import figures_path, load_suite

_CAPACITY, _WORD = (0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.5, 1.0, 1.5, 2.0)
# Exponents that a law may have. More banks may save energy of an access, but no area, leakage or time.
_BANKS = {"read_energy": (-1.0, -0.5, 0.0, 0.5, 1.0), "write_energy": (-1.0, -0.5, 0.0, 0.5, 1.0)}
_TURNS, _WEIGHTINGS, _LEAST_ERROR, _DIGITS = 6, 8, 0.1, 5
_PORTS = {"single_port": "1rw", "dual_port": "1r1w"}
_SOURCE = "CACTI 7 (validate/figures/cacti.csv), fitted by `python -m npusim.calibration memories`"


def _factors(basis: Floats, values: Floats) -> Floats:
    """Return the factors, at least 0, with the least absolute errors of logarithms, shape (terms,)."""
    weights, factors = 1.0 / values, np.zeros(basis.shape[1])
    for _ in range(_WEIGHTINGS):
        sizes = np.abs(basis * weights[:, None]).max(axis=0)
        factors = nnls(basis * weights[:, None] / sizes, values * weights)[0] / sizes
        fitted = np.maximum(basis @ factors, 0.01 * values)
        error = np.abs(np.log(fitted / values))
        weights = 1.0 / np.sqrt(values * fitted * np.maximum(error, _LEAST_ERROR))
    return factors


def fitted_laws(figures: Figures) -> SramLaws:
    """Return the laws that fit SRAM arrays: terms by ports, and a scale for each node and cell."""
    laws = {name: _law(figures, figures[name], _BANKS.get(name, (0.0, 0.5, 1.0))) for name in QUANTITIES}
    return SramLaws.model_validate({"schema": "npusim.sram/1", "source": _SOURCE} | laws)


def _law(figures: Figures, values: Floats, bank_exponents: Sequence[float]) -> dict[str, object]:
    exponents = np.array([*product(_CAPACITY, _WORD, bank_exponents)])
    names = ("capacity_bytes", "word_bytes", "banks")
    sizes = np.stack([figures[name] for name in names], axis=1)
    basis = np.exp(np.log(sizes) @ exponents.T)
    scale, fitted, law = np.ones(len(values)), np.ones(len(values)), {}
    for _ in range(_TURNS):
        for key, ports in _PORTS.items():
            own = figures["ports"] == ports
            factors = _factors(basis[own], values[own] / scale[own])
            fitted[own], used = basis[own] @ factors, np.flatnonzero(factors > 0.0)
            law[key] = [[_short(factors[t]), *map(float, exponents[t])] for t in used]
        for cell in np.unique(figures["cells"]):
            own = figures["cells"] == cell
            scale[own] = np.exp(np.median(np.log(values[own] / fitted[own])))
    cells = zip(figures["cells"], scale, strict=True)
    return law | {"scale": {str(cell): _short(number) for cell, number in cells}}


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def is_consistent(figures: Figures) -> NDArray[np.bool_]:
    """Return which rows to fit: those of 4 KiB and 8-byte words hold values of other capacities."""
    return (figures["capacity_kib"] > 4.0) | (figures["word_bytes"] > 8.0)


def held_out(figures: Figures) -> Mapping[str, Floats]:
    """Return the relative errors of each quantity in rows that a fit to the other folds predicts."""
    fold = np.random.default_rng(0).permutation(len(figures)) % FOLDS
    errors = {name: np.empty(len(figures)) for name in QUANTITIES}
    for number in range(FOLDS):
        laws, test = fitted_laws(figures.where(fold != number)), fold == number
        for name in QUANTITIES:
            rows = figures.where(test)
            errors[name][test] = np.abs(predicted_memories(rows, laws, name) / rows[name] - 1.0)
    return errors


class MemoryFit:
    """Fit of `configs/technology/sram.yaml`."""

    options: Mapping[str, str] = {}

    def run(self, options: argparse.Namespace) -> Iterator[str]:
        """Fit the laws; yield the errors of rows left out in five folds, by quantity, node and cell."""
        suite = load_suite("memories")
        figures = read_memories(suite, figures_path(suite))
        figures = figures.where(is_consistent(figures))
        laws, worst = fitted_laws(figures), []
        yield "| quantity | node and cell | rows | median error left out | 90th percentile |"
        yield "| --- | --- | ---: | ---: | ---: |"
        for name, errors in held_out(figures).items():
            groups = [errors[figures["cells"] == cell] for cell in laws.area.scale]
            for cell, own in zip(laws.area.scale, groups, strict=True):
                yield f"| {name} | {cell} | {len(own)} | {np.median(own):.1%} | {np.quantile(own, 0.9):.1%} |"
            median, tail = max(map(np.median, groups)), max(np.quantile(own, 0.9) for own in groups)
            worst.append(f"{name} {median:.0%} and {tail:.0%}")
        if options.write:
            source = f"{_SOURCE}; errors left out in five folds, median and 90th percentile, worst cell: "
            data = laws.model_dump(mode="json", by_alias=True) | {"source": source + ", ".join(worst)}
            target = resource("configs", "technology") / "sram.yaml"
            text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
            target.write_text(text, "utf-8")
            yield f"wrote {target}"


MEMORY = MemoryFit()
"""Laws of SRAM arrays."""
