"""Document of npusim prune: accuracy and time of pruned networks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.gnn_models.document import Training
from npusim.reporting.kinds import DocumentKind


class PrunedSeed(Part):
    """One trained network, pruned and trained again."""

    seed: int
    """Of the initial parameters, dropout and random choices."""
    baseline_accuracy: float
    """Share of the test nodes that the unpruned network classifies correctly."""
    cut_accuracy: float
    """The same with the channels gone and the weights as they were."""
    refitted_accuracy: float
    """The same after refitting, before further training."""
    accuracy: float
    """The same after training the pruned network, at the epoch that answers the validation nodes best."""
    pruning_s: float
    """Time of choosing and refitting (s)."""
    retraining_s: float
    """Time of training the pruned network (s)."""


class PrunedNetwork(Part):
    """A network at one budget, by one method."""

    budget: float
    """How many times fewer channels."""
    method: Literal["lasso", "random", "max-response"]
    """How channels were chosen."""
    accuracy: float
    """Mean share of the test nodes that are classified correctly, after training again."""
    cut_accuracy: float
    """The same with the channels gone and the weights as they were."""
    refitted_accuracy: float
    """The same before training again."""
    lost_points: float
    """Mean of what is lost against the unpruned network of the same seed, in points (%)."""
    lost_error_points: float | None = None
    """Standard error of that mean, by how much the seeds differ; null with one seed."""
    macs: float
    """Multiply-accumulates of an inference of all nodes, sums over neighbours included; of the first seed."""
    weight_bytes: float
    """Bytes of the weights in the workload's precision."""
    channels: list[list[tuple[int, int, int]]]
    """Of each layer, of each branch or attention head: order, inputs, outputs; of the first seed."""
    seeds: list[PrunedSeed]
    """One entry a seed."""


class NetworkRun(Part):
    """A pruned network on a machine under a technique stack."""

    budget: float
    """How many times fewer channels; 1: not pruned."""
    soc: str
    """The machine."""
    techniques: str
    """The technique stack."""
    latency_s: float
    """Latency of an inference (s)."""
    energy_j: float
    """Energy of an inference (J)."""
    dram_peak_bytes: float
    """Memory that it occupies (B)."""
    accuracy: float
    """Mean share of the test nodes that are classified correctly, in fp32."""


class CurvePoint(Part):
    """One layer pruned by a share, all others as they were (GCNP, Fig. 4)."""

    method: Literal["lasso", "random", "max-response"]
    """How channels were chosen."""
    share_pruned: float
    """Share of the layer's input channels that are gone."""
    loss: float
    """Squared error of the layer's results over their squares, on the training graph, after refitting."""
    accuracy: float
    """Share of the test nodes that are classified correctly, without training again."""


class PruningReport(Document):
    """Channel pruning of a trained GNN: answers, work, memory and time by budget and method."""

    schema_: Literal["npusim.prune/1"] = Field("npusim.prune/1", alias="schema")
    """Version of this document."""
    workload: str
    """The network."""
    scheme: Literal["full", "batched"]
    """Which layers are pruned."""
    multiple: int
    """Channels a branch puts out are kept in multiples of this."""
    training: Training
    """How networks were trained, before and after."""
    baseline_accuracy: float
    """Mean share of the test nodes that the unpruned network classifies correctly."""
    networks: list[PrunedNetwork]
    """By budget and method."""
    runs: list[NetworkRun]
    """Networks by LASSO on machines."""
    curve: list[CurvePoint]
    """Layer 2 of the first seed's network, pruned by rising shares; of gcn and gat their second layer."""
    files: list[str]
    """Files written: pruned parameters, workloads and OpenVINO models."""


DOCUMENT = DocumentKind("prune", "npusim.pruning.document:PruningReport", "npusim.pruning.page:pruning_page")
