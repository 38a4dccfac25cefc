"""Fit of CPU and GPU to NITRO's times of a token; the NPU is not fitted, only compared.

`python -m npusim.llm.fit` prints the fitted numbers, and each figure predicted with all figures
and with those of the other model alone. Times are linear in a dispatch and in the time of a byte, so a few
predictions tell all others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from npusim.calibrate.least_squares import FreeNumber, solve
from npusim.config.reading import read_yaml
from npusim.llm.suite import token_s
from npusim.locate import resource

_MODELS = ("llama3.2-1b", "llama3-8b")
_BANDWIDTH, _DISPATCH = "dram_bandwidth", "dispatch_overhead"
FREE = {
    "cpu": (FreeNumber(_BANDWIDTH, 50e9, 20e9, 89e9, (65e9, 0.3)),),
    "gpu": (
        FreeNumber(_BANDWIDTH, 60e9, 20e9, 89e9, (70e9, 0.3)),
        FreeNumber(_DISPATCH, 20e-6, 2e-6, 100e-6, (11.36e-6, 1.0)),
    ),
    "npu": (),
}
"""Free numbers by device: start, bounds, and what was known before (median, deviation of the logarithm)."""
_UNITS = {_BANDWIDTH: "B/s", _DISPATCH: "s"}
_PRECISION = 0.01
"""Deviation of a published figure's logarithm."""


def _times(device: str, model: str) -> tuple[float, dict[str, float]]:
    """Return the time without what is free, and its slope by each free number, bandwidth as s a byte."""

    def at(name: str, value: float) -> float:
        fixed = {one.name: one.start for one in FREE[device]} | {name: value}
        return token_s(
            model, device, changes=tuple(f"{device}.{k}={v!r} {_UNITS[k]}" for k, v in fixed.items())
        )

    if not FREE[device]:
        return token_s(model, device), {}
    slopes, base = {}, at(FREE[device][0].name, FREE[device][0].start)
    for one in FREE[device]:
        moved = 1.25 * one.start
        size = 1 / moved - 1 / one.start if one.name == _BANDWIDTH else moved - one.start
        slopes[one.name] = (at(one.name, moved) - base) / size
    first = sum(slopes[one.name] * _size(one.name, one.start) for one in FREE[device])
    return base - first, slopes


def _size(name: str, value: float) -> float:
    return 1 / value if name == _BANDWIDTH else value


def report(device: str) -> Iterator[str]:
    """Yield the lines of a device: its numbers, and each figure fitted and left out."""
    published = read_yaml(resource("validate", "figures", "published.yaml")).data["nitro"]["ms_per_token"]
    linear = {model: _times(device, model) for model in _MODELS}
    measured_s = {model: 1e-3 * published[model][device] for model in _MODELS}

    def predicted_s(model: str, values: dict[str, float]) -> float:
        fixed, slopes = linear[model]
        return fixed + sum(slopes[name] * _size(name, value) for name, value in values.items())

    def fitted(models: Sequence[str]) -> dict[str, float]:
        if not FREE[device]:
            return {}
        errors = lambda values: np.array(  # noqa: E731
            [np.log(predicted_s(m, dict(values)) / measured_s[m]) / _PRECISION for m in models]
        )
        return solve(FREE[device], errors, softness=10.0).values

    values = fitted(_MODELS)
    told = ", ".join(f"{device}.{name} = {value:.4g} {_UNITS[name]}" for name, value in values.items())
    yield f"## {device}: {told or 'nothing is fitted'}"
    for model in _MODELS:
        others = fitted([one for one in _MODELS if one != model])
        errors = [predicted_s(model, found) / measured_s[model] - 1 for found in (values, others)]
        yield f"{model}: {measured_s[model] * 1e3:.1f} ms, fitted {errors[0]:+.1%}, left out {errors[1]:+.1%}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(prog="python -m npusim.llm.fit", description=main.__doc__)
    parser.parse_args(arguments)
    for device in FREE:
        print("\n".join(report(device)), end="\n\n")


if __name__ == "__main__":
    main()
