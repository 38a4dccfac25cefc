"""Fit of a Jetson AGX Xavier to MaGNAS's figures; every figure is also predicted by a fit without it.

`python -m npusim.magnas.fit` prints the fitted numbers and the figures. Placements by what a device
can run, fusion and residency do not depend on the numbers that are fitted, so networks are mapped once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npusim.arch import load_soc
from npusim.calibrate.least_squares import Floats, FreeNumber, Solution, solve
from npusim.cost import RESULT_DTYPE, Unit, operator_costs
from npusim.locate import resource
from npusim.magnas.suite import A3, SETTINGS, SOC, UNITS, WORKLOAD, predicted, read_figures
from npusim.mapping import ChainProblem, Mapped
from npusim.scenario import Scenario
from npusim.studies.chain import chain_of, costs_of_mapped

FREE = (
    FreeNumber("gpu.dense_efficiency", 0.1, 0.03, 0.6),
    FreeNumber("gpu.dispatch_overhead", 23e-6, 5e-6, 80e-6),
    FreeNumber("gpu.product_overhead", 95e-6, 10e-6, 400e-6),
    FreeNumber("gpu.power.busy", 24.0, 10.0, 50.0),
    FreeNumber("gpu.power.waiting_share", 0.06, 0.005, 1.0),
    FreeNumber("dram.bandwidth", 10e9, 4e9, 60e9),
    FreeNumber("dla.launch_overhead", 640e-6, 10e-6, 2e-3),
    FreeNumber("dla.power.active", 3.0, 0.2, 8.0),
)
"""Free numbers, as `--set` writes them: start and bounds, in SI units."""
_UNITS = {
    "gpu.dispatch_overhead": "s",
    "gpu.product_overhead": "s",
    "gpu.power.busy": "W",
    "dram.bandwidth": "B/s",
    "dla.launch_overhead": "s",
    "dla.power.active": "W",
}
_STEP = 1e-3
"""Step of the logarithms for slopes."""
_SOFTNESS = 1e3
"""No figure is an outlier."""
_POWER = 2.0
"""Errors count to twice this power: the limit binds each figure by itself, so large errors count more."""
_LIMIT = 0.08
"""Error that suite `magnas` allows a figure."""
_PRECISION = 0.05
"""Deviation of a published figure's logarithm: what the equations leave out."""
_OF_LAUNCHES = ("launch_s", "active_w", "npu_idle_w", "static_w")
"""Columns of an array device that its operators' own costs do not depend on."""


