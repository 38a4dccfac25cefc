"""Batched inference with hidden features stored from earlier batches (GCNP, section 3.3.2).

Batches are drawn from the test nodes until all are answered. Features of training and validation nodes are
stored beforehand, those of visited roots up to an age limit. A neighbour with stored features needs no
further neighbours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from npusim.documents import Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import ConfigError, NpusimError
from npusim.graph import Editor, Graph, GraphMeta, GraphStructure
from npusim.ops import DType
from npusim.scenario import Scenario, split_settings
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics
from npusim.workloads.gnn.spec import Batch, support_of

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class BatchFigures(Part):
    """Nodes and time of a mean batch, without and with stored features."""

    supporting_nodes: float
    """Nodes whose attributes a batch reads, without stored features."""
    supporting_nodes_stored: float
    """Nodes whose attributes a batch reads, with stored features."""
    skipped_share: float
    """Share of the supporting nodes that stored features save."""
    latency_s: float
    """Time of a batch without stored features, forming its neighbourhoods included (s)."""
    latency_stored_s: float
    """Time of a batch with stored features, without storing new ones (s)."""


class Answered(Part):
    """How well batches answered, and how old the stored features were that they read."""

    accuracy: float
    """Share of the nodes that are classified correctly at once, without stored features."""
    accuracy_stored: float
    """Share of the nodes that are classified correctly with stored features."""
    mean_age: float
    """Mean age of the stored features that were read, in batches."""


class CountedBatches(Answered, BatchFigures):
    """Means over the batches of a run on real data; times are medians of one thread of this processor."""

    storing_s: float
    """Time to store the roots' hidden features, off the critical path (s)."""
    largest_difference: float
    """Largest difference of a log-probability between features of age 0 and features computed again."""


class BatchSizes(Part):
    """Size and number of the batches."""

    roots: int
    """Target nodes of a batch."""
    stored: Share
    """Share of the visited roots whose hidden features are stored."""
    batches: int
    """Batches that answer for all test nodes."""


class StoredBatches(BatchFigures, BatchSizes):
    """Batches of one size with one share of visited nodes stored, on the SoC's CPU."""

    indexing_s: float
    """Part of `latency_stored_s` that gathers stored features (s)."""
    storing_s: float
    """Time to store the roots' hidden features, off the critical path (s)."""
    store_bytes: float
    """Memory of the store at the end, with a 32-bit batch number a node (B)."""
    counted: CountedBatches | None = None
    """A run on real data; null where none was asked for."""


class Period(Answered):
    """Batches between two renewals of the model, as nodes arrive one batch after the other."""

    batches: int
    """Batches in it."""
    nodes: int
    """Nodes of the graph at its end."""
    skipped_share: float
    """Share of the supporting nodes that stored features saved."""
    refill_s: float
    """Time to compute the hidden features of training and validation nodes with the renewed model (s)."""
    longest_latency_s: float
    """Longest time of a batch without stored features (s)."""
    longest_latency_stored_s: float
    """Longest time of a batch with stored features, indexing and storing included (s)."""


class Arrivals(Part):
    """A stream in time: test nodes arrive with their edges, batches answer for them, the model is renewed."""

    roots: int
    """Nodes that arrive with each batch."""
    age_limit: int | None
    """Batches after which a stored feature is dropped; null: never while its model runs."""
    renewed_after: int | None
    """Batches after which the model is renewed, which drops all that is stored; null: never."""
    periods: list[Period]
    """In order of time."""


class StoredFeatures(Part):
    """Batched inference with stored hidden features."""

    hop2: int
    """Neighbours taken of a node that is no root, at most."""
    age_limit: int | None
    """Batches after which a stored feature is dropped; null: never."""
    batches: list[StoredBatches]
    """By batch size and share stored."""
    arrivals: Arrivals | None = None
    """Nodes that arrive one batch after the other; null where nothing was run on real data."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Batch sizes and limits of a study of stored features."""

    roots: Sequence[int]
    stored: Sequence[float] = (1.0,)
    """Shares of visited roots that are stored."""
    age_limit: int | None = None
    """Batches after which a stored feature is dropped."""
    renewed_after: int | None = None
    """Batches after which the model is renewed."""
    hop2: int = 32
    file: Path | None = None
    """Where the store is kept between runs."""


Runner = Callable[[GnnSpec, StorePlan, list[StoredBatches]], StoredFeatures]
"""Runs batches on real data, given what was predicted."""


