"""Imports a folder of OpenVINO's benchmark_app: reports, counters and its console output.

All files must be of the same run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import npusim
from npusim.errors import ConfigError, FileError, shown
from npusim.measure.document import UNKNOWN_CHIP, Counter, Device, Measurement, ModelFile, Row, Spread
from npusim.measure.imports.benchmark_counters import read_csv_counters, read_json_counters
from npusim.measure.imports.benchmark_report import (
    Report,
    ReportValue,
    is_printed_report,
    read_csv_report,
    read_json_report,
    read_printed_report,
)

DeviceKind = Literal["npu", "gpu", "cpu"]
Hint = Literal["latency", "throughput"]

_DEVICE = re.compile(r"(NPU|GPU|CPU)(\.\d+)?")
_COUNTERS: tuple[tuple[str, Callable[[Path], tuple[Counter, ...]]], ...] = (
    ("benchmark_detailed_counters_report.csv", read_csv_counters),
    ("benchmark_detailed_counters_report.json", read_json_counters),
    ("benchmark_average_counters_report.csv", read_csv_counters),
    ("benchmark_average_counters_report.json", read_json_counters),
)
"""Files with counters, the most detailed first: the program in Python writes averages into JSON that hold one
operator alone."""
_FORMATS = {
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
}
_HINTS: dict[str, Hint] = {
    "latency": "latency",
    "throughput": "throughput",
    "tput": "throughput",
    "cumulative_throughput": "throughput",
    "ctput": "throughput",
}
_SAME_RATE = 0.002
"""Two reports of one run round its rate differently, by no more than this share and a hundredth."""
_REMEDY = (
    "a folder with benchmark_report.csv, benchmark_report.json or what benchmark_app printed (.txt, .log)"
)


@dataclass(frozen=True)
class _Run:
    """All reports of a run; earlier ones are more exact about times."""

    directory: Path
    reports: tuple[Report, ...]

    def option(self, *names: str) -> ReportValue | None:
        """Return an option of the command line."""
        return next(
            (report.options[n] for report in self.reports for n in names if n in report.options), None
        )

    def setup(self, *names: str) -> ReportValue | None:
        """Return how something was set."""
        return next((report.setup[n] for report in self.reports for n in names if n in report.setup), None)

    def result(self, name: str) -> ReportValue | None:
        """Return a count."""
        return next((report.results[name] for report in self.reports if name in report.results), None)


def from_benchmark_app(
    directory: str | Path, *, kind: DeviceKind | None = None, name: str | None = None
) -> Measurement:
    """Return the measurement that a folder of benchmark_app holds.

    Parameters
    ----------
    directory : str or Path
        What ``-report_folder`` named. Besides the reports it may hold what the program printed, as a ``.txt``
        or ``.log`` file, which tells more: short times, the precision, the version of OpenVINO.
    kind : str, optional
        Class of device: npu, gpu, cpu. Needed where the run let OpenVINO choose (``AUTO``).
    name : str, optional
        Name of the chip, which benchmark_app does not tell.

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
    run = _Run(Path(directory), _reports(Path(directory)))
    device_kind = _kind(run, kind)
    warnings: list[str] = []
    precision = _precision(run, device_kind, warnings)
    model, hint = _model(run, warnings), _hint(run)
    latency, notes = _latency(run)
    rate = max(run.reports, key=lambda report: len(report.results["throughput"].text)).rate()
    requests = run.option("nireq", "number_infer_requests") or run.setup(
        "number of parallel infer requests", "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
    )
    tiles, turbo = run.setup("NPU_TILES"), run.setup("NPU_TURBO")
    profiled = run.option("pc", "perf_counts")
    counted = any((run.directory / name).exists() for name, _ in _COUNTERS)
    if counted or (profiled and profiled.text.lower() != "false"):
        notes.append("with profiling on: longer than without")
    row = Row(
        id=f"{model.stem} {hint}",
        model=model,
        hint=hint,
        requests=int(requests.number(whole=True)) if requests else 1,
        tiles=int(tiles.text) if tiles and re.fullmatch("[1-9][0-9]*", tiles.text) else None,
        precision=precision,
        latency_s=latency,
        throughput_per_s=rate / _batch(run, warnings),
        operators=_operators(run, warnings),
        note="; ".join(notes),
    )
    return Measurement(
        npusim=npusim.__version__,
        tool="benchmark_app",
        device=Device(
            kind=device_kind,
            name=name or UNKNOWN_CHIP,
            openvino=_version(run),
            turbo=None if turbo is None else turbo.text.upper() in ("YES", "TRUE", "1"),
        ),
        rows=(row,),
        warnings=tuple(warnings),
    )


