"""The document of `npusim accuracy`: accuracy of trained models under technique stacks."""

from __future__ import annotations

from statistics import median
from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.engines.document_head import Techniques


class Training(Part):
    """How the models were trained."""

    learning_rate: float
    """Step of Adam."""
    weight_decay: float
    """Weight decay of Adam."""
    epochs: int
    """Epochs; the parameters are those after the last one."""
    batch: int | None = None
    """Training nodes of a step; None: all."""
    torch: str
    """Version of PyTorch."""


class OneSeed(Part):
    """One trained model under one stack in one number format."""

    seed: int
    """Seed of the initial parameters, dropout and the sampled neighbours."""
    baseline_accuracy: float
    """Share of the test nodes that the model without techniques classifies correctly, in fp32."""
    accuracy: float
    """Share of the test nodes that the model with the stack classifies correctly."""
    agreement: float
    """Share of all nodes that get the same class as from the baseline in fp32."""
    largest_difference: float | None
    """Largest difference of a log-probability to the baseline's in fp32; null where one is not finite."""


class StackAccuracy(Part):
    """A stack on a workload in one number format: median over the seeds, and each seed."""

    workload: str
    """Name of the network and its data."""
    techniques: Techniques
    numbers: str
    """`fp32`: as trained; `fp16`: every result rounded; `int8`: products rounded by NNCF, others fp32; two
    formats such as `int4 x fp16`: weights and activations of products rounded, others fp32."""
    accuracy: float
    """Median share of the test nodes that are classified correctly."""
    change: float
    """Median change of that share against the baseline of the same seed in fp32."""
    agreement: float
    """Median share of all nodes that get the baseline's class."""
    largest_difference: float | None
    """Greatest of the seeds' largest differences of a log-probability; null where a result is not finite."""
    expected: str
    """Documented effect of each technique on the numbers."""
    seeds: list[OneSeed]
    """One entry per seed."""

    @classmethod
    def over(
        cls, workload: str, techniques: str, numbers: str, expected: str, seeds: list[OneSeed]
    ) -> StackAccuracy:
        """Return the medians over the seeds."""
        differences = [seed.largest_difference for seed in seeds]
        finite = [difference for difference in differences if difference is not None]
        return cls(
            workload=workload,
            techniques=techniques,
            numbers=numbers,
            accuracy=median(seed.accuracy for seed in seeds),
            change=median(seed.accuracy - seed.baseline_accuracy for seed in seeds),
            agreement=median(seed.agreement for seed in seeds),
            largest_difference=max(finite) if len(finite) == len(differences) else None,
            expected=expected,
            seeds=seeds,
        )


class LeftOut(Part):
    """A stack that cannot be applied to a workload."""

    workload: str
    """The workload."""
    techniques: str
    """The stack."""
    reason: str
    """Why not."""


class AccuracyReport(Document):
    """Accuracy of trained models on real data under stacks of techniques."""

    schema_: Literal["npusim.accuracy/1"] = Field("npusim.accuracy/1", alias="schema")
    training: Training | None
    """How the models were trained; null for a user's trained module."""
    results: list[StackAccuracy]
    """By workload, stack and number format, in the requested order; a workload's first stack is `none`."""
    skipped: list[LeftOut]
    """Stacks that a workload does not allow."""
