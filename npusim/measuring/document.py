"""The measurement document (schema `npusim.measurement/1`): device, networks, times and their spread.

It contains nothing that identifies a machine. Documents of one device can be merged.
"""

from __future__ import annotations

import math
import re
from collections import Counter as Occurrences
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

import npusim
from npusim.config import one_line
from npusim.config.reading import read_json
from npusim.documents import Document, Part
from npusim.errors import ConfigError, NpusimError, shown
from npusim.files import sha256_of

SHORTEST_S = 1e-9
"""Resolution of the clock (s)."""

Seconds = Annotated[float, Field(ge=SHORTEST_S, le=1e6)]
Positive = Annotated[float, Field(gt=1e-12, le=1e12)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Text = Annotated[str, Field(min_length=1), AfterValidator(one_line)]
EnergySource = Literal["intel-pmt", "intel-rapl", "hwinfo"]

UNKNOWN_CHIP = "unknown"
"""Name of a chip that a tool did not report."""
UNSTEADY_SPREAD = 0.5
"""Largest spread of readings on a quiet machine, relative to their median."""
_TURNS_FOR_AN_ERROR = 3
# Standard error of a median over that of a mean, for many normal readings.
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2.0)
_WIDTH = 2.0 * NormalDist().inv_cdf(0.9)  # from 10 % to 90 % of a normal variable, in standard deviations


class Spread(Part):
    """Repeated readings of one time, in s."""

    median_s: Seconds
    """Median."""
    low_s: Seconds
    """10 % of the readings lie below."""
    high_s: Seconds
    """10 % of the readings lie above."""
    repetitions: Count
    """Number of readings."""
    error: Annotated[float, Field(ge=0)] | None = None
    """Relative standard error of the median, from the medians of its turns; null without turns."""

    @model_validator(mode="after")
    def _ordered(self) -> Spread:
        if not self.low_s <= self.median_s <= self.high_s:
            raise ValueError("low_s, median_s, high_s must not decrease")
        return self

    @classmethod
    def of(cls, turns_s: Sequence[Sequence[float]]) -> Spread | None:
        """Return the median and the 10 % and 90 % quantiles of readings; None without readings.

        Parameters
        ----------
        turns_s : sequence of sequences of float
            Readings (s), turn by turn. Readings of one turn are correlated: the error of the median comes
            from the medians of at least three turns.

        Examples
        --------
        >>> Spread.of([[0.2, 0.1, 0.3]]).median_s
        0.2
        """
        readings_s = [reading for turn in turns_s for reading in turn]
        if not readings_s:
            return None
        low, median, high = (max(float(q), SHORTEST_S) for q in np.quantile(readings_s, (0.1, 0.5, 0.9)))
        error = None
        if len(turns_s) >= _TURNS_FOR_AN_ERROR:
            middles = np.log([max(float(np.median(turn)), SHORTEST_S) for turn in turns_s if len(turn)])
            error = float(_MEDIAN_OVER_MEAN * np.std(middles, ddof=1) / math.sqrt(len(middles)))
        return cls(median_s=median, low_s=low, high_s=high, repetitions=len(readings_s), error=error)

    @property
    def is_unsteady(self) -> bool:
        """Whether the readings spread more than on a quiet machine."""
        return self.high_s - self.low_s > UNSTEADY_SPREAD * self.median_s

    @property
    def median_error(self) -> float:
        """Relative standard error of the median: from its turns, else from spread and repetitions."""
        if self.error is not None:
            return self.error
        deviation = math.log(self.high_s / self.low_s) / _WIDTH
        factor = _MEDIAN_OVER_MEAN if self.repetitions > 2 else 1.0  # a median of two is their mean
        return deviation * factor / math.sqrt(self.repetitions)


class Device(Part):
    """The measured device and its settings; nothing identifies the machine."""

    kind: Literal["npu", "gpu", "cpu"]
    """Class of device."""
    name: Text
    """OpenVINO's name of the chip; "unknown" where a tool did not report it."""
    driver: str | None = None
    """Version of the driver."""
    openvino: str | None = None
    """Version of OpenVINO."""
    os: str | None = None
    """Operating system: Linux, Windows."""
    cores: Count | None = None
    """Threads of a CPU, execution units of a GPU."""
    tiles: Count | None = None
    """Tiles of an NPU."""
    clock_hz: Positive | None = None
    """Highest clock that the device reports."""
    cache_bytes: tuple[Annotated[int, Field(ge=1, le=10**12)], ...] = ()
    """Data caches of a CPU's used cores together, the nearest first (B); empty where unknown."""
    turbo: bool | None = None
    """Whether the NPU's turbo was on."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Further properties by OpenVINO's name."""


