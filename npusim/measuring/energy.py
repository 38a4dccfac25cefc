"""Energy of a run: counters in hardware (RAPL, PMT), or HWiNFO's log of power.

A counter only counts up; energy is the difference of two readings. Without a counter the energy is not
available (null), which is not the same as 0.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from npusim.config import Section, load_model
from npusim.config.tables import csv_records
from npusim.errors import ConfigError, NpusimError, shown
from npusim.files import read_text
from npusim.locate import resource
from npusim.measuring.document import EnergySource, Row
from npusim.units import Energy

_RAPL_JOULES_PER_COUNT = 1e-6
"""The counter is in microjoules (Linux, Documentation/power/powercap)."""


@dataclass(frozen=True)
class Meter:
    """An energy counter in hardware."""

    source: EnergySource
    read: Callable[[], int]
    """Returns the counter."""
    counts: int
    """Number of values of the counter, which starts at 0 again after the largest."""
    joules_per_count: float

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J), also where the counter wrapped once."""
        return (after - before) % self.counts * self.joules_per_count


@dataclass(frozen=True)
class EnergyReading:
    """Energy of a run of repeated inferences, or its time span."""

    began_s: float
    ended_s: float
    """`began_s`, `ended_s`: wall clock (Unix time, s), to find the run in a log."""
    inferences: int
    joules: float | None
    """Energy of all inferences (J); None without a counter."""
    source: EnergySource | None

    @property
    def per_inference_j(self) -> float | None:
        """Energy of one inference (J); None without a counter or where it stood still."""
        return self.joules / self.inferences if self.joules else None


def rapl_meter(root: Path, domain: str) -> tuple[Meter | None, str]:
    """Return the meter of a RAPL domain, and why an existing one cannot be read."""
    reason = ""
    for folder in sorted((root / "sys" / "class" / "powercap").glob("intel-rapl:*")):
        with suppress(OSError):
            if (folder / "name").read_text().strip() != domain:
                continue
            try:
                counts = int((folder / "max_energy_range_uj").read_text()) + 1
                read = partial(_text_counter, folder / "energy_uj")
                meter = Meter("intel-rapl", read, counts, _RAPL_JOULES_PER_COUNT)
                meter.read()
                return meter, ""
            except PermissionError:
                reason = f"RAPL counts the energy of {domain}, but only root may read it"
            except (OSError, ValueError):
                reason = f"RAPL's counter of {domain} cannot be read"
    return None, reason


def _text_counter(file: Path) -> int:
    return int(file.read_text())


def _parse(written: object) -> object:
    """Accept a hexadecimal number as data sheets write it."""
    if isinstance(written, str) and written.startswith("0x"):
        return int(written, 16)
    return written


Hexadecimal = Annotated[int, BeforeValidator(_parse), Field(ge=0)]


class Layout(Section):
    """Place of the energy counter of a generation of NPUs."""

    guid: Hexadecimal
    """Number of the layout, as the kernel shows it, such as 0x130670b2."""
    energy_offset: Hexadecimal
    """First byte of the counter."""
    source: Annotated[str, Field(min_length=1)]
    """Source of both."""


class Telemetry(Section):
    """Layouts of PMT pages that hold an NPU's energy counter (schema `npusim.telemetry/1`)."""

    schema_name: Literal["npusim.telemetry/1"] = Field(alias="schema")
    """Version of this file format: npusim.telemetry/1."""
    name: Annotated[str, Field(min_length=1)]
    """Short name."""
    title: str
    """What it is."""
    counter_bits: Literal[32, 64]
    """Width of a counter; it starts at 0 again after its largest value."""
    joules_per_count: Energy
    """Energy of one count."""
    layouts: dict[str, Layout]
    """By generation of processors."""


def load_telemetry() -> Telemetry:
    """Return the shipped layouts.

    Examples
    --------
    >>> hex(load_telemetry().layouts["meteor-lake"].energy_offset)
    '0x628'
    """
    return load_model(resource("configs", "telemetry", "intel-pmt.yaml"), Telemetry)


