"""Mappings written for npusim, Timeloop, AccelForge and ZigZag, and as readable loop nests.

Timeloop: directives of the mapping format of timeloop-accelergy v3, one YAML document per operator; inner
loops come first in a permutation, and a count with a remainder is written `bound,rest`. AccelForge: nodes of
a mapping of accelforge 1.0 from the outside in, where `tile_shape` is the elements of a turn. ZigZag: the
mapping file of zigzag-dse 3.9, with the innermost loop first in `temporal_ordering`.

Loops stand at DRAM, the SRAM of each tile, and the grid, whose piece is divided among lanes. Memory levels
between DRAM and SRAM hold no loops of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, NamedTuple

from npusim.config import dump_data, dump_model
from npusim.cost import DpuOperation, Group, Nest, Order, nest_of
from npusim.mapping.mapped import Mapped
from npusim.mapping.nests import MappingFile, entry_of, is_product

_STAYS = {
    Order.WEIGHTS_HELD: "weights stay",
    Order.ACTIVATIONS_HELD: "activations stay",
    Order.OUTPUTS_HELD: "partial sums stay",
}
_BY_ROWS = ("batch", "width", "rows", "columns", "depth", "kernel rows", "kernel columns")
_BY_COLUMNS = ("batch", "columns", "width", "rows", "depth", "kernel rows", "kernel columns")
# Where the loops of each level stand in Timeloop.
_TARGETS = {"tiles": "DRAM", "dram": "DRAM", "sram": "SRAM", "grid": "Registers", "lanes": "Registers"}
_INSIDE = {"tiles": "SRAM", "lanes": "MAC"}
_SPATIAL = tuple(_INSIDE)
_TIMELOOP = dict(zip(_BY_ROWS, "NPQMCSR", strict=True))
_ZIGZAG = dict(zip(_BY_ROWS, ("B", "OX", "OY", "K", "C", "FY", "FX"), strict=True))


class Loop(NamedTuple):
    """A loop of a nest."""

    level: str
    """tiles, dram, sram, grid or lanes."""
    over: str
    turns: int
    rest: int
    """Turns in the last turn of the loops around it."""
    size: int
    """Elements of a turn."""


class ProductNest(NamedTuple):
    """The loops of one product on an array device."""

    group: Group
    about: str
    """Mode, what stays and what moves."""
    loops: tuple[Loop, ...]
    """From the outside in, those of one turn left out."""
    is_matmul: bool
    entry: dict[str, Any]
    """The nest as an entry of a file."""


def product_nests(mapped: Mapped) -> Iterator[ProductNest]:
    """Yield the loop nest of each product of a mapped graph, in the order of execution."""
    for i, group in enumerate(mapped.decisions.groups):
        op, result = mapped.lowered.ops[i], mapped.results[i]
        if is_product(group, op):
            arch, modes = mapped.arch[group.device], list(mapped.soc.array_devices[group.device].dpu.modes)
            nest = nest_of(arch, op, result)
            loops = tuple(_loops(arch, op, result, nest))
            is_matmul = bool(op["dpu_operation"] == DpuOperation.MATMUL)
            yield ProductNest(group, _about(op, result), loops, is_matmul, entry_of(nest, modes))


def _loops(arch: Any, op: Any, result: Any, nest: Nest) -> Iterator[Loop]:
    """Yield the loops of a product that have more than one turn, from the outside in."""
    is_matmul = op["dpu_operation"] == DpuOperation.MATMUL
    lanes = [arch[f"dpu_{name}"] for name in ("pixel_lanes_h", "pixel_lanes_w", "channel_lanes")]
    if is_matmul:
        lanes = [lanes[0] * lanes[1], 1, lanes[2]]
    wholes = (op["out_w"], 1, op["out_c"]) if is_matmul else (op["out_h"], op["out_w"], op["out_c"])
    shares = (result["tile_rows"], wholes[1], result["tile_columns"])
    # Elements of the whole, a share, a block, a piece, the lanes and one lane along each loop.
    inside: dict[str, list[int]] = {}
    for over, whole, share, lane in zip(("rows", "width", "columns"), wholes, shares, lanes, strict=True):
        piece = nest.get(f"grid.piece.{over}", share)
        block = nest.get(f"sram.block.{over}", piece)
        inside[over] = [int(size) for size in (whole, share, block, piece, min(lane, piece), 1)]
    chunk = nest.get("sram.block.depth", op["in_c"])
    inside["depth"] = [int(size) for size in (op["in_c"], op["in_c"], chunk, chunk, 1, 1)]
    inside["batch"] = [int(op["batch"])] * 2 + [1] * 4
    for over, size in (("kernel rows", op["kernel_h"]), ("kernel columns", op["kernel_w"])):
        inside[over] = [int(size)] * 4 + [1] * 2
    rest = {over: sizes[0] for over, sizes in inside.items()}
    for place, level in enumerate(_TARGETS):
        for over in _BY_COLUMNS if nest["dram.order"] == Order.WEIGHTS_HELD else _BY_ROWS:
            outer, inner = inside[over][place : place + 2]
            yield from loop_between(level, over, outer, inner, rest)


def loop_between(level: str, over: str, outer: int, inner: int, rest: dict[str, int]) -> Iterator[Loop]:
    """Yield the loop between two sizes, unless it has one turn; `rest` is what its last turn has left."""
    turns, last = ceil(outer / inner), ceil(rest[over] / inner)
    rest[over] -= (last - 1) * inner
    if turns > 1:
        yield Loop(level, over, turns, last, inner)


def _about(op: Any, result: Any) -> str:
    """Return what stays in SRAM and what moves for a product, in words."""
    order = Order(int(result["order"]))
    rows, columns, strips = (int(result[name]) for name in ("row_blocks", "column_blocks", "strips"))
    passes = {
        "activations": ("a_resident", 1 if order is Order.ACTIVATIONS_HELD else columns),
        "weights": ("b_resident", 1 if order is Order.WEIGHTS_HELD else rows * strips),
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
    nests = {nest.group.main: nest for nest in product_nests(mapped)}
    operators: dict[str, dict[str, Any]] = {}
    for group in mapped.decisions.groups:
        entry: dict[str, Any] = {"unit": group.path}
        entry |= {"fused": list(group.fused)} if group.fused else {}
        entry |= {"swapped": True} if group.swapped else {}
        if nest := nests.get(group.main):
            entry |= {"about": nest.about, **nest.entry}
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


def _npusim(mapped: Mapped) -> str:
    return dump_model(mapping_file(mapped), is_short=True)


def _timeloop(mapped: Mapped) -> str:
    """Return the loop nests as Timeloop mappings, one YAML document per operator."""

    def document(nest: ProductNest, names: dict[str, str]) -> str:
        directives = [_directive(level, nest.loops, names) for level in _TARGETS]
        return dump_data({"mapping": directives}, flat=True)

    return _documents(mapped, document)


def _documents(mapped: Mapped, document: Callable[[ProductNest, dict[str, str]], str]) -> str:
    """Return a YAML document per operator under a comment, by its nest and Timeloop's names of its loops."""
    texts = []
    for nest in product_nests(mapped):
        names = _TIMELOOP | ({"rows": "P", "width": "Q"} if nest.is_matmul else {})
        texts.append(
            f"# operator {nest.group.main} on {nest.group.path}: {nest.about}\n{document(nest, names)}"
        )
    return "---\n".join(texts)


