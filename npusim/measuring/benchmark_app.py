"""Imports a folder of OpenVINO's benchmark_app: reports, console output, counters.

All files must be of the same run. `_PLACES` says where each quantity stands in the reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, NamedTuple, cast

from pydantic import Field

import npusim
from npusim.config.loading import as_model
from npusim.config.reading import read_json
from npusim.config.tables import Choice, Number, Text, places_of
from npusim.documents import Part
from npusim.errors import ConfigError, FileError, shown
from npusim.files import read_text
from npusim.measuring.document import UNKNOWN_CHIP, Counter, Device, Measurement, ModelFile, Row, Spread

DeviceKind = Literal["npu", "gpu", "cpu"]
Hint = Literal["latency", "throughput"]
Section = Literal["options", "setup", "results"]

_PLACES: Mapping[str, Mapping[Section, tuple[str, ...]]] = {
    "device": {
        "options": ("d", "target_device"),
        "setup": ("target device", "EXECUTION_DEVICES", "Execution Devices"),
    },
    "requests": {
        "options": ("nireq", "number_infer_requests"),
        "setup": ("number of parallel infer requests", "OPTIMAL_NUMBER_OF_INFER_REQUESTS"),
    },
    "precision": {"options": ("infer_precision",), "setup": ("INFERENCE_PRECISION_HINT",)},
    "hint": {"options": ("hint", "perf_hint"), "setup": ("PERFORMANCE_HINT",)},
    "api": {"setup": ("API",)},
    "profiling": {"options": ("pc", "perf_counts")},
    "model file": {"options": ("m", "path_to_model")},
    "network": {"setup": ("NETWORK_NAME", "topology")},
    "batch size": {"setup": ("batch size",)},
    "tiles": {"setup": ("NPU_TILES",)},
    "turbo": {"setup": ("NPU_TURBO",)},
    "version": {"setup": ("Build",)},
    "iterations": {"results": ("total number of iterations",)},
}
"""Sections of a report that hold each quantity, and its names there; the first match counts."""
_NAMES = {
    "target_device": "target device",
    "api": "API",
    "batch_size": "batch size",
    "nireq": "number of parallel infer requests",
    "iterations_num": "total number of iterations",
    "percentile_boundary": "Percentile boundary",
    "Count": "total number of iterations",
    "Throughput": "throughput",
    "Model batch size": "batch size",
    "latency (ms)": "median",
    **dict.fromkeys(("latency_median", "Median latency (ms)", "Median"), "median"),
    **dict.fromkeys(
        ("latency_avg", "latency_average", "Average latency (ms)", "avg latency", "Average"), "average"
    ),
    **dict.fromkeys(("latency_min", "Min latency (ms)", "min latency", "Min"), "min"),
    **dict.fromkeys(("latency_max", "Max latency (ms)", "max latency", "Max"), "max"),
}
"""One name for each value that C++ and Python, CSV, JSON and the console call differently."""
_TIMES = ("median", "average", "min", "max")
_CSV_SECTIONS: Mapping[str, Section | None] = {
    "Command line parameters": "options",
    "Configuration setup": "setup",
    "Execution results": "results",
    "Group Latencies": None,
}
_JSON_SECTIONS: Mapping[str, Section] = {
    "cmd_options": "options",
    "configuration_setup": "setup",
    "execution_results": "results",
}
_THROUGHPUT_HINTS = ("throughput", "tput", "cumulative_throughput", "ctput")
_DEVICE = re.compile(r"(NPU|GPU|CPU)(\.\d+)?")
_PRECISION = re.compile(r"\b(b?f)(?:loat)?(16|32)\b")
_PERCENTILE = re.compile(r"latency \(\d+ percentile\) \(ms\)")
_INFO = re.compile(r"^\[ INFO \]\s+(?P<name>[A-Za-z_ ]+?)\s*(?:: ?|\.{3,} )\s*(?P<value>.*?)\s*$")
_PRINTED = re.compile(r"^\[ INFO \]\s+Throughput:\s", re.MULTILINE)
_ENCODINGS = {b"\xff\xfe": ("utf-16",), b"\xfe\xff": ("utf-16",)}
_PRINTED_UNITS = {"throughput": "FPS", "total number of iterations": "iterations"}
_MS = 1e-3
_SAME_RATE = 0.002
"""Largest relative difference of one run's rate between two reports, besides a hundredth: rounding."""
_REMEDY = (
    "a folder with benchmark_report.csv, benchmark_report.json or what benchmark_app printed (.txt, .log)"
)


