"""Technique: name, explanation, traits, parameters, legality condition and rewrite of one technique."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from npusim.graph import Graph
from npusim.ops import Annotation, DType

NPU_MEMORY_ONLY = "made for the memory of an NPU; none is used here, so nothing is gained"
"""Host note of techniques that change nothing but what an NPU keeps and moves."""


class Parameters(BaseModel):
    """Settings of one technique: typed, checked and frozen; a docstring under each field says what it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NoParameters(Parameters):
    """A technique without settings."""


class Stage(IntEnum):
    """When a stack applies a technique, by what it needs to see; within a stage in order of registration."""

    PREPROCESSING = 1
    """Places or simplifies what follows from the edges (GraphSplit, PreG)."""
    PRECOMPUTE = 2
    """Replaces preprocessing (StaGr, GrAd)."""
    SHAPES = 3
    """Resizes what is left (NodePad)."""
    OPERATORS = 4
    """Rewrites operators, masks ready (EffOp, GrAx)."""
    PRECISION = 5
    """Changes number formats of the final operators (QuantGr)."""
    STORAGE = 6
    """Annotates how tensors of their final format are stored (GraSp, SymG) and kept (CacheG)."""


class EdgeData(StrEnum):
    """How the model gets what follows from the data graph's edges, where a technique changes that."""

    IN_GRAPH = "in_graph"
    """As a matrix that the graph itself makes (EffOp)."""
    WEIGHTS = "weights"
    """As an input of normalised edge weights (PreG)."""
    CONSTANT = "constant"
    """As a constant: another data graph is another model (StaGr)."""
    INPUT = "input"
    """As an input that the host keeps up to date (GrAd)."""
    CAPACITY = "capacity"
    """With room for more nodes, the parameter `capacity` (NodePad)."""


@dataclass(frozen=True, slots=True)
class Technique:
    """A technique: a pure function from graph to graph, its legality, and traits others read.

    Reports, studies and measurements ask for traits, never for a technique's name, so that a technique of
    another package is treated as npusim's own are.
    """

    name: str
    summary: str
    """One sentence: what it rewrites."""
    rationale: str
    """A paragraph for reports and lessons: why it helps and what it costs."""
    numerics: str
    """What it does to the results."""
    rewrite: Callable[[Graph, Any], Graph]
    """Returns the rewritten graph; called only where there is no `objection`."""
    stage: Stage
    """When a stack applies it."""
    needs: str = ""
    """What the graph must hold, as it stands in the refusal."""
    finds: Callable[[Graph, Any], object] | None = None
    """Returns what the graph holds of what is needed: without any of it the technique refuses."""
    hint: Callable[[Graph], str] = lambda _: ""
    """Returns what would make what is needed, for the refusal; '': nothing is known."""
    check: Callable[[Graph, Any], str | None] = lambda graph, parameters: None
    """Returns any other reason why the technique does not fit the graph, or None."""
    excludes: Mapping[str, str] = field(default_factory=dict)
    """Techniques that may not stand in the same stack, each with the reason."""
    parameters: type[Parameters] = NoParameters
    exact: bool = True
    """Whether the results stay the same but for rounding."""
    annotation: Annotation | None = None
    """What it only annotates; None: it rewrites operators or formats."""
    edges: EdgeData | None = None
    """How the model gets what follows from the edges; None: as before."""
    precision: DType | None = None
    """Number format that products run in afterwards; None: as before."""
    what_if: str = ""
    """Why no user has it today, such as "no compiler offers it today"; '': it exists."""
    host_note: str = ""
    """What an estimate warns of where no unit of an NPU runs anything; '': nothing."""
    note: Callable[[Graph], str | None] | None = None
    """Returns what an estimate notes about the graph as it runs, preferred devices decided by cost."""
    forms: Callable[[Any], Mapping[str, str]] | None = None
    """Returns which forms of "masking" and "scores" a PyTorch model computes, from the parameters."""
    source: str = ""
    """Where it is defined."""

    @property
    def gives_matrix(self) -> bool:
        """Whether the aggregation gets a matrix from outside the graph, or weights that make one."""
        return self.edges in (EdgeData.WEIGHTS, EdgeData.CONSTANT, EdgeData.INPUT)

    @property
    def compiler_only(self) -> bool:
        """Whether no model file can ask for it, so that it cannot be measured or exported."""
        return self.annotation is not None and self.annotation is not Annotation.DEVICE

    def objection(self, graph: Graph, parameters: Any) -> str | None:
        """Return the reason why the technique does not fit a graph, or None."""
        if self.finds is None or self.finds(graph, parameters):
            return self.check(graph, parameters)
        hint = self.hint(graph)
        return f"{self.name} needs {self.needs}; {graph.name} has none" + (f" ({hint})" if hint else "")
