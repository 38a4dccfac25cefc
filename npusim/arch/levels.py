"""Memory levels: one shape for all, from the registers of a PE to a system cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field, StringConstraints

from npusim.config import Section
from npusim.units import (
    Bandwidth,
    Bytes,
    BytesOrZero,
    BytesPerCycle,
    Count,
    Duration,
    EnergyPerByte,
    PositiveCount,
    Quantity,
)

OperandName = Literal["weights", "inputs", "outputs"]
"""Operands of a product or convolution; `outputs` are partial sums too."""

OPERANDS: tuple[OperandName, ...] = get_args(OperandName)

LevelName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a level: part of the paths of settings, `npu.levels.l2.capacity`."""

AxisName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of an axis of a MAC array: rows, columns."""

Ports = Literal["one", "read_and_write", "two_of_each"]
"""Ports of an instance, shared by all operands: one for everything; one for reads and one for writes; a read
and a write port to either side."""


class MemoryLevel(Section):
    """One level of a memory hierarchy; a mapping of them lists the level nearest to the work first."""

    capacity: BytesOrZero
    """Bytes that one instance holds. 0: as though the level were not there."""
    operands: list[OperandName] = Field(default_factory=lambda: list(OPERANDS), min_length=1)
    """Operands that pass through it; others go past it to the next level. Absent: all."""
    read_energy: EnergyPerByte = Quantity(0.0, "J/B", source="absent")
    """Energy of a byte that is read. Absent: none, or counted with the work."""
    write_energy: EnergyPerByte | None = None
    """Energy of a byte that is written. None: that of a read one."""

    @property
    def write_j_per_byte(self) -> float:
        """Energy of a byte that is written (J)."""
        return float(self.read_energy if self.write_energy is None else self.write_energy)


class ArrayLevel(MemoryLevel):
    """A level of a MAC array, from the registers of its PEs outwards; software decides what it holds."""

    shared_by: Literal["all"] | list[AxisName] = "all"
    """Axes of the array whose PEs share an instance; []: each PE has one of its own."""
    width: BytesPerCycle
    """Bytes that a port of an instance moves in a cycle of the array."""
    least_access: Bytes | None = None
    """Smallest part of that width that is accessed, and paid for, by itself. None: all of it."""
    ports: Ports = "read_and_write"
    """Ports of an instance."""


OUTER_LEVELS = 3
"""Most levels between the SRAM of a device's tiles and DRAM."""


class OuterLevel(MemoryLevel):
    """A level between the SRAM of all tiles of a device and DRAM: an L2, a system cache."""

    banks: PositiveCount = Count(1, source="absent: one")
    """Banks that are read and written at the same time."""
    bandwidth: Bandwidth
    """Bytes per second that a bank moves, read or written."""
    latency: Duration
    """Wait for the first byte."""
    managed_by: Literal["software", "cache"] = "software"
    """Who decides what it holds: software keeps as much of an operand as there is room for; a cache keeps
    what was used last, and writes everything to DRAM in the end."""

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of all banks (B/s)."""
        return float(self.bandwidth) * self.banks


def capacity_warnings(
    levels: Mapping[str, MemoryLevel], paths: Mapping[str, str], inside_bytes: float, outside_bytes: float
) -> list[str]:
    """Return a warning for each level that is larger than the one outside it, or DRAM.

    Parameters
    ----------
    levels : mapping
        The nearest first.
    paths : mapping
        Of each level the path of its settings.
    inside_bytes, outside_bytes : float
        Capacity of what the levels lie around, and of DRAM.
    """
    found, inner, held = [], "SRAM", inside_bytes
    sizes = [(name, float(level.capacity)) for name, level in levels.items() if level.capacity > 0.0]
    for name, size in [*sizes, ("DRAM", outside_bytes)] if sizes else []:
        if held > size:
            found.append(
                f"{inner} holds {held / 2**20:.4g} MiB, more than {name} outside it, {size / 2**20:.4g} MiB "
                f"({paths.get(name, 'dram')}.capacity)"
            )
        inner, held = name, size
    return found
