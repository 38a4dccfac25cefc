"""Fit of the cache model to published miss rates and instructions per cycle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan
from npusim.calibration.least_squares import Floats
from npusim.decomposition.suite import load_definitions, predict
from npusim.validation.figures import shipped_figures


class MissFit(FiguresFit):
    """Fit to everything but the memory."""

    def __init__(self, case: str) -> None:
        rows = [row for row in shipped_figures("feature-decomposition") if row[1]["quantity"] != "memory"]
        self.keys = [key for _, key in rows]
        labels = [figure.id.removeprefix("feature_decomposition.") for figure, _ in rows]
        plan, measured = load_plan("feature-decomposition", FitPlan), [figure.value for figure, _ in rows]
        super().__init__(plan, case, labels, measured, [key["model"] for key in self.keys])

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return miss rates and instructions per cycle."""
        caches = load_definitions().caches.model_copy(update=dict(values))
        return np.array([predict(key, caches) for key in self.keys])


MISSES = FiguresFits("feature-decomposition", MissFit)
