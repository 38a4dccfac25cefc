"""MaGNAS's tables and figures of mapping, operating points and search, from the model.

Table 3 (transitions), Table 4 (latency allowed), Table 5 (power allowed), Figure 7 (operating points), Figure
8 (isotropic and pyramid backbone), Figure 9 (blocks and layers), Figure 10 (evolution and chance). Networks
are those of suite `magnas`; docs/vision-gnns.md says what the paper leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from npusim.api.asking import Progress
from npusim.config.reading import read_yaml
from npusim.errors import InfeasibleError, UnknownNameError, as_list
from npusim.locate import resource
from npusim.magnas.documents import MappingFigure, MappingFigures, MappingStatement
from npusim.magnas.suite import A3, SETTINGS, SOC, UNITS, WORKLOAD, problem_of, shipped_figures
from npusim.mapping import ChainProblem, Granularity, chain_front
from npusim.scenario import Scenario
from npusim.studies.chain import ChainOnDevices, chain_of, chain_problem, letters_of, placement_of
from npusim.studies.evolution import Budget, Genes, SearchMethod, searched
from npusim.studies.map_front import (
    Limits,
    PlacedUnits,
    at_points,
    coarser_start,
    combinations_of,
    fitness,
    placed_units,
)
from npusim.studies.pareto import hypervolume
from npusim.validation.figures import Row, RowPredictor
from npusim.validation.suite import Suite, suite_file

ARRAYS, PYRAMID = "three-arrays", "pyramid-vig-m"
TRANSITIONS = (0, 1, 2, 4, 8)
"""Limits on the transitions of Table 3's placements; a search without limit follows."""
EVALUATIONS, LONG_SEARCH = 5_000, 60_000
"""Placements costed for Figure 10, and for Figure 9 (section 5.7)."""
_ROUNDING = 1e-9
"""Relative difference of equal values by the order of sums."""
_EXPONENTS = (1.0, 1.0)
"""Exponents of energy and latency in Eq. 13 (section 5.5)."""
_OF_FIGURE_8 = ("workload.operator=gin", "workload.depth=4", "workload.ffn_hidden=192")
"""Section 5.7.1: GIN, depth 4, hidden width 192; nothing skipped."""
_GPU = UNITS.index("gpu")
_QUANTITIES = {"latency": "s", "energy": "J"}


class _Sheet:
    """Numbers and statements of one table or figure, as it adds them."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.figures: list[MappingFigure] = []
        self.statements: list[MappingStatement] = []

    def number(
        self, what: str, quantity: str, ours: float, paper: float | None = None, unit: str = ""
    ) -> None:
        """Add a number, beside the paper's where that gives one."""
        row = {"figure": self._title, "what": what, "quantity": quantity, "unit": unit, "paper": paper}
        self.figures.append(MappingFigure(**row, ours=float(ours)))

    def costs(self, what: str, values: Any, paper: Sequence[float | None] = (None, None)) -> None:
        """Add latency (s) and energy (J)."""
        for (quantity, unit), ours, theirs in zip(_QUANTITIES.items(), values, paper, strict=True):
            self.number(what, quantity, ours, theirs, unit)

    def says(self, what: str, holds: Any) -> None:
        """Add a statement of the paper."""
        self.statements.append(MappingStatement(figure=self._title, says=what, holds=bool(holds)))


def magnas_figures(
    only: str | Sequence[str] | None = None, progress: Progress | None = None
) -> MappingFigures:
    """Show MaGNAS's tables and figures of mapping, operating points and search beside the paper's.

    Tables 3 to 5 and Figures 7 and 8 are of a Jetson AGX Xavier's GPU and DLA, Figures 9 and 10 of three
    arrays with other dataflows. Numbers that the paper gives stand beside ours; its statements about
    directions are shown to hold or not.

    Parameters
    ----------
    only : sequence of str, or str with commas, optional
        Of table3, table4, table5, figure7, figure8, figure9, figure10, parted by commas. None: all
    progress : callable, optional
        Called with the tables and figures done and their number.

    Command lines
    -------------
        npusim magnas figures
        npusim magnas figures --only table3,figure8
        npusim magnas figures -o figures.json
    """
    chosen = [name.lower() for name in as_list(only)] or list(FIGURES)
    for name in chosen:
        if name not in FIGURES:
            raise UnknownNameError("table or figure of MaGNAS", name, FIGURES)
    sheets = [_Sheet(re.sub(r"(?=\d+$)", " ", name, count=1).capitalize()) for name in chosen]
    for done, (name, sheet) in enumerate(zip(chosen, sheets, strict=True)):
        if progress is not None:
            progress(done, len(chosen))
        FIGURES[name](sheet)
    return MappingFigures(
        title="MaGNAS: mappings and operating points",
        figures=[row for sheet in sheets for row in sheet.figures],
        statements=[row for sheet in sheets for row in sheet.statements],
    )


