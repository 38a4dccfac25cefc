"""Energy of a run: counters in hardware (RAPL, PMT), or the log of HWiNFO.

A counter only counts up; energy is the difference of two readings. Without a counter the energy is not
available (null), which is not the same as 0.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from npusim.config import Section, load_model
from npusim.config.tables import csv_records
from npusim.errors import ConfigError, NpusimError, shown
from npusim.files import read_text
from npusim.locate import resource
from npusim.measure.document import EnergySource, Row
from npusim.units import Energy

_RAPL_JOULES_PER_COUNT = 1e-6
"""The counter is in microjoules (Linux, Documentation/power/powercap)."""


class Meter(Protocol):
    """An energy counter."""

    @property
    def source(self) -> EnergySource:
        """What it is, as a row says it."""
        ...

    def read(self) -> int:
        """Return the counter."""
        ...

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J), right also where the counter wrapped once."""
        ...


@dataclass(frozen=True)
class EnergyReading:
    """Energy of a run of repeated inferences, or when it ran."""

    began_s: float
    ended_s: float
    """`began_s`, `ended_s`: seconds of the wall clock (Unix time), to find it again in the log of another
    tool."""
    inferences: int
    """Number of inferences."""
    joules: float | None
    """Energy of all of them (J); None where nothing counted it."""
    source: EnergySource | None
    """What counted."""

    @property
    def per_inference_j(self) -> float | None:
        """Energy of one inference (J); None where it is not available, also where a counter stood still."""
        return self.joules / self.inferences if self.joules else None


@dataclass(frozen=True)
class RaplMeter:
    """RAPL energy counter of one domain, as Linux shows it."""

    counter: Path
    """Its file ``energy_uj``."""
    wraps_at: int
    """Its largest value; the next is 0."""
    source: EnergySource = "intel-rapl"

    @classmethod
    def find(cls, root: Path, domain: str) -> tuple[RaplMeter | None, str]:
        """Return the meter of a domain, and why it cannot be read if it is there and cannot."""
        reason = ""
        for folder in sorted((root / "sys" / "class" / "powercap").glob("intel-rapl:*")):
            if _text(folder / "name") != domain:
                continue
            try:
                wraps_at = int((folder / "max_energy_range_uj").read_text())
                meter = cls(folder / "energy_uj", wraps_at)
                meter.read()
                return meter, ""
            except PermissionError:
                reason = f"RAPL counts the energy of {domain}, but only root may read it"
            except (OSError, ValueError):
                reason = f"RAPL's counter of {domain} cannot be read"
        return None, reason

    def read(self) -> int:
        """Return the counter (uJ)."""
        return int(self.counter.read_text())

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J)."""
        return (after - before) % (self.wraps_at + 1) * _RAPL_JOULES_PER_COUNT


def _text(path: Path) -> str:
    """Return what stands in a small file; nothing where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _parse(written: object) -> object:
    """Take a hexadecimal number as data sheets write it."""
    if isinstance(written, str) and written.startswith("0x"):
        return int(written, 16)
    return written


Hexadecimal = Annotated[int, BeforeValidator(_parse), Field(ge=0)]


class Layout(Section):
    """Where a generation of NPUs has its energy counter."""

    guid: Hexadecimal
    """Number of the layout, as the kernel shows it, such as 0x130670b2."""
    energy_offset: Hexadecimal
    """First byte of the counter."""
    source: Annotated[str, Field(min_length=1)]
    """Where both come from."""


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


