"""Energy of a run: counters in hardware (RAPL, PMT), or the log of HWiNFO.

A counter only counts up; energy is the difference of two readings. Without a counter the energy is not
available (null), which is not the same as 0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BeforeValidator, Field

from npusim.config import Section, load_model
from npusim.errors import NpusimError
from npusim.locate import resource
from npusim.measure.document import EnergySource, Row
from npusim.measure.hwinfo import read_hwinfo
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
