"""The metrics of a design point: names of the columns that the kernel writes.

Constraints, objectives and Parquet columns use the same names. SI units throughout; area is in mm2 as
everywhere in npusim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

__all__ = ["METRICS", "MetricName", "admitted", "objectives", "sign_of"]

MetricName = Literal[
    "latency_s",
    "throughput_per_s",
    "energy_j",
    "dram_bytes",
    "sram_peak_bytes",
    "dpu_s",
    "dsp_s",
    "dma_s",
    "cpu_s",
    "gpu_s",
    "area_mm2",
    "peak_ops_per_s",
]
"""A metric: latency, throughput and energy of an inference, its memory traffic and peak use of SRAM, busy
time of each unit, area of the NPU, and its peak rate (two operations a MAC, in the fastest format)."""

METRICS: tuple[str, ...] = get_args(MetricName)
"""The metrics in their order in files."""

_MORE_IS_BETTER = "_per_s"


def admitted(scores: Mapping[str, Any], constraints: Mapping[Any, Any]) -> Any:
    """Tell which points can be built and keep to the constraints.

    Parameters
    ----------
    scores : mapping of metric to array, shape (points,)
        The latency of a point that cannot run the network is infinite.
    constraints : mapping of metric to Bound

    Returns
    -------
    array of bool, shape (points,)
    """
    good = np.isfinite(scores["latency_s"])
    for name, bound in constraints.items():
        if bound.min is not None:
            good &= scores[name] >= bound.min
        if bound.max is not None:
            good &= scores[name] <= bound.max
    return good


def sign_of(name: str) -> float:
    """Return -1 for a metric of which more is better (those a second), else 1."""
    return -1.0 if name.endswith(_MORE_IS_BETTER) else 1.0


def objectives(scores: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the metrics to minimise; those a second count negative, because more of them is better.

    Parameters
    ----------
    scores : mapping of metric to array, shape (points,)
    names : sequence of str

    Returns
    -------
    array of float, shape (metrics, points)
    """
    return np.stack([np.asarray(scores[name], float) * sign_of(name) for name in names])
