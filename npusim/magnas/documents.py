"""The JSON documents of npusim magnas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.engines.document_head import OnMachine
from npusim.files import write_whole
from npusim.reporting.kinds import DocumentKind


class ScoredSubnet(Part):
    """A subnet and the share of images that it classifies correctly."""

    architecture: str
    """Superblocks: operator, depth, p for pre-processing, f and the hidden features in % of the channels."""
    accuracy: float
    """Share of the scoring images, which training did not see."""


class AloneSubnet(ScoredSubnet):
    """A subnet beside the same network trained alone, both judged on all images that training did not see."""

    alone_accuracy: float
    """The same share for the network trained alone, in the same way."""


class BestSubnet(ScoredSubnet):
    """The best of the scored subnets."""

    test_accuracy: float
    """Share of the test images, which neither training nor this choice saw."""


class ImagesUsed(Part):
    """The images of a training."""

    name: str
    """digits, or the name of the folder."""
    digest: str
    """Fingerprint of pixels, classes and parts."""
    classes: int
    """Classes to tell apart."""
    train: int
    """Images that were learnt."""
    score: int
    """Images that subnets are scored on."""
    test: int
    """Images that nothing was chosen by."""


class SupernetTraining(Document):
    """A supernet after training, and how good its subnets are."""

    MAIN_TABLE = "subnets"

    schema_: Literal["npusim.magnas-training/1"] = Field("npusim.magnas-training/1", alias="schema")
    """Version of this document."""
    workload: str
    """The backbone."""
    space: str
    """Choices of each superblock."""
    images: ImagesUsed
    """What it was trained and scored on."""
    recipe: dict[str, float]
    """How it was trained, by name."""
    torch: str
    """Version of PyTorch."""
    parameters: int
    """Weights that all subnets share."""
    losses: list[float]
    """Mean loss of the largest subnets, by epoch."""
    subnets: list[ScoredSubnet]
    """The largest and the smallest of each operator, and some drawn at random; the best first."""
    best: BestSubnet
    """The best of them."""
    alone: list[AloneSubnet]
    """Some of them trained alone as well, spread evenly over their order."""
    rank_correlation: float | None
    """Spearman's, between the two accuracies of those; null where fewer than two differ."""
    checkpoint: str
    """File with the weights, which `npusim magnas search` reads."""


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


class ArchitectureSearch(OnMachine):
    """Architectures and mappings that no other beats in accuracy, latency and energy."""

    MAIN_TABLE = "front"

    schema_: Literal["npusim.magnas-search/1"] = Field("npusim.magnas-search/1", alias="schema")
    """Version of this document."""
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


SCORES = "scores.json"


class SubnetScores(Document):
    """Accuracies of the subnets of one supernet, by architecture; in `alone.json`, of these trained alone."""

    schema_: Literal["npusim.magnas-scores/1"] = Field("npusim.magnas-scores/1", alias="schema")
    """Version of this document."""
    weights: str
    """Fingerprint of the supernet's weights."""
    images: str
    """Fingerprint of the images."""
    scores: dict[str, float]
    """Share of the scoring images that each subnet classifies correctly; alone, also of the test images."""


def stored_scores(
    file: Path, weights: str, images: str, score: Callable[[Sequence[str]], list[float]]
) -> Callable[[Sequence[str]], list[float]]:
    """Return a scorer that answers from a file what the file holds, and writes there what else is scored.

    Parameters
    ----------
    weights, images : str
        Fingerprints; scores of others are ignored.
    score : callable
        Scores what the file does not hold.
    """
    own = SubnetScores(weights=weights, images=images, scores={})
    stored = SubnetScores.read(file, "`npusim magnas`") if file.is_file() else own
    known = stored.scores if (stored.weights, stored.images) == (weights, images) else own.scores

    def scores(texts: Sequence[str]) -> list[float]:
        missing = sorted(set(texts) - set(known))
        if missing:
            known.update(zip(missing, score(missing), strict=True))
            document = own.model_copy(update={"scores": dict(sorted(known.items()))})
            write_whole(file, document.to_json().encode(), remedy="make room and resume")
        return [known[text] for text in texts]

    return scores


class MappingFigure(Part):
    """One number of a table or figure."""

    figure: str
    """Table or figure of the paper."""
    what: str
    """Subject of the number."""
    quantity: str
    """latency, energy, or the name of a ratio."""
    unit: str
    """s or J; empty for ratios."""
    ours: float
    """Value of the model."""
    paper: float | None
    """Value in the paper; null where it gives none."""


class MappingStatement(Part):
    """A statement of the paper about mappings."""

    figure: str
    """Table or figure of the paper."""
    says: str
    """The statement."""
    holds: bool
    """Whether it holds in the model."""


class MappingFigures(Document):
    """MaGNAS's tables and figures of mapping, operating points and search."""

    MAIN_TABLE = "figures"

    schema_: Literal["npusim.magnas-figures/1"] = Field("npusim.magnas-figures/1", alias="schema")
    """Version of this document."""
    title: str
    """What is compared."""
    figures: list[MappingFigure]
    """Numbers of the model and the paper."""
    statements: list[MappingStatement]
    """Statements of the paper, and whether they hold."""


TRAINING_KIND = DocumentKind(
    "magnas-training", "npusim.magnas.documents:SupernetTraining", "npusim.magnas.page:training_page"
)
SCORES_KIND = DocumentKind("magnas-scores", "npusim.magnas.documents:SubnetScores")
FIGURES_KIND = DocumentKind(
    "magnas-figures",
    "npusim.magnas.documents:MappingFigures",
    "npusim.magnas.page:figures_page",
)
SEARCH_KIND = DocumentKind(
    "magnas-search", "npusim.magnas.documents:ArchitectureSearch", "npusim.magnas.page:search_page"
)
