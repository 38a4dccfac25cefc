"""Energy of a run: counters in hardware (RAPL, PMT), or a log of power.

A counter only counts up; energy is the difference of two readings. Without a counter the energy is not
available (null), which is not the same as 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npusim.config.reading import read_yaml
from npusim.config.tables import Number, csv_records, value_of
from npusim.errors import ConfigError, NpusimError, shown
from npusim.files import read_text
from npusim.locate import resource
from npusim.measuring.document import EnergySource, Row

_COUNTERS = read_yaml(resource("configs", "telemetry", "intel-pmt.yaml")).data


@dataclass(frozen=True)
class Meter:
    """An energy counter in hardware of `counts` values, which starts at 0 again after the largest."""

    source: EnergySource
    read: Callable[[], int]
    counts: int
    joules_per_count: float

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J), also where the counter wrapped once."""
        return (after - before) % self.counts * self.joules_per_count


@dataclass(frozen=True)
class EnergyReading:
    """Energy of a run of repeated inferences (J; None without a counter), and its time span.

    The span is in wall clock (Unix time, s), to find the run in a log.
    """

    began_s: float
    ended_s: float
    inferences: int
    joules: float | None
    source: EnergySource | None

    @property
    def per_inference_j(self) -> float | None:
        """Energy of one inference (J); None without a counter or where it stood still."""
        return self.joules / self.inferences if self.joules else None


def find_meter(kind: str, root: Path = Path("/")) -> tuple[Meter | None, str]:
    """Return the energy meter of a class of device, and why an existing one cannot be read.

    A CPU's energy is RAPL's domain package-0, a GPU's its domain uncore. An NPU's comes from Intel's
    telemetry (PMT). `configs/telemetry/intel-pmt.yaml` says where counters stand.
    """
    domain = _COUNTERS["rapl"]["domains"].get(kind)
    counter = f"RAPL's counter of the energy of {domain}" if domain else "PMT telemetry of the NPU's energy"
    folders = "powercap/intel-rapl:*" if domain else "intel_pmt/telem*"
    reason = ""
    for folder in sorted((root / "sys" / "class").glob(folders)):
        try:
            meter = _rapl_meter(folder, domain) if domain else _pmt_meter(folder)
            if meter is not None:
                meter.read()
                return meter, ""
        except PermissionError:
            reason = f"{counter} is there, but only root may read it"
        except (OSError, ValueError):
            reason = f"{counter} is there, but cannot be read"
    return None, reason


def _rapl_meter(folder: Path, domain: str) -> Meter | None:
    if (folder / "name").read_text().strip() != domain:
        return None
    counts = int((folder / "max_energy_range_uj").read_text()) + 1
    step_j = float(_COUNTERS["rapl"]["joules_per_count"])
    return Meter("intel-rapl", lambda: int((folder / "energy_uj").read_text()), counts, step_j)


