"""The document of `npusim magnas search`: fronts of architectures and mappings, and what they gain."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part


class MappedArchitecture(Part):
    """An architecture under one mapping."""

    architecture: str
    """Superblocks: operator, depth, p for pre-processing, f and the hidden features in % of the channels."""
    mapping: str
    """A letter a block: stem, graphers, feed-forward networks and head, parted by `/`."""
    accuracy: float
    """Share of images that are classified correctly, as handed in."""
    latency_s: float
    """Time of an inference, in s."""
    energy_j: float
    """Energy of the package for one inference, in J."""
    operating_points: str
    """Operating points that have been set, such as `gpu low, dram high`; empty: the data sheet's."""


class HomogeneousBaseline(MappedArchitecture):
    """The largest architecture of one operator throughout, on one unit."""

    operator: str
    """The operator."""
    unit: str
    """The unit."""
    dominated_by: int | None
    """Point of the front that is no worse in any objective and better in one; null where there is none."""


class ChosenArchitecture(MappedArchitecture):
    """A point of the front as Table 2 of the paper has it."""

    chosen_for: str
    """What it is the best in: least latency, energy or product of both, or most accurate."""
    operators: str
    """Letter of each superblock's operator."""
    ffn_use: float
    """Share of the superblocks with feed-forward networks."""
    preprocess_use: float
    """Share of the superblocks with pre-processing."""
    unit_use: dict[str, float]
    """Share of the blocks that each unit runs."""
    speedup: float
    """Latency of the reference over its own."""
    energy_gain: float
    """Energy of the reference over its own."""


class UnitGain(Part):
    """Mean gains of the chosen points over the reference's operator throughout on one unit."""

    unit: str
    """The unit."""
    speedup: float
    """Latency of that baseline over theirs."""
    energy_gain: float
    """Energy of that baseline over theirs."""


class GenerationStep(Part):
    """How far the searches are after a generation; hypervolumes over that of all fronts together."""

    generation: int
    """From 1."""
    evaluated: int
    """Architectures that each search has evaluated."""
    nested: float
    """Evolution of architectures, each with its exact front of mappings."""
    single_unit: float
    """Evolution of architectures, each on every single unit."""
    chance: float
    """Architectures drawn at random, each with its exact front of mappings."""
    distributed_share: float
    """Share of mappings with several units on the nested search's front."""


class ArchitectureSearch(Document):
    """Architectures and mappings that no other beats in accuracy, latency and energy."""

    MAIN_TABLE = "front"

    schema_: Literal["npusim.magnas-search/1"] = Field("npusim.magnas-search/1", alias="schema")
    """Version of this document."""
    workload: str
    """The backbone."""
    soc: str
    """Name of the SoC."""
    soc_named: str = ""
    """Name or file of the SoC as it was given; empty where nobody said it."""
    changed: list[str] = Field(default_factory=list)
    """What was changed of SoC and backbone, as `--set` takes it."""
    units: dict[str, str]
    """Letter of each unit in mappings."""
    space: str
    """Choices of each superblock."""
    points: float
    """Architectures of the space, as the paper counts them."""
    scores: str
    """What the accuracies are of."""
    settings: dict[str, float]
    """Seed, population, rates and limits of the search, by name."""
    steps: list[GenerationStep]
    """By generation."""
    front: list[MappedArchitecture]
    """What the nested search found, by rising latency."""
    single_unit_front: list[MappedArchitecture]
    """What the search on single units found."""
    chance_front: list[MappedArchitecture]
    """What random search found."""
    distributed_share: float
    """Share of mappings with several units on the front."""
    baselines: list[HomogeneousBaseline]
    """The largest architecture of each operator on each unit."""
    reference: int
    """Baseline that gains are told against: the one of max_relative on its fastest unit."""
    chosen: list[ChosenArchitecture]
    """Points of the front that are no less accurate than the reference, where there are such."""
    gains: list[UnitGain] = Field(default_factory=list)
    """What these gain on average over the reference's operator on each unit."""
