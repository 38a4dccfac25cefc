"""Mappings as files: the loop nest of each operator and what stays in SRAM, written and read back.

An entry may say all of a nest, or a part such as its loop order; the search chooses the rest. What breaks a
capacity, or agrees with no tiling, is refused with the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from npusim.arch import Soc
from npusim.config import Section, validate_data
from npusim.config.reading import ParsedFile, read_yaml
from npusim.cost import (
    OPEN,
    DpuOperation,
    Fusion,
    Group,
    Order,
    Plan,
    Plans,
    Residency,
    Split,
    Unit,
    nest_of,
    open_nests,
)
from npusim.errors import ConfigError, nearest, shown
from npusim.graph import Graph

Positive = Annotated[int, Field(ge=1)]
_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)
_SPLITS = {split.name.lower(): split for split in Split}
_ORDERS = {
    "columns rows": Order.WEIGHTS_HELD,
    "rows columns": Order.ACTIVATIONS_HELD,
    "rows columns depth": Order.OUTPUTS_HELD,
}
_TRIANGLES = ("twice", "once")
# Columns of a nest by their place in an entry.
_COLUMNS = {
    "tiles.count": "tiles",
    "dram.buffers": "buffers",
    "dram.blocks.strips": "strips",
    "dram.blocks.rows": "row_blocks",
    "dram.blocks.columns": "column_blocks",
    "dram.blocks.depth": "depth_blocks",
    "sram.block.rows": "block_rows",
    "sram.block.columns": "block_columns",
    "sram.block.depth": "block_depth",
    "grid.piece.rows": "piece_rows",
    "grid.piece.width": "piece_width",
    "grid.piece.columns": "piece_columns",
}
# Places of entries whose values are names.
_NAMED = {"tiles.split": "split", "dram.order": "order", "grid.mode": "mode", "triangle": "is_once"}
NEST_COLUMNS = _NAMED | _COLUMNS
"""Columns of NEST_DTYPE by their place in an entry."""
_MOST_LISTED = 8


class BlockCounts(Section):
    """Blocks of a tile's share, one after the other, along each loop."""

    strips: Positive | None = None
    """Vertical strips of an image; 1 for a product."""
    rows: Positive | None = None
    """Blocks of output rows in each strip: lines of an image, pixels of a product."""
    columns: Positive | None = None
    """Blocks of output channels."""
    depth: Positive | None = None
    """Chunks of input channels."""


class BlockSizes(Section):
    """Elements of the largest block in SRAM along each loop."""

    rows: Positive | None = None
    """Output rows: lines of an image, pixels of a product."""
    columns: Positive | None = None
    """Output channels."""
    depth: Positive | None = None
    """Input channels."""


class PieceSizes(Section):
    """Elements of the piece that the grid computes at a time."""

    rows: Positive | None = None
    """Output rows: lines of an image, pixels of a product."""
    width: Positive | None = None
    """Pixels of a line; 1 for a product."""
    columns: Positive | None = None
    """Output channels."""


class DramLevel(Section):
    """Loops over blocks, which DRAM or a memory level feeds."""

    order: Literal["columns rows", "rows columns", "rows columns depth"] | None = None
    """Loops from the outside in; the first keeps weights in SRAM, the second activations, the third partial
    sums."""
    buffers: Literal[1, 2] | None = None
    """Buffers of a stationary operand in several blocks; with 1, work waits for the next block."""
    blocks: BlockCounts = BlockCounts()
    """Number of blocks."""


class TilesLevel(Section):
    """Loop over tiles, which work at the same time."""

    split: Literal["rows", "columns", "single"] | None = None
    """What is divided among tiles: output rows, output columns, or nothing."""
    count: Positive | None = None
    """Tiles with a share."""


class SramLevel(Section):
    """What a tile's SRAM holds of an operator."""

    block: BlockSizes = BlockSizes()
    """Size of a block; another way to write the number of blocks."""


class GridLevel(Section):
    """The MAC grid of a tile."""

    mode: str | None = None
    """MPE mode, by its name in the data sheet."""
    piece: PieceSizes = PieceSizes()
    """Size of a piece."""


class OperatorNest(Section):
    """Loop nest of an operator; what is left out the search chooses."""

    unit: str | None = None
    """Unit that runs it, such as npu.dpu, npu.dsp, npu.dma, cpu or none."""
    fused: tuple[str, ...] = ()
    """Operators that are fused into it; not read."""
    about: str = ""
    """What stays in SRAM and what moves; not read."""
    swapped: bool | None = None
    """Whether the operands of a product change places: the right one is laid on the pixels."""
    triangle: Literal["once", "twice"] | None = None
    """How often each block of a stored triangle is fetched."""
    dram: DramLevel = DramLevel()
    """Loops over blocks."""
    tiles: TilesLevel = TilesLevel()
    """Loop over tiles."""
    sram: SramLevel = SramLevel()
    """Blocks in SRAM."""
    grid: GridLevel = GridLevel()
    """Pieces on the MAC grid."""


