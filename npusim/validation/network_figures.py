"""Whole networks as OpenVINO publishes them: throughput and latency by platform, device and precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from npusim.arch import soc_names
from npusim.config import Section, load_model
from npusim.config.tables import Choice, Column, Text, csv_records, read_table
from npusim.errors import ConfigError
from npusim.files import read_text
from npusim.locate import resource
from npusim.validation.figures import Evidence, MaybeNumber, Row, evidence_of
from npusim.validation.measured_networks import NetworkRun, inference
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine
from npusim.workloads import workload_published_as

HOST_FIGURES = "openvino_published_hosts.csv"
"""Figures of CPU and GPU, read after the suite's own file unless a user names one."""
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


class Definitions(Section):
    """How published rows are predicted: `validate/definitions/networks.yaml`."""

    platforms: dict[str, list[str]]
    """SoCs by a part of the platform's name; the first shipped one counts."""
    anomalies: list[Anomaly] = Field(default_factory=list)
    """Rows that inform only."""

    def soc(self, platform: str) -> str | None:
        """Return the SoC of a platform, or None."""
        shipped = set(soc_names())
        for part, names in self.platforms.items():
            if part.lower() in platform.lower():
                return next((name for name in names if name in shipped), None)
        return None

    def reason(self, platform: str, workload: str, note: str) -> str:
        """Return why a row is anomalous; nothing where it is not."""
        for anomaly in self.anomalies:
            if anomaly.platform.lower() in platform.lower() and workload in anomaly.networks:
                return anomaly.reason
        return note if "anomalous" in note.lower() else ""


@cache
def _definitions() -> Definitions:
    return load_model(resource("validate", "definitions", "networks.yaml"), Definitions)


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
    quantity: Literal["throughput", "latency"] = "throughput"
    measured: float = math.nan
    """Inferences per second, or seconds."""
    note: str = ""

    @property
    def device(self) -> str:
        """Class of device."""
        return "npu" if self.unit.startswith("npu") else self.unit

    def predicted(self, total: Any) -> float:
        """Return the row's quantity of a record of totals."""
        return float(total["latency_s" if self.quantity == "latency" else "throughput_per_s"])


@dataclass(frozen=True)
class PublishedNetworks:
    """Predicts each published number on the data sheet of its chip."""

    settings: tuple[str, ...] = ()
    """Changes to the data sheets, as for `--set`."""
    unit: str = ""
    """Device whose rows are predicted; empty: all."""

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows that can be predicted."""
        assert suite.figures is not None, "published networks are a table"
        shipped = resource("validate", "figures", suite.figures)
        files = [path, shipped.with_name(HOST_FIGURES)] if path == shipped else [path]
        published = [(file.name, row) for file in files for row in published_rows(file)]
        definitions = _definitions()
        notes: dict[str, None] = {}
        rows: list[Row] = []
        for file, row in published:
            if self.unit and row.unit != self.unit:
                continue
            workload, why = workload_of(row)
            soc = definitions.soc(row.platform)
            if workload is None or soc is None:
                why = why if soc is not None else f"there is no data sheet of {row.platform}"
                notes[f"{file}: left out {row.network} ({row.precision}): {why}"] = None
                continue
            reason = definitions.reason(row.platform, workload, row.note)
            if reason:
                notes[f"{row.platform}, {row.network}: {reason}"] = None
            columns = {name: getattr(row, name) for name in ("platform", "unit", "precision", "quantity")}
            columns |= {"workload": workload, "anomalous": "yes" if reason else "no"}
            run = NetworkRun(soc, row.device, workload, row.precision, row.quantity, machine=self.settings)
            rows.append(Row(row.line, row.measured, inference(run), columns))
        if not rows:
            skipped = [note.partition(": ")[2] for note in notes]
            more = f"; and {len(skipped) - 1} others" if len(skipped) > 1 else ""
            allowed = (
                f"rows of known chips and networks ({skipped[0]}{more})" if skipped else "a number in a row"
            )
            raise ConfigError("no row that can be predicted", file=str(path), allowed=allowed)
        return evidence_of(suite, rows, list(notes))


def workload_of(row: PublishedRow) -> tuple[str | None, str]:
    """Return the workload of a row, or None and the reason why there is none."""
    if row.unit_of_work not in (_FRAMES, ""):
        return None, "a token is no inference of it"
    if row.precision not in _PRECISIONS:
        return None, f"precisions are {', '.join(_PRECISIONS)}"
    workload = workload_published_as(row.network)
    return workload, "" if workload else "npusim builds no such network"


def published_rows(path: Path) -> Iterator[PublishedRow]:
    """Yield the numbers of a table; its device stands in a column `device` or `npu`."""
    _, header = next(csv_records(read_text(path), str(path)), (1, []))
    device: Column = Choice("device", ("npu", "cpu", "gpu")) if "device" in header else Text("npu")
    columns: list[Column] = [Text("platform"), device, Text("model"), Text("precision")]
    columns += [MaybeNumber("throughput"), Choice("throughput_unit", (_FRAMES, "tok/s", ""))]
    columns += [MaybeNumber(_LATENCY)] + ([Text("note")] if "note" in header else [])
    table = read_table(path, columns)
    for place, line in enumerate(table.lines):
        values: dict[str, Any] = {name: column[place] for name, column in table.columns.items()}
        unit = str(values[device.name]).lower()
        if not unit:
            raise ConfigError("nothing", file=table.file, line=line, key=device.name, allowed=device.allowed)
        network, precision, counted = (values[name] for name in ("model", "precision", "throughput_unit"))
        row = PublishedRow(line, values["platform"], unit, network, precision, counted)
        row = replace(row, note=str(values.get("note", "")))
        if not math.isnan(values["throughput"]):
            yield replace(row, measured=values["throughput"])
        if not math.isnan(values[_LATENCY]):
            yield replace(row, quantity="latency", measured=values[_LATENCY] * _MS)


PUBLISHED = PublishedNetworks()
"""Throughput and latency of whole networks on NPU, CPU and GPU."""