class Workload(Part):
    """A named workload of npusim."""

    kind: Literal["workload"] = "workload"
    workload: Text
    """Name or file of the workload, such as gcn-cora."""
    techniques: Text = "none"
    """Canonical technique stack."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings by key (`--set workload.KEY=VALUE`)."""


class Benchmark(Part):
    """A micro-benchmark: one operator, or none."""

    kind: Literal["benchmark"] = "benchmark"
    operator: Text
    """OpenVINO operation name, such as MatMul; "Copy"; "Chain" for consecutive products; "Empty" for next to
    nothing."""
    sizes: dict[str, Count]
    """Its dimensions by name, such as m, k, n."""
    dtype: Text = "fp32"
    """Number format of the operator: fp32, bf16, fp16, int8."""


class ModelFile(Part):
    """A model file."""

    kind: Literal["file"] = "file"
    name: Text
    """File name, without its folders."""
    sha256: str | None = None
    """Hash of the `.xml` or `.onnx` file."""
    shapes: dict[str, tuple[Count, ...]] = Field(default_factory=dict)
    """Shapes of the file's open inputs, by name."""

    @classmethod
    def at(cls, path: str, *, present: bool = False) -> ModelFile:
        """Return a reference to the model file at a path of Windows or Linux, without its folders.

        A file that is `present` on this machine is hashed.
        """
        name = path.replace("\\", "/").rstrip("/").rpartition("/")[2] or "unknown"
        if not present or not Path(path).is_file():
            return cls(name=name)
        return cls(name=name, sha256=sha256_of(Path(path)))

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return self.name.rpartition(".")[0] or self.name


class Network(Part):
    """A network of a published table by its common name."""

    kind: Literal["network"] = "network"
    network: Text
    """Such as resnet-50."""
    precision: Text
    """Such as int8, fp16."""


class Given(Part):
    """A network of Python: a graph, a factory or a module."""

    kind: Literal["given"] = "given"
    name: Text
    """Its name."""
    techniques: Text = "none"
    """Canonical technique stack."""


class Operand(Part):
    """A tensor of a single operator."""

    shape: tuple[Annotated[int, Field(ge=0, le=1_000_000_000)], ...]
    dtype: Text
    """Number format."""
    constant: bool = False
    role: str = ""
    """What it means, such as weight; empty where nothing says it."""
    density: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of elements that are not zero."""


class SingleOperator(Part):
    """One operator of a network, by itself."""

    kind: Literal["operator"] = "operator"
    operator: Text
    """OpenVINO operation name, such as MatMul."""
    operands: tuple[Operand, ...]
    """What it reads."""
    results: tuple[Operand, ...]
    """What it writes."""
    settings: dict[str, bool | int | float | str | tuple[int, ...]] = Field(default_factory=dict)
    """Its settings, such as axes."""

    @property
    def name(self) -> str:
        """Its type, the shapes that it reads, and its settings."""
        shapes = ["x".join(map(str, operand.shape)) or "1" for operand in self.operands]
        formats = sorted({t.dtype for t in (*self.operands, *self.results)} & {"int8"})
        settings = [f"{key}={value}".replace(" ", "") for key, value in self.settings.items()]
        return "-".join([self.operator, ",".join(shapes), *formats, *settings])


ModelRef = Annotated[
    Workload | Benchmark | SingleOperator | ModelFile | Network | Given, Field(discriminator="kind")
]
"""What ran."""


class Counter(Part):
    """One executed operator of the device's profile; operators of one device may overlap."""

    name: Text
    """Name of the executed node."""
    type: str
    """Type of the executed node, such as FullyConnected."""
    executed_as: str = ""
    """Kernel of a CPU, or engine of an NPU (DPU, Shave, DMA)."""
    originals: tuple[str, ...] = ()
    """Operators of the model that it replaces, where reported."""
    latency_s: Annotated[float, Field(ge=0, le=1e6)]
    """Median time."""


