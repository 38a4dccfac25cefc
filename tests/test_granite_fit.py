"""The fit behind GraNNite's figures: the shipped numbers are its optimum, and nothing rests on a single
recollection.
"""

import numpy as np
import pytest

from npusim.arch import load_soc
from npusim.calibration.fits import load_plan
from npusim.calibration.published_fits import GraniteFit, Plan


@pytest.fixture(scope="module")
def fit() -> GraniteFit:
    return GraniteFit("GraNNite")


@pytest.fixture(scope="module")
def shipped(fit: GraniteFit) -> dict[str, float]:
    """Parameters as the data sheets hold them."""
    values: dict[str, float] = {}
    priors = {name: parameter.prior.value for name, parameter in fit.plan.parameters.items()}
    socs_at_priors = fit.socs(priors)
    for name, parameter in fit.plan.parameters.items():  # what another stands on comes before it
        number = parameter.numbers[0]
        soc = load_soc(number.socs[0])
        unit = number.value(priors[name], priors) / _number(socs_at_priors[number.socs[0]], number.path)
        beyond = values.get(number.beyond, 0.0)
        values[name] = (_number(soc, number.path) * unit - beyond) / number.share
    return values


def _number(soc: object, path: str) -> float:
    here = soc
    for name in path.split("."):
        here = here[name] if isinstance(here, dict) else getattr(here, name)
    return float(here)  # type: ignore[arg-type]


def _deviations(fit: GraniteFit, values: dict[str, float]) -> np.ndarray:
    """Deviations from the priors in standard deviations."""
    priors = [parameter.prior for parameter in fit.plan.parameters.values()]
    return np.array(
        [np.log(values[n.name] / p.value) / p.width for n, p in zip(fit.free, priors, strict=True)]
    )


@pytest.mark.laws
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_data_sheets_hold_the_most_likely_numbers(
    every: int, fit: GraniteFit, shipped: dict[str, float]
) -> None:

    def cost(values: dict[str, float]) -> float:
        return float((fit.errors(values) ** 2).sum() + (_deviations(fit, values) ** 2).sum())

    here = cost(shipped)
    for name in list(shipped)[::every]:
        for step in (-0.1, 0.1):
            assert cost(shipped | {name: shipped[name] * np.exp(step)}) > here - 0.05, name


def test_a_figure_that_is_left_out_has_no_part_in_the_fit(
    fit: GraniteFit, shipped: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(fit, "_solve", lambda errors, start: seen.append(errors(shipped)))
    everything = fit.errors(shipped)
    for i, label in enumerate(fit.labels):
        fit.solve(label)
        assert np.allclose(seen[-1], np.delete(everything, i))


def test_every_parameter_states_where_its_prior_comes_from() -> None:
    for parameter in load_plan("granite", Plan).parameters.values():
        assert parameter.prior.source and parameter.title
