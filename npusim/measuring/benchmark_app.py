"""Imports a folder of OpenVINO's benchmark_app: reports, console output, counters.

All files must be of the same run. `configs/importers/benchmark_app.yaml` says how
reports name each quantity.
"""

from __future__ import annotations

import re
from collections import Counter as Occurrences
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, cast, get_args

from pydantic import BeforeValidator, Field

import npusim
from npusim.config.loading import as_model
from npusim.config.reading import read_json, read_yaml
from npusim.config.tables import Choice, Number, Text, places_of, value_of
from npusim.documents import Part
from npusim.errors import ConfigError, FileError, shown
from npusim.files import read_text
from npusim.locate import resource
from npusim.measuring.document import UNKNOWN_CHIP, Counter, Device, Measurement, ModelFile, Row, Spread

DeviceKind = Literal["npu", "gpu", "cpu"]
Hint = Literal["latency", "throughput"]

_MAP = read_yaml(resource("configs", "importers", "benchmark_app.yaml")).data
_DEVICE = re.compile(r"(NPU|GPU|CPU)(\.\d+)?")
_PRECISION = re.compile(r"\b(b?f)(?:loat)?(16|32)\b")
_INFO = re.compile(r"^\[ INFO \]\s+(?P<name>[A-Za-z_ ]+?)\s*(?:: ?|\.{3,} )\s*(?P<value>.*?)\s*$")
_PRINTED = re.compile(r"^\[ INFO \]\s+Throughput:\s", re.MULTILINE)
_MS = 1e-3
_SAME_RATE = 0.002  # largest relative difference of one run's rate between reports, besides a hundredth
_REMEDY = (
    "a folder with benchmark_report.csv, benchmark_report.json or what benchmark_app printed (.txt, .log)"
)


@dataclass(frozen=True)
class ReportValue:
    """A value of a report as text, and its place."""

    text: str
    file: str
    key: str
    line: int | None = None
    unit: str = "ms"  # unit of a time; of a printed value what follows the number

    def number(self, *, whole: bool = False) -> float:
        """Return the value as a number above 0, or raise an error."""
        return float(value_of(Number(self.key, whole=whole), self.text, self.file, self.line))

    def seconds(self) -> float:
        """Return a time (s)."""
        if self.unit not in _MAP["units"]:
            raise self.refusal(shown(self.text), "a number above 0 with the unit ms or us")
        if re.fullmatch(r"0\.0+", self.text):
            rounded = "below 5 us it is rounded to 0.00: put what benchmark_app printed beside it"
            raise self.refusal(shown(self.text), f"a number above 0; {rounded}")
        return self.number() * float(_MAP["units"][self.unit])

    def refusal(self, found: str, allowed: str) -> ConfigError:
        """Return the error for something at the place of this value."""
        return ConfigError(found, file=self.file, line=self.line, key=self.key, allowed=allowed)


Values = dict[tuple[str, str], ReportValue]
"""Values of reports by section and name."""


@dataclass
class BenchmarkRun:
    """The values of all reports of a run; those of the first report count."""

    directory: Path
    values: Values = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def value(self, quantity: str) -> ReportValue | None:
        """Return the value of a quantity; None where no report has it."""
        names = ((section, name) for section, names in _MAP["quantities"][quantity].items() for name in names)
        return next((self.values[place] for place in names if place in self.values), None)

    def text(self, quantity: str) -> str:
        """Return the text of a quantity; empty where no report has it."""
        value = self.value(quantity)
        return value.text if value else ""


