"""An accelerator that is neither of ours: known by dataflow and roofline, such as a Jetson's DLA.

Like a colleague from another department: one knows what he is for and how fast he is, not how he does it.
"""

from typing import Literal

from pydantic import Field

from npusim.arch.device import OpName, RooflineDevice
from npusim.units import Bytes

__all__ = ["Accelerator", "Dataflow"]

Dataflow = Literal["output_stationary", "weight_stationary", "input_stationary", "row_stationary"]
"""Which operand stays in place while the others pass."""


class Accelerator(RooflineDevice):
    """A fixed-function accelerator, by its roofline."""

    kind: Literal["accelerator"]
    """Kind of device: accelerator."""
    dataflow: Dataflow
    """Operand that stays in the array; it decides what is fetched again when a tensor does not fit."""
    buffer: Bytes
    """On-chip buffer that holds the operands of one operator."""
    ops: list[OpName] = Field(min_length=1)
    """Operator types it runs; the others fall back to another device."""
