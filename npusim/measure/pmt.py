"""Energy counter of the NPU in Intel's platform monitoring telemetry (PMT).

A GUID names the layout of the page of counters; `configs/telemetry/intel-pmt.yaml` holds the layouts that are
known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from npusim.config import Section, load_model
from npusim.locate import resource
from npusim.measure.document import EnergySource
from npusim.units import Energy

__all__ = ["PmtMeter", "Telemetry", "load_telemetry"]


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
    """Energy counters in telemetry."""

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
    """The energy counter of an NPU.

    Attributes
    ----------
    page : Path
        File ``telem`` with all counters.
    offset : int
        First byte of this one.
    counter_bits : int
    joules_per_count : float
    """

    page: Path
    offset: int
    counter_bits: int
    joules_per_count: float
    source: EnergySource = "intel-pmt"

    @classmethod
    def find(cls, root: Path) -> tuple[PmtMeter | None, str]:
        """Return the meter of the NPU, and why it cannot be read if it is there and cannot.

        Parameters
        ----------
        root : Path
            Where ``sys`` lies.
        """
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