@cache
def _published() -> Mapping[str, Any]:
    return dict(read_yaml(suite_file("magnas", "figures", "magnas-mapping.yaml")).data)


def _table3(sheet: _Sheet) -> None:
    """Costs of the paper's placements of a3, and the least energy by transitions at the same latency."""
    problem = problem_of(A3)
    published = {(key["mapping"], key["quantity"]): 1e-3 * figure.value for figure, key in shipped_figures()}
    costs: list[Any] = []
    for text in _published()["table3_mappings"]:
        placement = placement_of(problem.blocks, problem.units, text.split("/"))
        costs.append(problem.evaluate(placement[None])[0])
        sheet.costs(text, costs[-1], [published.get((text, quantity)) for quantity in _QUANTITIES])
    most_s = costs[-1][0] * (1.0 + _ROUNDING)
    fronts = {most: _front(problem, Limits(transitions=most)) for most in (*TRANSITIONS, None)}
    for most, front in fronts.items():
        what = "any number of transitions" if most is None else f"at most {most} transitions"
        sheet.costs(f"least energy in that time, {what}", front[front[:, 0] <= most_s][-1])
    never_worse = all(_covers(more, fewer) for fewer, more in pairwise(fronts.values()))
    sheet.says("more transitions allowed are never worse", never_worse)
    sheet.says(
        "the paper's placement of 12 transitions takes less energy than its four of one and two",
        costs[-1][1] < min(one[1] for one in costs[2:6]),
    )


def _table4(sheet: _Sheet) -> None:
    """Return the GPU's share of the placement that Eq. 13 selects, by the latency limit."""
    problems, shares = {network: problem_of(network) for network in SETTINGS}, []
    for percent, paper in _published()["table4_gpu_share"].items():
        each = []
        for problem in problems.values():
            most_s = _alone(problem)[_GPU, 0] * (1.0 + float(percent) / 100.0)
            each.append((_picked(problem, Limits(latency_s=most_s)) == _GPU).mean())
        shares.append(float(np.mean(each)))
        sheet.number(f"{percent} % beyond the GPU alone", "share of the GPU", shares[-1], paper)
    sheet.says("the GPU's share falls as more latency is allowed", (np.diff(shares) <= _ROUNDING).all())
    sheet.says("and levels off", abs(shares[-1] - shares[-2]) < 0.1 * (shares[0] - shares[-1]))
    theirs = _whole_products()
    for network, problem in problems.items():
        gpu, dla = _alone(problem).prod(1)
        paper = theirs[network, "dla"] / theirs[network, "gpu"]
        sheet.number(f"{network}: all on the DLA over all on the GPU", "latency x energy", dla / gpu, paper)


def _whole_products() -> dict[tuple[str, str], float]:
    """Return the published latency times energy of each network on each unit."""
    unit_of = {letter: unit for unit, letter in letters_of(UNITS).items()}
    products: dict[tuple[str, str], float] = {}
    for figure, key in shipped_figures():
        mapping = key["mapping"]
        units = {mapping} if mapping in UNITS else {unit_of[c] for c in mapping.replace("/", "")}
        if len(units) == 1:
            whole = (key["network"], units.pop())
            products[whole] = products.get(whole, 1.0) * figure.value
    return products


def _table5(sheet: _Sheet) -> None:
    """Return the quickest placement and operating points within limits of mean power."""
    published, shares, latencies = _published()["table5_gpu_share"], [], []
    for watts, paper in published.items():
        each = np.array([_quickest(network, Limits(power_w=float(watts))) for network in SETTINGS])
        latencies.append(each[:, 0])
        shares.append(float(each[:, 1].mean()))
        sheet.number(f"within {watts} W", "share of the GPU", shares[-1], paper)
    least, *_, most = published
    slower, paper = np.median(latencies[0] / latencies[-1]), _published()["table5_latency_of_least_over_most"]
    sheet.number(f"within {least} W over within {most} W", "latency", slower, paper)
    sheet.says("a tighter limit of power costs latency", (np.diff(latencies, axis=0) <= _ROUNDING).all())
    sheet.says("and gives the GPU less at the tightest than at the loosest", shares[0] < shares[-1])


