"""Whole networks as others measured them, and as OpenVINO publishes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from pydantic import Field

from npusim import units
from npusim.arch import load_soc
from npusim.config import Section, load_model
from npusim.config.tables import Choice, Column, MaybeNumber, Number, Text, Word, csv_records, read_table
from npusim.errors import ConfigError, InfeasibleError
from npusim.files import read_text
from npusim.locate import resource
from npusim.metrics import SAMPLES
from npusim.plugins import announced, load
from npusim.scenario import Scenario
from npusim.studies.uncertainty import draw
from npusim.validation.figures import Evidence, Floats, Row, evidence_of
from npusim.validation.suite import Suite, figures_path
from npusim.validation.unit_models import Machine
from npusim.workloads import load_workload, workload_published_as
from npusim.workloads.spec import variants

Interval = tuple[float, float]
TokenTime = Callable[[str, str, str, str, int, tuple[str, ...], str], tuple[float, Interval] | None]
"""Seconds of a token of a language model and their 90 % interval, by model, SoC, device, precision, prompt,
settings of the SoC and source of the row; None: no such model."""
_BOUNDS = (5.0, 95.0)  # percentiles of an interval
# Factor to seconds or a rate per second, and whether it is a time.
_METRICS: Mapping[str, tuple[float, bool]] = {
    "ms": (1e-3, True), "fps": (1.0, False), "ms/token": (1e-3, True), "tok/s": (1.0, False)
}  # fmt: skip
_TOKENS = ("ms/token", "tok/s")
_PROMPT = re.compile(r"input (\d+)")
_FORMATS = ("fp16", "int8", "int4")  # formats of the weights of a language model
_PROMPT_TOKENS = 128  # tokens of a prompt where a row names none


class Harness(Section):
    """A program that measured, and what it adds to an inference."""

    name: str
    where: str
    """Part of a row's `source` or `notes`."""
    settings: list[str] = Field(default_factory=list)
    """Settings of the networks that it ran, such as workload.height=640."""
    machine: dict[str, list[str]] = Field(default_factory=dict)
    """Settings of the SoC while it ran, by SoC and device: clocks and cores that differ from the sheet's."""
    per_call: dict[str, units.Duration] = Field(default_factory=dict)
    """Time of a call outside the inference, by SoC and device ("core-ultra-7-258v npu"). Absent: the shortest
    of the same device."""

    def constant_s(self, soc: str, device: str) -> float:
        """Return the time of a call outside the inference (s)."""
        return float(self._constant(soc, device))

    def constants_s(self, soc: str, device: str) -> Floats:
        """Return the time of a call outside the inference at evenly spread quantiles (s)."""
        constant = self._constant(soc, device)
        sigma = np.sqrt(np.log1p((constant.uncertainty or 0.0) ** 2))
        quantiles = (np.arange(SAMPLES) + 0.5) / SAMPLES
        normals = np.array([NormalDist().inv_cdf(quantile) for quantile in quantiles])
        constants: Floats = float(constant) * np.exp(sigma * normals)
        return constants

    def _constant(self, soc: str, device: str) -> units.Quantity:
        known = [time for place, time in self.per_call.items() if place.endswith(device)]
        own = self.per_call.get(f"{soc} {device}")
        return own if own is not None else min(known, default=units.Quantity(0.0, "s", source="absent"))


# OpenVINO's own program: an inference takes what it measures.
_NO_HARNESS = Harness(name="benchmark_app", where="")


class Anomaly(Section):
    """Rows that no model of the hardware can explain, and that inform only."""

    where: str
    """Part of a row's machine or source."""
    models: list[str]
    reason: str


class MeasuringSetups(Section):
    """How measured rows are predicted: `validate/definitions/measured_networks.yaml`."""

    machines: dict[str, str]
    """SoC by a part of a row's `device` or platform; the first that fits."""
    precisions: dict[str, dict[str, str]]
    """Format that a device computes in, by the row's `precision`."""
    classes: dict[str, list[str]]
    """Beginnings of the names of each class of network; the first that fits."""
    harnesses: list[Harness]
    anomalies: list[Anomaly] = Field(default_factory=list)

    def soc(self, machine: str) -> str | None:
        """Return the SoC of a machine by its name in a table, or None."""
        return next((soc for part, soc in self.machines.items() if part.lower() in machine.lower()), None)

    def reason(self, place: str, model: str) -> str:
        """Return why a row of a machine and source is anomalous; nothing where it is not."""
        of_it = (a.reason for a in self.anomalies if a.where.lower() in place.lower() and model in a.models)
        return next(of_it, "")