def stored_features(scenario: Scenario, plan: StorePlan, run: Runner | None = None) -> StoredFeatures:
    """Return what stored hidden features save: predicted, and counted on real data if a runner is given.

    Parameters
    ----------
    scenario : Scenario
        A workload `sage-concat` without pruning's batches; a SoC with a CPU.
    run : callable, optional
        Counts on real data: `npusim.gnn_models.batches.runner_of`.

    Raises
    ------
    ConfigError
        For another network, a data set without the share of its test nodes, or impossible sizes.
    """
    if not isinstance(scenario.network, str | Path):
        raise ConfigError(f"the network `{scenario.baseline.name}`", allowed="a workload by name or file")
    spec = load_gnn(str(scenario.network), split_settings(scenario.settings)[0])
    structure = load_statistics(spec.dataset)
    _check(spec, structure, plan)
    rows = [_predicted(scenario, spec, structure, plan, n, s) for n in plan.roots for s in plan.stored]
    if run is not None:
        return run(spec, plan, rows)
    return StoredFeatures(hop2=plan.hop2, age_limit=plan.age_limit, batches=rows)


def _check(spec: GnnSpec, structure: GraphStructure, plan: StorePlan) -> None:
    if spec.model != "sage-concat" or spec.batch is not None or spec.layers != 2:
        allowed = "sage-concat of two layers, without `batch`: `--roots` says it"
        raise ConfigError(f"`{spec.model}`", file="--roots", allowed=allowed)
    if structure.test_share is None or structure.training_neighbours is None:
        allowed = "a data set with test_share and training_neighbours, such as cora or citeseer"
        raise ConfigError(f"`{structure.name}`", key="dataset", allowed=allowed)
    most = _test_nodes(structure)
    for roots in plan.roots:
        if not 1 <= roots <= most:
            raise NpusimError(f"--roots: found {roots}; allowed: from 1 to {most}, the test nodes")
    for share in plan.stored:
        if not 0.0 <= share <= 1.0:
            raise NpusimError(f"--stored: found {share:g}; allowed: shares from 0 to 1")


def _test_nodes(structure: GraphStructure) -> int:
    return round((structure.test_share or 0.0) * structure.nodes)


def known_shares(structure: GraphStructure, plan: StorePlan, roots: int, stored: float) -> list[float]:
    """Return the share of the roots' neighbours whose features are stored, batch by batch."""
    count = -(-_test_nodes(structure) // roots)
    if stored == 0.0:
        return [0.0] * count
    limit = count if plan.age_limit is None else plan.age_limit
    before = [(structure.training_neighbours or 0.0) if b <= limit else 0.0 for b in range(count)]
    visited = (stored * min(b, limit) * roots / structure.nodes for b in range(count))
    return [min(1.0, known + share) for known, share in zip(before, visited, strict=True)]


def _predicted(
    scenario: Scenario, spec: GnnSpec, structure: GraphStructure, plan: StorePlan, roots: int, stored: float
) -> StoredBatches:
    """Return the nodes and times of mean batches by the degrees of the graph."""
    shares = known_shares(structure, plan, roots, stored)

    def batch(share: float) -> Batch:
        return Batch(roots=roots, hop2=plan.hop2, stored=share, counted="distinct")

    def estimated(share: float) -> Estimate:
        keys = {"form": "csr", "batch": batch(share).model_dump()}
        changed = GnnSpec.model_validate(spec.model_dump(exclude_unset=True) | keys)
        return _on_cpu(scenario, build_gnn(changed, structure))

    supports = [support_of(batch(share), structure, spec.layers).nodes[0] for share in (0.0, *shares)]
    nodes, nodes_stored = float(supports[0]), float(np.mean(supports[1:]))
    plain, with_store = estimated(0.0), estimated(float(np.mean(shares)))
    held = stored * min(len(shares), plan.age_limit or len(shares)) * roots
    held += (structure.training_neighbours or 0.0) * structure.nodes if stored > 0.0 else 0.0
    width = 2 * spec.hidden
    return StoredBatches(
        roots=roots,
        stored=stored,
        batches=len(shares),
        supporting_nodes=nodes,
        supporting_nodes_stored=nodes_stored,
        skipped_share=1.0 - nodes_stored / nodes,
        latency_s=plain.latency_s,
        latency_stored_s=with_store.latency_s,
        indexing_s=sum(o.latency_s for o in with_store.operators if o.name.startswith("store/")),
        storing_s=_copied_s(scenario, round(stored * roots), width, spec.dtype),
        store_bytes=held * width * spec.dtype.bytes + structure.nodes * 4.0,
    )


def _on_cpu(scenario: Scenario, graph: Graph) -> Estimate:
    return mapped_estimate(Scenario(graph, scenario.machine, device="cpu").mapped)


def _copied_s(scenario: Scenario, rows: int, width: int, dtype: DType) -> float:
    """Return the time to copy rows to or from random places (s)."""
    if not rows:
        return 0.0
    editor = Editor("store", meta=GraphMeta(model="store", precision=dtype))
    x = editor.input("x", (rows, width), dtype)
    index = editor.input("index", (rows,), DType.INT32)
    editor.outputs = [editor.gather(x, index, "copy")]
    return _on_cpu(scenario, editor.finish()).operators[0].latency_s
