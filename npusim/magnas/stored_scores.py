"""Scores of subnets, kept by architecture in a file beside the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from npusim.documents import Document
from npusim.files import write_whole

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


class StoredScores:
    """Answers from a file what it holds, and writes there what else is scored.

    Parameters
    ----------
    weights, images : str
        Fingerprints; scores of others are not taken.
    score : callable
        Scores what the file does not hold.
    """

    def __init__(
        self, file: Path, weights: str, images: str, score: Callable[[Sequence[str]], list[float]]
    ) -> None:
        self._file, self._score = file, score
        self._held = SubnetScores(weights=weights, images=images, scores={})
        if file.is_file():
            found = SubnetScores.read(file, "`npusim magnas`")
            if (found.weights, found.images) == (weights, images):
                self._held = found

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Return the scores of architectures."""
        known = self._held.scores
        missing = sorted(set(texts) - set(known))
        if missing:
            known |= dict(zip(missing, self._score(missing), strict=True))
            ordered = dict(sorted(known.items()))
            self._held = self._held.model_copy(update={"scores": ordered})
            write_whole(self._file, self._held.to_json().encode(), remedy="make room and resume")
        return [self._held.scores[text] for text in texts]