def _quickest(network: str, limits: Limits) -> tuple[float, float]:
    """Return latency (s) of the quickest placement at any operating points, and the GPU's share of it."""
    best = (np.inf, 0.0)
    for problem in _at_all_points(network):
        with suppress(InfeasibleError):
            front = chain_front(problem, limits.of(problem))
            best = min(best, (float(front.latency_s[0]), float((front.placements[0] == _GPU).mean())))
    return best


def _figure7(sheet: _Sheet) -> None:
    """Compare searched operating points with the fastest and the slowest, under the same mappings."""
    ratios: dict[str, list[Any]] = {"picked by Eq. 13": [], "half on the GPU": []}
    for network in SETTINGS:
        problems = _at_all_points(network)
        front, alone = chain_front(problems[0]), _alone(problems[0])
        halves = front.placements[np.argmin(np.abs((front.placements == _GPU).mean(1) - 0.5))]
        for name, placement in zip(ratios, (_picked(problems[0], Limits()), halves), strict=True):
            values = np.array([problem.evaluate(placement[None])[0] for problem in problems])
            best = values[np.argmin(fitness(values[:, 0], values[:, 1], alone, _EXPONENTS))]
            ratios[name].append(best / values[[0, -1]])
    for name, each in ratios.items():
        medians = np.median(each, 0)
        for end, ours in zip(("fastest", "slowest"), medians, strict=True):
            paper = _published()["figure7_searched_over"][end]
            for quantity, value in zip(_QUANTITIES, ours, strict=True):
                sheet.number(f"mapping {name}", f"{quantity} over {end}", value, paper[quantity])
        (slower, less), (quicker, saved) = medians
        sheet.says(f"mapping {name}: searched clocks are slower than the fastest", slower > 1.0)
        sheet.says(f"mapping {name}: they take less energy than the fastest", less < 1.0)
        sheet.says(f"mapping {name}: they are quicker than the slowest", quicker < 1.0)
        sheet.says(f"mapping {name}: they take less energy than the slowest", saved < 1.0)


def _figure8(sheet: _Sheet) -> None:
    """Measure how far fronts of GPU and DLA bend below the line between their ends."""
    bends = []
    for name, workload in (("isotropic", WORKLOAD), ("pyramid", PYRAMID)):
        scenario = Scenario(workload, SOC, settings=_OF_FIGURE_8)
        front = _front(chain_problem(scenario, chain_of(scenario.graph), UNITS), Limits())
        sheet.costs(f"{name}: quickest of {len(front)}", front[0])
        sheet.costs(f"{name}: least energy", front[-1])
        low, high = front.min(0), front.max(0)
        bends.append(float((1.0 - ((front - low) / (high - low)).sum(1)).max()))
        sheet.number(name, "depth below the line, of both ranges", bends[-1])
    sheet.says("the front of the isotropic backbone is nearly a line, within a tenth", bends[0] < 0.1)
    sheet.says("that of the pyramid is more convex", bends[1] > bends[0])


