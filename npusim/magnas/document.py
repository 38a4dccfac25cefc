"""The document of `npusim magnas train`: a supernet, its subnets' scores, and their order alone."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part


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