class MagnasFit:
    """Predicts the figures with changed numbers of the data sheet.

    Parameters
    ----------
    hidden : int, optional
        Width of the feed-forward networks of the baselines, which the paper does not give; None: that of the
        suite.
    """

    def __init__(self, hidden: int | None = None) -> None:
        path = resource("validate", "figures", "published.yaml")
        self.ids, self.keys, values, _ = read_figures(path)
        self.measured = np.array(values)
        self.mapped: dict[str, dict[str, Mapped]] = {}
        self.chains = {}
        for network, settings in SETTINGS.items():
            if hidden is not None and network != A3:
                settings = (*settings, f"workload.ffn_hidden={hidden}")
            scenario = Scenario(WORKLOAD, SOC, settings=settings)
            self.chains[network] = chain_of(scenario.graph)
            self.mapped[network] = {unit: scenario.with_(device=unit).mapped for unit in UNITS}
        self.costs = _Costs([one for units in self.mapped.values() for one in units.values()])

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all figures with these numbers, shape (figures,)."""
        settings = [f"{name}={value:.9g} {_UNITS.get(name, '')}".strip() for name, value in values.items()]
        soc = load_soc(SOC, settings)
        changed = iter(self.costs.on(soc))
        problems: dict[str, ChainProblem] = {}
        for network, units in self.mapped.items():
            chain, each = self.chains[network], {unit: next(changed) for unit in units}
            problems[network] = costs_of_mapped(each, chain, soc).problem(chain, UNITS)
        return np.array([predicted(key, problems[key.network]) for key in self.keys])

    def fitted(self, left_out: int | None = None, start: Mapping[str, float] | None = None) -> Solution:
        """Return the most likely numbers, without one figure."""
        kept = np.arange(len(self.keys)) != left_out
        free = [replace(one, start=(start or {}).get(one.name, one.start)) for one in FREE]

        def errors(values: Mapping[str, float]) -> Floats:
            found: Floats = np.log(self.predicted(values) / self.measured)[kept] / _PRECISION
            return np.sign(found) * np.abs(found) ** _POWER

        def slopes(values: Mapping[str, float]) -> Floats:
            here = errors(values)
            moved = ({**values, one.name: values[one.name] * np.exp(_STEP)} for one in FREE)
            return np.stack([(errors(there) - here) / _STEP for there in moved], -1)

        return solve(free, errors, softness=_SOFTNESS, slopes=slopes)


class _Costs:
    """Costs of the operators of mapped networks on another machine, each kind of operator once."""

    def __init__(self, mapped: Sequence[Mapped]) -> None:
        self.mapped = list(mapped)
        rows = np.concatenate([one.lowered.ops for one in mapped])
        _, first, self.kind = np.unique(
            np.frombuffer(rows.tobytes(), np.dtype((np.void, rows.dtype.itemsize))),
            return_index=True, return_inverse=True,
        )  # fmt: skip
        self.rows = rows[first]
        self.on_host = self.rows["unit"] == int(Unit.HOST)
        self.known: dict[bytes, Any] = {}

    def on(self, soc: Any) -> list[Mapped]:
        """Return the networks on a machine that differs in numbers that mapping does not depend on."""
        arch = self.mapped[0].run.row(soc)
        results = np.zeros(len(self.rows), RESULT_DTYPE)
        results[self.on_host] = self._costed(arch, self.on_host)
        key = self._key(arch)
        if key not in self.known:
            self.known[key] = self._costed(arch, ~self.on_host)
        results[~self.on_host] = self.known[key]
        ends = np.cumsum([len(one.lowered.ops) for one in self.mapped])[:-1]
        each = np.split(results[self.kind], ends)
        return [
            replace(one, soc=soc, arch=arch, results=found)
            for one, found in zip(self.mapped, each, strict=True)
        ]

    def _costed(self, arch: Any, which: Any) -> Any:
        found = np.zeros(int(which.sum()), RESULT_DTYPE)
        operator_costs(arch.archs, np.ascontiguousarray(self.rows[which]), found)
        return found

    def _key(self, arch: Any) -> bytes:
        """Return what costs on array devices depend on."""
        same = arch.copy()
        for name in arch.arrays:
            for column in _OF_LAUNCHES:
                same[name][column] = 0.0
        rate = np.float64(arch.shared["dram_bytes_per_s"]).tobytes()
        return b"".join([rate, *(same[name].tobytes() for name in arch.arrays)])


def report(leave_one_out: bool, hidden: int | None = None) -> None:
    """Print the fitted numbers, and each figure fitted and left out."""
    fit = MagnasFit(hidden)
    found = fit.fitted()
    print(f"{len(found.values)} numbers fitted to {len(fit.keys)} figures")
    for name, value in found.values.items():
        print(f"  {name} = {value:.4g} {_UNITS.get(name, '')} +- {found.relative_sigma[name]:.0%}")
    errors = fit.predicted(found.values) / fit.measured - 1.0
    refits: list[Mapping[str, float]] = []
    without = np.empty(len(fit.keys))
    for i, figure in enumerate(fit.ids):
        measured = fit.measured[i]
        told = f"{figure.removeprefix('magnas.'):56} {measured:7.2f}"
        told += f" {measured * (1.0 + errors[i]):7.2f} {errors[i]:+6.1%}"
        if leave_one_out:
            refits.append(fit.fitted(i, found.values).values)
            without[i] = fit.predicted(refits[-1])[i] / measured - 1.0
            told += f"   left out {measured * (1.0 + without[i]):7.2f} {without[i]:+6.1%}"
        print(told, flush=True)
    print(_told("fitted", errors, fit.ids))
    if leave_one_out:
        print(_told("left out", without, fit.ids))
        for name, value in found.values.items():
            each = [one[name] / value - 1.0 for one in refits]
            print(f"  {name} moves by {min(each):+.1%} to {max(each):+.1%}")


def _told(what: str, errors: Floats, ids: Sequence[str]) -> str:
    """Return the largest error and the spread of all of them as a line."""
    worst = int(np.argmax(np.abs(errors)))
    low, high = np.quantile(errors, (0.25, 0.75))
    return (
        f"{what}: largest error {errors[worst]:+.1%} ({ids[worst].removeprefix('magnas.')}), root mean "
        f"square {np.sqrt(np.mean(errors**2)):.1%}, half between {low:+.1%} and {high:+.1%}, "
        f"{int((np.abs(errors) <= _LIMIT).sum())} of {len(errors)} within {_LIMIT:.0%}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(prog="python -m npusim.magnas.fit", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the fits without each figure")
    parser.add_argument("--hidden", type=int, help="width of the baselines' feed-forward networks")
    asked = parser.parse_args(arguments)
    report(not asked.quick, asked.hidden)


if __name__ == "__main__":
    main()
