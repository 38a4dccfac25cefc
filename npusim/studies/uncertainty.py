"""Intervals: the estimate repeated on many machines that the data sheet's uncertainties allow."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from npusim.arch import Calibration, Soc
from npusim.arch.soc import OTHER_OPERATORS
from npusim.config import SET_BY_YOU, valid_paths
from npusim.cost import TOTAL_DTYPE
from npusim.engines.document_head import RestsOn
from npusim.engines.estimate import Estimate
from npusim.mapping import Mapped
from npusim.metrics import METRICS, SAMPLES
from npusim.studies import perturbation
from npusim.studies.perturbation import Uncertain
from npusim.studies.sustained import sustained_intervals

_TELLING = 0.05
"""Least share of a variance that names its parameter."""
_SAME = 1e-9
_SHORTEST_S = 1e-12
_RAISED, _HALF, _WELL_KNOWN = 0.05, 0.5, 0.09
"""By how much a number is raised, the share of the time that makes it worth naming, and the uncertainty."""
DRAWN_METRICS = ("throughput_per_s", "energy_j", "power_w", "edp_js", "ops_per_j", "area_mm2")
"""Metrics of an estimate with an interval, besides the latency."""
EQUATIONS = "equations"
"""First word of the names of model errors."""


class Draws(NamedTuple):
    """The totals of several mapped graphs on the machines that were drawn."""

    totals: Any
    """Array of TOTAL_DTYPE, shape (graphs, samples)."""
    numbers: Sequence[Uncertain]
    normals: Any
    """The deviates behind the samples, shape (samples, numbers)."""
    timed: int
    """How many of the numbers may change a time; the further ones change energy, power and area alone."""

    @property
    def latency_s(self) -> Any:
        """Latencies, array of shape (graphs, samples)."""
        return self.totals["latency_s"]

    @property
    def interval_s(self) -> Any:
        """Times between two inferences, array of shape (graphs, samples)."""
        return 1.0 / self.totals["throughput_per_s"]

    def metric_interval(self, name: str, i: int) -> tuple[float, float]:
        """Return the 90 % interval of a metric (`METRICS`) of a graph."""
        return perturbation.quantiles(METRICS[name].values(self.totals[i]))

    def latency_interval(self, i: int) -> tuple[float, float]:
        """Return the 90 % interval of a graph's latency (s)."""
        return self.metric_interval("latency_s", i)

    def speedup_interval(self, i: int, over: int) -> tuple[float, float]:
        """Return the 90 % interval of the throughput ratio to another graph."""
        return perturbation.quantiles(self.interval_s[over] / self.interval_s[i])

    def sources(self, i: int, over: int) -> dict[str, float]:
        """Return the numbers that make a speed-up uncertain: their share of its variance, largest first.

        Shares are squared correlations of the speed-up's logarithm; at most three, none below 5 %.
        """
        return self._shares(np.log(self.interval_s[over] / self.interval_s[i]))

    def latency_sources(self, i: int) -> dict[str, float]:
        """Return the numbers that make a graph's latency uncertain, as `sources` does."""
        return self._shares(np.log(self.latency_s[i]))

    def _shares(self, values: Any) -> dict[str, float]:
        if not self.timed or np.ptp(values) < _SAME:
            return {}
        centred, normals = values - values.mean(), self.normals[:, : self.timed]
        scale = np.sqrt((normals**2).sum(axis=0) * (centred**2).sum())
        shares = (normals.T @ centred / scale) ** 2
        order = np.argsort(-shares)[:3]
        return {self.numbers[j].name: round(float(shares[j]), 3) for j in order if shares[j] >= _TELLING}


def method_of(soc: Soc, samples: int, seed: int) -> str:
    """Return how intervals of a SoC were found and what they rest on, in a sentence."""
    method = f"90 % intervals: {samples} machines drawn from the data sheet's uncertainties (seed {seed})"
    if soc.calibration is not None:
        method += f", with the error of the equations as measured on {soc.calibration.chip}"
    elif any(device.network_error for device in soc.devices.values()):
        method += ", with the error of the equations on classes of networks that no fit saw"
    else:
        method += "; what the equations leave out is not in them"
    numbers = valid_paths(soc).items()
    chosen = [path for path, number in numbers if getattr(number, "source", "") == SET_BY_YOU]
    if chosen:
        method += f"; as you set them, without error: {', '.join(chosen)}"
    if soc.calibration is not None and not {*chosen}.isdisjoint(soc.calibration.parameters):
        method += " (the calibration was fitted with other values)"
    return method


