"""MAC arrays: axes of PEs, the loops that are unrolled on them, and the operand that stays in place."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from npusim.arch.levels import ArrayLevel, AxisName, LevelName
from npusim.config import Section, load_model
from npusim.errors import nearest, shown
from npusim.locate import resource
from npusim.units import Bytes, EnergyPerMac, PositiveCount, refuse

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
        refuse(shown(found), f"one of {', '.join(known)}, or a mapping with `unroll`", nearest(found, known))
    return known[found]


DataflowOrName = Annotated[Dataflow, BeforeValidator(_named)]
"""A dataflow in place, or the name of a shipped one."""


class MacArray(Section):
    """An array of PEs, one multiply-accumulate a cycle each."""

    axes: dict[AxisName, PositiveCount] = Field(min_length=1, max_length=AXES)
    """PEs along each axis."""
    transfer: Literal["broadcast", "systolic"]
    """How operands reach the PEs: all at once, or handed on from PE to PE, a cycle each."""
    folds: Literal["overlapped", "serial"] = "overlapped"
    """Whether the array fills for the next fold while it works on the last; a fold is all that happens while
    the stationary operand stays."""
    mac_energy: EnergyPerMac
    """A multiply-accumulate, without memories."""
    levels: dict[LevelName, ArrayLevel] = Field(min_length=1, max_length=LEVELS - 1)
    """Memories from the PEs outwards, DRAM excluded: it is the SoC's."""
    partial_sum: Bytes
    """Bytes of a partial sum."""

    @model_validator(mode="after")
    def _levels_name_axes(self) -> MacArray:
        for name, level in self.levels.items():
            unknown = [axis for axis in level.shared_by if axis not in self.axes]
            if level.shared_by != "all" and unknown:
                refuse(f"the axis `{unknown[0]}`", ", ".join(self.axes), at=f"levels.{name}.shared_by")
        return self