def from_benchmark_app(
    directory: str | Path, *, kind: DeviceKind | None = None, name: str | None = None
) -> Measurement:
    """Return the measurement that a folder of benchmark_app holds: one row.

    Parameters
    ----------
    directory : str or Path
        The folder of ``-report_folder``. It may also hold the console output as a ``.txt`` or ``.log`` file,
        which has more: short times, the precision, the version of OpenVINO.
    kind : str, optional
        Class of device: npu, gpu, cpu. Needed where OpenVINO chose the device (``AUTO``).
    name : str, optional
        Name of the chip, which benchmark_app does not report.

    Raises
    ------
    FileError
        Where there is no such folder, nothing of benchmark_app in it, or a file cannot be read.
    ConfigError
        Where a file is cut off, a value is not allowed, or files are of different runs; it names the line.
    """
    run = BenchmarkRun(Path(directory))
    rate = _read_reports(run)
    device_kind = _kind(run, kind)
    precision = _precision(run, device_kind)
    path = run.text("model file")
    if not path:
        run.warnings.append("the run does not tell the name of the model's file")
    model = ModelFile.at(path or run.text("network") or "unknown")
    hint = _hint(run)
    latency, notes = _latency(run)
    inputs, batch = run.value("batch size"), 1.0
    if inputs is not None and inputs.text.isdigit():
        batch = inputs.number(whole=True)
    elif inputs is not None:
        run.warnings.append(f"the batch size is {shown(inputs.text)}: an input is taken for an inference")
    requests, turbo, tiles = run.value("requests"), run.text("turbo"), run.text("tiles")
    counters = next((name for name in _MAP["counters"] if (run.directory / name).exists()), None)
    if counters or run.text("profiling").lower() not in ("", "false"):
        notes.append("with profiling on: longer than without")
    row = Row(
        id=f"{model.stem} {hint}",
        model=model,
        hint=hint,
        requests=int(requests.number(whole=True)) if requests else 1,
        tiles=int(tiles) if re.fullmatch("[1-9][0-9]*", tiles) else None,
        precision=precision,
        latency_s=latency,
        throughput_per_s=rate / batch,
        operators=_operators(run, counters) if counters else (),
        note="; ".join(notes),
    )
    device = Device(
        kind=device_kind,
        name=name or UNKNOWN_CHIP,
        openvino=run.text("version") or None,
        turbo=turbo.upper() in ("YES", "TRUE", "1") if run.value("turbo") else None,
    )
    return Measurement(
        npusim=npusim.__version__,
        tool="benchmark_app",
        device=device,
        rows=(row,),
        warnings=tuple(run.warnings),
    )


def _read_reports(run: BenchmarkRun) -> float:
    """Read every report of a folder, which must be of one run; return its most exact rate of inputs (1/s)."""
    directory = run.directory
    if not directory.is_dir():
        problem = "is a file" if directory.exists() else "no such folder"
        raise FileError(str(directory), problem, f"give {_REMEDY}")
    logs = sorted(p for p in directory.iterdir() if p.suffix.lower() in (".txt", ".log") and p.is_file())
    # PowerShell writes what it redirects in UTF-16.
    texts = {path: read_text(path, encodings=("utf-8-sig", "utf-16")) for path in logs}
    printed = [path for path, text in texts.items() if _PRINTED.search(text)]
    if len(printed) > 1:
        names = ", ".join(path.name for path in printed)
        problem = f"holds what several runs printed ({names})"
        raise FileError(str(directory), problem, "keep one run per folder")
    # The console output has more digits: times below 5 us are 0.00 ms in the reports.
    reports = [_printed_values(path, texts[path]) for path in printed]
    for name, read in (("benchmark_report.csv", _csv_values), ("benchmark_report.json", _json_values)):
        if (directory / name).exists():
            reports.append(read(directory / name))
    if not reports:
        raise FileError(str(directory), "holds no report of benchmark_app", f"give {_REMEDY}")
    rates = []
    for values in reports:
        run.values = values | run.values
        value = BenchmarkRun(directory, values).value("throughput")
        if value is None:
            file = next(iter(values.values())).file
            raise ConfigError("no throughput", file=file, allowed="the whole report of a finished run")
        rates.append(value)
        first, rate = rates[0].number(), value.number()
        if abs(first - rate) > _SAME_RATE * max(first, rate) + 0.01:
            found = f"a throughput of {rate:g} a second, but {first:g} in {Path(rates[0].file).name}"
            raise value.refusal(found, "files of one run")
    return max(rates, key=lambda value: len(value.text)).number()


def _csv_values(path: Path) -> Values:
    """Return the values of a benchmark_report.csv."""
    values, section, file = Values(), "", str(path)
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text = line.strip().removesuffix(";")
        if text in _MAP["csv_sections"]:
            section = _MAP["csv_sections"][text]
        elif text:
            name, separator, value = text.partition(";")
            # The program in C++ ends every line with a separator, that in Python an option without value.
            bare = section == "options" and line.strip().endswith(";")
            if not section or not (separator or bare):
                known = "`Command line parameters`, `Configuration setup` or `Execution results`"
                allowed = f"`name;value` below {known}"
                raise ConfigError(shown(text), file=file, line=number, allowed=allowed)
            key = name.strip()
            place = section, key.lstrip("-") if section == "options" else key
            values.setdefault(place, ReportValue(value.strip(), file, key, number))
    if not any(section == "results" for section, _ in values):
        allowed = "a report of benchmark_app with `Execution results`"
        raise ConfigError("no results", file=file, line=1, allowed=allowed)
    return values


