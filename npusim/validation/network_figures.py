"""Whole networks as OpenVINO publishes them: throughput and latency by platform, device and precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from npusim.arch import Soc, load_soc, soc_names
from npusim.config import Section, load_model
from npusim.config.tables import Choice, Column, Number, Text, csv_records, read_table
from npusim.errors import ConfigError
from npusim.files import read_text
from npusim.graph import Graph
from npusim.locate import resource
from npusim.scenario import Scenario
from npusim.validation.evidence import Evidence
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine
from npusim.workloads import load_workload, workload_published_as

HOST_FIGURES = "openvino_published_hosts.csv"
"""Read after the suite's own file, where no other is given."""
_LATENCY = "latency_ms_sync_int8"
_MS = 1e-3
_PRECISIONS = ("fp16", "int8")
_FRAMES = "FPS"


class Anomaly(Section):
    """Rows that no model of the hardware can explain."""

    platform: str
    """Part of the platform's name."""
    networks: list[str]
    """Names of workloads."""
    reason: str
    """What is known of the cause."""


class Definitions(Section):
    """How published rows are predicted: `validate/definitions/networks.yaml`."""

    platforms: dict[str, list[str]]
    """SoCs by a part of the platform's name; the first that is shipped is taken."""
    anomalies: list[Anomaly] = Field(default_factory=list)
    """Rows that inform only."""

    def soc(self, platform: str) -> str | None:
        """Return the SoC of a platform, or None."""
        shipped = _shipped_socs()
        for part, names in self.platforms.items():
            if part.lower() in platform.lower():
                return next((name for name in names if name in shipped), None)
        return None

    def reason(self, platform: str, workload: str, note: str) -> str:
        """Return why a row is anomalous; nothing where it is not."""
        for one in self.anomalies:
            if one.platform.lower() in platform.lower() and workload in one.networks:
                return one.reason
        return note if "anomalous" in note.lower() else ""


@cache
def _shipped_socs() -> frozenset[str]:
    return frozenset(soc_names())


@cache
def _definitions() -> Definitions:
    return load_model(resource("validate", "definitions", "networks.yaml"), Definitions)


class _Maybe(Number):
    """A number above zero, or nothing: NaN."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or nothing"

    def value(self, text: str) -> float | None:
        return super().value(text) if text else math.nan


@dataclass(frozen=True)
class PublishedRow:
    """One published number."""

    line: int
    platform: str
    unit: str
    """Device as the file calls it, in lower case: npu3720, npu4000, cpu, gpu."""
    network: str
    """Its name in the file."""
    precision: str
    unit_of_work: str
    """What throughput counts: FPS or tok/s."""
    quantity: Literal["throughput", "latency"]
    measured: float
    """Inferences per second, or seconds."""
    note: str

    @property
    def device(self) -> str:
        """Class of device."""
        return "npu" if self.unit.startswith("npu") else self.unit


@dataclass(frozen=True)
class PublishedNetworks:
    """Predicts each published number on the data sheet of the very chip."""

    settings: tuple[str, ...] = ()
    """Changes to the data sheets, as for `--set` ..."""
    unit: str = ""
    """... and the device of the rows to predict; nothing: all."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows that can be predicted; see `npusim.validation.evidence.Predictor`."""
        assert path is not None and suite.figures is not None, "published networks are a table"
        shipped = resource("validate", "figures", suite.figures)
        files = [path, shipped.with_name(HOST_FIGURES)] if path == shipped else [path]
        known, predictions = _definitions(), _Predictions(self.settings)
        notes: dict[str, None] = {}
        kept: list[tuple[PublishedRow, str, float]] = []
        for file in files:
            for row in published_rows(file):
                if self.unit and row.unit != self.unit:
                    continue
                workload, why = workload_of(row)
                soc = known.soc(row.platform)
                if soc is None:
                    why = f"there is no data sheet of {row.platform}"
                if workload is None or soc is None:
                    notes[f"{file.name}: left out {row.network} ({row.precision}): {why}"] = None
                    continue
                kept.append((row, workload, predictions.of(row, workload, soc)))
                reason = known.reason(row.platform, workload, row.note)
                if reason:
                    notes[f"{row.platform}, {row.network}: {reason}"] = None
        if not kept:
            skipped = [note.partition(": ")[2] for note in notes]
            more = f"; and {len(skipped) - 1} others" if len(skipped) > 1 else ""
            allowed = (
                f"rows of known chips and networks ({skipped[0]}{more})" if skipped else "a number in a row"
            )
            raise ConfigError("no row that can be predicted", file=str(path), allowed=allowed)
        rows = [row for row, _, _ in kept]
        columns = {
            "platform": [row.platform for row in rows],
            "unit": [row.unit for row in rows],
            "workload": [workload for _, workload, _ in kept],
            "precision": [row.precision for row in rows],
            "quantity": [row.quantity for row in rows],
            "anomalous": ["yes" if known.reason(r.platform, w, r.note) else "no" for r, w, _ in kept],
        }
        return Evidence(
            ids=[row.line for row in rows],
            columns={name: np.array(values, object) for name, values in columns.items()},
            measured=np.array([row.measured for row in rows]),
            predicted=np.array([predicted for _, _, predicted in kept]),
            unit="",
            dimensions=("workload", "precision"),
            notes=list(notes),
        )


