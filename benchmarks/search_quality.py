"""Print how near searches come to exact fronts: hypervolume over evaluations, medians of seeds.

    python benchmarks/search_quality.py [--seeds N] [--spaces a,b] [--samplers a,b]

Every point of four spaces is evaluated once, so each exact front is known, and a search reads its objectives
from that table. All searches minimise logarithms of the objectives and see a point that breaks a constraint
as far beyond the others. Shares are of the hypervolume of the exact front. Samplers whose package is not
installed (optuna, with cmaes for CMA-ES) are left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from npusim.explore.campaign import campaign_of
from npusim.explore.search import Evolution
from npusim.explore.spaces import load_space
from npusim.metrics import admitted, objectives
from npusim.studies.pareto import front, hypervolume_shares

EVALUATIONS = (1_000, 10_000)
_BLOCK = 20_000
_BEYOND = 100.0  # logarithm of an objective that no machine has

_MACHINE = {
    "npu.tiles": {"from": 1, "to": 8, "step": 1},
    "npu.dsp.per_tile": {"values": [1, 2, 4]},
    "npu.dma.width": {"values": ["16 B/cycle", "32 B/cycle", "64 B/cycle", "128 B/cycle"]},
    "npu.operating_point": {"values": ["dpu_900mhz", "dpu_1300mhz", "dpu_1700mhz", "dpu_1950mhz"]},
}
_OF_GAT = ["stagr", "stagr+effop", "stagr+effop+grax1+grax2", "stagr+grax3"]
_FORMATS = {"workload.precision": {"values": ["fp16", "int8"]}}
_GRIDS = {"npu.dpu.grid.vpe": {"values": [2, 4, 8]}, "npu.dpu.grid.mpe": {"values": [2, 4, 8]}}


def _space(workload: str, sram: int, bandwidths: int, **axes: Any) -> dict[str, Any]:
    bandwidth = {"from": "30 GB/s", "to": "270 GB/s", "count": bandwidths}
    sizes = {"from": "384 KiB", "to": "6 MiB", "count": sram, "scale": "log"}
    return {
        "schema": "npusim.space/1",
        "workload": workload,
        "soc": "core-ultra-series2",
        "run": {"tiles": "all"},
        "axes": {**axes, "npu.sram.per_tile": sizes, **_MACHINE, "dram.bandwidth": bandwidth},
        "constraints": {"area_mm2": {"max": 60}},
        "minimise": ["latency_s", "energy_j", "area_mm2"],
    }


SPACES = {
    "gcn-cora": _space("gcn-cora", 9, 10, techniques={"values": ["stagr", "stagr+quantgr"]}, **_GRIDS),
    "gat-cora": _space(
        "gat-cora",
        9,
        25,
        techniques={"values": ["stagr", "stagr+effop", "stagr+effop+grax1+grax2", "stagr+grax3"]},
    ),
    "resnet-50": _space("resnet-50", 5, 25, **_FORMATS),
    "bert-base": _space("bert-base", 5, 10, **_FORMATS, **_GRIDS),
}
"""Spaces whose every point takes a minute at most to evaluate."""

Values = Callable[[Any], Any]
"""Returns the logarithms of the objectives of points, shape (points, objectives)."""


def _npusim(sizes: Any, values: Values, budget: int, seed: int) -> Any:
    evolution = Evolution(sizes, int(np.clip(4 * round(np.sqrt(budget) / 4), 20, 1000)), seed)
    parts: list[Any] = []
    while sum(map(len, parts)) < budget:
        points = evolution.ask()
        logarithms = values(points)
        evolution.tell(points, logarithms, logarithms[:, 0] < _BEYOND)
        parts.append(points)
    return np.concatenate(parts)


def _random(sizes: Any, values: Values, budget: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, sizes, (budget, len(sizes)))


def _pymoo(sizes: Any, values: Values, budget: int, seed: int) -> Any:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.repair.rounding import RoundingRepair
    from pymoo.operators.sampling.rnd import IntegerRandomSampling
    from pymoo.optimize import minimize

    parts: list[Any] = []

    class Table(Problem):  # type: ignore[misc]
        def _evaluate(self, x: Any, out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            parts.append(x.astype(int))
            out["F"] = values(parts[-1])

    algorithm = NSGA2(
        pop_size=int(np.clip(4 * round(np.sqrt(budget) / 4), 20, 1000)),
        sampling=IntegerRandomSampling(),
        crossover=SBX(vtype=float, repair=RoundingRepair()),
        mutation=PM(vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    problem = Table(n_var=len(sizes), n_obj=3, xl=0, xu=np.asarray(sizes) - 1, vtype=int)
    minimize(problem, algorithm, ("n_eval", budget), seed=seed, verbose=False)
    return np.concatenate(parts)


def _optuna(name: str, single: bool = False) -> Callable[..., Any]:
    """Return a search by a sampler of Optuna; with `single` it minimises the sum of the logarithms."""

    def run(sizes: Any, values: Values, budget: int, seed: int) -> Any:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            sampler=getattr(optuna.samplers, name)(seed=seed), directions=["minimize"] * (1 if single else 3)
        )
        points: list[list[int]] = []

        def objective(trial: Any) -> Any:
            points.append([trial.suggest_int(str(i), 0, int(size) - 1) for i, size in enumerate(sizes)])
            logarithms = values(np.array(points[-1:]))[0]
            return float(logarithms.sum()) if single else tuple(map(float, logarithms))

        study.optimize(objective, n_trials=budget)
        return np.array(points)

    return run


SAMPLERS: dict[str, tuple[Callable[..., Any], str, int]] = {
    "npusim (NSGA-II)": (_npusim, "numpy", 10_000),
    "pymoo NSGA-II": (_pymoo, "pymoo", 10_000),
    "Optuna NSGA-II": (_optuna("NSGAIISampler"), "optuna", 1_000),
    "Optuna TPE": (_optuna("TPESampler"), "optuna", 1_000),
    "Optuna CMA-ES, sum of logarithms": (_optuna("CmaEsSampler", single=True), "cmaes", 1_000),
    "random": (_random, "numpy", 10_000),
}
"""Searches by name: function, package, and the evaluations that end within minutes."""


def table_of(space: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the sizes of the axes, objectives of every point, shape (points, 3), and who is admitted."""
    campaign = campaign_of(load_space(space))
    values, good = [], []
    for start in range(0, campaign.total, _BLOCK):
        scores = campaign.scores(start, min(start + _BLOCK, campaign.total))
        values.append(objectives(scores, campaign.space.objectives).T)
        good.append(admitted(scores, campaign.space.constraints))
    return np.array([axis.size for axis in campaign.axes]), np.concatenate(values), np.concatenate(good)