def _json_values(path: Path) -> Values:
    """Return the values of a benchmark_report.json."""
    data, values = read_json(path).data, Values()
    for block, section in _MAP["json_sections"].items():
        entries = data.get(block, {}) if isinstance(data, dict) else None
        if not isinstance(entries, Mapping) or (section == "results" and not entries):
            found = shown(entries) if entries else f"no `{block}`"
            allowed = "a report of benchmark_app -json_stats"
            raise ConfigError(found, file=str(path), key=block, allowed=allowed)
        for name, value in entries.items():
            if not isinstance(value, list | dict):
                place = section, name.lstrip("-") if section == "options" else name
                values[place] = ReportValue(str(value), str(path), f"{block}.{name}")
    return values


def _printed_values(path: Path, text: str) -> Values:
    """Return the values of a console output, which count as setup and as results."""
    values = Values()
    for number, line in enumerate(text.splitlines(), 1):
        match = _INFO.match(line.replace("\t", "   "))
        if match:
            name, printed = match["name"].strip(), match["value"]
            unit = next((unit for unit in _MAP["units"] if printed.endswith(f" {unit}")), "")
            value = ReportValue(printed.removesuffix(unit).strip(), str(path), name, number, unit)
            for section in ("setup", "results"):
                values.setdefault((section, name), value)
    return values


def _kind(run: BenchmarkRun, wanted: DeviceKind | None) -> DeviceKind:
    """Return the class of device that ran, which must be the wanted one."""
    value = run.value("device") or ReportValue("", str(run.directory), "device")
    text = re.sub(r"[\[\]'\"\s]", "", value.text)
    match = _DEVICE.fullmatch(text)
    if match is None and not wanted:
        found = f"the device {shown(text)}" if text else "no device"
        allowed = "NPU, GPU or CPU; or say which of them it was"
        raise ConfigError(found, file=value.file, line=value.line, allowed=allowed)
    kind = match[1].lower() if match else wanted
    if wanted and wanted != kind:
        allowed = wanted.upper()
        raise ConfigError(f"the device {text}", file=value.file, line=value.line, allowed=allowed)
    return cast(DeviceKind, kind)


def _precision(run: BenchmarkRun, kind: DeviceKind) -> str | None:
    if word := _PRECISION.search(run.text("precision")):
        return f"{word[1]}{word[2]}"
    if kind == "npu":
        return "f16"
    run.warnings.append(
        f"the run does not tell in which precision the {kind.upper()} computed: a CPU may compute a model of "
        "f32 in bf16; give benchmark_app -infer_precision, or put what it printed beside its report"
    )
    return None


def _hint(run: BenchmarkRun) -> Hint:
    hint = run.text("hint").lower().rpartition(".")[2]
    if hint not in ("latency", *_MAP["throughput_hints"]):
        hint = "latency" if run.text("api").lower() == "sync" else "throughput"
    return "latency" if hint == "latency" else "throughput"


def _latency(run: BenchmarkRun) -> tuple[Spread | None, list[str]]:
    """Return the time of an inference, and notes about it."""
    percentile = run.value("percentile")
    is_median = percentile is None or percentile.number() == 50.0
    names = ["median"] * is_median + ["average", "min", "max"]
    times = {name: value for name in names if (value := run.value(name)) is not None}
    times_s = {name: value.seconds() for name, value in times.items()}
    if not times_s:
        return None, ["no latency was reported"]
    middle = times_s.get("median", times_s.get("average"))
    file = next(iter(times.values())).file
    if middle is None:
        raise ConfigError("no median and no average latency", file=file, allowed="a whole report")
    notes = [] if "median" in times_s else ["the average stands for the median"]
    low, high = times_s.get("min", middle), times_s.get("max", middle)
    spread = "low and high are the minimum and the maximum"
    notes.append(spread if low < high else "the spread was not reported")
    if not low <= middle <= high:
        allowed = "a median between minimum and maximum"
        found = f"{low:g} s, {middle:g} s, {high:g} s as minimum, middle and maximum"
        raise ConfigError(found, file=file, allowed=allowed)
    count = run.value("iterations")
    repetitions = int(count.number(whole=True)) if count else 1
    return Spread(median_s=middle, low_s=low, high_s=high, repetitions=repetitions), notes


