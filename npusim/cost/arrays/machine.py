"""A MAC array as numbers: its axes, what is unrolled on them, and its memory levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from npusim.arch import Dpu
from npusim.arch.array import (
    AXES,
    LEVELS,
    LOOPS,
    LOOPS_OF_AXIS,
    OPERANDS,
    ArrayLevel,
    ArrayShape,
    Dataflow,
    MacArray,
)
from npusim.cost.records import Number, Vector, dtype_of

OPERAND_COUNT = len(OPERANDS)
_STATIONARY = (*OPERANDS, "none", "any")
NONE_STAYS, ANY_STAYS = _STATIONARY.index("none"), _STATIONARY.index("any")
_PORTS = ("one", "read_and_write", "two_of_each")
ONE_PORT, READ_AND_WRITE, TWO_OF_EACH = range(len(_PORTS))
_Levels = Annotated[Vector, LEVELS, "bits"]


class ArrayRecord:
    """A MAC array with its dataflow and memory levels; all memory in bits, all rates per cycle."""

    axes: Number
    """Axes; 0 where there is no such array."""
    axis_pes: Annotated[Vector, AXES, ""]
    """PEs along each axis."""
    axis_loops: Annotated[Vector, AXES * LOOPS_OF_AXIS, ""]
    """Loops unrolled on each axis, places in `npusim.arch.array.LOOPS`; -1 for none."""
    stationary: Number
    """Operand that stays in the PEs; after the operands: none, and any."""
    inner: Annotated[Vector, len(LOOPS), ""]
    """1 for loops that run inside all others."""
    is_systolic: Number
    """1 where operands are handed on from PE to PE."""
    is_serial: Number
    """1 where the array fills anew for each fold."""
    is_of_grid: Number
    """1 where the first two axes are those of an NPU's grid."""
    is_deep: Number
    """1 where a memory below SRAM holds more than an element or two of an operand."""
    mac_j: Annotated[float, "J"]
    """A multiply-accumulate."""
    levels: Number
    """Memory levels, DRAM included, which is the last."""
    level_bits: _Levels
    """Capacity of an instance."""
    level_holds: Annotated[Vector, LEVELS * OPERAND_COUNT, ""]
    """1 where an operand passes through a level."""
    level_spans: Annotated[Vector, LEVELS * AXES, ""]
    """1 where the PEs of an axis share an instance."""
    level_ports: Annotated[Vector, LEVELS, ""]
    """Ports of an instance: one, one for reads and one for writes, two of each."""
    level_words: Annotated[Vector, LEVELS, ""]
    """Words that a port moves side by side, each for another operand if need be: banks, ports of one word."""
    level_copies: Annotated[Vector, LEVELS, ""]
    """Copies that a level keeps of what is not all of a tensor: 2 where it is double-buffered."""
    level_width_bits: _Levels
    """Bits that a port moves in a cycle."""
    level_least_bits: _Levels
    """Smallest part of that which is accessed."""
    level_read_j: Annotated[Vector, LEVELS, "J"]
    """A bit that is read."""
    level_write_j: Annotated[Vector, LEVELS, "J"]
    """A bit that is written."""


ARRAY_DTYPE = dtype_of(ArrayRecord)


_SHALLOW_BITS = 128.0
"""Capacity of registers for single elements, of all operands in the widest format."""
_EVERYTHING = "1e14 B"


def fill_array(record: Any, array: ArrayShape, dataflow: Dataflow, levels: Sequence[ArrayLevel]) -> None:
    """Fill a record of ARRAY_DTYPE.

    Parameters
    ----------
    levels : sequence of ArrayLevel
        From the PEs outwards; the last is DRAM, in bytes a cycle of the array.
    """
    record["axes"] = len(array.axes)
    record["axis_loops"] = -1.0
    for axis, pes in enumerate(array.axes.values()):
        record["axis_pes"][axis] = pes
        loops = dataflow.unroll[axis] if axis < len(dataflow.unroll) else []
        for place, loop in enumerate(loops):
            record["axis_loops"][axis * LOOPS_OF_AXIS + place] = LOOPS.index(loop)
    record["stationary"] = _STATIONARY.index(dataflow.stationary)
    for name in dataflow.inner:
        record["inner"][LOOPS.index(name)] = 1.0
    record["is_systolic"], record["is_serial"] = array.transfer == "systolic", array.folds == "serial"
    # A level of no capacity is as though it were not there, but the only home of what stays has no room then.
    homes = [level for level in levels[:-2] if dataflow.stationary in level.operands]
    homeless = [] if any(level.capacity > 0.0 for level in homes) else homes
    there = [level for level in levels if level.capacity > 0.0 or level in homeless]
    record["levels"] = len(there)
    for i, level in enumerate(there):
        _fill_level(record, i, level, list(array.axes))
    record["is_deep"] = any(8.0 * level.capacity > _SHALLOW_BITS for level in there[:-2])


def _fill_level(record: Any, i: int, level: ArrayLevel, axes: Sequence[str]) -> None:
    record["level_bits"][i] = 8.0 * level.capacity
    record["level_width_bits"][i] = 8.0 * level.width
    least = level.width if level.least_access is None else min(level.least_access, level.width)
    record["level_least_bits"][i] = 8.0 * least
    record["level_ports"][i] = _PORTS.index(level.ports)
    record["level_copies"][i] = record["level_words"][i] = 1.0
    record["level_read_j"][i] = level.read_energy / 8.0
    record["level_write_j"][i] = level.write_j_per_byte / 8.0
    for operand, held in enumerate(OPERANDS):
        record["level_holds"][i * OPERAND_COUNT + operand] = held in level.operands
    for axis, name in enumerate(axes):
        record["level_spans"][i * AXES + axis] = level.shared_by == "all" or name in level.shared_by


def array_record(array: MacArray, dataflow: Dataflow, outermost: ArrayLevel) -> Any:
    """Return a table with one record of ARRAY_DTYPE, of an array with DRAM as its outermost level."""
    table = np.zeros(1, ARRAY_DTYPE)
    fill_array(table[0], array, dataflow, [*array.levels.values(), outermost])
    table[0]["mac_j"] = array.mac_energy
    return table


def fill_tile_array(record: Any, dpu: Dpu) -> None:
    """Fill the record of the MAC array of a tile; that of the calibrated grid stays 0.

    What SRAM holds is settled outside (`npusim.cost.tiling`), so it is no limit here.
    """
    if isinstance(dpu.dataflow, str):
        return
    shape = dpu.array
    record["is_of_grid"] = shape is None
    if shape is None:
        shape = ArrayShape.model_validate({"axes": {"first": 1, "second": 1}, "transfer": "broadcast"})
    levels = list(shape.levels.values())
    stays = dpu.dataflow.stationary
    if not levels and stays in OPERANDS:
        levels.append(
            _level(capacity="4 B", width="4 B/cycle", operands=[stays], shared_by=[], ports="two_of_each")
        )
    levels.append(_level(capacity=_EVERYTHING, width="1 B/cycle"))  # SRAM, whose width follows from its ports
    fill_array(record, shape, dpu.dataflow, [*levels, levels[-1]])


def _level(**keys: Any) -> ArrayLevel:
    """Return a level whose energy the technology counts."""
    return ArrayLevel.model_validate({"read_energy": "0 J/B", "least_access": "1 B"} | keys)