def with_interval(estimate: Estimate, mapped: Mapped) -> Estimate:
    """Return an estimate with the 90 % intervals of its metrics, as `draw` finds them."""
    draws = draw([mapped])
    intervals = {name: draws.metric_interval(name, 0) for name in DRAWN_METRICS}
    notes = [*estimate.provenance["notes"], method_of(mapped.soc, SAMPLES, seed=0)]
    provenance = {**estimate.provenance, "notes": notes}
    update: dict[str, Any] = {
        "latency_interval_s": draws.latency_interval(0),
        "intervals": intervals,
        "provenance": provenance,
    }
    if estimate.sustained is not None:
        update["sustained"] = sustained_intervals(estimate.sustained, mapped.soc, draws.totals[0])
    return estimate.model_copy(update=update)


def draw(mapped: Sequence[Mapped], samples: int = SAMPLES, seed: int = 0) -> Draws:
    """Evaluate mapped graphs on machines that the uncertainties of the data sheet allow.

    Each number with an uncertainty (a relative standard deviation) is drawn log-normally around its value,
    clipped to what its kind allows. The draws are a Latin hypercube. A number has the same draws wherever it
    is used, so shared errors of two stacks cancel in their ratio. Decisions (fusion, residency, placement)
    stay as mapped; the tiling is searched again. The error of the equations of energy is unknown: energies
    rest on the numbers of the sheet alone.

    If the data sheet was fitted to measurements (`Soc.calibration`), fitted numbers are drawn with the
    correlations of the fit. Each type of operator then errs by a factor of its own, as wide as the errors on
    operators held out of the fit. Otherwise numbers are drawn independently, NPUs run at the operating points
    of their `governor`, and a graph errs on each device by its `network_error`, the same factor for all
    graphs; a sheet without it excludes the errors of the equations.
    """
    soc, used = perturbation.with_library(mapped[0].soc, mapped)
    numbers = perturbation.uncertain_numbers(soc, used) + perturbation.governors(soc)
    known = len(numbers)
    errors, shares = _model_errors(soc.calibration, mapped) if soc.calibration else _network_errors(mapped)
    numbers += errors
    timed = len(numbers)
    numbers += perturbation.uncertain_energies(soc)
    normals = perturbation.deviates([number.name for number in numbers], samples, seed)
    if soc.calibration is not None:
        _correlate(normals, numbers, soc.calibration)
    totals = np.zeros((len(mapped), samples), TOTAL_DTYPE)
    sigma = np.array([number.sigma for number in numbers[known:timed]])
    of_machine = [*range(known), *range(timed, len(numbers))]
    for s in range(samples):
        machine = perturbation.sampled(soc, [numbers[j] for j in of_machine], normals[s, of_machine])
        factors = np.exp(shares @ (sigma * normals[s, known:timed]))
        for i, total in enumerate(perturbation.evaluated(mapped, machine)):
            totals[i, s] = total
            _stretch(totals[i, s], factors[i])
    return Draws(totals, numbers, normals, timed)


def _stretch(total: Any, factor: float) -> None:
    """Multiply in place the times of a record of totals, and the energy of idling and leaking."""
    standing_j = ("idle_j", "static_j")
    energy_j = float(total["energy_j"])
    total["energy_j"] += (factor - 1.0) * sum(float(total[name]) for name in standing_j)
    total["ops_per_j"] *= energy_j / float(total["energy_j"]) if energy_j > 0.0 else 1.0
    for name in ("latency_s", *standing_j):
        total[name] *= factor
    total["throughput_per_s"] /= factor