@dataclass(frozen=True)
class ReportValue:
    """A value of a report as text, and its place."""

    text: str
    file: str
    line: int | None
    key: str

    def without(self, unit: str) -> ReportValue:
        """Return the value without its unit."""
        return replace(self, text=self.text.removesuffix(unit).strip())

    def number(self, *, whole: bool = False) -> float:
        """Return the value as a number above 0, or raise an error."""
        column = Number(self.key, whole=whole)
        value = column.value(self.text)
        if value is None:
            raise self.refusal(column.allowed)
        return value

    def refusal(self, allowed: str) -> ConfigError:
        """Return the error for a value that is not allowed."""
        found = shown(self.text) if self.text else "nothing"
        return ConfigError(found, file=self.file, line=self.line, key=self.key, allowed=allowed)


@dataclass
class Report:
    """One report of a run."""

    file: str
    values: dict[Section, dict[str, ReportValue]] = field(
        default_factory=lambda: {"options": {}, "setup": {}, "results": {}}
    )
    """Values by section; options without their dashes."""
    times_s: dict[str, float] = field(default_factory=dict)
    """`median`, `average`, `min`, `max` of the latency, where reported (s)."""

    def throughput(self) -> ReportValue:
        """Return the inputs per second; a report without them is cut off."""
        if "throughput" not in self.values["results"]:
            raise ConfigError("no throughput", file=self.file, allowed="the whole report of a finished run")
        return self.values["results"]["throughput"]

    def add(self, section: Section, name: str, value: ReportValue) -> None:
        """Add a value of a CSV or JSON report."""
        if section == "options":
            self.values[section][name.lstrip("-")] = value
            return
        name = _NAMES.get(name, "percentile" if _PERCENTILE.fullmatch(name) else name)
        self.values[section].setdefault(name, value)

    def read_times(self) -> None:
        """Read the times among the results, which are in ms."""
        results = self.values["results"]
        boundary = results.get("Percentile boundary")
        if boundary is not None and boundary.number() != 50.0:
            results.pop("median", None)
        for name in _TIMES:
            if name not in results:
                continue
            if re.fullmatch(r"0\.0+", results[name].text):
                raise results[name].refusal(
                    "a number above 0; below 5 us it is rounded to 0.00: "
                    "put what benchmark_app printed beside it"
                )
            self.times_s[name] = results[name].number() * _MS


@dataclass(frozen=True)
class BenchmarkRun:
    """All reports of a run; earlier ones are more exact about times."""

    directory: Path
    reports: tuple[Report, ...]
    warnings: list[str] = field(default_factory=list)

    def value(self, quantity: str) -> ReportValue | None:
        """Return the value of a quantity of `_PLACES`; None where no report has it."""
        for section, names in _PLACES[quantity].items():
            for report in self.reports:
                for name in names:
                    if name in report.values[section]:
                        return report.values[section][name]
        return None


def from_benchmark_app(
    directory: str | Path, *, kind: DeviceKind | None = None, name: str | None = None
) -> Measurement:
    """Return the measurement that a folder of benchmark_app holds.

    Parameters
    ----------
    directory : str or Path
        The folder of ``-report_folder``. It may also hold the console output as a ``.txt`` or ``.log`` file,
        which has more: short times, the precision, the version of OpenVINO.
    kind : str, optional
        Class of device: npu, gpu, cpu. Needed where OpenVINO chose the device (``AUTO``).
    name : str, optional
        Name of the chip, which benchmark_app does not report.

    Returns
    -------
    Measurement
        One row: latency from the median, minimum and maximum; throughput in inferences per second.

    Raises
    ------
    FileError
        Where there is no such folder, nothing of benchmark_app in it, or a file cannot be read.
    ConfigError
        Where a file is cut off, a value is not allowed, or files are of different runs; it names the line.
    """
    run = BenchmarkRun(Path(directory), _reports(Path(directory)))
    device_kind = _kind(run, kind)
    precision = _precision(run, device_kind)
    model, hint = _model(run), _hint(run)
    latency, notes = _latency(run)
    rate = max(run.reports, key=lambda report: len(report.throughput().text)).throughput().number()
    requests, tiles, turbo = run.value("requests"), run.value("tiles"), run.value("turbo")
    profiled, version = run.value("profiling"), run.value("version")
    counters = next((name for name, _ in _COUNTERS if (run.directory / name).exists()), None)
    if counters or (profiled and profiled.text.lower() != "false"):
        notes.append("with profiling on: longer than without")
    row = Row(
        id=f"{model.stem} {hint}",
        model=model,
        hint=hint,
        requests=int(requests.number(whole=True)) if requests else 1,
        tiles=int(tiles.text) if tiles and re.fullmatch("[1-9][0-9]*", tiles.text) else None,
        precision=precision,
        latency_s=latency,
        throughput_per_s=rate / _batch(run),
        operators=_operators(run, counters) if counters else (),
        note="; ".join(notes),
    )
    return Measurement(
        npusim=npusim.__version__,
        tool="benchmark_app",
        device=Device(
            kind=device_kind,
            name=name or UNKNOWN_CHIP,
            openvino=(version.text or None) if version else None,
            turbo=None if turbo is None else turbo.text.upper() in ("YES", "TRUE", "1"),
        ),
        rows=(row,),
        warnings=tuple(run.warnings),
    )