def rows(name: str, samplers: Sequence[str], seeds: int) -> list[str]:
    """Return a line for each sampler on a space: median, least and most share of the exact hypervolume."""
    start_s = time.process_time()
    sizes, objectives_, good = table_of(SPACES[name])
    best = objectives_[good].T
    best = best[:, front(best)]
    print(f"{name}: {len(good):,} points, {best.shape[1]:,} on the exact front", flush=True)
    print(f"  evaluated in {time.process_time() - start_s:.0f} s of processor time", flush=True)
    logarithms = np.log(np.where(good[:, None], objectives_, np.exp(_BEYOND)))

    def number(points: Any) -> Any:
        return np.ravel_multi_index(tuple(np.asarray(points).T), sizes)

    lines = []
    for sampler in samplers:
        run, _, most = SAMPLERS[sampler]
        cells = []
        for budget in EVALUATIONS:
            if budget > most:
                cells.append("")
                continue
            shares, start_s = [], time.process_time()
            for seed in range(seeds):
                numbers = number(run(sizes, lambda points: logarithms[number(points)], budget, seed))[:budget]
                kept = objectives_[numbers[good[numbers]]].T
                shares += hypervolume_shares([kept], best)
            seconds = (time.process_time() - start_s) / seeds
            low, middle, high = np.quantile(shares, (0.0, 0.5, 1.0))
            cells.append(f"{middle:.4f} ({low:.4f} to {high:.4f}), {seconds:.2g} s")
        lines.append(f"| {name} | {sampler} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--spaces", default=",".join(SPACES))
    parser.add_argument("--samplers", default="")
    arguments = parser.parse_args()
    wished = [name.strip() for name in arguments.samplers.split(";") if name.strip()] or list(SAMPLERS)
    samplers = [name for name in wished if find_spec(SAMPLERS[name][1])]
    lines = [line for name in arguments.spaces.split(",") for line in rows(name, samplers, arguments.seeds)]
    print("\n| space | search | " + " | ".join(f"{count:,} evaluations" for count in EVALUATIONS) + " |")
    print("| --- | --- | --- | --- |", *lines, sep="\n")


if __name__ == "__main__":
    main()