def _figure9(sheet: _Sheet) -> None:
    """Compare placement of blocks and of layers of the pyramid on three arrays, with equal search budgets."""
    fronts = []
    for granularity in ("block", "layer"):
        units, values = _evolved(granularity, "nsga2", LONG_SEARCH)
        fronts.append(values)
        sheet.costs(f"{granularity}s: quickest of {len(values)}, {len(units.blocks)} units", values[0])
        sheet.costs(f"{granularity}s: least energy", values[-1])
    blocks, layers = fronts
    middle_s = blocks[len(blocks) // 2, 0] * (1.0 + _ROUNDING)
    layers_j, blocks_j = (one[one[:, 0] <= middle_s][-1, 1] for one in (layers, blocks))
    what, paper = "layers over blocks at the latency of the middle block placement", _published()
    sheet.number(what, "energy", layers_j / blocks_j, paper["figure9_layerwise_energy"])
    sheet.says("layerwise mapping is never worse than blockwise", _covers(layers, blocks))


def _figure10(sheet: _Sheet) -> None:
    """Compare hypervolumes of evolution and random search with the best known, on three arrays."""
    paper = read_yaml(resource("validate", "figures", "published.yaml")).data["magnas"]
    published = paper["fig10_normalised_hypervolume_at_5000_evaluations"]
    for granularity in ("block", "layer"):
        units, best = _evolved(granularity, "nsga2", LONG_SEARCH)
        evolved, drawn = (_evolved(granularity, method, EVALUATIONS)[1] for method in ("nsga2", "random"))
        worst = _alone(units).max(0)
        known = hypervolume(np.concatenate([best, evolved, drawn]).T, worst)
        nsga2, random = (hypervolume(values.T, worst) / known for values in (evolved, drawn))
        what, over = f"{granularity}s, {EVALUATIONS} evaluations", "over the best known"
        sheet.number(what, f"hypervolume of NSGA-II {over}", nsga2, published["evolutionary"])
        sheet.number(what, f"hypervolume of random search {over}", random, published["random"])
        sheet.says(f"{granularity}s: evolution finds more than chance", nsga2 > random)


FIGURES: dict[str, Callable[[_Sheet], None]] = {
    "table3": _table3,
    "table4": _table4,
    "table5": _table5,
    "figure7": _figure7,
    "figure8": _figure8,
    "figure9": _figure9,
    "figure10": _figure10,
}


def _front(problem: ChainProblem, limits: Limits) -> Any:
    """Return latency and energy of an exact front, shape (placements, 2)."""
    front = chain_front(problem, limits.of(problem))
    return np.stack([front.latency_s, front.energy_j], -1)


def _alone(problem: ChainProblem | PlacedUnits) -> Any:
    """Return latency and energy of everything on each unit, shape (units, 2)."""
    every = np.arange(len(problem.units))[:, None]
    return problem.evaluate(np.repeat(every, len(problem.blocks), 1))


def _picked(problem: ChainProblem, limits: Limits) -> Any:
    """Return the placement within limits that Eq. 13 selects."""
    front = chain_front(problem, limits.of(problem))
    return front.placements[np.argmin(fitness(front.latency_s, front.energy_j, _alone(problem), _EXPONENTS))]


def _covers(better: Any, worse: Any) -> bool:
    """Return whether each point of one front is dominated by, or equal to, a point of the other."""
    return all((better <= one * (1.0 + _ROUNDING)).all(1).any() for one in worse)


@cache
def _at_all_points(network: str) -> list[ChainProblem]:
    """Return a network at every setting of clocks, from all at their fastest to all at their slowest."""
    scenario = Scenario(WORKLOAD, SOC, settings=SETTINGS[network])
    on_devices = ChainOnDevices(scenario, chain_of(scenario.graph), UNITS)
    combinations = combinations_of(scenario.machine, (*UNITS, "cpu"))
    return [on_devices.problem(at_points(scenario.machine, points)) for points in combinations]


@cache
def _evolved(granularity: Granularity, method: SearchMethod, evaluations: int) -> tuple[PlacedUnits, Any]:
    """Return the units of the pyramid on three arrays, and latency and energy of a search's placements.

    A long search of layers starts from placements of blocks.
    """
    scenario, budget = Scenario(PYRAMID, ARRAYS, settings=_OF_FIGURE_8), Budget(evaluations=evaluations)
    units, start = placed_units(scenario, tuple(scenario.machine.array_devices), granularity), None
    if evaluations == LONG_SEARCH and granularity != "block":
        start = coarser_start(scenario, units, granularity, budget)
    return units, searched(Genes(units.allowed, units.evaluate), method, budget, start).values


def _published_rows(suite: Suite, path: Path | None) -> tuple[list[Row], list[str]]:
    """Return each number that the paper prints in Tables 4 and 5 and Figures 7 and 9, by quantity."""
    return [
        Row(f"{f.what}: {f.quantity}", f.paper, f.ours, {"table": f.figure, "quantity": f.quantity})
        for f in magnas_figures(_JUDGED).figures
        if f.paper is not None
    ], []


_JUDGED = ("table4", "table5", "figure7", "figure9")
TABLE_4 = RowPredictor(_published_rows)