def _reports(directory: Path) -> tuple[Report, ...]:
    """Read every report of a folder; all must be of the same run."""
    if not directory.is_dir():
        problem = "is a file" if directory.exists() else "no such folder"
        raise FileError(str(directory), problem, f"give {_REMEDY}")
    logs = sorted(p for p in directory.iterdir() if p.suffix.lower() in (".txt", ".log") and p.is_file())
    printed = {path: text for path in logs if _PRINTED.search(text := _console_text(path))}
    if len(printed) > 1:
        names = ", ".join(path.name for path in printed)
        raise FileError(
            str(directory), f"holds what several runs printed ({names})", "keep one run per folder"
        )
    reports = [_printed_report(path, text) for path, text in printed.items()]
    # The console output has more digits: times below 5 us are 0.00 ms in the reports.
    needs_times = not any(report.times_s for report in reports)
    for name, read in (("benchmark_report.csv", _csv_report), ("benchmark_report.json", _json_report)):
        if (directory / name).exists():
            reports.append(read(directory / name))
            if needs_times:
                reports[-1].read_times()
    if not reports:
        raise FileError(str(directory), "holds no report of benchmark_app", f"give {_REMEDY}")
    first = reports[0].throughput().number()
    for other in reports[1:]:
        rate = other.throughput().number()
        if abs(first - rate) > _SAME_RATE * max(first, rate) + 0.01:
            raise ConfigError(
                f"a throughput of {rate:g} a second, but {first:g} in {Path(reports[0].file).name}",
                file=other.file,
                line=other.throughput().line,
                allowed="files of one run",
            )
    return tuple(reports)


def _csv_report(path: Path) -> Report:
    """Return the values of a benchmark_report.csv."""
    report, section, known = Report(str(path)), None, False
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text = line.strip().removesuffix(";")
        if not text:
            continue
        if text in _CSV_SECTIONS:
            section, known = _CSV_SECTIONS[text], True
            continue
        name, separator, value = text.partition(";")
        # The program in C++ ends every line with a separator, that in Python an option without value.
        bare = section == "options" and line.strip().endswith(";")
        if not known or (not separator and not bare):
            allowed = (
                "`name;value` below `Command line parameters`, `Configuration setup` or `Execution results`"
            )
            raise ConfigError(shown(text), file=str(path), line=number, allowed=allowed)
        if section is not None:
            report.add(section, name.strip(), ReportValue(value.strip(), str(path), number, name.strip()))
    if not report.values["results"]:
        allowed = "a report of benchmark_app with `Execution results`"
        raise ConfigError("no results", file=str(path), line=1, allowed=allowed)
    return report


def _json_report(path: Path) -> Report:
    """Return the values of a benchmark_report.json."""
    data, report = read_json(path).data, Report(str(path))
    for block, section in _JSON_SECTIONS.items():
        entries = data.get(block, {}) if isinstance(data, dict) else None
        if not isinstance(entries, Mapping) or (section == "results" and not entries):
            found = shown(entries) if entries else f"no `{block}`"
            allowed = "a report of benchmark_app -json_stats"
            raise ConfigError(found, file=str(path), key=block, allowed=allowed)
        for name, value in entries.items():
            if not isinstance(value, list | dict):
                report.add(section, name, ReportValue(str(value), str(path), None, f"{block}.{name}"))
    return report


def _printed_report(path: Path, text: str) -> Report:
    """Return the values of a console output."""
    report = Report(str(path))
    for number, line in enumerate(text.splitlines(), 1):
        match = _INFO.match(line.replace("\t", "   "))
        if not match:
            continue
        name = match["name"].strip()
        value = ReportValue(match["value"], str(path), number, name)
        known = _NAMES.get(name) if name[0].isupper() else None
        if known in _TIMES:
            report.times_s.setdefault(known, _printed_time_s(value))
        elif known in _PRINTED_UNITS:
            report.values["results"][known] = value.without(_PRINTED_UNITS[known])
        elif known == "batch size":
            report.values["setup"][known] = value
        else:
            report.values["setup"].setdefault(name, value)
    return report


