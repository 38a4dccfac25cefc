"""Latency and energy of Vision GNNs on a Jetson AGX Xavier, whole and mapped, by MaGNAS."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from npusim.config.reading import read_yaml
from npusim.errors import ConfigError
from npusim.magnas.spec import GraphOperator
from npusim.mapping import ChainProblem
from npusim.scenario import Scenario
from npusim.studies.chain import chain_of, chain_problem, placement_of
from npusim.validation.figures import Key, KeyedFigure, PathPredictor, read_figures
from npusim.validation.suite import Suite, figures_path, load_suite

SOC, WORKLOAD, UNITS = "jetson-agx-xavier", "magnas-vig", ("gpu", "dla")
_QUANTITIES = ("latency", "energy")
_PARTS = ("stem", "grapher", "ffn", "cls")
A3 = "a3"
"""Name of the architecture of Table 3 among the networks."""

SETTINGS: dict[str, tuple[str, ...]] = {
    **{op: (f"workload.operator={op}", "workload.ffn_hidden=320") for op in get_args(GraphOperator)},
    A3: (
        "workload.depth=2",
        "workload.operator=[graphsage,gin,graphsage,gin]",
        "workload.ffn_hidden=320",
        "workload.preprocess=[true,false,false,false]",
    ),
}
"""Settings of the backbone for each network. The paper gives neither the width of the baselines' feed-forward
networks nor which superblock of a3 has pre-processing: docs/vision-gnns.md."""


def predicted(key: Key, problem: ChainProblem) -> float:
    """Return the prediction of a figure (ms or mJ) from the costs of its network's blocks."""
    if key["mapping"] in problem.units:
        placement = np.full(len(problem.blocks), problem.units.index(key["mapping"]))
    else:
        placement = placement_of(problem.blocks, problem.units, key["mapping"].split("/"))
    return 1e3 * float(problem.evaluate(placement[None])[0, _QUANTITIES.index(key["quantity"])])


@cache
def problem_of(network: str) -> ChainProblem:
    """Return the costs of a network's blocks on GPU and DLA."""
    scenario = _scenario(network)
    return chain_problem(scenario, chain_of(scenario.graph), UNITS)


@cache
def _scenario(network: str) -> Scenario:
    return Scenario(WORKLOAD, SOC, settings=SETTINGS[network])


def shipped_figures() -> list[tuple[KeyedFigure, Key]]:
    """Return the published figures."""
    suite = load_suite("magnas")
    path = figures_path(suite)
    return FIGURES.figures(suite, path)[0]


def _letters(document: Any, path: Path, row: int) -> str:
    """Return the letters of a row of Table 3."""
    at = ("magnas", "table3_cifar100_a3", row)
    parts = document.data["magnas"]["table3_cifar100_a3"][row]
    letters = tuple(str(parts.get(name, "")) for name in _PARTS)
    try:
        placement_of(chain_of(_scenario(A3).graph).blocks, UNITS, letters)
    except ConfigError as error:
        key, line = ".".join(map(str, at)), document.line((*at, "stem"))
        raise ConfigError(error.found, file=str(path), line=line, key=key, allowed=error.allowed) from None
    return "/".join(letters)


class MagnasFigures(PathPredictor):
    """Predicts MaGNAS's figures; mappings of Table 3 are letters in its rows, parted by `/`."""

    def figures(self, suite: Suite, path: Path) -> tuple[list[tuple[KeyedFigure, Key]], list[str]]:
        """Return the figures of a file with their columns, and notes.

        Raises
        ------
        FileError, ConfigError
            Where the file cannot be read, or a row's strings are no mapping.
        """
        (figures, notes), document = read_figures(suite, path), read_yaml(path)
        return [
            (figure, {**key, "mapping": key["mapping"] or _letters(document, path, int(key["row"]))})
            for figure, key in figures
        ], notes


FIGURES = MagnasFigures(lambda key: predicted(key, problem_of(key["network"])))
