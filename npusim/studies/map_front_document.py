"""Document of placements that are Pareto-optimal in latency and energy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Part
from npusim.mapping import Granularity
from npusim.studies.document_head import UnderStack


class PlacedChain(Part):
    """One placement of all blocks."""

    mapping: str
    """A letter a block, in order; of a Vision GNN stem, graphers, FFNs and head, separated by `/`."""
    latency_s: float
    """Time of an inference, in s."""
    energy_j: float
    """Energy of the package for one inference, in J."""
    power_w: float
    """Mean power of the package, in W."""
    transitions: int
    """How often work passes to another device."""
    shares: dict[str, float]
    """Share of the blocks that each device runs."""
    operating_points: dict[str, str]
    """Operating point of each device that has been set."""


class AloneOn(Part):
    """All blocks on one device."""

    device: str
    """The device."""
    latency_s: float
    """Time of an inference, in s."""
    energy_j: float
    """Energy of the package for one inference, in J."""


class MapFront(UnderStack):
    """Every placement of a chain of blocks that no other beats in latency and energy."""

    MAIN_TABLE = "points"

    schema_: Literal["npusim.map-front/1"] = Field("npusim.map-front/1", alias="schema")
    devices: dict[str, str]
    """Letter of each device in mappings."""
    blocks: list[str]
    """Blocks, in order of execution."""
    placements: float
    """Placements that there are: devices to the power of blocks, times settings of operating points."""
    settings: int
    """Settings of operating points tried; 1: those of the data sheet."""
    limits: dict[str, float]
    """Limits that all placements keep, by name, in SI units."""
    alone: list[AloneOn]
    """All blocks on one device, at the operating points of the data sheet."""
    points: list[PlacedChain]
    """The front, by rising latency."""
    granularity: Granularity = "block"
    """What a letter stands for: a block, a layer or an operator."""
    method: Literal["exact", "nsga2", "random"] = "exact"
    """How placements were found."""
    evaluations: int | None = None
    """Placements that were costed; null where the front is exact."""
    hypervolume_share: float | None = None
    """Area that a searched front dominates over that of the exact front; null where there is no such pair."""
    chosen: int
    """Point of the front with the least product of energy and latency, relative to the best device alone."""
    exponents: tuple[float, float]
    """Exponents of energy and latency in that product (MaGNAS, Eq. 13)."""
    given: PlacedChain | None
    """The placement asked for, at the operating points of the data sheet; null where none was."""
    given_points: list[PlacedChain] = Field(default_factory=list)
    """The placement asked for at every setting of operating points that was tried."""
    given_chosen: int | None = None
    """Point of `given_points` with the least product (MaGNAS, Eq. 14); null where there are none."""
