"""Mappings as files: the loop nest of each operator and what stays in SRAM, written and read back.

An entry may say all of a nest, or a part such as its loop order; the search chooses the rest. What breaks a
capacity, or agrees with no tiling, is refused with the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from npusim.arch import Soc
from npusim.config import Section, validate_data
from npusim.config.reading import ParsedFile, read_yaml
from npusim.cost import DpuOperation, Group, Nest, Order, Plans, Residency, Split, Unit
from npusim.errors import ConfigError, nearest, shown
from npusim.graph import Graph

Positive = Annotated[int, Field(ge=1)]
_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)
_ORDERS = {
    "columns rows": Order.WEIGHTS_HELD,
    "rows columns": Order.ACTIVATIONS_HELD,
    "rows columns depth": Order.OUTPUTS_HELD,
}
_LEVELS = ("dram", "tiles", "sram", "grid")
# Places of an entry that say the same as another one.
_SAME = {"sram.block.width": "grid.piece.width", "grid.piece.depth": "sram.block.depth"}
_MOST_LISTED = 8


class Sizes(Section):
    """Numbers along the loops of a product or convolution."""

    rows: Positive | None = None
    """Along output rows: lines of an image, pixels of a product."""
    width: Positive | None = None
    """Along the pixels of a line; 1 for a product."""
    columns: Positive | None = None
    """Along output channels."""
    depth: Positive | None = None
    """Along input channels."""


class DramLevel(Section):
    """Loops over blocks, which DRAM or a memory level feeds."""

    order: Literal["columns rows", "rows columns", "rows columns depth"] | None = None
    """Loops from the outside in; the first keeps weights in SRAM, the second activations, the third partial
    sums."""
    buffers: Literal[1, 2] | None = None
    """Buffers of a stationary operand in several blocks; with 1, work waits for the next block."""
    blocks: Sizes = Sizes()
    """Blocks of a tile's share, one after the other, along each loop."""


class TilesLevel(Section):
    """Loop over tiles, which work at the same time."""

    split: Literal["rows", "columns", "single"] | None = None
    """What is divided among tiles: output rows, output columns, or nothing."""
    count: Positive | None = None
    """Tiles with a share."""


class SramLevel(Section):
    """What a tile's SRAM holds of an operator."""

    block: Sizes = Sizes()
    """Elements of the largest block; another way to write the number of blocks."""


class GridLevel(Section):
    """The MAC grid of a tile."""

    mode: str | None = None
    """MPE mode, by its name in the data sheet."""
    piece: Sizes = Sizes()
    """Elements that it computes at a time; all of a block's depth."""


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

    def nests(self, groups: tuple[Group, ...], ops: Any, soc: Soc) -> list[Nest | None]:
        """Return what is fixed of the loop nest of each group.

        Parameters
        ----------
        ops : array of OP_DTYPE, shape (groups,)
            The operators under any plan.
        """
        nests: list[Nest | None] = []
        for group, op in zip(groups, ops, strict=True):
            entry = self.file.operators.get(group.main)
            values = dict(_values(entry)) if entry is not None and group.unit is Unit.DPU else {}
            if values and not is_product(group, op):
                allowed = "no loop nest: elements stream once through the grid"
                raise self.refused(next(iter(values)), group.main, "a loop nest", allowed=allowed)
            names = _names(list(soc.array_devices[group.device].dpu.modes)) if values else {}
            for key in values.keys() & names.keys():
                if values[key] not in names[key]:
                    allowed, close = ", ".join(names[key]), nearest(values[key], names[key])
                    found = shown(values[key])
                    raise self.refused(key, group.main, found, allowed=allowed, suggestion=close)
            nests.append(
                {_SAME.get(k, k): float(names[k][v] if k in names else v) for k, v in values.items()} or None
            )
        return nests

    def plan(self, plans: Plans) -> int:
        """Return the place of the plan whose tensors stay in SRAM as the file says."""
        stays = self.file.stays or Stays()
        rows = frozenset(stays.rows).union(stays.bands)
        kept = Residency(frozenset(stays.whole), stays.cached, rows, stays.bands, stays.resident)
        for place, step in enumerate(plans.steps):
            if step.reserved_bytes == stays.reserved_bytes and plans.residency(place) == kept:
                return place
        file, line = self.source.place(("stays",))
        allowed = "what --save-mapping wrote for this network, or left out: npusim then chooses"
        raise ConfigError(
            "tensors that no plan keeps together", file=file, line=line, key="stays", allowed=allowed
        )


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _MOST_LISTED
    return ", ".join(listed[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _values(entry: OperatorNest) -> Iterator[tuple[str, Any]]:
    """Yield place and value of what an entry fixes of a loop nest."""
    if entry.triangle is not None:
        yield "triangle", entry.triangle
    for level in _LEVELS:
        for key, value in getattr(entry, level):
            for along, size in value if isinstance(value, Sizes) else (("", value),):
                if size is not None:
                    yield f"{level}.{key}.{along}".rstrip("."), size


def _names(modes: list[str]) -> dict[str, dict[str, int]]:
    """Return the numbers of the names that some places of an entry take."""
    return {
        "dram.order": {name: int(order) for name, order in _ORDERS.items()},
        "tiles.split": {split.name.lower(): int(split) for split in Split},
        "grid.mode": {mode: place for place, mode in enumerate(modes)},
        "triangle": {"twice": 0, "once": 1},
    }


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


def entry_of(nest: Nest, modes: list[str]) -> dict[str, Any]:
    """Return what is fixed of a loop nest as an entry of a file."""
    names, entry = _names(modes), dict[str, Any]()
    for place, number in nest.items():
        *sections, key = place.split(".")
        within = entry
        for section in sections:
            within = within.setdefault(section, {})
        named = {value: name for name, value in names.get(place, {}).items()}
        within[key] = named[int(number)] if named else int(number)
    return entry


def is_product(group: Group, op: Any) -> bool:
    """Return whether a group has a loop nest: a matrix product or convolution on an array device."""
    return group.unit is Unit.DPU and op["dpu_operation"] in _PRODUCTS
