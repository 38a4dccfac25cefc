"""Tables of docs/granite.md: figures with fit and held-out prediction, parameters, alternatives."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from npusim.calibrate.data_sheet import FittedNumber, with_numbers
from npusim.calibrate.granite_fit import GraniteFit, Result, fit_shipped, given_figures
from npusim.calibrate.least_squares import Floats
from npusim.locate import resource
from npusim.validation.granite import parse_key, predict
from npusim.validation.granite_runs import GraniteRunner

_TIED = 0.6
"""Two parameters are tied when their logarithms are correlated more than this."""
_SOURCE = "[GRANNITE] fitted, docs/granite.md; beforehand"


def figure_table(fit: GraniteFit, best: Result, left_out: Floats) -> Iterator[str]:
    """Yield the lines of the table of figures."""
    yield "| figure | published | fitted | error | left out | error |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for figure, value, alone in zip(fit.figures, best.predicted, left_out, strict=True):
        name = figure.id.removeprefix("granite.")
        errors = [f"{100 * (v / figure.value - 1):+.1f} %" for v in (value, alone)]
        yield f"| {name} | {figure.value:g} | {value:.3g} | {errors[0]} | {alone:.3g} | {errors[1]} |"
    published = np.array([figure.value for figure in fit.figures])
    means = [float(np.abs(v / published - 1).mean()) for v in (best.predicted, left_out)]
    yield f"| mean of the errors' sizes | | | {100 * means[0]:.1f} % | | {100 * means[1]:.1f} % |"


def parameter_table(fit: GraniteFit, best: Result) -> Iterator[str]:
    """Yield the lines of the table of parameters."""
    yield "| parameter | value | one sigma | prior | prior's width | pull | figures bearing on it | tied to |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    rows = zip(best.names, best.values, best.sigma, best.figures_of, strict=True)
    for i, (name, value, sigma, figures) in enumerate(rows):
        parameter = fit.plan.parameters[name]
        pull = (best.logs[i] - fit.start[i]) / fit.widths[i]
        unit = parameter.numbers[0].unit
        yield (
            f"| {parameter.title} | {value:.4g} {unit} | {100 * sigma:.0f} % | {parameter.prior.value:g} | "
            f"{100 * parameter.prior.width:.0f} % | {pull:+.1f} | {figures} | "
            f"{', '.join(tied(best, i)) or '-'} |"
        )


def tied(best: Result, index: int) -> list[str]:
    """Return the parameters correlated with one: only their sum or ratio is determined."""
    sigma = best.sigma
    correlation = best.covariance[index] / (sigma[index] * sigma)
    return [
        f"{best.names[i]} ({value:+.1f})"
        for i, value in enumerate(correlation)
        if i != index and abs(value) > _TIED
    ]


def alternatives(runner: GraniteRunner) -> Iterator[str]:
    """Yield the lines of the table of other readings, each beside the one that holds."""
    published = {figure.id: f"{figure.value:g}" for figure in given_figures()}
    yield "| other reading | figure | published | as defined | read so |"
    yield "| --- | --- | --- | --- | --- |"
    for other in runner.definitions.alternatives:
        changed, title = runner.with_alternative(other), other.title
        for figure in other.figures:
            key = parse_key(f"granite.{figure}")
            assert key is not None, f"{figure} is no figure of the suite"
            values = [f"{predict(key, each):.3g}" for each in (runner, changed)]
            yield f"| {title} | {figure} | {published.get(f'granite.{figure}', '-')} | {' | '.join(values)} |"
            title = ""


def numbers_of(fit: GraniteFit, best: Result, soc: str) -> list[FittedNumber]:
    """Return the fitted numbers of one SoC's data sheet."""
    found = []
    values = dict(zip(best.names, best.values.tolist(), strict=True))
    priors = {name: parameter.prior.value for name, parameter in fit.plan.parameters.items()}
    for i, (name, parameter) in enumerate(fit.plan.parameters.items()):
        with_ = tied(best, i)
        names = ", ".join(other.partition(" ")[0] for other in with_)
        note = f"; tied to {names}, sums are better determined" if with_ else ""
        for number in parameter.numbers:
            if soc in number.socs:
                value = number.value(values[name], values)
                sigma = float(best.sigma[i])
                if number.beyond:  # of two parameters, each with an error of its own
                    other = float(best.sigma[best.names.index(number.beyond)]) * values[number.beyond]
                    sigma = float(np.hypot(sigma * values[name] * number.share, other)) / value
                before = f"{_SOURCE} {number.value(priors[name], priors):.3g} {number.unit}".rstrip()
                before = number.source or before
                found.append(FittedNumber(number.path, value, number.unit, sigma, before + note, False))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print the tables, and write the data sheets when asked to."""
    parser = argparse.ArgumentParser(prog="python -m npusim.calibrate.granite_fit", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="write the fitted numbers into the data sheets")
    parser.add_argument("--quick", action="store_true", help="leave out the leave-one-out predictions")
    options = parser.parse_args(arguments)
    fit, best = fit_shipped()
    left_out = best.predicted if options.quick else fit.leave_one_out(best)
    runner = fit.runner.with_socs(fit.socs(best.logs))
    for part in (figure_table(fit, best, left_out), parameter_table(fit, best), alternatives(runner)):
        print("\n".join(part), end="\n\n")
    if options.write:
        for soc in sorted({name for p in fit.plan.parameters.values() for n in p.numbers for name in n.socs}):
            path = Path(resource("configs", "socs", f"{soc}.yaml"))
            path.write_text(with_numbers(path.read_text("utf-8"), numbers_of(fit, best, soc)), "utf-8")
            print(f"wrote {path}")
