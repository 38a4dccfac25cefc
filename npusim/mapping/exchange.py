"""Mappings of a mapped graph: as npusim's own file, for Timeloop, for ZigZag, and as readable loop nests.

Timeloop: directives of the mapping format of timeloop-accelergy v3, one YAML document per operator; inner
loops come first in a permutation, and a count with a remainder is written `bound,rest`. ZigZag: the mapping
file of zigzag-dse 3.8, with the innermost loop first in `temporal_ordering`.

The levels are DRAM, the SRAM of each tile, and the grid, whose piece is divided among lanes. Memory levels
between DRAM and SRAM hold no loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from npusim.config import dump_data, dump_model
from npusim.cost import DpuOperation, Group, Order, Split, nest_of
from npusim.mapping.mapped import Mapped
from npusim.mapping.nests import MappingFile, entry_of, is_product

# Loops of a nest; a product has its pixels in rows.
BATCH, ROWS, WIDTH, COLUMNS, DEPTH, KERNEL_H, KERNEL_W = (
    "batch", "rows", "width", "columns", "depth", "kernel rows", "kernel columns"
)  # fmt: skip
_LOOPS = (BATCH, ROWS, WIDTH, COLUMNS, DEPTH, KERNEL_H, KERNEL_W)
_STAYS = {
    Order.WEIGHTS_HELD: "weights stay",
    Order.ACTIVATIONS_HELD: "activations stay",
    Order.OUTPUTS_HELD: "partial sums stay",
}
# Order of the loops over blocks, from the outside in.
_OUTSIDE = {
    Order.WEIGHTS_HELD: (BATCH, COLUMNS, WIDTH, ROWS, DEPTH),
    Order.ACTIVATIONS_HELD: (BATCH, WIDTH, ROWS, COLUMNS, DEPTH),
    Order.OUTPUTS_HELD: (BATCH, WIDTH, ROWS, COLUMNS, DEPTH),
}
_TIMELOOP = {BATCH: "N", ROWS: "Q", WIDTH: "P", COLUMNS: "M", DEPTH: "C", KERNEL_H: "S", KERNEL_W: "R"}
_TIMELOOP_LEVELS = {"dram": "DRAM", "tiles": "DRAM", "sram": "SRAM", "lanes": "SRAM", "grid": "Registers"}
_ZIGZAG = {BATCH: "B", ROWS: "OY", WIDTH: "OX", COLUMNS: "K", DEPTH: "C", KERNEL_H: "FY", KERNEL_W: "FX"}
_ZIGZAG_PRODUCT = {BATCH: "B", ROWS: "D", COLUMNS: "K", DEPTH: "C"}
_SPATIAL = ("tiles", "lanes")


@dataclass(frozen=True)
class Loop:
    """A loop of a nest: turns, and turns in the last turn of the loops around it."""

    level: str
    """dram, tiles, sram, lanes or grid."""
    over: str
    turns: int
    rest: int


@dataclass(frozen=True)
class Nest:
    """The loops of one product on an array device, from the outside in."""

    group: Group
    mode: str
    order: Order
    loops: tuple[Loop, ...]
    is_matmul: bool
    about: str
    """What stays and what moves."""


def product_nests(mapped: Mapped) -> Iterator[Nest]:
    """Yield the loop nest of each product of a mapped graph, in the order of execution."""
    for i, group in enumerate(mapped.decisions.groups):
        op, result = mapped.lowered.ops[i], mapped.results[i]
        if is_product(group, op):
            nest = nest_of(mapped.arch[group.device], op, result)
            modes = list(mapped.soc.array_devices[group.device].dpu.modes)
            order = Order(int(nest["order"]))
            yield Nest(
                group,
                modes[min(int(nest["mode"]), len(modes) - 1)],
                order,
                tuple(_loops(mapped.arch[group.device], op, result, nest, order)),
                op["dpu_operation"] == DpuOperation.MATMUL,
                about(mapped, i),
            )


def _loops(arch: Any, op: Any, result: Any, nest: Any, order: Order) -> Iterator[Loop]:
    """Yield the loops of a product that have more than one turn, from the outside in."""
    is_matmul = op["dpu_operation"] == DpuOperation.MATMUL
    rows = int(op["out_w"] if is_matmul else op["out_h"])
    share_rows, share_columns = int(result["tile_rows"]), int(result["tile_columns"])
    # Elements inside DRAM, a tile, a block, a piece and the lanes, along each loop.
    lanes_w, lanes_h, lanes_c = (
        int(arch[f"dpu_{part}"]) for part in ("pixel_lanes_w", "pixel_lanes_h", "channel_lanes")
    )
    row_lanes, width_lanes = (lanes_w * lanes_h, 1) if is_matmul else (lanes_h, lanes_w)
    width, depth, columns = 1 if is_matmul else int(op["out_w"]), int(op["in_c"]), int(op["out_c"])
    inside = {
        ROWS: _inside(rows, share_rows, nest["block_rows"], nest["piece_rows"], row_lanes),
        WIDTH: _inside(width, width, nest["piece_width"], nest["piece_width"], width_lanes),
        COLUMNS: _inside(columns, share_columns, nest["block_columns"], nest["piece_columns"], lanes_c),
        DEPTH: _inside(depth, depth, nest["block_depth"], nest["block_depth"], 1),
        BATCH: (int(op["batch"]), int(op["batch"]), 1, 1, 1),
        KERNEL_H: (int(op["kernel_h"]),) * 4 + (1,),
        KERNEL_W: (int(op["kernel_w"]),) * 4 + (1,),
    }
    if result["split"] == Split.SINGLE:
        inside[ROWS] = (rows, rows, *inside[ROWS][2:])
    rest = {over: inside[over][0] for over in _LOOPS}
    for place, level in enumerate(("tiles", "dram", "sram")):
        for over in _OUTSIDE[order]:
            yield from _loop(level, over, inside[over][place], inside[over][place + 1], rest)
    for over in (ROWS, WIDTH, COLUMNS):
        lanes = min(inside[over][3], inside[over][4])
        yield from _loop("grid", over, inside[over][3], lanes, rest)
    for over in (DEPTH, KERNEL_H, KERNEL_W):
        yield from _loop("grid", over, inside[over][3], 1, rest)
    for over in (ROWS, WIDTH, COLUMNS):
        yield from _loop("lanes", over, min(inside[over][3], inside[over][4]), 1, rest)


def _inside(whole: int, share: int, block: float, piece: float, lanes: int) -> tuple[int, ...]:
    """Return the elements inside of each level; open sizes are those of the level above."""
    in_block = int(block) if block > 0 else share
    in_piece = int(piece) if piece > 0 else in_block
    return whole, share, min(share, in_block), min(share, in_block, in_piece), lanes


def _loop(level: str, over: str, outer: int, inner: int, rest: dict[str, int]) -> Iterator[Loop]:
    """Yield the loop between two sizes, unless it has one turn; `rest` is what its last turn has left."""
    turns, last = ceil(outer / inner), ceil(rest[over] / inner)
    rest[over] -= (last - 1) * inner
    if turns > 1:
        yield Loop(level, over, turns, last if last < turns else turns)


def about(mapped: Mapped, index: int) -> str:
    """Return what stays in SRAM and what moves for a product, in words."""
    op, result = mapped.lowered.ops[index], mapped.results[index]
    order, rows, columns = Order(int(result["order"])), result["row_blocks"], result["column_blocks"]
    passes = {
        "activations": ("a_resident", 1 if order is Order.ACTIVATIONS_HELD else columns),
        "weights": ("b_resident", 1 if order is Order.WEIGHTS_HELD else rows * result["strips"]),
    }
    moves = [
        f"{name} are in SRAM" if op[resident] else f"{name} pass {count}x"
        for name, (resident, count) in passes.items()
    ]
    read, moved = float(result["dram_read_bytes"]), float(result["dram_bytes"])
    dram = f"DRAM reads {read:,.0f} B, writes {moved - read:,.0f} B"
    return "; ".join((f"{_STAYS[order]} in SRAM", *moves, dram))


def mapping_file(mapped: Mapped) -> MappingFile:
    """Return the whole mapping of a mapped graph: read back, it gives the same figures."""
    operators: dict[str, dict[str, Any]] = {}
    for i, group in enumerate(mapped.decisions.groups):
        op, result = mapped.lowered.ops[i], mapped.results[i]
        entry: dict[str, Any] = {"unit": group.path}
        if group.fused:
            entry["fused"] = list(group.fused)
        if is_product(group, op):
            nest = nest_of(mapped.arch[group.device], op, result)
            modes = list(mapped.soc.array_devices[group.device].dpu.modes)
            entry |= {"about": about(mapped, i)} | ({"swapped": True} if group.swapped else {})
            entry |= entry_of(nest, modes)
        operators[group.main] = entry
    kept = mapped.decisions.residency
    stays: dict[str, Any] = {
        "whole": sorted(kept.whole),
        "cached": dict(kept.cached),
        "rows": sorted(kept.row_fused.difference(kept.bands)),
        "bands": dict(kept.bands),
        "resident": dict(kept.resident),
        "reserved_bytes": float(mapped.lowered.ops["reserved_bytes"].max(initial=0.0)),
    }
    return MappingFile.model_validate(
        {
            "schema": "npusim.mapping/1",
            "network": mapped.graph.name,
            "soc": mapped.soc.name,
            "techniques": mapped.graph.techniques,
            "stays": {key: value for key, value in stays.items() if value},
            "operators": operators,
        }
    )


def npusim_text(mapped: Mapped) -> str:
    """Return the mapping as npusim's own file."""
    return dump_model(mapping_file(mapped), is_short=True)


