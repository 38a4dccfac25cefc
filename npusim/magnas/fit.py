"""Fit of a Jetson AGX Xavier to MaGNAS's figures.

Placement by supported operators, fusion and residency do not depend on the fitted numbers, so each network is
mapped once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from npusim.arch import Soc, load_soc
from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan
from npusim.calibration.least_squares import Floats
from npusim.cost import operator_costs
from npusim.magnas.suite import A3, SETTINGS, SOC, UNITS, WORKLOAD, predicted, shipped_figures
from npusim.mapping import ChainProblem, Mapped
from npusim.scenario import Scenario
from npusim.studies.chain import chain_of, costs_of_mapped
from npusim.studies.perturbation import moved

_POWER = 2.0
"""Exponent of the errors: large errors count more, since the limit binds each figure by itself."""


class MagnasFit(FiguresFit):
    """Fit of the data sheet to the figures.

    Parameters
    ----------
    hidden : str, optional
        Width of the feed-forward networks of the baselines, which the paper does not give; None: the suite's.
    """

    def __init__(self, case: str, hidden: str | None = None) -> None:
        figures, self.machine = shipped_figures(), load_soc(SOC)
        self.keys = [key for _, key in figures]
        self.mapped: dict[str, dict[str, Mapped]] = {}
        self.chains = {}
        for network, settings in SETTINGS.items():
            if hidden is not None and network != A3:
                settings = (*settings, f"workload.ffn_hidden={hidden}")
            scenario = Scenario(WORKLOAD, SOC, settings=settings)
            self.chains[network] = chain_of(scenario.graph)
            self.mapped[network] = {unit: scenario.with_(device=unit).mapped for unit in UNITS}
        self.each = [one for units in self.mapped.values() for one in units.values()]
        rows = np.concatenate([one.lowered.ops for one in self.each])  # equal operators are costed once
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
        changed = iter(self._on(soc))
        problems: dict[str, ChainProblem] = {}
        for network, units in self.mapped.items():
            chain, each = self.chains[network], {unit: next(changed) for unit in units}
            problems[network] = costs_of_mapped(each, chain, soc).problem(chain, UNITS)
        return np.array([predicted(key, problems[key["network"]]) for key in self.keys])

    def _on(self, soc: Soc) -> list[Mapped]:
        """Return the networks on a machine whose changed numbers do not affect mapping."""
        arch = self.each[0].run.row(soc)
        results = operator_costs(arch, self.rows)
        ends = np.cumsum([len(one.lowered.ops) for one in self.each])[:-1]
        pairs = zip(self.each, np.split(results[self.kind], ends), strict=True)
        return [replace(mapped, soc=soc, arch=arch, results=own) for mapped, own in pairs]

    def errors(self, values: Mapping[str, float]) -> Floats:
        """Return the weighted errors of all figures."""
        errors = super().errors(values)
        return np.sign(errors) * np.abs(errors) ** _POWER


MAGNAS = FiguresFits("magnas", MagnasFit, options={"hidden": "width of the baselines' feed-forward networks"})
