"""Feature decomposition's figures: peak memory and miss rates of aggregation on Reddit, counted."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from npusim.config import Section, load_model
from npusim.measuring.aggregation import CacheHierarchy, MessagePassing, miss_rates, peak_memory_bytes
from npusim.validation.figures import Key, PathPredictor
from npusim.validation.suite import suite_file
from npusim.workloads import load_statistics

_DATASET = "reddit-full"
_Count = Annotated[int, Field(ge=1)]


class Definitions(Section):
    """The paper's machine and runs."""

    schema_name: Literal["npusim.feature-decomposition-definitions/1"] = Field(alias="schema")
    """Version of this file format."""
    source: str
    """Paper and section."""
    caches: CacheHierarchy
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


def predict(key: Key, caches: CacheHierarchy | None = None) -> float:
    """Return the prediction of a figure: a share of loads, or GB; `caches` replace the shipped ones."""
    definitions, structure = load_definitions(), load_statistics(_DATASET)
    model, hidden = key["model"], int(key["hidden"])
    loops = structure.nodes if definitions.loops[model] else 0
    chunks = 1 if key["variant"] == "pyg" else max(1, hidden // definitions.chunk_width[model])
    edges = structure.edges + loops
    work = MessagePassing(structure.nodes, edges, hidden, chunks, definitions.scaled[model])
    if key["quantity"] == "memory":
        memory = peak_memory_bytes(work, structure.features, structure.edges, definitions.heads[model])
        return memory / 1e9
    rates = miss_rates(work, caches or definitions.caches)
    return rates[key["quantity"]]


FIGURES = PathPredictor(predict)