def _pmt_meter(folder: Path) -> Meter | None:
    pmt = _COUNTERS["pmt"]
    bits, offsets = int(pmt["counter_bits"]), {int(guid, 16): at for guid, at in pmt["energy_offset"].items()}
    offset = offsets.get(int((folder / "guid").read_text(), 16))
    if offset is None:
        return None
    read = partial(_page_counter, folder / "telem", int(offset, 16), bits // 8)
    return Meter("intel-pmt", read, 1 << bits, float(pmt["joules_per_count"]))


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


Measured = list[tuple[Row, EnergyReading | None]]
"""Rows, and the energy reading of each."""


def with_logged_energy(
    measured: Sequence[tuple[Row, EnergyReading | None]], kind: str, path: Path
) -> tuple[Measured, str]:
    """Return rows with their energy from a log of power, and why some have none; empty where all have.

    Energy is the mean power during a row's run times its length, per inference. Rows keep their times
    without energy where the log does not help.
    """
    try:
        log = read_power_log(path, kind)
    except NpusimError as error:
        return list(measured), str(error)
    rows: Measured = []
    for row, energy in measured:
        power_w = log.mean_power_w(energy.began_s, energy.ended_s) if energy else None
        if energy is not None and power_w is not None:
            joules = power_w * (energy.ended_s - energy.began_s) / energy.inferences
            row = row.model_copy(update={"energy_j": joules, "energy_source": "hwinfo"})
        rows.append((row, energy))
    without = sum(row.energy_j is None for row, _ in rows)
    reason = f"{path.name} tells no power of the {kind.upper()} while {without} of {len(rows)} rows ran"
    return rows, reason if without else ""


_LOG = read_yaml(resource("configs", "importers", "hwinfo.yaml")).data
_LISTED = 12


@dataclass(frozen=True)
class PowerLog:
    """Power of a device over time."""

    start: datetime  # time of the first reading by the machine's clock, without a time zone
    seconds: NDArray[np.float64]  # times of the readings, from the first one, in s. Shape (readings,)
    power_w: NDArray[np.float64]  # readings (W). Shape (readings,)

    def mean_power_w(self, start_s: float, stop_s: float) -> float | None:
        """Return the mean power (W) between two moments, by linear interpolation.

        Parameters
        ----------
        start_s, stop_s : float
            Wall clock (Unix time). The log's own times are read in this machine's time zone.

        Returns
        -------
        float or None
            None outside the log's time span, or where the mean is 0.
        """
        begin, end = start_s - self.start.timestamp(), stop_s - self.start.timestamp()
        if not 0.0 <= begin < end <= self.seconds[-1]:
            return None
        inside = (self.seconds > begin) & (self.seconds < end)
        times = np.concatenate(([begin], self.seconds[inside], [end]))
        power_w = np.interp(times, self.seconds, self.power_w)
        mean_w = float(np.dot(power_w[1:] + power_w[:-1], np.diff(times)) / (2.0 * (end - begin)))
        return mean_w if mean_w > 0.0 else None


def read_power_log(path: str | Path, kind: str) -> PowerLog:
    """Read the power of a class of device from a CSV log.

    `configs/importers/hwinfo.yaml` says how columns are named and times written. Fields are separated by
    commas or semicolons, with decimal points or commas.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where it is no such log, has no such column, or a line is broken; it names line and column.
    """
    file, text = str(path), read_text(Path(path), encodings=_LOG["encodings"])
    first = text.partition("\n")[0]
    records = csv_records(text, file, ";" if first.count(";") > first.count(",") else ",")
    line, header = next(records, (1, []))
    place, watts = _power_column(header, kind, file, line)
    column = Number(header[place], above=False)
    moments, power_w = list[datetime](), list[float]()
    for line, record in records:
        if record[:2] == header[:2] or not any(record[:2]):
            continue  # HWiNFO ends a log with its header again and the names of its sensors.
        if len(record) < len(header) - (not header[-1]):
            allowed = f"{len(header)}, as in the header"
            raise ConfigError(f"{len(record)} fields", file=file, line=line, allowed=allowed)
        moments.append(_moment(record[:2], file, line))
        if moments[-1] < moments[max(0, len(moments) - 2)]:
            found, allowed = f"{moments[-1]} after {moments[-2]}", "readings in the order of time"
            raise ConfigError(found, file=file, line=line, key="Time", allowed=allowed)
        power_w.append(float(value_of(column, record[place].replace(",", "."), file, line)) * watts)
    if len(power_w) < 2:
        raise ConfigError(f"{len(power_w)} readings", file=file, line=line, allowed="at least two")
    if not any(power_w):
        found, allowed = "a power that reads 0 throughout: not available", "readings above 0"
        raise ConfigError(found, file=file, key=column.name, allowed=allowed)
    seconds = np.array([(moment - moments[0]).total_seconds() for moment in moments])
    return PowerLog(moments[0], seconds, np.array(power_w))


def _power_column(header: Sequence[str], kind: str, file: str, line: int) -> tuple[int, float]:
    """Return the place of a device's power in a header, and the watts of its unit."""
    if list(header[:2]) != _LOG["moment"]:
        found, allowed = shown(", ".join(header[:2])), f"a log: {', '.join(_LOG['moment'])} and sensors"
        raise ConfigError(found, file=file, line=line, allowed=allowed)
    for pattern in _LOG["powers"][kind]:
        for place, name in enumerate(header):
            watts = next((watts for end, watts in _LOG["watts"].items() if name.endswith(end)), None)
            if watts is not None and re.search(pattern, name, re.IGNORECASE):
                return place, watts
    names = [name for name in header[2:] if name]
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if names[_LISTED:] else "")
    found = f"no power of the {kind.upper()} among {listed or 'no sensors'}"
    raise ConfigError(found, file=file, line=line, allowed="a column such as `CPU Package Power [W]`")


def _moment(fields: Sequence[str], file: str, line: int) -> datetime:
    """Return the moment of a day and a time."""
    written = " ".join(fields).replace(",", ".")
    for form in _LOG["formats"]:
        with suppress(ValueError):
            return datetime.strptime(written, form)
    raise ConfigError(shown(written), file=file, line=line, key="Time", allowed=_LOG["written"])