@cache
def definitions() -> MeasuringSetups:
    """Return how measured rows are predicted."""
    return load_model(resource("validate", "definitions", "measured_networks.yaml"), MeasuringSetups)


@dataclass(frozen=True)
class MeasuredRow:
    """One measured number with its place on npusim's machines."""

    line: int
    machine: str
    """Device or platform as the file calls it."""
    soc: str
    device: str
    """npu, cpu or gpu."""
    workload: str
    precision: str
    """Format that the device computes in."""
    hint: str
    value: float
    """Seconds, or a rate per second."""
    is_time: bool
    is_token: bool = False
    stated: str = ""
    """Precision as the file calls it."""
    source: str = ""
    notes: str = ""
    prompt: int = _PROMPT_TOKENS
    reason: str = ""
    """Why the row informs only; empty: it is judged."""

    @property
    def family(self) -> str:
        """Family of networks of several sizes; of others the network."""
        return variants()[self.workload].stem if self.workload in variants() else self.workload

    @property
    def kind(self) -> str:
        """Class of network."""
        return "decoders" if self.is_token else class_of(self.workload)

    @property
    def unit(self) -> str:
        """Device; of an NPU its generation."""
        return load_soc(self.soc).npu.architecture if self.device == "npu" else self.device

    @property
    def harness(self) -> Harness:
        """What measured it."""
        text = f"{self.source} {self.notes}"
        return next((h for h in definitions().harnesses if h.where in text), _NO_HARNESS)

    @property
    def columns(self) -> dict[str, Any]:
        """What groups and plots know of the row."""
        named = ("machine", "device", "unit", "soc", "workload", "precision", "kind", "family")
        return dict[str, Any]({name: getattr(self, name) for name in named}) | {
            "quantity": "token" if self.is_token else "latency" if self.hint == "latency" else "throughput",
            "anomalous": "yes" if self.reason else "no",
            "harness": self.harness.name,
        }


Reader = Callable[[Path], tuple[list[MeasuredRow], list[str]]]
"""Returns the rows of a file that can be predicted, and notes on others."""


def measured_rows(path: Path) -> tuple[list[MeasuredRow], list[str]]:
    """Return the rows of a table that can be predicted, and a note for each that cannot.

    Raises
    ------
    ConfigError, FileError
        Where the table lacks a column, or a value does not fit its column.
    """
    columns = [Text(name) for name in ("source", "device", "model", "precision", "notes")]
    hints = Choice("hint", ("latency", "throughput", "decode"))
    table = read_table(path, [*columns, hints, Choice("metric", tuple(_METRICS)), Number("value")])
    rows, notes = list[MeasuredRow](), list[str]()
    for line, values in table.rows():
        row = _row(line, values)
        if isinstance(row, MeasuredRow):
            rows.append(row)
        else:
            notes.append(f"line {line}: left out {values['model']} on {values['device']}: {row}")
    return rows, notes


def class_of(workload: str) -> str:
    """Return the class of a network, such as `small CNNs`."""
    classes = definitions().classes.items()
    return next((name for name, parts in classes if workload.startswith(tuple(parts))), "others")


def _row(line: int, values: Mapping[str, Any]) -> MeasuredRow | str:
    known, machine, model = definitions(), values["device"].strip(), values["model"].strip()
    soc = known.soc(machine)
    device = next(iter(re.findall("npu|gpu|cpu", machine.lower())[::-1]), None)
    if soc is None or device is None:
        return "there is no data sheet of the machine"
    precision = known.precisions.get(values["precision"], {}).get(device)
    is_token = values["metric"] in _TOKENS
    if is_token and values["precision"] not in _FORMATS:
        return f"formats of weights are {', '.join(_FORMATS)}"
    if precision is None and not is_token:
        return f"precisions of the {device} are {', '.join(known.precisions)}"
    workload = model if is_token else workload_published_as(model)
    if workload is None:
        return "npusim builds no such network"
    factor, is_time = _METRICS[values["metric"]]
    value = factor * values["value"]
    if is_token:
        value, is_time = value if is_time else 1.0 / value, True
    prompt = _PROMPT.search(values["notes"])
    return MeasuredRow(
        line, machine, soc, device, workload, precision or values["precision"],
        "latency" if is_token else values["hint"], value, is_time, is_token, values["precision"],
        values["source"], values["notes"], int(prompt[1]) if prompt else _PROMPT_TOKENS,
        known.reason(f"{machine} {values['source']}", model),
    )  # fmt: skip