def _accelforge(mapped: Mapped) -> str:
    """Return the loop nests as AccelForge mappings, one YAML document per operator."""

    def document(nest: ProductNest, names: dict[str, str]) -> str:
        nodes = list[str]()
        for level, target in _TARGETS.items():
            store = f"Storage {{tensors: [inputs, weights, outputs], component: {target}}}"
            nodes += [store] if store not in nodes else []
            for loop in (loop for loop in nest.loops if loop.level == level):
                spatial = (
                    f"name: {level}_{loop.over}, component: {_INSIDE[level]}, " if level in _SPATIAL else ""
                )
                turn = f"rank_variable: {names[loop.over].lower()}, tile_shape: {loop.size}"
                nodes.append(f"{'Spatial' if spatial else 'Temporal'} {{{spatial}{turn}}}")
        nodes.append(f"Compute {{einsum: {json.dumps(nest.group.main)}, component: MAC}}")
        return "".join(("mapping:\n  nodes:\n", *(f"  - !{node}\n" for node in nodes)))

    return _documents(mapped, document)


def _directive(level: str, loops: tuple[Loop, ...], names: dict[str, str]) -> dict[str, Any]:
    """Return one directive of a Timeloop mapping, with a factor for every dimension."""
    here = {loop.over: loop for loop in loops if loop.level == level}
    bounds = {over: f"{loop.turns},{loop.rest}".removesuffix(f",{loop.turns}") for over, loop in here.items()}
    return {
        "target": _TARGETS[level],
        "type": "spatial" if level in _SPATIAL else "temporal",
        "factors": " ".join(f"{name}={bounds.get(over, 1)}" for over, name in names.items()),
        "permutation": "".join(names[over] for over in (*reversed(here), *(names.keys() - here.keys()))),
    }


def _zigzag(mapped: Mapped) -> str:
    """Return the loop nests as a ZigZag mapping file."""
    entries, links = [], {"memory_operand_links": {"O": "O", "W": "I2", "I": "I1"}}
    for nest in product_nests(mapped):
        names = _ZIGZAG | ({"rows": "D"} if nest.is_matmul else {})
        sizes = [(loop.level in _SPATIAL, names[loop.over], loop.turns) for loop in nest.loops]
        spatial = [f"{name}, {turns}" for is_spatial, name, turns in sizes if is_spatial]
        entries.append(
            {
                "name": nest.group.main,
                "spatial_mapping": {f"D{i}": [unrolled] for i, unrolled in enumerate(spatial, 1)},
                "temporal_ordering": [[name, turns] for inner, name, turns in reversed(sizes) if not inner],
                **links,
            }
        )
    return dump_data([*entries, {"name": "default", **links}], flat=True)


FORMATS: dict[str, Callable[[Mapped], str]] = {
    "npusim": _npusim, "timeloop": _timeloop, "accelforge": _accelforge, "zigzag": _zigzag,
}  # fmt: skip
"""Writers of a mapping by the name of its format."""


def loop_lines(nest: ProductNest) -> list[str]:
    """Return a loop nest as indented lines, from the outside in."""
    mode = nest.entry["grid"]["mode"]
    lines = [f"{nest.group.main} on {nest.group.path}, mode {mode}: {nest.about}"]
    for depth, loop in enumerate(nest.loops, 1):
        word = "parallel" if loop.level in _SPATIAL else "for"
        rest = f" (last {loop.rest})" if loop.rest != loop.turns else ""
        lines.append(f"{'  ' * depth}{word} {loop.over} in {loop.turns}{rest}  # {loop.level}")
    return lines