def _reports(directory: Path) -> tuple[Report, ...]:
    """Read every report of a folder; all must be of the same run."""
    if not directory.is_dir():
        problem = "is a file" if directory.exists() else "no such folder"
        raise FileError(str(directory), problem, f"give {_REMEDY}")
    texts = sorted(p for p in directory.iterdir() if p.suffix.lower() in (".txt", ".log") and p.is_file())
    printed = [path for path in texts if is_printed_report(path)]
    if len(printed) > 1:
        names = ", ".join(path.name for path in printed)
        raise FileError(
            str(directory), f"holds what several runs printed ({names})", "keep one run per folder"
        )
    found = [read_printed_report(path) for path in printed]
    # What is printed has more digits: times below 5 us are 0.00 ms in the reports.
    times = not any(report.times_s for report in found)
    if (directory / "benchmark_report.csv").exists():
        found.append(read_csv_report(directory / "benchmark_report.csv", times=times))
    if (directory / "benchmark_report.json").exists():
        found.append(read_json_report(directory / "benchmark_report.json", times=times))
    if not found:
        raise FileError(str(directory), "holds no report of benchmark_app", f"give {_REMEDY}")
    for other in found[1:]:
        one, two = found[0].rate(), other.rate()
        if abs(one - two) > _SAME_RATE * max(one, two) + 0.01:
            raise ConfigError(
                f"a throughput of {two:g} a second, but {one:g} in {Path(found[0].file).name}",
                file=other.file, line=other.results["throughput"].line, allowed="files of one run",
            )  # fmt: skip
    found[0].rate()
    return tuple(found)


def _kind(run: _Run, wanted: DeviceKind | None) -> DeviceKind:
    figure = run.option("d", "target_device") or run.setup(
        "target device", "EXECUTION_DEVICES", "Execution Devices"
    )
    text = re.sub(r"[\[\]'\"\s]", "", figure.text) if figure else ""
    match = _DEVICE.fullmatch(text)
    if match is None:
        if wanted:
            return wanted
        raise ConfigError(
            f"the device {shown(text)}" if text else "no device",
            file=figure.file if figure else str(run.directory),
            line=figure.line if figure else None,
            allowed="NPU, GPU or CPU; or say which of them it was",
        )
    told = cast(DeviceKind, match[1].lower())
    if wanted and wanted != told and figure:
        raise ConfigError(f"the device {text}", file=figure.file, line=figure.line, allowed=wanted.upper())
    return told


def _precision(run: _Run, kind: DeviceKind, warnings: list[str]) -> str | None:
    asked = run.option("infer_precision") or run.setup("INFERENCE_PRECISION_HINT")
    word = re.search(r"\b(b?f(?:loat)?(?:16|32))\b", asked.text) if asked else None
    if word:
        return _FORMATS[word[1]]
    if kind == "npu":
        return "f16"
    warnings.append(
        f"the run does not tell in which precision the {kind.upper()} computed: a CPU may compute a model of "
        "f32 in bf16; give benchmark_app -infer_precision, or put what it printed beside its report"
    )
    return None


def _model(run: _Run, warnings: list[str]) -> ModelFile:
    figure = run.option("m", "path_to_model")
    if figure and figure.text:
        # A path tells whose machine it was; the file's name is all that is kept.
        return ModelFile.at(figure.text)
    told = run.setup("NETWORK_NAME", "topology")
    warnings.append("the run does not tell the name of the model's file")
    return ModelFile.at(told.text if told and told.text else "unknown")


def _hint(run: _Run) -> Hint:
    figure = run.option("hint", "perf_hint") or run.setup("PERFORMANCE_HINT")
    known = _HINTS.get(figure.text.lower().rpartition(".")[2]) if figure else None
    if known:
        return known
    api = run.setup("API")
    return "latency" if api and api.text.lower() == "sync" else "throughput"


def _latency(run: _Run) -> tuple[Spread | None, list[str]]:
    """Return the time of an inference, and what to know about it."""
    report = next((one for one in run.reports if one.times_s), None)
    if report is None:
        return None, ["no latency was reported"]
    times, notes = report.times_s, list[str]()
    middle = times.get("median", times.get("average"))
    if middle is None:
        raise ConfigError("no median and no average latency", file=report.file, allowed="a whole report")
    if "median" not in times:
        notes.append("the average stands for the median")
    low, high = times.get("min", middle), times.get("max", middle)
    notes.append(
        "low and high are the minimum and the maximum" if low < high else "the spread was not reported"
    )
    if not low <= middle <= high:
        allowed = "a median between minimum and maximum"
        found = f"{low:g} s, {middle:g} s, {high:g} s as minimum, middle and maximum"
        raise ConfigError(found, file=report.file, allowed=allowed)
    count = run.result("total number of iterations")
    repetitions = int(count.number(whole=True)) if count else 1
    return Spread(median_s=middle, low_s=low, high_s=high, repetitions=repetitions), notes


def _batch(run: _Run, warnings: list[str]) -> float:
    """Return the number of inputs per inference: benchmark_app's throughput counts inputs."""
    figure = run.setup("batch size")
    if figure is None:
        return 1.0
    if not figure.text.isdigit():
        warnings.append(f"the batch size is {shown(figure.text)}: an input is taken for an inference")
        return 1.0
    return figure.number(whole=True)


def _operators(run: _Run, warnings: list[str]) -> tuple[Counter, ...]:
    for name, read in _COUNTERS:
        if (run.directory / name).exists():
            operators = read(run.directory / name)
            if name.endswith("average_counters_report.json") and len(operators) <= 1:
                warnings.append(
                    f"{name} holds {len(operators)} operators: take -report_type detailed_counters"
                )
            return operators
    return ()


def _version(run: _Run) -> str | None:
    figure = run.setup("Build")
    return figure.text if figure and figure.text else None
