"""The document that `npusim accuracy` writes: what technique stacks do to a trained model's answers."""

from __future__ import annotations

from statistics import median
from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part


class Training(Part):
    """How the models were trained."""

    learning_rate: float
    """Step of Adam."""
    weight_decay: float
    """Weight decay of Adam."""
    epochs: int
    """Epochs; the parameters are those after the last one."""
    torch: str
    """Version of PyTorch."""


class OneSeed(Part):
    """One trained model under one stack in one number format."""

    seed: int
    """Of the initial parameters, dropout and the neighbours' draw."""
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
    techniques: str
    """Canonical technique stack."""
    numbers: Literal["fp32", "fp16", "int8"]
    """`fp32`: as trained; `fp16`: every result rounded to half precision; `int8`: matrix products rounded by
    NNCF (QuantGr), the rest in fp32."""
    accuracy: float
    """Median share of the test nodes that are classified correctly."""
    change: float
    """Median change of that share against the baseline of the same seed in fp32."""
    agreement: float
    """Median share of all nodes that get the baseline's class."""
    largest_difference: float | None
    """Greatest of the seeds' largest differences of a log-probability; null where a result is not finite."""
    expected: str
    """What npusim says of the stack: each technique's effect on the numbers."""
    seeds: list[OneSeed]
    """One entry per seed."""

    @classmethod
    def over(
        cls, workload: str, techniques: str, numbers: str, expected: str, seeds: list[OneSeed]
    ) -> StackAccuracy:
        """Return the medians of some seeds."""
        differences = [one.largest_difference for one in seeds]
        known = [one for one in differences if one is not None]
        return cls.model_validate(
            {
                "workload": workload,
                "techniques": techniques,
                "numbers": numbers,
                "accuracy": median(one.accuracy for one in seeds),
                "change": median(one.accuracy - one.baseline_accuracy for one in seeds),
                "agreement": median(one.agreement for one in seeds),
                "largest_difference": max(known) if len(known) == len(differences) else None,
                "expected": expected,
                "seeds": [one.model_dump() for one in seeds],
            }
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
    """What stacks of techniques do to the answers of trained models on real data."""

    schema_: Literal["npusim.accuracy/1"] = Field("npusim.accuracy/1", alias="schema")
    """Version of this document."""
    training: Training | None
    """How the models were trained; null where a trained module was handed in."""
    results: list[StackAccuracy]
    """By workload, stack and number format, in the order asked for; a workload's first stack is `none`."""
    skipped: list[LeftOut]
    """Stacks that a workload does not allow."""
