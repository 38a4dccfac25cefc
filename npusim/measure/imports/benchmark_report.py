"""Reports of one run of benchmark_app: CSV, JSON, and its console output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from npusim.config.reading import read_json
from npusim.config.tables import Number
from npusim.errors import ConfigError, shown
from npusim.files import read_text

_MS, _US = 1e-3, 1e-6
_SECTIONS = {
    "Command line parameters": "options",
    "Configuration setup": "setup",
    "Execution results": "results",
    "Group Latencies": "groups",
}
_JSON_SECTIONS = {"cmd_options": "options", "configuration_setup": "setup", "execution_results": "results"}
_NAMES = {
    "target_device": "target device",
    "api": "API",
    "batch_size": "batch size",
    "nireq": "number of parallel infer requests",
    "iterations_num": "total number of iterations",
    "latency_median": "median",
    "Median latency (ms)": "median",
    "latency (ms)": "median",
    "latency_avg": "average",
    "latency_average": "average",
    "Average latency (ms)": "average",
    "avg latency": "average",
    "latency_min": "min",
    "Min latency (ms)": "min",
    "min latency": "min",
    "latency_max": "max",
    "Max latency (ms)": "max",
    "max latency": "max",
    "percentile_boundary": "Percentile boundary",
}
"""One name for what the programs in Python and C++, and CSV and JSON, call differently."""
_PERCENTILE = re.compile(r"latency \(\d+ percentile\) \(ms\)")
_ENCODINGS = {b"\xff\xfe": ("utf-16",), b"\xfe\xff": ("utf-16",)}
_INFO = re.compile(r"^\[ INFO \]\s+(?P<name>[A-Za-z_ ]+?)\s*(?:: ?|\.{3,} )\s*(?P<value>.*?)\s*$")
_TIMES = {"Median": "median", "Average": "average", "Min": "min", "Max": "max"}
_PRINTED = re.compile(r"^\[ INFO \]\s+Throughput:\s", re.MULTILINE)


@dataclass(frozen=True)
class ReportValue:
    """A value of a report as text, and its place."""

    text: str
    file: str
    line: int | None
    key: str

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
    """The file, as messages call it."""
    options: dict[str, ReportValue] = field(default_factory=dict)
    """Options of the command line, without their dashes."""
    setup: dict[str, ReportValue] = field(default_factory=dict)
    """How the run was set up, and properties that were read back."""
    results: dict[str, ReportValue] = field(default_factory=dict)
    """Counts, and the rate `throughput` in inputs per second."""
    times_s: dict[str, float] = field(default_factory=dict)
    """`median`, `average`, `min`, `max`, as far as they are told, in s."""

    def rate(self) -> float:
        """Return the inputs per second; a report without is cut off."""
        if "throughput" not in self.results:
            raise ConfigError("no throughput", file=self.file, allowed="the whole report of a finished run")
        return self.results["throughput"].number()

    def add(self, section: str, name: str, figure: ReportValue) -> None:
        """Add a value of a CSV or JSON report."""
        if section == "options":
            self.options[name.lstrip("-")] = figure
            return
        known = _NAMES.get(name, "percentile" if _PERCENTILE.fullmatch(name) else name)
        {"setup": self.setup, "results": self.results}[section].setdefault(known, figure)

    def take_times(self) -> Report:
        """Turn the times among the results into seconds."""
        boundary = self.results.get("Percentile boundary")
        if boundary is not None and boundary.number() != 50.0:
            self.results.pop("median", None)
        for name in ("median", "average", "min", "max"):
            if name in self.results:
                self.times_s[name] = _time(self.results[name]) * _MS
        return self


def _time(figure: ReportValue) -> float:
    """Return a time of a report; one that is rounded to nothing is no time."""
    if re.fullmatch(r"0\.0+", figure.text):
        raise figure.refusal(
            "a number above 0; below 5 us it is rounded to 0.00: put what benchmark_app printed beside it"
        )
    return figure.number()


def read_csv_report(path: Path, *, times: bool = True) -> Report:
    """Return what a benchmark_report.csv says; `times` tells whether its latencies are wanted.

    Raises
    ------
    FileError
        Where it cannot be read.
    ConfigError
        Where a line is none of a report, or a time is not above 0.
    """
    report, section = Report(str(path)), ""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text = line.strip().removesuffix(";")
        if not text:
            continue
        if text in _SECTIONS:
            section = _SECTIONS[text]
            continue
        name, separator, value = text.partition(";")
        # The program in C++ ends every line with a separator, that in Python an option without value.
        bare = section == "options" and line.strip().endswith(";")
        if not section or (not separator and not bare):
            allowed = (
                "`name;value` below `Command line parameters`, `Configuration setup` or `Execution results`"
            )
            raise ConfigError(shown(text), file=str(path), line=number, allowed=allowed)
        if section != "groups":
            report.add(section, name.strip(), ReportValue(value.strip(), str(path), number, name.strip()))
    if not report.results:
        allowed = "a report of benchmark_app with `Execution results`"
        raise ConfigError("no results", file=str(path), line=1, allowed=allowed)
    return report.take_times() if times else report


def read_json_report(path: Path, *, times: bool = True) -> Report:
    """Return what a benchmark_report.json says; errors as for `read_csv_report`."""
    data = read_json(path).data
    report = Report(str(path))
    for block, section in _JSON_SECTIONS.items():
        entries = data.get(block, {}) if isinstance(data, dict) else None
        if not isinstance(entries, Mapping) or (section == "results" and not entries):
            found = shown(entries) if entries else f"no `{block}`"
            raise ConfigError(
                found, file=str(path), key=block, allowed="a report of benchmark_app -json_stats"
            )
        for name, value in entries.items():
            if not isinstance(value, list | dict):
                report.add(section, name, ReportValue(str(value), str(path), None, f"{block}.{name}"))
    return report.take_times() if times else report


def is_printed_report(path: Path) -> bool:
    """Whether a text file is what benchmark_app printed, and up to the end."""
    return bool(_PRINTED.search(_printed(path)))


def read_printed_report(path: Path) -> Report:
    """Return what benchmark_app printed; errors as for `read_csv_report`."""
    report = Report(str(path))
    for number, line in enumerate(_printed(path).splitlines(), 1):
        match = _INFO.match(line.replace("\t", "   "))
        if not match:
            continue
        name, value = match["name"].strip(), match["value"]
        figure = ReportValue(value, str(path), number, name)
        if name in _TIMES and _TIMES[name] not in report.times_s:
            report.times_s[_TIMES[name]] = _printed_time(figure)
        elif name == "Throughput":
            report.results["throughput"] = _without(figure, "FPS")
        elif name == "Count":
            report.results["total number of iterations"] = _without(figure, "iterations")
        elif name == "Model batch size":
            report.setup["batch size"] = figure
        else:
            report.setup.setdefault(name, figure)
    return report


def _printed(path: Path) -> str:
    # A PowerShell that redirects what a program prints writes UTF-16.
    try:
        with path.open("rb") as file:
            mark = file.read(2)
    except OSError:
        mark = b""
    return read_text(path, encodings=_ENCODINGS.get(mark, ("utf-8-sig",)))


def _without(figure: ReportValue, unit: str) -> ReportValue:
    return ReportValue(figure.text.removesuffix(unit).strip(), figure.file, figure.line, figure.key)


def _printed_time(figure: ReportValue) -> float:
    """Return a printed time in s; the program chooses between us and ms."""
    for unit, scale in (("ms", _MS), ("us", _US)):
        if figure.text.endswith(f" {unit}"):
            return _without(figure, unit).number() * scale
    raise figure.refusal("a number above 0 with the unit ms or us")