class Stays(Section):
    """Tensors that stay in SRAM between operators."""

    whole: tuple[str, ...] = ()
    """Intermediate results that never see DRAM."""
    cached: dict[str, float] = Field(default_factory=dict)
    """Inputs and constants kept after their first use, and the share of each."""
    rows: tuple[str, ...] = ()
    """Intermediate results that operators pass on in blocks of rows."""
    bands: dict[str, Positive] = Field(default_factory=dict)
    """Images that pass depth-first, and their bands of rows."""
    resident: dict[str, float] = Field(default_factory=dict)
    """Constants that stay between inferences, and the share of each."""
    reserved_bytes: float = Field(0.0, ge=0.0)
    """SRAM that operators leave free for weights of later ones, in bytes."""


class MappingFile(Section):
    """How operators of a network are mapped to a machine."""

    schema_: Literal["npusim.mapping/1"] = Field("npusim.mapping/1", alias="schema")
    """Version of this file."""
    network: str = ""
    """Network that it was written for; not compared."""
    soc: str = ""
    """Machine that it was written for; not compared."""
    techniques: str = ""
    """Technique stack that it was written for; not compared."""
    stays: Stays | None = None
    """What stays in SRAM; left out: npusim chooses."""
    operators: dict[str, OperatorNest] = Field(default_factory=dict)
    """Loop nests by the name of the operator in the graph."""


