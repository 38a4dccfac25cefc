"""Check of lab 10: a data sheet fitted to some measurements predicts others."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

import npusim
from npusim.course.machine import product

FITTED = ((512, 512, 512), (1024, 1024, 1024), (4096, 4096, 1))
PREDICTED = ((768, 768, 768), (8192, 4096, 1))
NEAR, FACTOR = 0.3, 1.6
SLOWEST_MACS_PER_S, FASTEST_MACS_PER_S = 2e8, 1e12
"""Of a core in fp32 with a library of linear algebra."""
Positive = Annotated[float, Field(gt=0)]


def check_measurements(fitted_s: list[Positive]) -> Iterator[tuple[bool, str, str]]:
    yield from _plausible(fitted_s, FITTED)


def check_fit(
    fitted_s: list[Positive],
    clock_ghz: Annotated[float, Field(ge=0.2, le=8)],
    macs_per_cycle: Annotated[float, Field(ge=1, le=128)],
    bandwidth_gb_s: Annotated[float, Field(ge=0.5, le=500)],
) -> Iterator[tuple[bool, str, str]]:
    for shape, measured_s in zip(FITTED, fitted_s, strict=True):
        ratio = _modelled_s(shape, clock_ghz, macs_per_cycle, bandwidth_gb_s) / measured_s
        number = "bandwidth_gb_s" if shape[2] == 1 else "clock_ghz x macs_per_cycle"
        hint = f"the model is too {'slow' if ratio > 1 else 'fast'}: {'raise' if ratio > 1 else 'lower'} {number}"
        yield (
            abs(ratio - 1) <= NEAR,
            f"{_named(shape)}: the model takes {ratio:.2f} of the measured time",
            hint,
        )


def check_prediction(
    predicted_shapes_s: list[Positive], clock_ghz: float, macs_per_cycle: float, bandwidth_gb_s: float
) -> Iterator[tuple[bool, str, str]]:
    yield from _plausible(predicted_shapes_s, PREDICTED)
    for shape, measured_s in zip(PREDICTED, predicted_shapes_s, strict=True):
        ratio = _modelled_s(shape, clock_ghz, macs_per_cycle, bandwidth_gb_s) / measured_s
        hint = "measure again when nothing else runs, and fit to the least times, not to noise"
        claim = f"{_named(shape)}: predicted {ratio:.2f} of the measured time, within a factor of {FACTOR}"
        yield 1 / FACTOR <= ratio <= FACTOR, claim, hint


def _plausible(
    seconds: list[float], shapes: tuple[tuple[int, int, int], ...]
) -> Iterator[tuple[bool, str, str]]:
    hint = f"one time per shape: {', '.join(map(_named, shapes))}"
    yield len(seconds) == len(shapes), f"{len(seconds)} times for {len(shapes)} shapes", hint
    for (m, k, n), time_s in zip(shapes, seconds, strict=True):
        rate = m * k * n / time_s
        claim = f"{_named((m, k, n))}: {rate / 1e9:.3g} billion MACs per second is what a core can do"
        yield (
            SLOWEST_MACS_PER_S <= rate <= FASTEST_MACS_PER_S,
            claim,
            "type seconds, not milliseconds or microseconds",
        )


def _modelled_s(
    shape: tuple[int, int, int], clock_ghz: float, macs_per_cycle: float, bandwidth_gb_s: float
) -> float:
    settings = {
        "cpu.cores": 1,
        "cpu.clock": f"{clock_ghz:g}GHz",
        "cpu.macs_per_cycle.fp32": f"{macs_per_cycle:g} MAC/cycle",
        "cpu.dram_bandwidth": f"{bandwidth_gb_s:g}GB/s",
        "cpu.core_bandwidth": f"{bandwidth_gb_s:g}GB/s",
    }
    graph = product(*shape, npusim.DType.FP32)
    return npusim.estimate(graph, "generic-cpu", settings=settings, interval=False).operators[0].latency_s


def _named(shape: tuple[int, int, int]) -> str:
    return " x ".join(map(str, shape))
