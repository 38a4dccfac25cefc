"""Rows of a measurement as mapped graphs, ready to be predicted on any machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npusim.arch import Soc
from npusim.calibrate.device.report import SkippedRow
from npusim.errors import NpusimError
from npusim.graph import Graph
from npusim.mapping import Mapped, map_graph
from npusim.measure.document import (
    UNSTEADY_SPREAD,
    Benchmark,
    Given,
    Measurement,
    ModelFile,
    Network,
    Row,
    Workload,
)
from npusim.measure.models import Sources
from npusim.measure.predicting import mapped_row, predicted_seconds

NOISE_FLOOR = 1e-3
"""Relative standard error below which no row's median is believed: clocks and caches drift."""

LAUNCH_ONLY = "Empty"
"""Benchmark of a network that does next to nothing."""

GraphOf = Callable[[Row], Graph]
"""From a row to the graph that ran."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A row that can be predicted."""

    id: str
    family: str
    """Family of its errors: the operator of a benchmark, or the kind of model."""
    instance: str
    """Rows of the same network share it, however they were run: they are held out together."""
    text: str
    """What ran, for a reader."""
    end_to_end: bool
    """Whether it is a whole network, and not one operator."""
    interval: bool
    """Whether the time between two inferences was measured, not the latency of one."""
    measured_s: float
    """That time."""
    noise: float
    """Relative standard error of it."""
    hint: str
    requests: int
    mapped: Mapped

    @property
    def type(self) -> str:
        """Type of the operator that takes longest, as the graph has it."""
        costly = int(np.argmax(self.mapped.results["latency_s"]))
        return self.mapped.graph.operators[self.mapped.decisions.groups[costly].main].type

    def seconds(self, total: object) -> float:
        """Return the predicted time, from a record of TOTAL_DTYPE."""
        return predicted_seconds(total, self.interval)


def family_of(row: Row) -> str:
    """Return the family of a row: the operator of a benchmark, or the kind of model."""
    model = row.model
    if isinstance(model, Benchmark):
        return model.operator
    kinds = {Workload: "workload", ModelFile: "model file", Network: "network", Given: "network of Python"}
    return kinds[type(model)]


def _text_of(row: Row) -> tuple[str, str]:
    """Return (instance, what ran)."""
    model = row.model
    if isinstance(model, Benchmark):
        sizes = " ".join(f"{name}={size}" for name, size in model.sizes.items())
        text = f"{model.operator} {sizes} {model.dtype}"
    elif isinstance(model, Workload):
        settings = "".join(f" {key}={value}" for key, value in model.settings.items())
        text = f"{model.workload} {model.techniques}{settings}"
    elif isinstance(model, Network):
        text = f"{model.network} {model.precision}"
    else:
        text = f"{model.name} {model.techniques}" if isinstance(model, Given) else model.name
    return f"{text} {row.precision}", text


def noise_of(row: Row) -> float:
    """Return the relative standard error of a row's median, at least `NOISE_FLOOR`."""
    return max(NOISE_FLOOR, row.latency_s.median_error) if row.latency_s is not None else NOISE_FLOOR


def calm_rows(measurement: Measurement, fit_networks: bool) -> tuple[Measurement, list[SkippedRow]]:
    """Return a measurement without the rows to be fitted whose readings are unsteady, and those rows.

    Networks that are only predicted as a check stay: their intervals hold their noise.
    """

    def disturbed(row: Row) -> bool:
        fitted = fit_networks or isinstance(row.model, Benchmark)
        return fitted and row.latency_s is not None and row.latency_s.is_unsteady

    reason = f"unsteady: its readings spread over more than {UNSTEADY_SPREAD:.0%} of their median"
    left_out = [SkippedRow(id=row.id, reason=reason) for row in measurement.rows if disturbed(row)]
    calm = tuple(row for row in measurement.rows if not disturbed(row))
    return measurement.model_copy(update={"rows": calm}), left_out


def map_rows(
    measurement: Measurement,
    soc: Soc,
    files: Sources | None = None,
    graph_of: GraphOf | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[DeviceRow], list[SkippedRow]]:
    """Map every row that can be built on a SoC.

    Returns
    -------
    rows : list of DeviceRow
    left_out : list of SkippedRow
        Rows that cannot be built or run on the SoC.
    """
    build = graph_of if graph_of is not None else _builder(files or {})
    kind = measurement.device.kind
    rows: list[DeviceRow] = []
    left_out: list[SkippedRow] = []
    for number, row in enumerate(measurement.rows, start=1):
        try:
            mapped = mapped_row(row, soc, kind, build)
        except NpusimError as error:
            left_out.append(SkippedRow(id=row.id, reason=str(error).splitlines()[0]))
            continue
        finally:
            if progress is not None:
                progress(number, len(measurement.rows))
        instance, text = _text_of(row)
        rows.append(
            DeviceRow(
                id=row.id,
                family=family_of(row),
                instance=instance,
                text=text,
                end_to_end=not isinstance(row.model, Benchmark),
                interval=row.is_interval,
                measured_s=row.measured_s,
                noise=noise_of(row),
                hint=row.hint,
                requests=row.requests,
                mapped=mapped,
            )
        )
    return rows, left_out


def _builder(files: Sources) -> GraphOf:
    from npusim.measure.models import graph_of

    return lambda row: graph_of(row.model, row.precision, files)


def remapped(rows: Sequence[DeviceRow], soc: Soc) -> list[DeviceRow]:
    """Return the rows with fusion and residency decided on another machine."""
    return [replace(row, mapped=map_graph(row.mapped.graph, soc, row.mapped.run)) for row in rows]