class Row(Part):
    """One network, run one way."""

    id: Text
    """Name of the row in reports, unique in its document."""
    model: ModelRef
    """What ran."""
    hint: Literal["latency", "throughput"] = "latency"
    """Performance hint."""
    requests: Count = 1
    """Inferences in flight."""
    tiles: Count | None = None
    """Used tiles of the NPU, where known."""
    precision: str | None = None
    """Floating-point format of the device: f32, bf16, f16."""
    latency_s: Spread | None = None
    """Time of one inference, without profiling."""
    throughput_per_s: Positive | None = None
    """Inferences per second."""
    peak_memory_bytes: Positive | None = None
    """Peak memory in a process of its own (B); null where it was not read."""
    counted_memory_bytes: Positive | None = None
    """npusim's estimate of the peak memory (B); null without one."""
    energy_j: Positive | None = None
    """Energy of one inference (J); null where it is not available, never 0."""
    energy_source: EnergySource | None = None
    """Source of the energy; null where it is not available."""
    operators: tuple[Counter, ...] = ()
    """Executed operators, from a run with PERF_COUNT."""
    note: str = ""
    """A remark, such as a rate that its table calls anomalous."""
    predicted_s: Seconds | None = None
    """Estimated latency, or interval between results for the hint throughput (s); null without a machine."""
    predicted_on: Text | None = None
    """Short name of the machine of that estimate."""

    @model_validator(mode="after")
    def _says_something(self) -> Row:
        if self.latency_s is None and self.throughput_per_s is None:
            raise ValueError("a row needs latency_s or throughput_per_s")
        if (self.energy_j is None) != (self.energy_source is None):
            raise ValueError("energy_j and energy_source go together")
        if (self.predicted_s is None) != (self.predicted_on is None):
            raise ValueError("predicted_s and predicted_on go together")
        return self

    @property
    def is_interval(self) -> bool:
        """Whether the row measures the interval between results, not the latency."""
        return self.throughput_per_s is not None and (self.hint == "throughput" or self.latency_s is None)

    @property
    def measured_s(self) -> float:
        """Interval between results, or median latency (s)."""
        if self.is_interval:
            assert self.throughput_per_s is not None
            return 1.0 / self.throughput_per_s
        assert self.latency_s is not None
        return self.latency_s.median_s


class Comparison(Part):
    """A model file beside the network that it was made of, on the measured device."""

    file: Text
    """Name of the file."""
    original: Text
    """Name of the network."""
    speedups: dict[Literal["latency", "throughput"], Positive]
    """Rate of the file over that of the original, by hint."""
    same_answers: float
    """Share of equal answers on the example inputs; see `npusim advise`."""
    error: float
    """Largest error, as a share of the largest output of the original, which runs in fp32."""


class Measurement(Document):
    """A file of measurements: one device, one setting, many rows."""

    schema_: Literal["npusim.measurement/1"] = Field("npusim.measurement/1", alias="schema")
    """Version of this document."""
    npusim: str
    """Version of npusim that wrote it."""
    tool: Literal["npusim", "benchmark_app", "npu-profiling", "openvino-benchmarks"] = "npusim"
    """The tool that measured."""
    date: str | None = None
    """Day of the measurement, as 2026-01-31."""
    complete: bool = True
    """False where the measurement was interrupted."""
    device: Device
    """The measured device."""
    rows: tuple[Row, ...] = Field(min_length=1)
    """One entry per network and hint."""
    warnings: tuple[str, ...] = ()
    """Problems of the measurement."""
    comparison: Comparison | None = None
    """Answers and times of a file beside its original; null where none was asked for."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Measurement:
        for name, count in Occurrences(row.id for row in self.rows).items():
            if count > 1:
                raise ValueError(f"two rows are called {name!r}")
        return self


_NUMBERED = re.compile(r"(?P<base>.*\S) #\d+")
_ROW = re.compile(r"rows\.(?P<number>\d+)(\.(?P<rest>.*))?")


def read_measurement(path: str | Path) -> Measurement:
    """Read a file of measurements.

    Raises
    ------
    FileError
        Where the file is missing, a directory or not UTF-8.
    ConfigError
        Where it is empty, cut off, of another schema, or a value is not allowed.
    """
    try:
        return Measurement.read(path, "`npusim measure`")
    except ConfigError as error:
        raise error.with_keys(lambda key: _row_named(key, Path(path))) from None


def _row_named(key: str, path: Path) -> str:
    """Return a key with its row's number and id: `row 3 (`gemm-64`): latency_s.median_s`."""
    match = _ROW.fullmatch(key)
    if not match:
        return key
    number = int(match["number"])
    row = read_json(path).data["rows"][number]
    id_ = row.get("id") if isinstance(row, dict) else None
    place = f"row {number + 1}" + (f" ({shown(id_)})" if isinstance(id_, str) else "")
    return f"{place}: {match['rest']}" if match["rest"] else place


