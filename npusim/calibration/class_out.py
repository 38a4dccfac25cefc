"""Published networks, predicted by fits without their class, machine or NPU generation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npusim.calibration.fits import FiguresFit
from npusim.calibration.network_fits import HOSTS, NETWORKS
from npusim.config import load_model
from npusim.locate import resource
from npusim.validation.figures import Row, evidence_of
from npusim.validation.running import Judged, judge
from npusim.validation.suite import Suite

NAME = "leave-class-out"


def left_out(progress: Callable[[int, int], None] | None = None) -> Judged:
    """Return all figures behind the fits of networks, predicted without their class.

    A figure counts once for each way to leave it out: with the networks of its class, with its machine, and
    with all machines of its NPU generation, whose numbers are then those of the other generation.
    """
    npus = NETWORKS.parts()
    fits, rows = [*npus, *HOSTS.parts()], list[Row]()
    for done, fit in enumerate(fits, start=1):
        rows += _without_classes(fit)
        if progress is not None:
            progress(done, len(fits))
    for fit, other in (npus, npus[::-1]):
        rows += _by_another(fit, other)
    suite = load_model(resource("validate", "definitions", "leave_class_out.yaml"), Suite)
    return judge(NAME, suite, evidence_of(suite, rows))


def _without_classes(fit: FiguresFit) -> list[Row]:
    """Return the figures of a fit, each as predicted by fits without its class."""
    best, rows = fit.solve(), list[Row]()
    for way, words in fit.classes.items():
        if len(set(words)) > 1:
            fit.groups = np.array(words, object)
            rows += _rows(fit, fit.leave_one_out(best)[0], way, words)
    return rows


def _by_another(fit: FiguresFit, other: FiguresFit) -> list[Row]:
    """Return the figures of one generation as predicted with the numbers that are fitted to another."""
    own, numbers = {number.name: number.start for number in fit.free}, other.solve().values
    values = {name: numbers.get(name, start) for name, start in own.items()}
    return _rows(fit, fit.predicted(values), "generation", [fit.case] * len(fit.labels))


def _rows(fit: FiguresFit, predicted: np.ndarray, way: str, words: list[str]) -> list[Row]:
    numbers = zip(fit.labels, words, fit.measured, predicted, strict=True)
    return [
        Row(f"{way}: {label}", value, number, {"device": fit.case, "way": way, "left_out": word})
        for label, word, value, number in numbers
    ]
