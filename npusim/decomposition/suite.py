"""Feature decomposition's figures: peak memory and miss rates of aggregation on Reddit, counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from npusim.config import Section, load_model
from npusim.measure.aggregation import CacheHierarchy, MessagePassing, miss_rates, peak_memory_bytes
from npusim.validation.evidence import Evidence
from npusim.validation.figures import read_keyed
from npusim.validation.suite import Suite, suite_file
from npusim.validation.unit_models import Machine
from npusim.workloads import load_statistics

_DATASET = "reddit-full"
_RATE = re.compile(
    r"feature_decomposition\.(?P<model>gcn|gat|sage|gsc)_reddit_hidden(?P<hidden>[1-9][0-9]{0,3})"
    r"\.(?P<variant>pyg|decomposed)\.(?P<quantity>l1|llc|tlb)_miss"
)
_MEMORY = re.compile(
    r"feature_decomposition\.reddit_(?P<model>gcn|gat|sage|gsc)_peak_memory_gb\.(?P<variant>pyg|decomposed)"
)
_BRANCHES = [
    "feature_decomposition.gcn_reddit_hidden32", "feature_decomposition.gat_reddit_hidden32",
    "feature_decomposition.sage_reddit_hidden32", "feature_decomposition.reddit_gcn_peak_memory_gb",
    "feature_decomposition.datasets", "feature_decomposition.headline", "feature_decomposition.source",
]  # fmt: skip
_Bytes = Annotated[float, Field(gt=0.0, strict=False)]
_Count = Annotated[int, Field(ge=1)]


class Caches(Section):
    """Caches and address translation that one core sees."""

    l1_bytes: _Bytes
    l2_bytes: _Bytes
    llc_bytes: _Bytes
    tlb_entries: _Bytes
    page_bytes: _Bytes
    line_bytes: _Bytes
    vector_bytes: _Bytes


class Definitions(Section):
    """The paper's machine and runs."""

    schema_name: Literal["npusim.feature-decomposition-definitions/1"] = Field(alias="schema")
    """Version of this file format."""
    source: str
    """Where they stand."""
    caches: Caches
    """The machine."""
    chunk_width: dict[str, _Count]
    """Features of a chunk, by model."""
    heads: dict[str, _Count]
    """Weights of an edge, by model."""
    scaled: dict[str, bool]
    """Whether messages are multiplied by weights, by model."""
    loops: dict[str, bool]
    """Whether edges get self-loops, by model."""


@cache
def load_definitions() -> Definitions:
    """Return the shipped definitions."""
    return load_model(
        suite_file("feature-decomposition", "definitions", "feature_decomposition.yaml"), Definitions
    )


@dataclass(frozen=True, slots=True)
class Key:
    """Parts of a figure's key."""

    model: str
    variant: str
    quantity: str
    hidden: int = 32


def parse_key(path: str) -> Key | None:
    """Return what a key path asks for, or None where it is no figure of the suite."""
    rate, memory = _RATE.fullmatch(path), _MEMORY.fullmatch(path)
    found = rate or memory
    if found is None:
        return None
    model = "sage" if found["model"] == "gsc" else found["model"]
    if rate is None:
        return Key(model, found["variant"], "memory")
    return Key(model, found["variant"], found["quantity"], int(found["hidden"]))


def predict(key: Key) -> float:
    """Return the prediction for a key: a share of loads, or GB."""
    definitions, structure = load_definitions(), load_statistics(_DATASET)
    loops = structure.nodes if definitions.loops[key.model] else 0
    chunks = 1 if key.variant == "pyg" else max(1, key.hidden // definitions.chunk_width[key.model])
    work = MessagePassing(
        structure.nodes, structure.edges + loops, key.hidden, chunks, definitions.scaled[key.model]
    )
    if key.quantity == "memory":
        return (
            peak_memory_bytes(work, structure.features, structure.edges, definitions.heads[key.model]) / 1e9
        )
    return float(getattr(miss_rates(work, CacheHierarchy(**definitions.caches.model_dump())), key.quantity))


@dataclass(frozen=True)
class DecompositionFigures:
    """The suite's predictor."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the figures of a file with their predictions; unknown keys are skipped with a note."""
        assert path is not None, "the suite needs a file"
        figures, notes = read_keyed(path, lambda name: parse_key(name) is not None, _BRANCHES)
        keys = [key for figure in figures if (key := parse_key(figure.id)) is not None]
        return Evidence(
            ids=[figure.id for figure in figures],
            columns={
                name: np.array([getattr(key, name) for key in keys], object)
                for name in ("model", "variant", "quantity")
            },
            measured=np.array([figure.value for figure in figures]),
            predicted=np.array([predict(key) for key in keys]),
            unit="",
            dimensions=("model", "quantity"),
            notes=[note for note in notes if "feature_decomposition." in note and "source" not in note],
        )


FIGURES = DecompositionFigures()
"""The predictor of the suite `feature-decomposition`."""
