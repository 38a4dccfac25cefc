"""MAC arrays with the loops unrolled on them, and memory levels from registers to a system cache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from npusim import units
from npusim.config import Section, load_model
from npusim.errors import nearest, shown
from npusim.locate import resource
from npusim.units import refuse

GRID_FORMATS = ("int4", "int8", "fp16", "fp32")
"""Formats of a MAC grid by width, of which it has one at least; fp16 stands for all floats of 16 bits."""

OperandName = Literal["weights", "inputs", "outputs"]
"""Operands of a product or convolution; `outputs` includes partial sums."""

OPERANDS: tuple[OperandName, ...] = get_args(OperandName)

LevelName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a level: part of the paths of settings, `npu.levels.l2.capacity`."""

AxisName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of an axis of a MAC array: rows, columns."""

Ports = Literal["one", "read_and_write", "two_of_each", "one_of_each_operand"]
"""Ports of an instance for all operands: one; one for reads and one for writes; or both on each side. Or one
for each operand towards the PEs, and one for all towards DRAM."""


class MemoryLevel(Section):
    """One level of a memory hierarchy; mappings list the level nearest to the work first."""

    capacity: units.BytesOrZero
    """Bytes of an instance. 0: the level is absent."""
    operands: list[OperandName] = Field(default_factory=lambda: list(OPERANDS), min_length=1)
    """Operands that pass through it; the others bypass it. Absent: all."""
    read_energy: units.EnergyPerByte = units.Quantity(0.0, "J/B", source="absent")
    """Energy of a read byte. Absent: none, or counted with the work."""
    write_energy: units.EnergyPerByte | None = None
    """Energy of a written byte. None: that of a read byte."""

    @property
    def write_j_per_byte(self) -> float:
        """Energy of a written byte (J)."""
        return float(self.read_energy if self.write_energy is None else self.write_energy)


class ArrayLevel(MemoryLevel):
    """A software-managed level of a MAC array, from the registers of its PEs outwards."""

    shared_by: Literal["all"] | list[AxisName] = "all"
    """Axes of the array whose PEs share an instance; []: each PE has its own."""
    width: units.BytesPerCycle
    """Bytes that a port of an instance moves in a cycle of the array."""
    least_access: units.Bytes | None = None
    """Smallest part of that width that an access moves and pays for. None: all of it."""
    ports: Ports = "read_and_write"
    """Ports of an instance."""

    @property
    def sizes(self) -> dict[str, float]:
        """Numbers that its area depends on."""
        ports = 2.0 ** get_args(Ports).index(self.ports)
        return {"capacity": float(self.capacity), "width": float(self.width), "ports": ports}


OUTER_LEVELS = 3
"""Most levels between the SRAM of a device's tiles and DRAM."""