def scenario_of(row: MeasuredRow, settings: tuple[str, ...] = ()) -> Scenario:
    """Return the network of a row on its machine, with settings of the data sheet, for its hint."""
    graph = _graph(row.workload, (f"workload.precision={row.precision}", *row.harness.settings))
    return Scenario(graph, _soc(row.soc, settings), hint=row.hint, device=row.device)


_graph, _soc = cache(load_workload), cache(load_soc)


@dataclass(frozen=True)
class MeasuredNetworks:
    """Predicts each measured number on the data sheet of its machine, with the harness's own time."""

    settings: tuple[str, ...] = ()
    """Changes to the data sheets, as for `--set`."""
    tokens: bool = False
    """Whether decoders alone are predicted; otherwise suite `decoders` judges those of the shipped file."""
    read: Reader = measured_rows
    """Returns the rows of a file that can be predicted, and notes on others."""
    intervals: bool = True
    """Whether rows get 90 % intervals."""

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows that can be predicted, and the differences between sizes of a family."""
        rows, notes = self.read(path)
        if self.tokens or path == figures_path(suite):
            rows = [row for row in rows if row.is_token == self.tokens]
        results = list[tuple[MeasuredRow, Row]]()
        for row in rows:
            try:
                predicted = self.predicted(row)
            except InfeasibleError as error:
                notes.append(f"line {row.line}: left out {row.workload}: {error}")
                continue
            if predicted is None:
                notes.append(f"line {row.line}: left out {row.workload}: npusim builds no such decoder")
                continue
            if row.reason:
                notes.append(f"{row.machine}, {row.workload}: {row.reason}")
            interval = self.interval(row) if self.intervals and not row.reason else None
            results.append((row, Row(row.line, row.value, predicted, row.columns, interval)))
        if not results:
            others = f"; and {len(notes) - 1} others" if len(notes) > 1 else ""
            reasons = f" ({notes[0]}{others})" if notes else ""
            allowed = f"rows of known machines and networks{reasons}"
            raise ConfigError("no row that can be predicted", file=str(path), allowed=allowed)
        every = [result for _, result in results] + list(_slopes(results))
        return evidence_of(suite, every, list(dict.fromkeys(notes)))

    def predicted(self, row: MeasuredRow) -> float | None:
        """Return the row's prediction, with its harness; None for a decoder that nobody builds."""
        if row.is_token:
            token = _token(row, self.settings)
            return None if token is None else token[0]
        own = row.harness.machine.get(f"{row.soc} {row.device}", ())
        constant_s = row.harness.constant_s(row.soc, row.device) if row.is_time else 0.0
        return _figure(row, (*own, *self.settings)) + constant_s

    def interval(self, row: MeasuredRow) -> Interval | None:
        """Return the 90 % interval of a row on the sheet's machine; None for a sheet without `network_error`.

        An estimate does not know the clocks of a machine at work: the sheet's governor and uncertainties are
        in it, settings of the harness's machine are not. The time of a call is the harness's own.
        """
        if row.is_token:
            token = _token(row, self.settings)
            assert token is not None, "a row of a known decoder"
            return token[1]
        if load_soc(row.soc).devices[row.device].network_error is None:
            return None
        drawn = _drawn(row, self.settings)
        if row.is_time:
            constants_s = row.harness.constants_s(row.soc, row.device)
            drawn = drawn + np.random.default_rng(0).permutation(constants_s)
        low, high = np.percentile(drawn, _BOUNDS)
        return float(low), float(high)


@cache
def _figure(row: MeasuredRow, settings: tuple[str, ...]) -> float:
    """Return seconds of an inference, or inferences a second."""
    return float(scenario_of(row, settings).mapped.total["latency_s" if row.is_time else "throughput_per_s"])


@cache
def _drawn(row: MeasuredRow, settings: tuple[str, ...]) -> Floats:
    """Return seconds of an inference, or inferences a second, on drawn machines."""
    draws = draw([scenario_of(row, settings).mapped])
    drawn: Floats = draws.latency_s[0] if row.is_time else 1.0 / draws.interval_s[0]
    return drawn