def pmt_meter(root: Path) -> tuple[Meter | None, str]:
    """Return the NPU's meter in Intel's telemetry (PMT), and why an existing one cannot be read.

    A GUID names the layout of the page of counters; `configs/telemetry/intel-pmt.yaml` holds the known ones.
    """
    telemetry = load_telemetry()
    offsets = {layout.guid: layout.energy_offset for layout in telemetry.layouts.values()}
    bits, step = telemetry.counter_bits, float(telemetry.joules_per_count)
    reason = ""
    for folder in sorted((root / "sys" / "class" / "intel_pmt").glob("telem*")):
        try:
            guid = int((folder / "guid").read_text(), 16)
            if guid not in offsets:
                continue
            read = partial(_page_counter, folder / "telem", offsets[guid], bits // 8)
            meter = Meter("intel-pmt", read, 1 << bits, step)
            meter.read()
            return meter, ""
        except PermissionError:
            reason = "PMT telemetry counts the NPU's energy, but only root may read it"
        except (OSError, ValueError):
            reason = "PMT telemetry is there, but cannot be read"
    return None, reason


def _page_counter(page: Path, offset: int, size: int) -> int:
    """Return a counter of a telemetry page; a `ValueError` where the page ends before it."""
    descriptor = os.open(page, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        counter = os.read(descriptor, size)
    finally:
        os.close(descriptor)
    if len(counter) < size:
        raise ValueError(f"the telemetry page ends before byte {offset + size}")
    return int.from_bytes(counter, "little")


def find_meter(kind: str, root: Path = Path("/")) -> tuple[Meter | None, str]:
    """Return the energy meter of a class of device, and why an existing one cannot be read.

    A CPU's energy is RAPL's domain package-0, a GPU's its domain uncore, an NPU's comes from PMT.
    """
    if kind == "npu":
        return pmt_meter(root)
    return rapl_meter(root, "uncore" if kind == "gpu" else "package-0")


Measured = list[tuple[Row, EnergyReading | None]]
"""Rows, and the energy reading of each."""


def with_logged_energy(
    measured: Sequence[tuple[Row, EnergyReading | None]], kind: str, path: Path
) -> tuple[Measured, str]:
    """Return rows with their energy from HWiNFO's log, and why some have none; empty where all have.

    Energy is the mean power during a row's run times its length, per inference. Rows keep their times
    without energy where the log does not help.
    """
    try:
        log = read_hwinfo(path)
    except NpusimError as error:
        return list(measured), str(error)
    rows: Measured = []
    for row, energy in measured:
        power_w = log.mean_power_w(kind, energy.began_s, energy.ended_s) if energy else None
        if energy is not None and power_w is not None:
            joules = power_w * (energy.ended_s - energy.began_s) / energy.inferences
            row = row.model_copy(update={"energy_j": joules, "energy_source": "hwinfo"})
        rows.append((row, energy))
    without = sum(row.energy_j is None for row, _ in rows)
    reason = f"{path.name} tells no power of the {kind.upper()} while {without} of {len(rows)} rows ran"
    return rows, "; ".join([reason, *log.notes]) if without else ""


ROLES: Mapping[str, tuple[str, ...]] = {
    "npu": (r"\bNPU\b.*\bpower\b",),
    "cpu": (r"\bCPU package power\b",),
    "ia_cores": (r"\bIA cores power\b",),
    "gpu": (r"\bGT cores power\b", r"\bGPU (?:\w+ )?power\b"),
    "system_agent": (r"\bsystem agent power\b",),
    "soc": (r"\btotal system power\b", r"\bSoC power\b"),
}
"""Patterns of the column of each power; the first pattern with a column counts."""

_UNIT = re.compile(r"\[\s*(?P<unit>m?W)\s*\]\s*$")
_WATTS = {"W": 1.0, "mW": 1e-3}
_DATE_FORMS = ("%d.%m.%Y", "%Y-%m-%d", "%Y.%m.%d", "%Y/%m/%d")
_DATE_ALLOWED = "day.month.year or year-month-day"
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,](\d{1,9}))?")
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")
_ENCODINGS = ("utf-8-sig", "cp1252")
_LISTED = 12


@dataclass(frozen=True)
class HwinfoLog:
    """A log of power over time."""

    file: str
    """The file, as messages call it."""
    start: datetime
    """Time of the first reading by the machine's clock, without a time zone."""
    seconds: NDArray[np.float64]
    """Times of the readings, from the first one, in s. Shape (readings,)."""
    power_w: Mapping[str, NDArray[np.float64]]
    """Readings by role (`ROLES`), each of shape (readings,), in W."""
    columns: Mapping[str, str]
    """The column that each role was read from."""
    notes: tuple[str, ...] = ()
    """Columns of power that read 0 throughout."""

    def mean_power_w(self, role: str, start_s: float, stop_s: float) -> float | None:
        """Return the mean power (W) of a role between two moments, by linear interpolation.

        Parameters
        ----------
        start_s, stop_s : float
            Wall clock (Unix time). The log's own times are read in this machine's time zone.

        Returns
        -------
        float or None
            None without such a column, outside the log's time span, or where the mean is 0.
        """
        begin, end = start_s - self.start.timestamp(), stop_s - self.start.timestamp()
        if role not in self.power_w or not 0.0 <= begin < end <= self.seconds[-1]:
            return None
        inside = (self.seconds > begin) & (self.seconds < end)
        times = np.concatenate(([begin], self.seconds[inside], [end]))
        power_w = np.interp(times, self.seconds, self.power_w[role])
        mean = float(np.dot(power_w[1:] + power_w[:-1], np.diff(times)) / (2.0 * (end - begin)))
        return mean if mean > 0.0 else None