def merge(measurements: Sequence[Measurement], files: Sequence[str | Path] | None = None) -> Measurement:
    """Merge measurements of one device; a single one is returned unchanged.

    Rows keep their order; rows with the same id become `ID #2`, `ID #3` and so on. Fields in which the
    documents differ (driver, version of OpenVINO, clock) become null, with a warning.

    Raises
    ------
    NpusimError
        Without measurements, or for different chips.
    """
    if not measurements:
        raise NpusimError("no measurements to merge; give at least one file")
    if len(measurements) == 1:
        return measurements[0]
    names = files or [f"number {number}" for number in range(1, len(measurements) + 1)]
    for measurement, file in zip(measurements, names, strict=True):
        _refuse_other_chip(measurement.device, file, measurements[0].device, names[0])
    device, warnings = _common_device([measurement.device for measurement in measurements])
    precisions = [sorted({row.precision for row in one.rows if row.precision}) for one in measurements]
    warnings += _differences("precision of floating point", [", ".join(p) or None for p in precisions])
    own_warnings = [text for measurement in measurements for text in measurement.warnings]
    tools, dates = {m.tool for m in measurements}, {m.date for m in measurements}
    return Measurement(
        npusim=npusim.__version__,
        tool=tools.pop() if len(tools) == 1 else "npusim",
        date=dates.pop() if len(dates) == 1 else None,
        complete=all(measurement.complete for measurement in measurements),
        device=device,
        rows=_with_unique_ids([row for measurement in measurements for row in measurement.rows]),
        warnings=tuple(dict.fromkeys([*own_warnings, *warnings])),
    )


def _refuse_other_chip(device: Device, file: str | Path, first: Device, first_file: str | Path) -> None:
    if (device.kind, device.name) != (first.kind, first.name):
        named = "; --platform NAME names the chip of an import"
        raise NpusimError(
            "measurements of different devices cannot be merged: "
            f"{first_file} is of {first.kind} {shown(first.name)}, {file} of {device.kind} "
            f"{shown(device.name)}; calibrate with the files of one device at a time"
            + (named if UNKNOWN_CHIP in (first.name, device.name) else "")
        )


def _common_device(devices: Sequence[Device]) -> tuple[Device, list[str]]:
    """Return the fields and settings that all devices share, and warnings about the others."""
    texts: list[str] = []

    def agreed(values: list[dict[str, Any]]) -> dict[str, Any]:
        shared = {}
        for name in dict.fromkeys(name for value in values for name in value):
            of_devices = [value.get(name) for value in values]
            if all(value == of_devices[0] for value in of_devices):
                shared[name] = of_devices[0]
            else:
                texts.extend(_differences(name, of_devices))
        return shared

    fields = agreed([device.model_dump(exclude={"settings"}) for device in devices])
    return Device(**fields, settings=agreed([device.settings for device in devices])), texts


def _differences(what: str, values: Sequence[object]) -> list[str]:
    if all(value == values[0] for value in values):
        return []
    listed = dict.fromkeys("not told" if value is None else str(value) for value in values)
    return [f"the merged measurements differ in {what}: {' and '.join(listed)}"]


def _with_unique_ids(rows: Sequence[Row]) -> tuple[Row, ...]:
    unique: dict[str, Row] = {}
    for row in rows:
        name, number = row.id, 2
        match = _NUMBERED.fullmatch(name)
        base = match["base"] if match else name
        while name in unique:
            name, number = f"{base} #{number}", number + 1
        unique[name] = row if name == row.id else row.model_copy(update={"id": name})
    return tuple(unique.values())
