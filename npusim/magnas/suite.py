"""Latency and energy of MaGNAS's Vision GNNs on a Jetson AGX Xavier, and their fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from npusim.arch import load_soc
from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan
from npusim.calibration.least_squares import Floats
from npusim.config.reading import read_yaml
from npusim.cost import operator_costs
from npusim.errors import ConfigError
from npusim.magnas.spec import GraphOperator
from npusim.mapping import ChainProblem
from npusim.scenario import Scenario
from npusim.studies.chain import chain_of, chain_problem, costs_of_mapped, placement_of
from npusim.studies.perturbation import moved
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
    scenario = Scenario(WORKLOAD, SOC, settings=SETTINGS[network])
    return chain_problem(scenario, chain_of(scenario.graph), UNITS)


def shipped_figures() -> list[tuple[KeyedFigure, Key]]:
    """Return the published figures."""
    suite = load_suite("magnas")
    return FIGURES.figures(suite, figures_path(suite))[0]


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
        blocks = chain_of(Scenario(WORKLOAD, SOC, settings=SETTINGS[A3]).graph).blocks

        def letters(row: int) -> str:
            at = ("magnas", "table3_cifar100_a3", row)
            parts: Any = document.data["magnas"]["table3_cifar100_a3"][row]
            texts = tuple(str(parts.get(name, "")) for name in _PARTS)
            try:
                placement_of(blocks, UNITS, texts)
            except ConfigError as error:
                line, key = document.line((*at, "stem")), ".".join(map(str, at))
                raise ConfigError(
                    error.found, file=str(path), line=line, key=key, allowed=error.allowed
                ) from None
            return "/".join(texts)

        return [
            (figure, {**key, "mapping": key["mapping"] or letters(int(key["row"]))})
            for figure, key in figures
        ], notes


FIGURES = MagnasFigures(lambda key: predicted(key, problem_of(key["network"])))

_POWER = 2.0
"""Exponent of the errors: large errors count more, since the limit binds each figure by itself."""


class MagnasFit(FiguresFit):
    """Fit of the data sheet to the figures.

    Placement by supported operators, fusion and residency do not depend on the fitted numbers, so each
    network is mapped once; equal operators are costed once.

    Parameters
    ----------
    hidden : str, optional
        Width of the feed-forward networks of the baselines, which the paper does not give; None: the suite's.
    """

    def __init__(self, case: str, hidden: str | None = None) -> None:
        figures, self.machine = shipped_figures(), load_soc(SOC)
        self.keys = [key for _, key in figures]
        scenarios = {
            network: Scenario(
                WORKLOAD,
                SOC,
                settings=settings
                if hidden is None or network == A3
                else (*settings, f"workload.ffn_hidden={hidden}"),
            )
            for network, settings in SETTINGS.items()
        }
        self.chains = {network: chain_of(scenario.graph) for network, scenario in scenarios.items()}
        self.mapped = {
            (network, unit): scenario.with_(device=unit).mapped
            for network, scenario in scenarios.items()
            for unit in UNITS
        }
        rows = np.concatenate([one.lowered.ops for one in self.mapped.values()])
        keys = rows.view(np.dtype((np.void, rows.dtype.itemsize)))
        _, first, self.kind = np.unique(keys, return_index=True, return_inverse=True)
        self.rows = rows[first]
        labels = [figure.id.removeprefix("magnas.") for figure, _ in figures]
        super().__init__(load_plan("magnas", FitPlan), case, labels, [figure.value for figure, _ in figures])

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all figures."""
        paths = {name: tuple(name.split(".")) for name in values}
        homes = {name: path if path[0] == "dram" else ("devices", *path) for name, path in paths.items()}
        soc = moved(self.machine, {homes[name]: value for name, value in values.items()})
        arch = next(iter(self.mapped.values())).run.row(soc)
        ends = np.cumsum([len(one.lowered.ops) for one in self.mapped.values()])[:-1]
        results = np.split(operator_costs(arch, self.rows)[self.kind], ends)
        changed = {
            place: replace(mapped, soc=soc, arch=arch, results=own)
            for (place, mapped), own in zip(self.mapped.items(), results, strict=True)
        }
        problems = {}
        for network, chain in self.chains.items():
            each = {unit: changed[network, unit] for unit in UNITS}
            problems[network] = costs_of_mapped(each, chain, soc).problem(chain, UNITS)
        return np.array([predicted(key, problems[key["network"]]) for key in self.keys])

    def errors(self, values: Mapping[str, float]) -> Floats:
        """Return the weighted errors of all figures."""
        errors = super().errors(values)
        return np.sign(errors) * np.abs(errors) ** _POWER


MAGNAS = FiguresFits("magnas", MagnasFit, options={"hidden": "width of the baselines' feed-forward networks"})
