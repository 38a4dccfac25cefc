"""Published accuracies and the accuracies of models trained here: predictor of the suite `accuracy`."""

from statistics import median

from npusim.validation.figures import Key, PathPredictor

SEEDS = (0, 1, 2)
"""Seeds of the trainings; the median accuracy is compared."""
_DATASET = "cora"


def _accuracy(key: Key) -> float:
    """Return the median accuracy (%) of a model on the test nodes; a `FileError` without data or PyTorch."""
    from npusim.gnn_models.judging import judge  # PyTorch is slow to import

    report = judge([f"{key['model'].replace('_', '-')}-{_DATASET}"], (), seeds=SEEDS)
    plain = next(result for result in report.results if result.numbers == "fp32")
    return 100.0 * median(seed.accuracy for seed in plain.seeds)


FIGURES = PathPredictor(_accuracy, skips_errors=True)
"""Accuracies of models trained here, where the raw data are at hand."""
