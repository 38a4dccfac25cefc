"""Power over time, from the CSV file that HWiNFO logs on Windows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npusim.config.tables import csv_records
from npusim.errors import ConfigError, shown
from npusim.files import read_text

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