def _console_text(path: Path) -> str:
    """Return a console output; PowerShell writes what it redirects in UTF-16."""
    try:
        with path.open("rb") as file:
            mark = file.read(2)
    except OSError:
        mark = b""
    return read_text(path, encodings=_ENCODINGS.get(mark, ("utf-8-sig",)))


def _printed_time_s(value: ReportValue) -> float:
    """Return a printed time (s); the program chooses between us and ms."""
    for unit, scale in (("ms", _MS), ("us", 1e-6)):
        if value.text.endswith(f" {unit}"):
            return value.without(unit).number() * scale
    raise value.refusal("a number above 0 with the unit ms or us")


def _kind(run: BenchmarkRun, wanted: DeviceKind | None) -> DeviceKind:
    """Return the class of device that ran, which must be the wanted one."""
    value = run.value("device")
    text = re.sub(r"[\[\]'\"\s]", "", value.text) if value else ""
    match = _DEVICE.fullmatch(text)
    if match is None:
        if wanted:
            return wanted
        raise ConfigError(
            f"the device {shown(text)}" if text else "no device",
            file=value.file if value else str(run.directory),
            line=value.line if value else None,
            allowed="NPU, GPU or CPU; or say which of them it was",
        )
    kind = match[1].lower()
    if wanted and wanted != kind and value:
        raise ConfigError(f"the device {text}", file=value.file, line=value.line, allowed=wanted.upper())
    return cast(DeviceKind, kind)


def _precision(run: BenchmarkRun, kind: DeviceKind) -> str | None:
    value = run.value("precision")
    if value and (word := _PRECISION.search(value.text)):
        return f"{word[1]}{word[2]}"
    if kind == "npu":
        return "f16"
    run.warnings.append(
        f"the run does not tell in which precision the {kind.upper()} computed: a CPU may compute a model of "
        "f32 in bf16; give benchmark_app -infer_precision, or put what it printed beside its report"
    )
    return None


def _model(run: BenchmarkRun) -> ModelFile:
    path = run.value("model file")
    if path and path.text:
        return ModelFile.at(path.text)
    network = run.value("network")
    run.warnings.append("the run does not tell the name of the model's file")
    return ModelFile.at(network.text if network and network.text else "unknown")


def _hint(run: BenchmarkRun) -> Hint:
    value = run.value("hint")
    hint = value.text.lower().rpartition(".")[2] if value else ""
    if hint in ("latency", *_THROUGHPUT_HINTS):
        return "latency" if hint == "latency" else "throughput"
    api = run.value("api")
    return "latency" if api and api.text.lower() == "sync" else "throughput"


def _latency(run: BenchmarkRun) -> tuple[Spread | None, list[str]]:
    """Return the time of an inference, and notes about it."""
    report = next((report for report in run.reports if report.times_s), None)
    if report is None:
        return None, ["no latency was reported"]
    times, notes = report.times_s, list[str]()
    middle = times.get("median", times.get("average"))
    if middle is None:
        raise ConfigError("no median and no average latency", file=report.file, allowed="a whole report")
    if "median" not in times:
        notes.append("the average stands for the median")
    low, high = times.get("min", middle), times.get("max", middle)
    spread = "low and high are the minimum and the maximum"
    notes.append(spread if low < high else "the spread was not reported")
    if not low <= middle <= high:
        allowed = "a median between minimum and maximum"
        found = f"{low:g} s, {middle:g} s, {high:g} s as minimum, middle and maximum"
        raise ConfigError(found, file=report.file, allowed=allowed)
    count = run.value("iterations")
    repetitions = int(count.number(whole=True)) if count else 1
    return Spread(median_s=middle, low_s=low, high_s=high, repetitions=repetitions), notes


def _batch(run: BenchmarkRun) -> float:
    """Return the number of inputs per inference: benchmark_app's throughput counts inputs."""
    value = run.value("batch size")
    if value is None:
        return 1.0
    if not value.text.isdigit():
        run.warnings.append(f"the batch size is {shown(value.text)}: an input is taken for an inference")
        return 1.0
    return value.number(whole=True)


_STATUSES = ("NOT_RUN", "OPTIMIZED_OUT", "EXECUTED")
_STATUS = Choice("execStatus", _STATUSES)
_COLUMNS = (
    Text("layerName"),
    _STATUS,
    Text("layerType"),
    Text("execType"),
    Number("realTime (ms)", above=False),
    Number("cpuTime (ms)", above=False),
)
Milliseconds = Annotated[float, Field(ge=0)]


class _Line(NamedTuple):
    """An operator of one request."""

    name: str
    status: str
    type: str
    executed_as: str
    time_ms: float