class OuterLevel(MemoryLevel):
    """A level between the SRAM of all tiles of a device and DRAM: an L2, a system cache."""

    banks: units.PositiveCount = units.Count(1, source="absent: one")
    """Banks that work in parallel."""
    bandwidth: units.Bandwidth
    """Read and write bandwidth of a bank."""
    latency: units.Duration
    """Wait for the first byte."""
    area: units.Area | None = None
    """Area at the capacity of the data sheet. None: by the law of SRAM (`configs/technology/sram.yaml`)."""
    energy_at: units.Bytes | None = None
    """Capacity at which the energies hold. None: that of the data sheet."""
    managed_by: Literal["software", "cache"] = "software"
    """`software` keeps what fits of an operand; a `cache` keeps the data used last, and writes it back."""

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of all banks (B/s)."""
        return float(self.bandwidth) * self.banks


def capacity_warnings(
    levels: Mapping[str, MemoryLevel], paths: Mapping[str, str], inside_bytes: float, outside_bytes: float
) -> list[str]:
    """Return a warning for each level (the nearest first) that is larger than the one outside it, or DRAM.

    `paths` are the paths of their settings; `inside_bytes` is the SRAM inside the levels, `outside_bytes`
    DRAM.
    """
    warnings, inner, held = [], "SRAM", inside_bytes
    sizes = [(name, float(level.capacity)) for name, level in levels.items() if level.capacity > 0.0]
    for name, size in [*sizes, ("DRAM", outside_bytes)] if sizes else []:
        if held > size:
            warnings.append(
                f"{inner} holds {held / 2**20:.4g} MiB, more than {name} outside it, {size / 2**20:.4g} MiB "
                f"({paths.get(name, 'dram')}.capacity)"
            )
        inner, held = name, size
    return warnings


LoopName = Literal[
    "batch",
    "groups",
    "output_channels",
    "input_channels",
    "output_height",
    "output_width",
    "kernel_height",
    "kernel_width",
]
"""Loops of a convolution. A product M x K x N: `batch`, `input_channels`, `output_channels`."""

LOOPS: tuple[LoopName, ...] = get_args(LoopName)
AXES, LOOPS_OF_AXIS, LEVELS = 5, 3, 9
"""Most axes of an array, loops on an axis, and memory levels, DRAM included."""

Stationary = Literal["weights", "inputs", "outputs", "none", "any"]


class Dataflow(Section):
    """Loops that are unrolled on each axis, and the stationary operand."""

    unroll: list[list[LoopName]] = Field(min_length=1, max_length=AXES)
    """Loops of each axis: the first takes as many PEs as it has steps, the next fill the rest; []: one PE."""
    stationary: Stationary
    """Operand that stays in the PEs. `none`: every step fetches all operands. `any`: the search decides."""
    inner: list[LoopName] = Field(default_factory=list)
    """Innermost loops; the search decides their order."""

    @model_validator(mode="after")
    def _each_loop_once(self) -> Dataflow:
        loops = [loop for axis in self.unroll for loop in axis]
        for i, axis in enumerate(self.unroll):
            if len(axis) > LOOPS_OF_AXIS:
                refuse(f"{len(axis)} loops on an axis", f"at most {LOOPS_OF_AXIS}", at=f"unroll.{i}")
        if len(loops) != len(set(loops)):
            twice = next(loop for loop in loops if loops.count(loop) > 1)
            refuse(f"`{twice}` on two axes", "each loop on one axis", at="unroll")
        return self


class DataflowFile(Section):
    """Dataflows by name: `configs/dataflows.yaml`."""

    dataflows: dict[str, Dataflow]
    """Dataflow of each name that a data sheet uses."""


@cache
def shipped_dataflows() -> dict[str, Dataflow]:
    """Return the shipped dataflows by name."""
    return load_model(resource("configs", "dataflows.yaml"), DataflowFile).dataflows


def _named(value: Any) -> Any:
    """Return the dataflow of a name; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    known = shipped_dataflows()
    if value not in known:
        names = ["grid", *known]
        refuse(shown(value), f"one of {', '.join(names)}, or a mapping with `unroll`", nearest(value, names))
    return known[value]


def _is_grid(value: Any) -> str:
    return "grid" if value == "grid" else "dataflow"


_NAME = Annotated[str, Field(json_schema_extra={"not": {"const": "grid"}})]
"""Name of a dataflow in JSON Schema, where exactly one alternative may fit."""

GridOrDataflow = Annotated[
    Annotated[Literal["grid"], Tag("grid")]
    | Annotated[
        Annotated[Dataflow, BeforeValidator(_named, json_schema_input_type=_NAME | Dataflow)], Tag("dataflow")
    ],
    Discriminator(_is_grid),
]
"""The calibrated grid, a dataflow, or the name of a shipped dataflow."""


class ArrayShape(Section):
    """An array of PEs (one multiply-accumulate a cycle each) with the memories between PEs and SRAM."""

    axes: dict[AxisName, units.PositiveCount] = Field(min_length=1, max_length=AXES)
    """PEs along each axis."""
    transfer: Literal["broadcast", "systolic"]
    """How operands reach the PEs: all at once, or from PE to PE, one cycle each."""
    folds: Literal["overlapped", "serial"] = "overlapped"
    """Whether the array fills for the next stationary operand while it works with the last."""
    levels: dict[LevelName, ArrayLevel] = Field(default_factory=dict, max_length=LEVELS - 2)
    """Memories from the PEs outwards. Absent: registers for an element of the stationary operand."""

    @model_validator(mode="after")
    def _levels_name_axes(self) -> Self:
        for name, level in self.levels.items():
            unknown = [axis for axis in level.shared_by if axis not in self.axes]
            if level.shared_by != "all" and unknown:
                refuse(f"the axis `{unknown[0]}`", ", ".join(self.axes), at=f"levels.{name}.shared_by")
        return self

    def instances(self, level: str) -> int:
        """Return the instances of a level."""
        shared = self.levels[level].shared_by
        return prod(int(pes) for axis, pes in self.axes.items() if shared != "all" and axis not in shared)

    @property
    def pes(self) -> int:
        """PEs of the array."""
        return prod(int(count) for count in self.axes.values())


class MacArray(ArrayShape):
    """An array outside a tile, with all memories except DRAM, and the energy of its work."""

    mac_energy: units.EnergyPerMac
    """A multiply-accumulate, without memories."""
