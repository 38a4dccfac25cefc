"""Loop nests of convolutions and products, MAC arrays as numbers, and a nest unrolled on an array.

Weights and outputs have an element for each combination of the steps of their loops. Inputs are read through
a window: `o` outputs and `f` taps at stride `s` touch s (o - 1) + f positions where windows overlap, else o
f, and at most the positions of the image; padding is not stored.

Unrolling. An axis of P PEs unrolls its loops in turn. The first, of `n` steps, leaves ceil(n / P) rounds in
sequence, with n / rounds active lanes on average. The next loop has P divided by these lanes. A remainder
leaves lanes idle in the last round. Traffic counts the average lanes; the transfer of one round moves whole
lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from npusim.arch import Dpu
from npusim.arch import array as sheets
from npusim.arch.array import AXES, LEVELS, LOOPS, LOOPS_OF_AXIS, OPERANDS
from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints, Number, Vector, dtype_of

LOOP_COUNT, OPERAND_COUNT = len(LOOPS), len(OPERANDS)
BATCH, GROUPS, OUTPUT_CHANNELS, INPUT_CHANNELS, OUTPUT_HEIGHT, OUTPUT_WIDTH, KERNEL_HEIGHT, KERNEL_WIDTH = (
    range(LOOP_COUNT)
)
WEIGHTS, INPUTS, OUTPUTS = range(OPERAND_COUNT)

_NO, _WINDOW, _YES = 0, 1, 2
_CONCERNS = np.array(
    [
        [_NO, _YES, _YES, _YES, _NO, _NO, _YES, _YES],
        [_YES, _YES, _NO, _YES, _WINDOW, _WINDOW, _WINDOW, _WINDOW],
        [_YES, _YES, _YES, _NO, _YES, _YES, _NO, _NO],
    ],
    np.int64,
)
"""Whether a loop indexes an operand, by itself or as one of the two loops of a window."""


class LoopNest(NamedTuple):
    """A convolution or product as a loop nest; channels are per group."""

    sizes: Floats
    """Steps of each loop, shape (loops,)."""
    stride_w: float
    stride_h: float
    """Step of the window."""
    in_w: float
    in_h: float
    """Positions of the image, padding excluded."""
    bits: Floats
    """Bits of a weight, an input, an output and a partial sum."""
    kept: float = 1.0
    """Steps that remain where the array skips zeros, over all."""


@compiled
def is_irrelevant(operand: int, loop: int) -> bool:
    """Return whether an operand stays the same while a loop runs."""
    return bool(_CONCERNS[operand, loop] == _NO)


@compiled
def is_index(operand: int, loop: int) -> bool:
    """Return whether each step of a loop reads elements of the operand that no other step reads."""
    return bool(_CONCERNS[operand, loop] == _YES)


@compiled
def window_positions(outputs: float, taps: float, stride: float, positions: float) -> float:
    """Return the positions along one side of an image that `outputs` windows of `taps` touch."""
    return float(min(min(outputs * taps, stride * (outputs - 1.0) + taps), positions))


@compiled
def operand_elements(nest: LoopNest, operand: int, steps: Floats) -> float:
    """Return the elements of an operand in a part of the nest, given its steps of each loop."""
    product = 1.0
    for loop in range(LOOP_COUNT):
        if _CONCERNS[operand, loop] == _YES:
            product *= steps[loop]
    if operand == INPUTS:
        product *= window_positions(steps[OUTPUT_HEIGHT], steps[KERNEL_HEIGHT], nest.stride_h, nest.in_h)
        product *= window_positions(steps[OUTPUT_WIDTH], steps[KERNEL_WIDTH], nest.stride_w, nest.in_w)
    return float(product)


@compiled
def multiply_accumulates(nest: LoopNest) -> float:
    """Return the multiply-accumulates of the whole nest."""
    product = 1.0
    for loop in range(LOOP_COUNT):
        product *= nest.sizes[loop]
    return float(product)


_STATIONARY = (*OPERANDS, "none", "any")
NONE_STAYS, ANY_STAYS = _STATIONARY.index("none"), _STATIONARY.index("any")
_PORTS = ("one", "read_and_write", "two_of_each", "one_of_each_operand")
ONE_PORT, READ_AND_WRITE, TWO_OF_EACH, ONE_OF_EACH_OPERAND = range(len(_PORTS))
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
    """1 where operands pass from PE to PE."""
    is_serial: Number
    """1 where the array fills again for each fold."""
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
    """Ports of an instance, as in `npusim.arch.array.Ports`."""
    level_words: Annotated[Vector, LEVELS, ""]
    """Words that a port moves side by side, each for another operand if need be: banks, ports of one word."""
    level_copies: Annotated[Vector, LEVELS, ""]
    """Copies that a level keeps of a part of a tensor: 2 where it is double-buffered."""
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


def fill_array(
    record: Any,
    array: sheets.ArrayShape,
    dataflow: sheets.Dataflow,
    levels: Sequence[sheets.ArrayLevel],
) -> None:
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


def _fill_level(record: Any, i: int, level: sheets.ArrayLevel, axes: Sequence[str]) -> None:
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


def array_record(array: sheets.MacArray, dataflow: sheets.Dataflow, outermost: sheets.ArrayLevel) -> Any:
    """Return a table with one record of ARRAY_DTYPE, of an array with DRAM as its outermost level."""
    table = np.zeros(1, ARRAY_DTYPE)
    fill_array(table[0], array, dataflow, [*array.levels.values(), outermost])
    table[0]["mac_j"] = array.mac_energy
    return table


def fill_tile_array(record: Any, dpu: Dpu) -> None:
    """Fill the record of the MAC array of a tile; the record of the calibrated grid stays 0.

    `npusim.cost.tilings.tiling` decides what SRAM holds, so SRAM has no limit here.
    """
    if isinstance(dpu.dataflow, str):
        return
    shape = dpu.array
    record["is_of_grid"] = shape is None
    if shape is None:
        shape = sheets.ArrayShape.model_validate({"axes": {"first": 1, "second": 1}, "transfer": "broadcast"})
    levels = list(shape.levels.values())
    stays = dpu.dataflow.stationary
    if not levels and stays in OPERANDS:
        levels.append(
            _level(capacity="4 B", width="4 B/cycle", operands=[stays], shared_by=[], ports="two_of_each")
        )
    levels.append(_level(capacity=_EVERYTHING, width="1 B/cycle"))  # SRAM, whose width follows from its ports
    fill_array(record, shape, dpu.dataflow, [*levels, levels[-1]])


def _level(**keys: Any) -> sheets.ArrayLevel:
    """Return a memory level without energy of its own: the technology section counts its accesses."""
    return sheets.ArrayLevel.model_validate({"read_energy": "0 J/B", "least_access": "1 B"} | keys)


_PLACES = AXES * LOOPS_OF_AXIS


class Unrolling(NamedTuple):
    """A nest unrolled on an array."""

    lanes: Floats
    """Average active lanes, by axis and place on it."""
    steps: Floats
    """Remaining steps of each loop, in sequence."""
    chain: Ints
    """Levels of each operand, from the PEs outwards, shape (operands, levels)."""
    depth: Ints
    """Number of levels of each operand."""
    feeds: Floats
    """Lanes with different elements below an instance: average, whole; shape (2, operands, levels)."""
    instances: Floats
    """Active instances of a level, shape (operands, levels)."""


class NestOrder(NamedTuple):
    """One order of the remaining loops of a nest on an array, cut into factors."""

    machine: ArrayRecord
    nest: LoopNest
    unrolling: Unrolling
    loops: Ints
    """Loop of each factor, the innermost first."""
    factors: Floats


@compiled
def lanes_of(pes: float, steps: float) -> float:
    """Return the average active lanes of `pes` over `steps` steps."""
    return float(steps / np.ceil(steps / max(1.0, pes)))


@compiled_making_arrays
def unroll(machine: ArrayRecord, nest: LoopNest) -> Unrolling:
    """Unroll the loops of a nest on the axes of an array."""
    lanes = np.ones(_PLACES)
    steps = nest.sizes.copy()
    for axis in range(int(machine.axes)):
        room = machine.axis_pes[axis]
        for place in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
            loop = int(machine.axis_loops[place])
            if loop >= 0 and nest.sizes[loop] > 1.0:
                lanes[place] = lanes_of(room, nest.sizes[loop])
                steps[loop] = np.ceil(nest.sizes[loop] / max(1.0, room))
                room = np.floor(room / np.ceil(lanes[place]))
    chain, depth = np.zeros((OPERAND_COUNT, LEVELS), np.int64), np.zeros(OPERAND_COUNT, np.int64)
    for operand in range(OPERAND_COUNT):
        for level in range(int(machine.levels)):
            if machine.level_holds[level * OPERAND_COUNT + operand] > 0.0:
                chain[operand, depth[operand]] = level
                depth[operand] += 1
    feeds, instances = _feeds_and_instances(machine, nest, lanes, chain, depth)
    return Unrolling(lanes, steps, chain, depth, feeds, instances)


@compiled
def is_inside(machine: ArrayRecord, level: int, axis: int) -> bool:
    """Return whether the PEs along an axis share one instance of a level; all share DRAM."""
    return bool(level == int(machine.levels) - 1 or machine.level_spans[level * AXES + axis] > 0.0)


@compiled
def add_lanes(
    machine: ArrayRecord, lanes: Floats, level: int, level_below: int, is_whole: bool, steps: Floats
) -> None:
    """Multiply `steps` by the lanes in an instance of `level`, except lanes in one of `level_below`.

    `level_below` is -1 for none. With `is_whole`, lanes are rounded down to whole ones, as in one round.
    """
    for axis in range(int(machine.axes)):
        if is_inside(machine, level, axis) and (level_below < 0 or not is_inside(machine, level_below, axis)):
            for place in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
                loop = int(machine.axis_loops[place])
                if loop >= 0:
                    steps[loop] *= np.floor(lanes[place]) if is_whole else lanes[place]


@compiled_making_arrays
def _feeds_and_instances(
    machine: ArrayRecord, nest: LoopNest, lanes: Floats, chain: Ints, depth: Ints
) -> tuple[Floats, Floats]:
    """Return `feeds` and `instances` of `Unrolling`: elements sent to the level below, active instances."""
    feeds, instances = np.ones((2, OPERAND_COUNT, LEVELS)), np.ones((OPERAND_COUNT, LEVELS))
    steps = np.ones(LOOP_COUNT)
    for operand in range(OPERAND_COUNT):
        level_below = -1
        for place in range(depth[operand]):
            level = chain[operand, place]
            for is_whole in range(2):
                steps[:] = 1.0
                add_lanes(machine, lanes, level, level_below, is_whole == 1, steps)
                feeds[is_whole, operand, place] = operand_elements(nest, operand, steps)
            for axis in range(int(machine.axes)):
                if not is_inside(machine, level, axis):
                    for lane in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
                        instances[operand, place] *= lanes[lane]
            level_below = level
    return feeds, instances
