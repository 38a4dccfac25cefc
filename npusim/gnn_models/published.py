"""Published accuracies and the accuracies of models trained here: predictor of the suite `accuracy`."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from npusim.locate import DATA_VARIABLE, dataset_root
from npusim.validation.figures import Evidence, KeyedFigure, Row, evidence_of, read_figures
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine

SEEDS = (0, 1, 2)
"""Seeds of the trainings; the median accuracy is compared."""
_DATASET = "cora"


class PublishedAccuracies:
    """Trains each model of a file of accuracies (%), where the raw data are at hand."""

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the published accuracies and the medians over the seeds; a note without data."""
        figures, _ = read_figures(suite, path)
        missing = _missing()
        rows, notes = [], [f"nothing was trained: {missing}"] if missing else []
        for figure, key in [] if missing else figures:
            accuracies = _trained(key["model"])
            rows.append(Row(figure.id, figure.value, float(np.median(accuracies)), key))
            notes.append(_spread(key["model"], figure, accuracies))
        return evidence_of(suite, rows, notes, ["model"])


def _missing() -> str:
    """Return what training lacks; nothing where all is at hand."""
    if any(find_spec(name) is None for name in ("torch", "torch_geometric")):
        return 'PyTorch is not installed: pip install "npusim[gnn]"'
    if dataset_root() is None:
        return f"the raw data are not at hand; give --data DIR, or the variable {DATA_VARIABLE}"
    return ""


def _trained(model: str) -> list[float]:
    """Return the accuracy (%) of a model on the test nodes, one per seed."""
    from npusim.gnn_models.judging import judge  # PyTorch is slow to import

    report = judge([f"{model.replace('_', '-')}-{_DATASET}"], (), seeds=SEEDS)
    plain = next(result for result in report.results if result.numbers == "fp32")
    return [100.0 * seed.accuracy for seed in plain.seeds]


def _spread(model: str, figure: KeyedFigure, accuracies: list[float]) -> str:
    low, high = min(accuracies), max(accuracies)
    where = "within" if low <= figure.value <= high else "below" if figure.value < low else "above"
    return (
        f"{model}: {low:.1f} to {high:.1f} % with seeds {SEEDS[0]} to {SEEDS[-1]}, "
        f"{figure.value:g} % published, {where} that range"
    )


FIGURES = PublishedAccuracies()