def timeloop_text(mapped: Mapped) -> str:
    """Return the loop nests as Timeloop mappings, one YAML document per operator."""
    documents = []
    for nest in product_nests(mapped):
        names = _TIMELOOP | ({ROWS: "P", WIDTH: "Q"} if nest.is_matmul else {})
        directives = [_directive(level, nest, names) for level in _TIMELOOP_LEVELS]
        heading = f"# operator {nest.group.main} on {nest.group.path}, mode {nest.mode}: {nest.about}\n"
        documents.append(heading + dump_data({"mapping": directives}, is_short=True))
    return "---\n".join(documents)


def _directive(level: str, nest: Nest, names: dict[str, str]) -> dict[str, Any]:
    """Return one directive of a Timeloop mapping, with a factor for every dimension."""
    loops = {loop.over: loop for loop in nest.loops if loop.level == level}
    factors = []
    for over in _LOOPS:
        loop = loops.get(over)
        bound = "1" if loop is None else f"{loop.turns}"
        rest = f",{loop.rest}" if loop is not None and loop.rest != loop.turns else ""
        factors.append(f"{names[over]}={bound}{rest}")
    inner_first = [*reversed(loops), *(over for over in _LOOPS if over not in loops)]
    return {
        "target": _TIMELOOP_LEVELS[level],
        "type": "spatial" if level in _SPATIAL else "temporal",
        "factors": " ".join(factors),
        "permutation": "".join(names[over] for over in inner_first),
    }