def read_hwinfo(path: str | Path) -> HwinfoLog:
    """Read a log of HWiNFO.

    Parameters
    ----------
    path : str or Path
        A CSV file with the columns Date and Time, in UTF-8 or Windows-1252, fields separated by commas or
        semicolons, decimal points or commas. Only columns of power are read (`ROLES`).

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where it is no such log, has no column of power, or a line is broken; it names line and column.
    """
    file = str(path)
    text = read_text(Path(path), encodings=_ENCODINGS)
    semicolons = text.partition("\n")[0].count(";") > text.partition("\n")[0].count(",")
    records = csv_records(text, file, ";" if semicolons else ",")
    line, header = next(records, (1, []))
    if [name.lower() for name in header[:2]] != ["date", "time"]:
        allowed = "a log of HWiNFO: columns Date, Time and sensors"
        raise ConfigError(shown(", ".join(header[:2])), file=file, line=line, allowed=allowed)
    places = _power_places(header, file, line)
    moments: list[datetime] = []
    readings: list[list[float]] = []
    for line, record in records:
        if record[0].lower() == "date" or not any(record[:2]):
            continue  # HWiNFO ends a log with its header again and the names of its sensors.
        if len(record) < len(header) - (not header[-1]):
            allowed = f"{len(header)}, as in the header"
            raise ConfigError(f"{len(record)} fields", file=file, line=line, allowed=allowed)
        moments.append(_moment(record, file, line))
        if len(moments) > 1 and moments[-1] < moments[-2]:
            order = f"{moments[-1]} after {moments[-2]}"
            raise ConfigError(
                order, file=file, line=line, key="Time", allowed="readings in the order of time"
            )
        readings.append([_watts(record[place], header[place], file, line) for place in places.values()])
    if len(readings) < 2:
        raise ConfigError(f"{len(readings)} readings", file=file, line=line, allowed="at least two")
    return _log(file, header, places, moments, np.array(readings))


def _log(
    file: str,
    header: Sequence[str],
    places: Mapping[str, int],
    moments: Sequence[datetime],
    readings: NDArray[np.float64],
) -> HwinfoLog:
    power: dict[str, NDArray[np.float64]] = {}
    notes: list[str] = []
    for k, (role, place) in enumerate(places.items()):
        if readings[:, k].any():
            power[role] = readings[:, k]
        else:
            notes.append(f"{Path(file).name}: {header[place]} reads 0 throughout: taken as not available")
    if not power:
        allowed = "a power above 0 in at least one column"
        raise ConfigError("a log whose power reads 0 throughout", file=file, allowed=allowed)
    seconds = np.array([(moment - moments[0]).total_seconds() for moment in moments])
    return HwinfoLog(
        file=file,
        start=moments[0],
        seconds=seconds,
        power_w=power,
        columns={role: header[places[role]] for role in power},
        notes=tuple(notes),
    )


def _power_places(header: Sequence[str], file: str, line: int) -> dict[str, int]:
    """Return the first matching column of each role."""
    places: dict[str, int] = {}
    for role, patterns in ROLES.items():
        for pattern in patterns:
            fitting = [i for i, name in enumerate(header) if re.search(pattern, name, re.IGNORECASE)]
            fitting = [i for i in fitting if _UNIT.search(header[i])]
            if fitting:
                places[role] = fitting[0]
                break
    if not places:
        names = [name for name in header[2:] if name]
        listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if names[_LISTED:] else "")
        allowed = "a column such as `CPU Package Power [W]` or one of the NPU with the unit W"
        found = f"no column of power among {listed or 'no sensors'}"
        raise ConfigError(found, file=file, line=line, allowed=allowed)
    return places


def _moment(record: Sequence[str], file: str, line: int) -> datetime:
    day = next((found for form in _DATE_FORMS if (found := _parsed(record[0], form))), None)
    if day is None:
        raise ConfigError(shown(record[0]), file=file, line=line, key="Date", allowed=_DATE_ALLOWED)
    match = _TIME.fullmatch(record[1])
    hour, minute, second = (int(match[i]) for i in (1, 2, 3)) if match else (24, 0, 0)
    if match is None or hour > 23 or minute > 59 or second > 59:
        allowed = "hours:minutes:seconds"
        raise ConfigError(shown(record[1]), file=file, line=line, key="Time", allowed=allowed)
    micro = round(float(f"0.{match[4] or 0}") * 1e6)
    return day + timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micro)


def _parsed(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


def _watts(text: str, column: str, file: str, line: int) -> float:
    match = _UNIT.search(column)
    scale = _WATTS[match["unit"]] if match else 1.0
    value = float(text.replace(",", ".")) * scale if _NUMBER.fullmatch(text) else math.nan
    if not value >= 0.0:
        found = shown(text) if text else "nothing"
        raise ConfigError(found, file=file, line=line, key=column, allowed="a power of at least 0")
    return value