def workload_of(row: PublishedRow) -> tuple[str | None, str]:
    """Return the workload of a row, or None and why there is none."""
    if row.unit_of_work not in (_FRAMES, ""):
        return None, "a token is no inference of it"
    if row.precision not in _PRECISIONS:
        return None, f"precisions are {', '.join(_PRECISIONS)}"
    found = workload_published_as(row.network)
    return found, "" if found else "npusim builds no such network"


class _Predictions:
    """Predictions; each network is built once, and mapped once for each way it is run."""

    def __init__(self, settings: Sequence[str]) -> None:
        self._settings = list(settings)
        self._graphs: dict[tuple[str, str], Graph] = {}
        self._socs: dict[str, Soc] = {}
        self._found: dict[tuple[str, ...], float] = {}

    def of(self, row: PublishedRow, workload: str, soc: str) -> float:
        """Return the prediction of a row on a SoC."""
        key = (soc, row.device, workload, row.precision, row.quantity)
        if key not in self._found:
            graph = self._graphs.get((workload, row.precision))
            if graph is None:
                graph = load_workload(workload, [f"workload.precision={row.precision}"])
                self._graphs[workload, row.precision] = graph
            if soc not in self._socs:
                self._socs[soc] = load_soc(soc, self._settings)
            machine = self._socs[soc]
            total = Scenario(graph, machine, hint=row.quantity, device=row.device).mapped.total
            self._found[key] = float(
                total["latency_s"] if row.quantity == "latency" else total["throughput_per_s"]
            )
        return self._found[key]


def published_rows(path: Path) -> Iterator[PublishedRow]:
    """Yield the numbers of a table; its device stands in a column `device` or `npu`."""
    _, header = next(csv_records(read_text(path), str(path)), (1, []))
    device: Column = Choice("device", ("npu", "cpu", "gpu")) if "device" in header else Text("npu")
    columns: list[Column] = [Text("platform"), device, Text("model"), Text("precision")]
    columns += [_Maybe("throughput"), Choice("throughput_unit", (_FRAMES, "tok/s", "")), _Maybe(_LATENCY)]
    columns += [Text("note")] if "note" in header else []
    table = read_table(path, columns)
    for place, line in enumerate(table.lines):
        values: dict[str, Any] = {name: column[place] for name, column in table.columns.items()}
        unit = str(values[device.name]).lower()
        if not unit:
            raise ConfigError("nothing", file=table.file, line=line, key=device.name, allowed=device.allowed)
        one = PublishedRow(
            line=line,
            platform=values["platform"],
            unit=unit,
            network=values["model"],
            precision=values["precision"],
            unit_of_work=values["throughput_unit"],
            quantity="throughput",
            measured=values["throughput"],
            note=str(values.get("note", "")),
        )
        if not math.isnan(one.measured):
            yield one
        if not math.isnan(values[_LATENCY]):
            yield replace(one, quantity="latency", measured=values[_LATENCY] * _MS)


PUBLISHED = PublishedNetworks()
"""Throughput and latency of whole networks on NPU, CPU and GPU."""
