"""Technique: name, explanation, parameters, legality condition and rewrite of one technique."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from npusim.graph import Graph

__all__ = ["NoParameters", "Parameters", "Technique", "lacks"]


class Parameters(BaseModel):
    """Settings of one technique: typed, checked and frozen; a docstring under each field says what it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NoParameters(Parameters):
    """A technique without settings."""


@dataclass(frozen=True, slots=True)
class Technique:
    """One technique: a pure function from graph to graph with its legality and the words that explain it."""

    name: str
    summary: str
    """One sentence: what it rewrites."""
    words: str
    """A paragraph for reports and lessons: why it helps and what it costs."""
    numerics: str
    """What it does to the results."""
    rewrite: Callable[[Graph, Any], Graph]
    """Returns the rewritten graph; called only where `check` finds no objection."""
    check: Callable[[Graph, Any], str | None]
    """Returns the reason why the technique does not fit the graph, or None."""
    needs: str = ""
    """What the graph must hold, as it stands in the refusal."""
    excludes: Mapping[str, str] = field(default_factory=dict)
    """Techniques that may not stand in the same stack, each with the reason."""
    parameters: type[Parameters] = NoParameters
    exact: bool = True
    """Whether the results stay the same but for rounding."""
    source: str = ""
    """Where it is defined."""


def lacks(technique: str, needs: str, graph: Graph, hint: str = "") -> str:
    """Return the one sentence in which every technique refuses a graph that does not hold what it needs."""
    return f"{technique} needs {needs}; {graph.name} has none" + (f" ({hint})" if hint else "")
