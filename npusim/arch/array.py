"""MAC arrays: axes of PEs, the loops that are unrolled on them, and the operand that stays in place."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from npusim.arch.levels import ArrayLevel, AxisName, LevelName
from npusim.config import Section, load_model
from npusim.errors import nearest, shown
from npusim.locate import resource
from npusim.units import EnergyPerMac, PositiveCount, refuse

LoopName = Literal[
    "batch", "groups", "output_channels", "input_channels", "output_height", "output_width",
    "kernel_height", "kernel_width",
]  # fmt: skip
"""Loops of a convolution; channels are per group. A product M x K x N has M as `batch`, K as
`input_channels` and N as `output_channels`; `groups` are independent products."""

LOOPS: tuple[LoopName, ...] = get_args(LoopName)
AXES, LOOPS_OF_AXIS, LEVELS = 5, 3, 9
"""Most axes of an array, loops on an axis, and memory levels, DRAM included."""

Stationary = Literal["weights", "inputs", "outputs", "none", "any"]


class Dataflow(Section):
    """Which loops run side by side on which axis, and which operand stays in the PEs meanwhile."""

    unroll: list[list[LoopName]] = Field(min_length=1, max_length=AXES)
    """Loops of each axis, in the order of the array's axes: the first takes as many PEs as it has steps, the
    next one as many times as there is room left. An axis without loops idles but for one PE."""
    stationary: Stationary
    """Operand that stays while all loops that do not concern it run. `none`: every operand is fetched for
    each step. `any`: the search decides."""
    inner: list[LoopName] = Field(default_factory=list)
    """Loops that run inside all others, in an order that the search decides."""

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
    """Each under the name that a data sheet uses."""


@cache
def shipped_dataflows() -> dict[str, Dataflow]:
    """Return the shipped dataflows by name."""
    return load_model(resource("configs", "dataflows.yaml"), DataflowFile).dataflows


def _named(found: Any) -> Any:
    """Return the dataflow of a name; what is no name stays as it is."""
    if not isinstance(found, str):
        return found
    known = shipped_dataflows()
    if found not in known:
        names = ["grid", *known]
        refuse(shown(found), f"one of {', '.join(names)}, or a mapping with `unroll`", nearest(found, names))
    return known[found]


def _is_grid(found: Any) -> str:
    return "grid" if found == "grid" else "dataflow"


_NAME = Annotated[str, Field(json_schema_extra={"not": {"const": "grid"}})]
"""Name of a dataflow in JSON Schema, which counts the alternatives that fit: one must."""

GridOrDataflow = Annotated[
    Annotated[Literal["grid"], Tag("grid")]
    | Annotated[
        Annotated[Dataflow, BeforeValidator(_named, json_schema_input_type=_NAME | Dataflow)], Tag("dataflow")
    ],
    Discriminator(_is_grid),
]
"""The calibrated grid, a dataflow in place, or the name of a shipped one."""


class ArrayShape(Section):
    """An array of PEs, one multiply-accumulate a cycle each, with the memories between them and SRAM."""

    axes: dict[AxisName, PositiveCount] = Field(min_length=1, max_length=AXES)
    """PEs along each axis."""
    transfer: Literal["broadcast", "systolic"]
    """How operands reach the PEs: all at once, or handed on from PE to PE, a cycle each."""
    folds: Literal["overlapped", "serial"] = "overlapped"
    """Whether the array fills for the next fold while it works on the last; a fold is all that happens while
    the stationary operand stays."""
    levels: dict[LevelName, ArrayLevel] = Field(default_factory=dict, max_length=LEVELS - 2)
    """Memories from the PEs outwards. Of an array within a tile: those below its SRAM; absent: registers for
    an element of what stays."""

    @model_validator(mode="after")
    def _levels_name_axes(self) -> Self:
        for name, level in self.levels.items():
            unknown = [axis for axis in level.shared_by if axis not in self.axes]
            if level.shared_by != "all" and unknown:
                refuse(f"the axis `{unknown[0]}`", ", ".join(self.axes), at=f"levels.{name}.shared_by")
        return self

    @property
    def pes(self) -> int:
        """PEs of the array."""
        return prod(int(count) for count in self.axes.values())


class MacArray(ArrayShape):
    """An array by itself, with all memories but DRAM and the energy of its work."""

    mac_energy: EnergyPerMac
    """A multiply-accumulate, without memories."""
