"""Fit of CPU and GPU to NITRO's times of a token; the NPU is not fitted, only compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.calibration.fits import FiguresFit, FiguresFits, linear_times, settings_of
from npusim.calibration.least_squares import Floats, FreeNumber
from npusim.config.reading import read_yaml
from npusim.llm.suite import token_s
from npusim.locate import resource

_MODELS = ("llama3.2-1b", "llama3-8b")
FREE = {
    "cpu": (FreeNumber("cpu.dram_bandwidth", 50e9, 20e9, 89e9, (65e9, 0.3), "B/s"),),
    "gpu": (
        FreeNumber("gpu.dram_bandwidth", 60e9, 20e9, 89e9, (70e9, 0.3), "B/s"),
        FreeNumber("gpu.dispatch_overhead", 20e-6, 2e-6, 100e-6, (11.36e-6, 1.0), "s"),
    ),
    "npu": (),
}


class TokenFit(FiguresFit):
    """Fit of a device to its published times of a token."""

    softness = 10.0
    precision = 0.01

    def __init__(self, device: str) -> None:
        published = read_yaml(resource("validate", "figures", "published.yaml")).data["nitro"]["ms_per_token"]
        measured_s = np.array([1e-3 * published[model][device] for model in _MODELS])

        def times(values: Mapping[str, float]) -> Floats:
            changes = settings_of(FREE[device], values)
            return np.array([token_s(model, device, changes=changes) for model in _MODELS])

        units = ["s"] * len(_MODELS)
        super().__init__(device, FREE[device], _MODELS, measured_s, units=units)
        self.times_s = linear_times(FREE[device], times, 1.25)

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the times of a token (s)."""
        return self.times_s(values)


NITRO = FiguresFits(TokenFit, [(device,) for device in FREE])