def rests_on(mapped: Mapped, draws: Draws, i: int) -> RestsOn | None:
    """Return the uncertain number that carries more than half of the latency of the i-th drawn graph.

    Each number that the interval depends on is raised alone, and the graph evaluated again. None where no
    number carries as much, or where that number is well known.
    """
    soc, _ = perturbation.with_library(mapped.soc, [mapped])
    numbers = {number.name: number for number in draws.numbers if number.path[0] != EQUATIONS}
    shares: list[tuple[float, Uncertain]] = []
    for name in draws.latency_sources(i):
        if name in numbers and not numbers[name].whole:
            raised = perturbation.moved(soc, {numbers[name].path: numbers[name].value * (1.0 + _RAISED)})
            (total,) = perturbation.evaluated([mapped], raised)
            ratio = float(total["latency_s"] / mapped.total["latency_s"])
            shares.append((abs(np.log(ratio) / np.log1p(_RAISED)), numbers[name]))
    share, number = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if number is None or share <= _HALF or number.sigma < _WELL_KNOWN:
        return None
    stated, kernel = perturbation.number_at(soc, number.path), perturbation.number_at(soc, number.path[:-1])
    texts = (getattr(stated, "source", ""), getattr(stated, "note", ""), getattr(kernel, "source", ""))
    source = "; ".join(filter(None, texts))
    uncertainty = float(stated.uncertainty or 0.0)
    return RestsOn(number=number.name, value=stated.text, uncertainty=uncertainty, source=source, share=share)


def _model_errors(calibration: Calibration, mapped: Sequence[Mapped]) -> tuple[list[Uncertain], Any]:
    """Return the model error of each operator type, and each graph's share of time in it (graphs, types).

    Operators of one type err together, types independently: what the equation of a type omits is missing
    wherever it is used.
    """
    shares: list[dict[str, float]] = []
    for graph in mapped:
        by_type: dict[str, float] = {}
        total_s = max(float(graph.total["latency_s"]), float(graph.results["latency_s"].sum()))
        for group, result in zip(graph.decisions.groups, graph.results, strict=True):
            device = graph.soc.devices.get(group.device)
            if device is not None and device.kind == calibration.device and total_s > 0.0:
                kind = graph.graph.operators[group.main].type
                kind = kind if kind in calibration.model_error else OTHER_OPERATORS
                by_type[kind] = by_type.get(kind, 0.0) + float(result["latency_s"]) / total_s
        shares.append(by_type)
    types, sigma = sorted(set().union(*shares)), calibration.model_error
    errors = [Uncertain((EQUATIONS, kind), 1.0, sigma[kind], float("inf"), False) for kind in types]
    return errors, np.array([[by_type.get(kind, 0.0) for kind in types] for by_type in shares])


def _network_errors(mapped: Sequence[Mapped]) -> tuple[list[Uncertain], Any]:
    """Return the error of networks on each device that states one, and each graph's share of time on it."""
    soc = mapped[0].soc
    stated = {name: float(device.network_error or 0.0) for name, device in soc.devices.items()}
    names = [name for name, sigma in stated.items() if sigma]
    shares = np.zeros((len(mapped), len(names)))
    for row, graph in zip(shares, mapped, strict=True):
        places = [group.device for group in graph.decisions.groups]
        busy_s = [float(graph.results["latency_s"][[p == name for p in places]].sum()) for name in names]
        row[:] = np.array(busy_s) / max(float(graph.results["latency_s"].sum()), _SHORTEST_S)
    errors = [
        Uncertain((EQUATIONS, f"networks on {name}"), 1.0, stated[name], float("inf"), False)
        for name in names
    ]
    return errors, shares


def _correlate(normals: Any, numbers: Sequence[Uncertain], calibration: Calibration) -> None:
    """Correlate in place the deviates of numbers that were fitted together."""
    place = {number.name: i for i, number in enumerate(numbers)}
    there = [k for k, name in enumerate(calibration.parameters) if name in place]
    if len(there) < 2:
        return
    size = len(calibration.parameters)
    lower = np.array([row + [0.0] * (size - len(row)) for row in calibration.correlation])
    whole = (lower + np.tril(lower, -1).T)[np.ix_(there, there)]
    strengths, directions = np.linalg.eigh(whole)
    # Rounded correlations may leave a direction a little below nothing.
    root = directions @ np.diag(np.sqrt(np.maximum(strengths, 0.0))) @ directions.T
    columns = [place[calibration.parameters[k]] for k in there]
    normals[:, columns] = normals[:, columns] @ root