Status = Literal["NOT_RUN", "OPTIMIZED_OUT", "EXECUTED"]
# Columns of the counters in CSV, by the key of the counters in JSON.
_COLUMNS = {
    "name": Text("layerName"),
    "status": Choice("execStatus", get_args(Status)),
    "node_type": Text("layerType"),
    "exec_type": Text("execType"),
    "real_time": Number("realTime (ms)", above=False),
    "cpu_time": Number("cpuTime (ms)", above=False),
}
Milliseconds = Annotated[float, Field(ge=0)]


class _Node(Part):
    name: str
    node_type: str
    status: Annotated[Status, BeforeValidator(lambda text: str(text).removeprefix("Status."))]
    real_time: Milliseconds
    cpu_time: Milliseconds
    exec_type: str


class _Request(Part):
    nodes: tuple[_Node, ...]
    total_real_time: Milliseconds
    total_cpu_time: Milliseconds


class _JsonCounters(Part):
    report_type: str
    avg_performance: _Request | None = None
    detailed_performance: tuple[_Request, ...] = ()


def _operators(run: BenchmarkRun, name: str) -> tuple[Counter, ...]:
    """Return the executed operators by name and occurrence, each with its median over the requests."""
    operators = defaultdict[tuple[str, int], list[_Node]](list)
    read = _json_counters if name.endswith(".json") else _csv_counters
    for request in read(run.directory / name):
        seen: Occurrences[str] = Occurrences()
        for node in request:
            seen[node.name] += 1
            operators[node.name, seen[node.name]].append(node)
    counters = tuple(
        Counter(
            name=nodes[0].name or "unnamed",
            type=nodes[0].node_type,
            executed_as=nodes[0].exec_type,
            latency_s=median(node.real_time * _MS for node in nodes),
        )
        for nodes in operators.values()
        if nodes[0].status == "EXECUTED"
    )
    if name.endswith("average_counters_report.json") and len(counters) <= 1:
        run.warnings.append(f"{name} holds {len(counters)} operators: take -report_type detailed_counters")
    return counters


def _csv_counters(path: Path) -> Iterator[list[_Node]]:
    """Yield the operators of each request: a header, a line per operator and a line `Total`."""
    file, columns = str(path), list(_COLUMNS.values())
    places, nodes = list[int](), list[_Node]()
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line]
    for number, line in lines:
        fields = line.split(";")
        if len(fields) > len(columns) and not fields[-1]:  # the program in C++ ends a line with a separator
            fields.pop()
        if not places:
            header = [name.strip() for name in line.removesuffix(";").split(";")]
            places = places_of(header, columns, file, number, further=False)
            continue
        if len(fields) < len(columns):
            allowed = f"{len(columns)}, as in the header"
            raise ConfigError(f"{len(fields)} fields", file=file, line=number, allowed=allowed)
        spare = len(fields) - len(columns)  # a layer's name may hold separators
        fields = [part.strip() for part in (";".join(fields[: spare + 1]), *fields[spare + 1 :])]
        if fields[places[0]] == "Total" and not fields[places[1]]:
            yield nodes
            places, nodes = [], []
            continue
        values = {
            name: value_of(column, fields[place].removeprefix("Status."), file, number)
            for (name, column), place in zip(_COLUMNS.items(), places, strict=True)
        }
        nodes.append(_Node.model_validate(values))
    if places:
        found = "a file that ends before its `Total`"
        raise ConfigError(found, file=file, line=number, allowed="a whole file, as benchmark_app leaves it")
    if not lines:
        columns_named = ";".join(column.name for column in columns)
        raise ConfigError("an empty file", file=file, line=1, allowed=f"the columns {columns_named}")


def _json_counters(path: Path) -> Iterator[Sequence[_Node]]:
    """Yield the operators of each request of a counters report in JSON."""
    document = read_json(path)
    counters = as_model(document, _JsonCounters)
    requests = [*filter(None, [counters.avg_performance]), *counters.detailed_performance]
    if not requests:
        allowed = "avg_performance or detailed_performance"
        raise ConfigError("no counters", file=document.name, allowed=allowed)
    yield from (request.nodes for request in requests)
