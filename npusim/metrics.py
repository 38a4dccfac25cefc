"""The table of metrics of an inference, which totals, documents, sweeps and pages read.

The kernel writes a column of totals for each metric without `of`; the others follow from these columns. A
name ends with its SI unit (area in mm2). A new metric is an entry here and the code that fills its column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

SAMPLES = 128
"""Machines that are drawn for the interval of a metric."""
_UNITS = dict(_per_s="/s", _per_j="OPS/W", _js="J·s", _s="s", _j="J", _w="W", _bytes="B", _mm2="mm²")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a column of totals and Parquet files, a key of JSON documents."""

    name: str
    """Quantity and unit, such as ``latency_s``."""
    title: str
    """Name on pages and axes of plots."""
    sense: Literal["min", "max"] = "min"
    """Whether less or more is better."""
    unit: str | None = None
    """Unit of a device, as in `Estimate.units`, if the metric is its busy time; else None."""
    of: Callable[[Any], Any] | None = None
    """Returns it from the columns of totals; None: the kernel writes it."""
    is_asked: bool = False
    """Whether a sweep writes it only if the space names it."""

    @property
    def sign(self) -> float:
        """Factor after which less is better."""
        return 1.0 if self.sense == "min" else -1.0

    def values(self, totals: Any) -> Any:
        """Return the metric of each point, from records of TOTAL_DTYPE or a mapping of metric to array."""
        return totals[self.name] if self.of is None else self.of(totals)


def _mean_power_w(totals: Any) -> Any:
    """Return the mean power of the package; infinite if the network cannot run."""
    import numpy as np  # help texts read the table and need no arrays

    with np.errstate(invalid="ignore"):
        power_w = totals["energy_j"] * totals["throughput_per_s"]
    return np.where(np.isnan(power_w), np.inf, power_w)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("latency_s", "latency"),
        Metric("throughput_per_s", "throughput", "max"),
        Metric("energy_j", "energy"),
        Metric("dram_bytes", "DRAM traffic"),
        Metric("sram_peak_bytes", "SRAM peak"),
        Metric("dpu_s", "busy time of the DPUs", unit="npu.dpu"),
        Metric("dsp_s", "busy time of the DSPs", unit="npu.dsp"),
        Metric("dma_s", "busy time of the DMA", unit="npu.dma"),
        Metric("cpu_s", "busy time of the CPU", unit="cpu"),
        Metric("gpu_s", "busy time of the GPU", unit="gpu"),
        Metric("area_mm2", "NPU area"),
        Metric("peak_ops_per_s", "peak rate", "max"),  # two operations per MAC, in the fastest format
        Metric("npu_s", "time at work of the NPU", is_asked=True),
        Metric("mac_j", "energy of MACs", is_asked=True),
        Metric("sram_j", "energy of SRAM", is_asked=True),
        Metric("dram_j", "energy of DRAM", is_asked=True),
        Metric("dsp_j", "energy of DSPs", is_asked=True),
        Metric("static_j", "static energy of the NPU", is_asked=True),
        Metric("cpu_j", "energy of the CPU", is_asked=True),
        Metric("gpu_j", "energy of the GPU", is_asked=True),
        Metric("idle_j", "idle energy", is_asked=True),
        Metric("sram_traffic_bytes", "SRAM traffic", is_asked=True),
        Metric("level_traffic_bytes", "traffic of memory levels", is_asked=True),
        Metric("ops_per_j", "efficiency", "max", is_asked=True),
        Metric("power_w", "mean power", of=_mean_power_w, is_asked=True),
        Metric("edp_js", "energy-delay product", of=lambda t: t["energy_j"] * t["latency_s"], is_asked=True),
    )
}

HEADINGS = {
    "compilations": "compiled",
    "dram_bytes": "DRAM",
    "grid_utilisation": "grid",
    "missed_share": "missed",
    "power_w": "power",
    "precision": "format",
    "skipped_share": "skipped",
    "speedup_throughput": "speed-up",
    "step_speedup": "step",
    "techniques": "stack",
}
"""Headings of columns by key, where the words of the key would not do."""
FORMATS = {
    "compilations": "{}x",
    "lost_edges": "{:.0%}",
    "missed_share": "{:.2%}",
    "padding": "{:.0%}",
    "skipped_share": "{:.0%}",
}
"""Formats of quantities by key, where three digits with the unit of the key would not do."""

if TYPE_CHECKING:
    MetricName = str
else:
    MetricName = Literal[tuple(METRICS)]


def unit_of(name: str) -> str:
    """Return the unit at the end of a metric's name; empty for a count.

    Examples
    --------
    >>> unit_of("latency_s"), unit_of("throughput_per_s"), unit_of("area_mm2"), unit_of("points")
    ('s', '/s', 'mm²', '')
    """
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def column_of(name: str, columns: Mapping[str, Any]) -> Any | None:
    """Return a metric from the columns of a file: its own, or computed from others; None if they lack it."""
    if name in columns:
        return columns[name]
    of = METRICS[name].of
    return None if of is None else of(columns)


def metrics_in(model: type[BaseModel], totals: Any) -> dict[str, Any]:
    """Return the metrics that a document, or a part of one, has a field for, from a record of totals."""
    return {name: float(m.values(totals)) for name, m in METRICS.items() if name in model.model_fields}


def admitted(scores: Mapping[str, Any], constraints: Mapping[Any, Any]) -> Any:
    """Return which points (bool [points]) can run the network (finite latency) and meet the constraints.

    `scores` has an array [points] by metric, `constraints` a bound by metric.
    """
    import numpy as np

    good = np.isfinite(scores["latency_s"])
    for name, bound in constraints.items():
        if bound.min is not None:
            good &= scores[name] >= bound.min
        if bound.max is not None:
            good &= scores[name] <= bound.max
    return good


def objectives(scores: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return metrics [metrics, points] with signs by which less is better, from arrays [points] by metric."""
    import numpy as np

    return np.stack([np.asarray(scores[name], float) * METRICS[name].sign for name in names])
