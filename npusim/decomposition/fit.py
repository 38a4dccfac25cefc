"""Fit of the cache model to published miss rates and instructions per cycle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.calibration.fits import FiguresFit, FiguresFits
from npusim.calibration.least_squares import Floats, FreeNumber
from npusim.decomposition.suite import load_definitions, predict
from npusim.validation.figures import read_figures
from npusim.validation.suite import figures_path, load_suite

FREE = (
    FreeNumber("late_share", 0.08, 0.001, 1.0),
    FreeNumber("scaling_loads", 8.0, 0.1, 100.0),
    FreeNumber("vector_bytes", 48.0, 8.0, 512.0),
    FreeNumber("busy_cycles", 0.3, 0.01, 3.0),
    FreeNumber("wait_share", 0.08, 0.001, 1.0),
)


class MissFit(FiguresFit):
    """Fit to everything but the memory."""

    precision = 0.3
    left_out = "models"

    def __init__(self) -> None:
        suite = load_suite("feature-decomposition")
        path = figures_path(suite)
        rows = [row for row in read_figures(suite, path)[0] if row[1]["quantity"] != "memory"]
        self.keys = [key for _, key in rows]
        labels = [figure.id.removeprefix("feature_decomposition.") for figure, _ in rows]
        measured = np.array([figure.value for figure, _ in rows])
        super().__init__("caches", FREE, labels, measured, [key["model"] for key in self.keys])

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return miss rates and instructions per cycle."""
        caches = load_definitions().caches.model_copy(update=dict(values))
        return np.array([predict(key, caches) for key in self.keys])


MISSES = FiguresFits(MissFit)