def zigzag_text(mapped: Mapped) -> str:
    """Return the loop nests as a ZigZag mapping file."""
    entries = []
    for nest in product_nests(mapped):
        names = _ZIGZAG_PRODUCT if nest.is_matmul else _ZIGZAG
        spatial = [loop for loop in nest.loops if loop.level in _SPATIAL]
        temporal = [loop for loop in reversed(nest.loops) if loop.level not in _SPATIAL]
        entries.append(
            {
                "name": nest.group.main,
                "core_allocation": [1],
                "spatial_mapping": {
                    f"D{i}": [f"{names[loop.over]}, {loop.turns}"] for i, loop in enumerate(spatial, 1)
                },
                "temporal_ordering": [[names[loop.over], loop.turns] for loop in temporal],
                "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
            }
        )
    return dump_data(entries, is_short=True)


FORMATS: dict[str, Callable[[Mapped], str]] = {
    "npusim": npusim_text,
    "timeloop": timeloop_text,
    "zigzag": zigzag_text,
}
"""Writers of a mapping by the name of its format."""


def loop_lines(nest: Nest) -> list[str]:
    """Return a loop nest as indented lines, from the outside in."""
    lines = [f"{nest.group.main}  {nest.group.path}  mode {nest.mode}: {nest.about}"]
    for depth, loop in enumerate(nest.loops, 1):
        word = "parallel" if loop.level in _SPATIAL else "for"
        rest = f" (last {loop.rest})" if loop.rest != loop.turns else ""
        lines.append(f"{'  ' * depth}{word} {loop.over} in {loop.turns}{rest}  # {loop.level}")
    return lines