@cache
def _token(row: MeasuredRow, settings: tuple[str, ...]) -> tuple[float, Interval] | None:
    """Return the seconds of a token and their interval by the first package that builds the model."""
    for entry in announced("npusim.token_times").values():
        function: TokenTime = load(entry, "token time")
        token = function(row.workload, row.soc, row.device, row.precision, row.prompt, settings, row.source)
        if token is not None:
            return token
    return None


def _slopes(results: list[tuple[MeasuredRow, Row]]) -> Iterator[Row]:
    """Yield differences that one harness measured, so that its own time cancels.

    They are between sizes of a family, and between lengths of the cache of a decoder.
    """
    for (a, one), (b, other) in combinations(results, 2):
        keys = ("machine", "stated", "source", "family", "hint", "is_token", "kind")
        differ = "prompt" if a.is_token else "workload"
        alike = all(getattr(a, key) == getattr(b, key) for key in keys)
        if not alike or not a.is_time or getattr(a, differ) == getattr(b, differ) or a.reason or b.reason:
            continue
        less, more = sorted((one, other), key=lambda row: row.measured)
        if more.measured < 1.25 * less.measured and not a.is_token:
            continue  # closer than two runs of one network
        columns = dict(one.columns, quantity="growth" if a.is_token else "slope")
        columns["workload"] = " to ".join(dict.fromkeys(str(row.columns["workload"]) for row in (less, more)))
        difference = more.predicted - less.predicted
        yield Row(f"{less.id} to {more.id}", more.measured - less.measured, difference, columns)


FIGURES, HOST_FIGURES = "openvino_published.csv", "openvino_published_hosts.csv"
"""Figures of NPUs; of CPU and GPU, read after them unless a user names a file."""
_LATENCY = "latency_ms_sync_int8"
_PRECISIONS = ("fp16", "int8")
_FRAMES = "FPS"


def published_rows(path: Path) -> tuple[list[MeasuredRow], list[str]]:
    """Return what can be predicted of OpenVINO's tables, and a note for each other network.

    A column `device` or `npu` names the device. The shipped table of NPUs has that of the hosts after it.
    """
    shipped = resource("validate", "figures", FIGURES)
    rows, notes = list[MeasuredRow](), list[str]()
    for file in [path, shipped.with_name(HOST_FIGURES)] if path == shipped else [path]:
        _, header = next(csv_records(read_text(file), str(file)), (1, []))
        device: Column = Choice("device", ("npu", "cpu", "gpu")) if "device" in header else Word("npu")
        columns: list[Column] = [Text("platform"), device, Text("model"), Text("precision")]
        columns += [MaybeNumber("throughput"), Choice("throughput_unit", (_FRAMES, "tok/s", ""))]
        columns += [MaybeNumber(_LATENCY)] + ([Text("note")] if "note" in header else [])
        for line, values in read_table(file, columns).rows():
            unit = str(values[device.name]).lower()
            published = _published(line, values, "npu" if unit.startswith("npu") else unit)
            if isinstance(published, str):
                network, precision = values["model"], values["precision"]
                notes.append(f"{file.name}: left out {network} ({precision}): {published}")
            else:
                rows += published
    return rows, notes


def _published(line: int, values: Mapping[str, Any], device: str) -> list[MeasuredRow] | str:
    """Return the numbers of one line, or why they cannot be predicted."""
    platform, precision = values["platform"], values["precision"]
    soc, workload = definitions().soc(platform), workload_published_as(values["model"])
    if soc is None:
        return f"there is no data sheet of {platform}"
    if values["throughput_unit"] not in (_FRAMES, ""):
        return "a token is no inference of it"
    if precision not in _PRECISIONS:
        return f"precisions are {', '.join(_PRECISIONS)}"
    if workload is None:
        return "npusim builds no such network"
    note = str(values.get("note", ""))
    reason = definitions().reason(platform, workload) or (note if "anomalous" in note.lower() else "")
    numbers = {"throughput": values["throughput"], "latency": 1e-3 * values[_LATENCY]}
    return [
        MeasuredRow(
            line, platform, soc, device, workload, precision, hint, value, hint == "latency", reason=reason
        )
        for hint, value in numbers.items()
        if not math.isnan(value)
    ]


MEASURED = MeasuredNetworks()
"""Latency and throughput of whole networks on NPU, CPU and GPU."""
TOKENS = MeasuredNetworks(tokens=True)
"""Time of a token of language models."""
PUBLISHED = MeasuredNetworks(read=published_rows, intervals=False)
"""Throughput and latency of whole networks on NPU, CPU and GPU, as OpenVINO publishes them."""
