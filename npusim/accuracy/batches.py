"""Accuracy of a trained model that infers in mini-batches: edges between batches are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from npusim.accuracy.judging import outputs_of
from npusim.accuracy.models import model_instance
from npusim.accuracy.planetoid import GraphData, read_planetoid
from npusim.accuracy.training import Recipe, accuracy, cached_training
from npusim.config.overrides import Settings
from npusim.errors import ConfigError
from npusim.scenario import Scenario, split_settings
from npusim.studies.stream.strategies import BatchJudgement
from npusim.techniques import parse
from npusim.workloads import build_gnn, load_gnn, load_statistics


def in_batches(data: GraphData, batch: int) -> GraphData:
    """Return a data set without the edges between batches; nodes are batched in order of their numbers."""
    source, target = data.edge_index // batch
    return replace(data, edge_index=data.edge_index[:, source == target])


def judge_of(scenario: Scenario, data: Path | None = None) -> Callable[[int], BatchJudgement]:
    """Return what judges mini-batches of a scenario's network, a workload by name or file.

    Raises
    ------
    ConfigError
        For a network that is no workload: its data set is not known.
    """
    network = scenario.network
    if not isinstance(network, str | Path):
        raise ConfigError(
            f"the network `{scenario.baseline.name}`",
            allowed="a workload by name or file: mini-batches of others are judged without real data",
        )
    settings = split_settings(scenario.settings)[0]
    return lambda batch: judge_batches(str(network), batch, data, overrides=settings)


def judge_batches(
    workload: str,
    batch: int,
    data: Path | None = None,
    seed: int = 0,
    overrides: Settings = (),
) -> BatchJudgement:
    """Train a model on all edges, or take it from the cache, and run it batch by batch.

    Parameters
    ----------
    workload : str
        Name or file of a workload.
    batch : int
        Nodes of a batch.
    data : Path, optional
        Folder with the raw data sets; default: the variable NPUSIM_DATA.
    seed : int
        Of the training.
    overrides : settings
        Settings of the workload, such as "workload.hidden=128".

    Raises
    ------
    FileError
        When the raw data is missing.
    UnknownNameError
        When the data set is not one of Planetoid's that npusim knows.
    """
    spec = load_gnn(workload, overrides)
    whole = read_planetoid(spec.dataset, data)
    trained = cached_training(spec, whole, Recipe(seed=seed))
    graph, stack = build_gnn(spec, load_statistics(spec.dataset), workload), parse("none")
    parts, found = in_batches(whole, batch), []
    for given in (whole, parts):
        instance = model_instance(spec, graph, stack, given, seed)
        instance.module.load_state_dict(trained.parameters)
        instance.module.eval()
        found.append(accuracy(outputs_of(instance, "fp32"), whole.y, whole.test))
    lost = 1.0 - parts.edge_index.shape[1] / np.maximum(whole.edge_index.shape[1], 1)
    return BatchJudgement(float(lost), accuracy=found[1], accuracy_of_all_edges=found[0])