class _Node(Part):
    name: str
    node_type: str
    status: str
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
    operators: dict[tuple[str, int], list[_Line]] = {}
    for request in dict(_COUNTERS)[name](run.directory / name):
        seen: dict[str, int] = {}
        for line in request:
            seen[line.name] = seen.get(line.name, 0) + 1
            operators.setdefault((line.name, seen[line.name]), []).append(line)
    counters = tuple(
        Counter(
            name=lines[0].name or "unnamed",
            type=lines[0].type,
            executed_as=lines[0].executed_as,
            latency_s=median(line.time_ms * _MS for line in lines),
        )
        for lines in operators.values()
        if lines[0].status == "EXECUTED"
    )
    if name.endswith("average_counters_report.json") and len(counters) <= 1:
        run.warnings.append(f"{name} holds {len(counters)} operators: take -report_type detailed_counters")
    return counters


def _csv_counters(path: Path) -> Sequence[Sequence[_Line]]:
    """Return the requests of a counters report in CSV."""
    requests = list(_csv_requests(path))
    if not requests:
        header = ";".join(column.name for column in _COLUMNS)
        raise ConfigError("an empty file", file=str(path), line=1, allowed=f"the columns {header}")
    return requests


def _csv_requests(path: Path) -> Iterator[list[_Line]]:
    """Yield the lines of each request: a header, its operators and a line `Total`."""
    file, places, lines = str(path), None, list[_Line]()
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        fields = _fields(text)
        if places is None:
            header = [name.strip() for name in text.strip().removesuffix(";").split(";")]
            places = places_of(header, _COLUMNS, file, number, further=False)
        elif len(fields) != len(_COLUMNS):
            allowed = f"{len(_COLUMNS)}, as in the header"
            raise ConfigError(f"{len(fields)} fields", file=file, line=number, allowed=allowed)
        elif fields[places[0]] == "Total" and not fields[places[1]]:
            yield lines
            places, lines = None, []
        else:
            lines.append(_line([fields[place] for place in places], file, number))
    if places is not None:
        found = "a file that ends before its `Total`"
        raise ConfigError(found, file=file, line=number, allowed="a whole file, as benchmark_app leaves it")


def _fields(text: str) -> list[str]:
    """Split a line; the program in C++ ends it with a separator, and a layer's name may hold one."""
    fields = text.strip().split(";")
    if len(fields) > len(_COLUMNS) and not fields[-1]:
        fields.pop()
    spare = max(0, len(fields) - len(_COLUMNS))
    return [part.strip() for part in (";".join(fields[: spare + 1]), *fields[spare + 1 :])]


def _line(fields: list[str], file: str, number: int) -> _Line:
    """Check the fields of an operator."""
    fields[1] = fields[1].removeprefix("Status.")
    for column, text in zip(_COLUMNS, fields, strict=True):
        if column.value(text) is None:
            key = f"{shown(fields[0])} {column.name}"
            raise ConfigError(shown(text), file=file, line=number, key=key, allowed=column.allowed)
    name, status, kind, executed_as, time_ms, _ = fields
    return _Line(name, status, kind, executed_as, float(time_ms))


def _json_counters(path: Path) -> Sequence[Sequence[_Line]]:
    """Return the requests of a counters report in JSON."""
    document = read_json(path)
    counters = as_model(document, _JsonCounters)
    requests = counters.detailed_performance
    if counters.avg_performance is not None:
        requests = (counters.avg_performance, *requests)
    if not requests:
        raise ConfigError(
            "no counters", file=document.name, allowed="avg_performance or detailed_performance"
        )
    lines: list[list[_Line]] = []
    for i, request in enumerate(requests, 1):
        lines.append([])
        for k, node in enumerate(request.nodes, 1):
            status = node.status.removeprefix("Status.")
            if status not in _STATUSES:
                key = f"request {i}, node {k} ({shown(node.name)}): status"
                raise ConfigError(shown(node.status), file=document.name, key=key, allowed=_STATUS.allowed)
            lines[-1].append(_Line(node.name, status, node.node_type, node.exec_type, node.real_time))
    return lines


_COUNTERS: tuple[tuple[str, Callable[[Path], Sequence[Sequence[_Line]]]], ...] = (
    ("benchmark_detailed_counters_report.csv", _csv_counters),
    ("benchmark_detailed_counters_report.json", _json_counters),
    ("benchmark_average_counters_report.csv", _csv_counters),
    ("benchmark_average_counters_report.json", _json_counters),
)
"""Files with counters, the most detailed first: Python writes averages in JSON of one operator alone."""