@dataclass(frozen=True)
class PmtMeter:
    """Energy counter of an NPU in Intel's platform monitoring telemetry (PMT).

    A GUID names the layout of the page of counters; `configs/telemetry/intel-pmt.yaml` holds the known ones.
    """

    page: Path
    """File ``telem`` with all counters."""
    offset: int
    """First byte of this one."""
    counter_bits: int
    joules_per_count: float
    source: EnergySource = "intel-pmt"

    @classmethod
    def find(cls, root: Path) -> tuple[PmtMeter | None, str]:
        """Return the meter of the NPU, and why it cannot be read if it is there and cannot."""
        telemetry = load_telemetry()
        offsets = {layout.guid: layout.energy_offset for layout in telemetry.layouts.values()}
        reason = ""
        for folder in sorted((root / "sys" / "class" / "intel_pmt").glob("telem*")):
            try:
                guid = int((folder / "guid").read_text(), 16)
                if guid not in offsets:
                    continue
                bits, step = telemetry.counter_bits, float(telemetry.joules_per_count)
                meter = cls(folder / "telem", offsets[guid], bits, step)
                meter.read()
                return meter, ""
            except PermissionError:
                reason = "PMT telemetry counts the NPU's energy, but only root may read it"
            except (OSError, ValueError):
                reason = "PMT telemetry is there, but cannot be read"
        return None, reason

    def read(self) -> int:
        """Return the counter.

        Raises
        ------
        ValueError
            Where the page ends before it.
        """
        size = self.counter_bits // 8
        descriptor = os.open(self.page, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            os.lseek(descriptor, self.offset, os.SEEK_SET)
            found = os.read(descriptor, size)
        finally:
            os.close(descriptor)
        if len(found) < size:
            raise ValueError(f"the telemetry page ends before byte {self.offset + size}")
        return int.from_bytes(found, "little")

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J)."""
        return (after - before) % (1 << self.counter_bits) * self.joules_per_count


def find_meter(kind: str, root: Path = Path("/")) -> tuple[Meter | None, str]:
    """Return what counts the energy of a class of device here, and why if nothing does.

    Returns
    -------
    tuple of Meter or None, and str
        A CPU's energy is its package's (RAPL), a GPU's that of RAPL's domain uncore, an NPU's what PMT
        counts. The text is empty where there is a meter, or nothing that a user could mend.
    """
    if kind == "npu":
        return PmtMeter.find(root)
    return RaplMeter.find(root, "uncore" if kind == "gpu" else "package-0")


Measured = list[tuple[Row, EnergyReading | None]]
"""Rows, and when each ran without a pause."""


def with_logged_energy(
    measured: Sequence[tuple[Row, EnergyReading | None]], kind: str, path: Path
) -> tuple[Measured, str]:
    """Return rows with the energy that HWiNFO's log gives them.

    A log that does not help is no reason to lose the times: rows stay without energy then.

    Parameters
    ----------
    measured : sequence of Row and EnergyReading
        Rows and when each ran without a pause.

    Returns
    -------
    tuple of list and str
        The rows, and why some have no energy; empty where all have. Energy is the mean power in a row's run
        times its length, by its inferences.
    """
    try:
        log = read_hwinfo(path)
    except NpusimError as error:
        return list(measured), str(error)
    found: Measured = []
    for row, energy in measured:
        power_w = log.mean_power_w(kind, energy.began_s, energy.ended_s) if energy else None
        if energy is not None and power_w is not None:
            joules = power_w * (energy.ended_s - energy.began_s) / energy.inferences
            row = row.model_copy(update={"energy_j": joules, "energy_source": "hwinfo"})
        found.append((row, energy))
    without = sum(row.energy_j is None for row, _ in found)
    reason = f"{path.name} tells no power of the {kind.upper()} while {without} of {len(found)} rows ran"
    return found, "; ".join([reason, *log.notes]) if without else ""


ROLES: Mapping[str, tuple[str, ...]] = {
    "npu": (r"\bNPU\b.*\bpower\b",),
    "cpu": (r"\bCPU package power\b",),
    "ia_cores": (r"\bIA cores power\b",),
    "gpu": (r"\bGT cores power\b", r"\bGPU (?:\w+ )?power\b"),
    "system_agent": (r"\bsystem agent power\b",),
    "soc": (r"\btotal system power\b", r"\bSoC power\b"),
}
"""What a column's name must hold to be the power of something; the first pattern with a column counts."""

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
    """When the first reading was taken, by the clock of the machine, without a time zone."""
    seconds: NDArray[np.float64]
    """Times of the readings, from the first one, in s. Shape (readings,)."""
    power_w: Mapping[str, NDArray[np.float64]]
    """Readings by role (`ROLES`), each of shape (readings,), in W."""
    columns: Mapping[str, str]
    """The column that each role was read from."""
    notes: tuple[str, ...] = ()
    """Columns of power that only ever read 0, which tells nothing."""

    def mean_power_w(self, role: str, start_s: float, stop_s: float) -> float | None:
        """Return the mean power (W) of a role between two moments, by linear interpolation.

        Parameters
        ----------
        start_s, stop_s : float
            Moments of the wall clock (Unix time). The log's own times are taken for those of this machine's
            time zone.

        Returns
        -------
        float or None
            None where the log does not tell: no such column, moments it does not cover, or a mean of 0.
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
        semicolons, decimal points or commas. Names of columns are matched loosely; what is no power stays
        unread.

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
            found, allowed = f"{moments[-1]} after {moments[-2]}", "readings in the order of time"
            raise ConfigError(found, file=file, line=line, key="Time", allowed=allowed)
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
    """Return the column of each role that the log has; of several of one name the first."""
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
        raise ConfigError(
            f"no column of power among {listed or 'no sensors'}", file=file, line=line,
            allowed="a column such as `CPU Package Power [W]` or one of the NPU with the unit W",
        )  # fmt: skip
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