@dataclass(frozen=True, eq=False)
class OwnMapping:
    """A mapping that a user or another search gives, with its places in the file for messages."""

    file: MappingFile
    source: ParsedFile

    def refused(self, path: str, name: str, found: str, **more: Any) -> ConfigError:
        """Return the error about one key of an operator's entry; about the whole entry for the key ''."""
        keys = ("operators", name, *(path.split(".") if path else ()))
        file, line = self.source.place(keys)
        return ConfigError(found, file=file, line=line, key=".".join(keys), **more)

    def refuse_unknown(self, graph: Graph) -> None:
        """Refuse entries for operators that a graph has not."""
        for name in self.file.operators:
            if name not in graph.operators:
                close = nearest(name, graph.operators)
                allowed = f"an operator of {graph.name}: {_listed(graph.operators)}"
                raise self.refused(
                    "", name, f"the unknown operator {shown(name)}", allowed=allowed, suggestion=close
                )

    def refuse_unused(self, groups: Iterable[Group]) -> None:
        """Refuse entries that disagree with the unit that runs an operator, or that nothing reads."""
        by_member = {name: group for group in groups for name in group.members}
        for name, entry in self.file.operators.items():
            group = by_member[name]
            if group.main != name:
                found = f"an entry for {shown(name)}, which is fused into {shown(group.main)}"
                raise self.refused("", name, found, allowed=f"an entry for {shown(group.main)}")
            if entry.unit not in (None, group.path):
                allowed = f"{group.path}, which runs it here (see --device)"
                raise self.refused("unit", name, shown(entry.unit), allowed=allowed)
            if entry.swapped not in (None, group.swapped):
                raise self.refused("swapped", name, shown(entry.swapped), allowed="what --swap-operands says")
            if group.unit is not Unit.DPU and (fixed := [*_values(entry)]):
                allowed = f"no loop nest: elements stream once through {group.path}"
                raise self.refused(fixed[0][0], name, "a loop nest", allowed=allowed)

    def device_of(self, name: str) -> str | None:
        """Return the device that an operator's entry names; None where none does."""
        for main, entry in self.file.operators.items():
            if entry.unit is not None and (main == name or name in entry.fused):
                return entry.unit.partition(".")[0]
        return None

    def swapped(self) -> frozenset[str]:
        """Return the operators whose operands change places."""
        return frozenset(name for name, entry in self.file.operators.items() if entry.swapped)

    def nests(self, groups: tuple[Group, ...], ops: Any, soc: Soc) -> Any:
        """Return the nest of each group, array of NEST_DTYPE, shape (groups,).

        Parameters
        ----------
        ops : array of OP_DTYPE, shape (groups,)
            The operators under any plan.
        """
        nests = open_nests(len(groups))
        for i, group in enumerate(groups):
            entry = self.file.operators.get(group.main)
            if entry is not None and group.unit is Unit.DPU:
                if ops[i]["dpu_operation"] not in _PRODUCTS:
                    for path, _ in _values(entry):
                        allowed = "no loop nest: elements stream once through the grid"
                        raise self.refused(path, group.main, "a loop nest", allowed=allowed)
                self._fill(nests[i], group, entry, list(soc.array_devices[group.device].dpu.modes))
        return nests

    def _fill(self, nest: Any, group: Group, entry: OperatorNest, modes: list[str]) -> None:
        values = dict(_values(entry))
        nest["is_fixed"] = 1.0 if values else OPEN
        for path, column in _COLUMNS.items():
            if path in values:
                nest[column] = values[path]
        places: dict[str, Mapping[str, int]] = {
            "split": _SPLITS,
            "order": _ORDERS,
            "mode": {mode: place for place, mode in enumerate(modes)},
            "is_once": {name: place for place, name in enumerate(_TRIANGLES)},
        }
        for path, column in _NAMED.items():
            if path in values:
                word, allowed = values[path], places[column]
                if word not in allowed:
                    close = nearest(word, allowed)
                    raise self.refused(
                        path, group.main, shown(word), allowed=", ".join(allowed), suggestion=close
                    )
                nest[column] = allowed[word]

    def plan(self, plans: Plans) -> tuple[Plans, int]:
        """Return plans with the one whose tensors stay in SRAM as the file says, and its place among them.

        A plan that npusim would not try is new: the returned plans then hold it alone.
        """
        stays = self.file.stays or Stays()
        kept = Residency(
            frozenset(stays.whole),
            stays.cached,
            frozenset(stays.rows).union(stays.bands),
            stays.bands,
            stays.resident,
        )
        for i, step in enumerate(plans.steps):
            if step.reserved_bytes == stays.reserved_bytes and plans.residency(i) == kept:
                return plans, i
        self._refuse_tensors(plans, stays)
        share = max(stays.cached.values(), default=0.0)
        is_fused = bool(stays.rows or stays.bands)
        fusions = (Fusion(), Fusion(frozenset(stays.rows), stays.bands))[: 1 + is_fused]
        step = Plan(int(is_fused), kept.whole, share, int(bool(stays.resident)), stays.reserved_bytes)
        return Plans((step,), fusions, tuple(stays.cached), ({}, stays.resident)), -1

    def _refuse_tensors(self, plans: Plans, stays: Stays) -> None:
        """Refuse tensors that no plan of npusim keeps in SRAM."""
        able = {
            "whole": {name for step in plans.steps for name in step.whole},
            "cached": set(plans.marked),
            "rows": {name for fusion in plans.fusions for name in fusion.rows},
            "bands": {name for fusion in plans.fusions for name in fusion.bands},
            "resident": {name for kept in plans.resident for name in kept},
        }
        for key, names in able.items():
            for name in getattr(stays, key):
                if name not in names:
                    file, line = self.source.place(("stays", key))
                    raise ConfigError(
                        f"the tensor {shown(name)}, which cannot stay so",
                        file=file,
                        line=line,
                        key=f"stays.{key}",
                        allowed=_listed(sorted(names)) if names else "none",
                        suggestion=nearest(name, names),
                    )
        if len(set(stays.cached.values())) > 1:
            file, line = self.source.place(("stays", "cached"))
            allowed = "one share for all"
            raise ConfigError("several shares", file=file, line=line, key="stays.cached", allowed=allowed)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _MOST_LISTED
    return ", ".join(listed[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _values(entry: OperatorNest) -> Iterator[tuple[str, Any]]:
    """Yield place and value of what an entry fixes of a loop nest."""
    for path in NEST_COLUMNS:
        value = attrgetter(path)(entry)
        if value is not None:
            yield path, value


def own_mapping(source: OwnMapping | MappingFile | str | Path | Mapping[str, Any]) -> OwnMapping:
    """Return a mapping by its file, its content, or a model of it.

    A `FileError` says that a file cannot be read, a `ConfigError` that its content does not fit.
    """
    if isinstance(source, OwnMapping):
        return source
    if isinstance(source, MappingFile):
        return OwnMapping(source, ParsedFile("mapping", {}))
    parsed = ParsedFile("mapping", source) if isinstance(source, Mapping) else read_yaml(Path(source))
    return OwnMapping(validate_data(parsed, MappingFile), parsed)


def entry_of(nest: Any, modes: list[str]) -> dict[str, Any]:
    """Return what a row of NEST_DTYPE fixes, as an entry of a file."""
    names = {
        "split": {int(place): name for name, place in _SPLITS.items()},
        "order": {int(place): name for name, place in _ORDERS.items()},
        "mode": dict(enumerate(modes)),
        "is_once": dict(enumerate(_TRIANGLES)),
    }
    entry: dict[str, Any] = {}
    for path, column in NEST_COLUMNS.items():
        number = int(nest[column])
        if number != OPEN and (column != "is_once" or number):
            *sections, key = path.split(".")
            within = entry
            for section in sections:
                within = within.setdefault(section, {})
            within[key] = names[column][number] if column in names else number
    return entry


def is_product(group: Group, op: Any) -> bool:
    """Return whether a group has a loop nest: a matrix product or convolution on an array device."""
    return group.unit is Unit.DPU and op["dpu_operation"] in _PRODUCTS


def nests_of(groups: tuple[Group, ...], ops: Any, results: Any, arch: Any) -> Any:
    """Return the loop nest that each product has, array of NEST_DTYPE, shape (groups,); others are open."""
    nests = open_nests(len(groups))
    for i, group in enumerate(groups):
        if is_product(group, ops[i]):
            nests[i] = nest_of(arch[group.device], ops[i], results[i])
    return nests
