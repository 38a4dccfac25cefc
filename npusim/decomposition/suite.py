"""Feature decomposition's figures: peak memory and miss rates of aggregation on Reddit; their fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan
from npusim.calibration.least_squares import Floats
from npusim.config import Section, load_model
from npusim.graph import Editor, Graph
from npusim.measuring.aggregation import CacheHierarchy, MessagePassing, miss_rates
from npusim.ops import Family
from npusim.scenario import Scenario
from npusim.validation.figures import Key, PathPredictor, shipped_figures
from npusim.validation.suite import suite_file
from npusim.workloads import GnnSpec, build_gnn, load_statistics

_DATASET, _SOC = "reddit-full", "generic-cpu"
_MODELS = {"sage": {"model": "sage-mean", "order": "transform_first", "neighbours": 1_000_000}}
"""Workloads by the paper's names; others are called alike."""
_Count = Annotated[int, Field(ge=1)]


class PaperRuns(Section):
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
def load_definitions() -> PaperRuns:
    """Return the shipped definitions."""
    return load_model(
        suite_file("feature-decomposition", "definitions", "feature_decomposition.yaml"), PaperRuns
    )


def memory_bytes(model: str, hidden: int, chunks: int) -> float:
    """Return what an estimate counts as the peak memory of a first layer that PyTorch Geometric runs (B)."""
    named = _MODELS.get(model, {"model": model})
    heads = {"heads": load_definitions().heads[model]} if model == "gat" else {}
    keys = {"form": "edges", "dataset": _DATASET, "precision": "fp32", "layers": 1, "hidden": hidden}
    structure = replace(load_statistics(_DATASET), classes=hidden)
    graph = build_gnn(GnnSpec.model_validate(keys | heads | named), structure)
    stack = f"feature-decomposition:chunks={chunks}" if chunks > 1 else "none"
    machine = {"dram.capacity": "1 TB"}
    scenario = Scenario(_with_views(graph), _SOC, stack, device="cpu", settings=machine)
    return scenario.mapped.memory.dram_peak_bytes


def _with_views(graph: Graph) -> Graph:
    """Return a graph whose scatters read node numbers as they are: PyTorch repeats them as a view."""
    editor = Editor.of(graph)
    for op in graph:
        if op.family is Family.SCATTER:
            values, index, *others = op.inputs
            editor.change_operator(op.name, inputs=(values, graph.before_broadcast(index), *others))
    return editor.finish()


def predict(key: Key, caches: CacheHierarchy | None = None) -> float:
    """Return the prediction of a figure: a share of loads, or GB; `caches` replace the shipped ones."""
    definitions, structure = load_definitions(), load_statistics(_DATASET)
    model, hidden = key["model"], int(key["hidden"])
    loops = structure.nodes if definitions.loops[model] else 0
    chunks = 1 if key["variant"] == "pyg" else max(1, hidden // definitions.chunk_width[model])
    edges = structure.edges + loops
    work = MessagePassing(structure.nodes, edges, hidden, chunks, definitions.scaled[model])
    if key["quantity"] == "memory":
        return memory_bytes(model, hidden, chunks) / 1e9
    rates = miss_rates(work, caches or definitions.caches)
    return rates[key["quantity"]]


FIGURES = PathPredictor(predict)


class MissFit(FiguresFit):
    """Fit to everything but the memory."""

    def __init__(self, case: str) -> None:
        rows = [row for row in shipped_figures("feature-decomposition") if row[1]["quantity"] != "memory"]
        self.keys = [key for _, key in rows]
        labels = [figure.id.removeprefix("feature_decomposition.") for figure, _ in rows]
        plan, measured = load_plan("feature-decomposition", FitPlan), [figure.value for figure, _ in rows]
        super().__init__(plan, case, labels, measured, [key["model"] for key in self.keys])

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return miss rates and instructions per cycle."""
        caches = load_definitions().caches.model_copy(update=dict(values))
        return np.array([predict(key, caches) for key in self.keys])


MISSES = FiguresFits("feature-decomposition", MissFit)
