"""A technique: name, explanation, traits, parameters, legality and rewrite."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from npusim.graph import Graph
from npusim.ops import Annotation, DType

NPU_MEMORY_ONLY = "made for the memory of an NPU; none is used here, so nothing is gained"
"""Host note of techniques that only change what an NPU stores and moves."""


class Parameters(BaseModel):
    """Settings of a technique; the text under a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class NoParameters(Parameters):
    """A technique without settings."""


class Stage(IntEnum):
    """When a stack applies a technique; within a stage in order of registration."""

    PREPROCESSING = 1  # places or simplifies preprocessing (GraphSplit, PreG)
    PRECOMPUTE = 2  # replaces preprocessing (StaGr, GrAd)
    SHAPES = 3  # resizes the rest (NodePad)
    OPERATORS = 4  # rewrites operators with prepared masks (EffOp, GrAx)
    PRECISION = 5  # changes number formats (QuantGr)
    STORAGE = 6  # annotates storage (GraSp, SymG) and residency (CacheG)


class EdgeData(StrEnum):
    """How the model receives preprocessing, if a technique changes that."""

    IN_GRAPH = "in_graph"  # as a matrix that the graph computes (EffOp)
    WEIGHTS = "weights"  # as an input of normalised edge weights (PreG)
    CONSTANT = "constant"  # as a constant: another data graph is another model (StaGr)
    LAID_OUT = "laid_out"  # as constants in slots or blocks, whose sizes follow from the edges
    INPUT = "input"  # as an input that the host updates (GrAd)
    CAPACITY = "capacity"  # with `capacity` for more nodes (NodePad)


@dataclass(frozen=True, slots=True)
class Technique:
    """A technique: a pure function from graph to graph, its legality, and its traits.

    Reports, studies and measurements read traits, never names: techniques of other packages work alike.
    """

    name: str
    numerics: str
    """Its effect on the results."""
    rewrite: Callable[[Graph, Any], Graph]
    """Returns the rewritten graph; not called if there is an `objection`."""
    stage: Stage
    summary: str = ""
    """One sentence: what it rewrites; default: the first paragraph of the docstring of `rewrite`."""
    needs: str = ""
    """What the graph must hold, in words for the refusal."""
    finds: Callable[[Graph, Any], object] | None = None
    """Returns what the graph holds of it; if empty, the technique refuses."""
    hint: Callable[[Graph], str] = lambda _: ""
    """Returns a hint for the refusal, such as a technique that supplies it."""
    check: Callable[[Graph, Any], str | None] = lambda graph, parameters: None
    """Returns another reason why it does not fit the graph, or None."""
    excludes: Mapping[str, str] = field(default_factory=dict)
    """Techniques that it excludes from the stack, with reasons."""
    parameters: type[Parameters] = NoParameters
    exact: bool = True
    """Whether results are equal up to rounding."""
    annotation: Annotation | None = None
    """Annotation that it makes. None: it rewrites operators or formats."""
    edges: EdgeData | None = None
    """How the model receives preprocessing. None: as before."""
    precision: DType | None = None
    """Number format of products afterwards. None: as before."""
    rationale: str = ""
    """Benefit and cost; default: the docstring of `rewrite` below its first paragraph."""
    what_if: str = ""
    """Why it does not exist yet, such as "no compiler offers it today"; empty: it exists."""
    host_note: str = ""
    """Warning of an estimate without an NPU; empty: none."""
    note: Callable[[Graph], str | None] | None = None
    """Returns the note of an estimate about the placed graph, or None."""
    forms: Callable[[Any], Mapping[str, str]] | None = None
    """Returns the forms of "masking" and "scores" of a PyTorch model, from the parameters."""
    source: str = ""
    """Publication that defines it."""

    def __post_init__(self) -> None:
        summary, _, rationale = (inspect.getdoc(self.rewrite) or "").partition("\n\n")
        for name, text in (("summary", summary), ("rationale", rationale)):
            object.__setattr__(self, name, getattr(self, name) or " ".join(text.split()))

    @property
    def gives_matrix(self) -> bool:
        """Whether the aggregation receives a matrix, or its weights, from outside the graph."""
        return self.edges in (EdgeData.WEIGHTS, EdgeData.CONSTANT, EdgeData.LAID_OUT, EdgeData.INPUT)

    @property
    def compiler_only(self) -> bool:
        """Whether no model file can express it, so that it cannot be measured or exported."""
        return self.annotation is not None and self.annotation is not Annotation.DEVICE

    def objection(self, graph: Graph, parameters: Any) -> str | None:
        """Return the reason why the technique does not fit a graph, or None."""
        if self.finds is None or self.finds(graph, parameters):
            return self.check(graph, parameters)
        hint = self.hint(graph)
        return f"{self.name} needs {self.needs}; {graph.name} has none" + (f" ({hint})" if hint else "")
