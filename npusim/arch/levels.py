"""Memory levels: one shape for all, from the registers of a PE to a system cache."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, StringConstraints

from npusim.config import Section
from npusim.units import Bytes, BytesOrZero, BytesPerCycle, EnergyPerByte, Quantity

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
