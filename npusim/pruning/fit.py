"""Fit of the paper's server to GCNP's times; networks of one data set are left out together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.arch import load_soc
from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan
from npusim.calibration.least_squares import Floats
from npusim.pruning.suite import SOC, budget_of, time_on, timed_network
from npusim.studies.perturbation import moved
from npusim.validation.figures import shipped_figures
from npusim.workloads import load_statistics


class TimesFit(FiguresFit):
    """Fit of a device to the times of full inference (GPU) or of batches (CPU)."""

    def __init__(self, device: str) -> None:
        self.machine = load_soc(SOC)
        figure_name = {"gpu": "full_inference_mnodes_per_s", "cpu": "batched_latency_ms"}[device]
        rows = [row for row in shipped_figures("gcnp") if row[1]["figure"] == figure_name]
        keys = [key for _, key in rows]
        nodes = [load_statistics(key["dataset"]).nodes for key in keys]
        published = np.array([figure.value for figure, _ in rows])
        measured_s = np.array(nodes) / published / 1e6 if device == "gpu" else published / 1e3
        self.device = device
        self.graphs = [timed_network(key["dataset"], key["store"], budget_of(key)) for key in keys]
        labels = [figure.id.removeprefix("gcnp.") for figure, _ in rows]
        groups = [key["dataset"] for key in keys]
        super().__init__(load_plan("gcnp", FitPlan), device, labels, measured_s, groups, ["s"] * len(rows))

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the times of all figures (s)."""
        homes = {("devices", *name.split(".")): value for name, value in values.items()}
        machine = moved(self.machine, homes)
        return np.array([time_on(machine, graph, self.device) for graph in self.graphs])


GCNP = FiguresFits("gcnp", TimesFit)
