"""Fit of CPU and GPU to NITRO's times of a token; the NPU is not fitted, only compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, linear_times, load_plan, settings_of
from npusim.calibration.least_squares import Floats
from npusim.config.reading import read_yaml
from npusim.llm.suite import token_s
from npusim.locate import resource

_MODELS = ("llama3.2-1b", "llama3-8b")


class TokenFit(FiguresFit):
    """Fit of a device to its published times of a token."""

    def __init__(self, device: str) -> None:
        published = read_yaml(resource("validate", "figures", "published.yaml")).data["nitro"]["ms_per_token"]
        measured_s = [1e-3 * published[model][device] for model in _MODELS]

        def times(values: Mapping[str, float]) -> Floats:
            changes = settings_of(self.free, values)
            return np.array([token_s(model, device, changes=changes) for model in _MODELS])

        units = ["s"] * len(_MODELS)
        super().__init__(load_plan("nitro", FitPlan), device, _MODELS, measured_s, units=units)
        self.times_s = linear_times(self.free, times, 1.25)

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the times of a token (s)."""
        return self.times_s(values)


NITRO = FiguresFits("nitro", TokenFit)
