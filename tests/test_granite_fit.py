"""The fit behind GraNNite's figures: the shipped numbers are its optimum, and nothing rests on a single
recollection.
"""

import numpy as np
import pytest

from npusim.arch import load_soc
from npusim.calibrate.granite_fit import GraniteFit, given_figures, load_plan


@pytest.fixture(scope="module")
def fit() -> GraniteFit:
    return GraniteFit(load_plan(), given_figures())


def _shipped(fit: GraniteFit) -> np.ndarray:
    """Logarithms of the parameters as the data sheets hold them."""
    found: dict[str, float] = {}
    priors = {name: parameter.prior.value for name, parameter in fit.plan.parameters.items()}
    for name, parameter in fit.plan.parameters.items():  # what another stands on comes before it
        number = parameter.numbers[0]
        soc = load_soc(number.socs[0])
        given = fit.socs(fit.start)[number.socs[0]]
        unit = number.value(priors[name], priors) / _number(given, number.path)
        beyond = found.get(number.beyond, 0.0)
        found[name] = (_number(soc, number.path) * unit - beyond) / number.share
    return np.log([found[name] for name in fit.names])


def _number(soc: object, path: str) -> float:
    here = soc
    for name in path.split("."):
        here = here[name] if isinstance(here, dict) else getattr(here, name)
    return float(here)  # type: ignore[arg-type]


def test_the_data_sheets_hold_the_most_likely_numbers(fit: GraniteFit) -> None:
    logs = _shipped(fit)

    def cost(at: np.ndarray) -> float:
        return float((fit.residuals(at) ** 2).sum())

    here = cost(logs)
    for i in range(len(logs)):
        for step in (-0.1, 0.1):
            there = logs.copy()
            there[i] += step
            assert cost(there) > here - 0.05, fit.names[i]


def test_a_figure_that_is_left_out_has_no_residual(fit: GraniteFit) -> None:
    everything = fit.residuals(fit.start)
    for i in range(len(fit.figures)):
        assert np.allclose(fit.residuals(fit.start, left_out=i), np.delete(everything, i))


def test_at_their_medians_priors_cost_nothing(fit: GraniteFit) -> None:
    assert np.allclose(fit.residuals(fit.start)[len(fit.figures) :], 0.0)


def test_every_parameter_states_where_its_prior_comes_from() -> None:
    for parameter in load_plan().parameters.values():
        assert parameter.prior.source and parameter.title
