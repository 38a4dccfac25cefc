"""Check of lab 4: ridge, features at the ridge, and the slowest clock that costs hardly any time."""

from collections.abc import Iterator
from math import isclose
from typing import Annotated

from pydantic import Field

from npusim.course.drawings import ceilings
from npusim.course.machine import estimate, machine, product
from npusim.engines import Estimate

NODES, LONGER, STEP_GHZ = 2708, 1.05, 0.05


def _cost(features: int, *settings: str) -> Estimate:
    return estimate(product(NODES, NODES, features), machine("core-ultra-series2", *settings))


def check_ridge(ridge: float) -> Iterator[tuple[bool, str, str]]:
    peaks, bandwidth = ceilings(_cost(64))
    right = peaks["fp16"] / bandwidth
    hint = "peak of fp16 in operations per second, over the bandwidth of DRAM in bytes per second"
    if isclose(ridge, peaks["int8"] / bandwidth, rel_tol=0.03):
        hint = "that is the ridge of int8"
    elif isclose(ridge, right / 2, rel_tol=0.03):
        hint = "a MAC is two operations"
    yield isclose(ridge, right, rel_tol=0.03), f"the ridge is at {ridge:.0f} operations per byte", hint


def check_features(
    features: Annotated[int, Field(gt=0, le=4096, multiple_of=16)],
) -> Iterator[tuple[bool, str, str]]:
    bound = _cost(features).operators[0].bound
    hint = "F operations per byte are left of the ridge: H and the result are bytes, too"
    yield bound == "compute", f"at F = {features} the grid is the limit", hint
    lower = features > 16 and _cost(features - 16).operators[0].bound == "compute"
    yield not lower, f"F = {features} is the least", "16 features less are bound by compute, too"


def check_clock(clock_ghz: Annotated[float, Field(ge=0.1, le=2.6)]) -> Iterator[tuple[bool, str, str]]:
    steps = clock_ghz / STEP_GHZ
    yield isclose(steps, round(steps)), "the clock is a multiple of 0.05 GHz", "the step is 0.05 GHz"
    before = _cost(64).latency_s
    longer = _cost(64, f"npu.dpu.clock={clock_ghz:g}GHz").latency_s / before
    hint = "the grid now takes longer than the bytes: its time grows as 1 / clock"
    yield longer <= LONGER, f"at {clock_ghz:g} GHz the inference takes {longer - 1:.1%} longer", hint
    slower = _cost(64, f"npu.dpu.clock={clock_ghz - STEP_GHZ:g}GHz").latency_s / before
    yield slower > LONGER, f"{clock_ghz:g} GHz is the least", "a step less costs at most 5 %, too"
