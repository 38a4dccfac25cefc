"""How sure is a speed-up? The estimate made again on many machines that the data sheet would allow.

Like asking the way not of one passer-by but of a hundred who each remember the town a little differently:
where all send you the same way, the map's small errors do not matter.

Method. Every number of the data sheet that states an uncertainty (a relative standard deviation) is drawn
log-normally around its value, clipped to what its kind allows: memory, clocks, the fitted terms of grid and
DMA, DSP kernels, the rate of transposed reads. The draws are a Latin hypercube with a seed, the same for all
stacks, so that what two stacks share cancels in their ratio. Decisions (fusion, residency, placement) stay
those of the data sheet: a compiler would not know better either; the tiling is searched anew. Parameters are
drawn independently of each other, although fitted ones are correlated, so an interval is rather too wide than
too narrow. What the equations themselves leave out is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, get_args

import numpy as np
from pydantic import BaseModel

from npusim.arch import Soc
from npusim.config.paths import children, field_key, kind_of
from npusim.cost.architecture import arch_row
from npusim.cost.dsp_table import kernel_of
from npusim.cost.kernel import evaluate
from npusim.cost.lowering import fill_dsp
from npusim.cost.tables import RESULT_DTYPE, TOTAL_DTYPE, Unit
from npusim.mapping import Mapped
from npusim.units import Count, Kind, Quantity

__all__ = [
    "METHOD",
    "SAMPLES",
    "Draws",
    "Uncertain",
    "draw",
    "sampled",
    "uncertain_numbers",
]

METHOD = (
    "90 % intervals: {samples} machines drawn from the data sheet's uncertainties (seed {seed}); what the "
    "equations leave out is not in them"
)
SAMPLES = 128
"""Machines that are drawn."""
_PARTS = ("dram", "npu", "cpu", "gpu")
_NO_TIME = frozenset({"power", "energy_factors", "voltage"})
"""Parts of a data sheet that say nothing about time."""
_TELLING = 0.05
"""Least share of a variance that names its parameter."""
_LOW, _HIGH = 5.0, 95.0
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A number of the data sheet that is not known exactly."""

    path: tuple[str, ...]
    """Fields that lead to it from the SoC."""
    value: float
    sigma: float
    """Standard deviation of its logarithm."""
    upper: float
    """Most that its kind allows."""
    whole: bool
    """Whether it is a count."""

    @property
    def name(self) -> str:
        """The path as `--set` writes it."""
        return ".".join(self.path[1:] if self.path[0] == "devices" else self.path)

    def at(self, normal: float) -> float:
        """Return the value at a standard normal deviate."""
        drawn = min(self.value * float(np.exp(self.sigma * normal)), self.upper)
        return max(1.0, round(drawn)) if self.whole else drawn


@dataclass(frozen=True, slots=True)
class Draws:
    """The figures of several mapped graphs on the machines that were drawn."""

    latency_s: Any
    """Latencies, array of shape (graphs, samples)."""
    interval_s: Any
    """Times between two inferences; the same shape."""
    numbers: Sequence[Uncertain]
    normals: Any
    """The deviates behind the samples, shape (samples, numbers)."""

    def latency_interval(self, i: int) -> tuple[float, float]:
        """Return the 90 % interval of a graph's latency (s)."""
        return _quantiles(self.latency_s[i])

    def speedup_interval(self, i: int, over: int) -> tuple[float, float]:
        """Return the 90 % interval of how many times faster inferences follow each other than with another
        graph.
        """
        return _quantiles(self.interval_s[over] / self.interval_s[i])

    def sources(self, i: int, over: int) -> dict[str, float]:
        """Return which numbers that speed-up is uncertain by: the share of its variance, the largest first.

        Shares are squared correlations of the speed-up's logarithm; at most three, none below 5 %.
        """
        values = np.log(self.interval_s[over] / self.interval_s[i])
        if not len(self.numbers) or np.ptp(values) < _SAME:
            return {}
        centred = values - values.mean()
        scale = np.sqrt((self.normals**2).sum(axis=0) * (centred**2).sum())
        shares = (self.normals.T @ centred / scale) ** 2
        order = np.argsort(-shares)[:3]
        return {self.numbers[j].name: round(float(shares[j]), 3) for j in order if shares[j] >= _TELLING}


def uncertain_numbers(soc: Soc, kernels: frozenset[tuple[str, str]] = frozenset()) -> list[Uncertain]:
    """Return the numbers of a SoC that bear on time and state an uncertainty.

    Parameters
    ----------
    soc : Soc
    kernels : frozenset of (generation, kernel)
        DSP kernels that are used; the others are left out.
    """
    found = []
    for part in _PARTS:
        path = (part,) if part == "dram" else ("devices", part)
        section = soc.dram if part == "dram" else soc.devices.get(part)
        if section is None:
            continue
        for leaf, number, kind in _numbers(section):
            if number.uncertainty and float(number) > 0.0 and not _NO_TIME.intersection(leaf):
                if leaf[:2] == ("dsp", "kernels") and len(leaf) > 5 and (leaf[2], leaf[4]) not in kernels:
                    continue
                upper = kind.upper if isinstance(kind, Kind) and kind.upper is not None else float("inf")
                sigma = float(np.sqrt(np.log1p(number.uncertainty**2)))
                whole = isinstance(number, Count)
                found.append(Uncertain((*path, *leaf), float(number), sigma, upper, whole))
    return found


def _numbers(
    value: Any, kind: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Quantity | Count, Any]]:
    """Yield every quantity below a section with its path and kind."""
    if isinstance(value, BaseModel):
        behind = children(type(value))
        for name, info in type(value).model_fields.items():
            key = field_key(name, info)
            yield from _numbers(getattr(value, name), behind[key], (*path, name))
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _numbers(inside, kind, (*path, str(key)))
    elif isinstance(value, Quantity | Count):
        yield path, value, _kind_within(kind)


def _kind_within(annotation: Any) -> Any:
    """Return the kind behind an annotation, also of a mapping's values."""
    found = kind_of(annotation)
    inner: tuple[Any, ...] = get_args(annotation)
    return found if found is not None or len(inner) < 2 else kind_of(inner[1])


def sampled(soc: Soc, numbers: Sequence[Uncertain], normals: Sequence[float]) -> Soc:
    """Return the SoC with its uncertain numbers at given standard normal deviates."""
    tree: dict[str, Any] = {}
    for number, normal in zip(numbers, normals, strict=True):
        branch = tree
        for step in number.path[:-1]:
            branch = branch.setdefault(step, {})
        branch[number.path[-1]] = number.at(normal)
    changed: Soc = _replaced(soc, tree)
    return changed


def _replaced(value: Any, tree: Any) -> Any:
    """Copy a section along the branches of a tree of new values; nothing is validated again."""
    if isinstance(tree, _Whole) or not isinstance(tree, dict):
        return tree
    if isinstance(value, BaseModel):
        return value.model_copy(
            update={name: _replaced(getattr(value, name), sub) for name, sub in tree.items()}
        )
    return {**value, **{name: _replaced(value[name], sub) for name, sub in tree.items()}}


def _with_library(soc: Soc, groups: Sequence[Mapped]) -> tuple[Soc, frozenset[tuple[str, str]]]:
    """Write the library's DSP kernels that are used into the SoC, so that they are drawn too."""
    dsp = soc.npu.dsp
    used: set[tuple[str, str]] = set()
    for mapped in groups:
        for group in mapped.decisions.groups:
            if group.unit is Unit.DSP:
                hit = kernel_of(soc.npu, mapped.graph.operators[group.main])
                if hit is not None:
                    used.add((hit[1][0], hit[0]))
                elif (unknown := dsp.kernel("unknown")) is not None:
                    used.add((unknown[0], "unknown"))
    copy = dsp.kernel("broadcast")  # kernels that copy before they start do so at its rate
    if used and copy is not None:
        used.add((copy[0], "broadcast"))
    generations = {name: dsp.generation(name) for name, _ in used}
    if not generations:
        return soc, frozenset()
    kernels = {**dsp.kernels, **generations}
    home = next(name for name, device in soc.devices.items() if device is soc.npu)
    return _replaced(soc, {"devices": {home: {"dsp": {"kernels": _Whole(kernels)}}}}), frozenset(used)


class _Whole(dict[str, Any]):
    """A mapping that replaces what was there."""


def draw(mapped: Sequence[Mapped], samples: int = SAMPLES, seed: int = 0) -> Draws:
    """Evaluate mapped graphs on machines that the data sheet would allow too.

    Parameters
    ----------
    mapped : sequence of Mapped
        All on one SoC, run alike.
    samples : int
        Machines that are drawn, at least 1.
    seed : int
        The same seed draws the same machines.
    """
    soc, used = _with_library(mapped[0].soc, mapped)
    numbers = uncertain_numbers(soc, used)
    normals = _latin_hypercube(samples, len(numbers), seed)
    latency, interval = (np.empty((len(mapped), samples)) for _ in range(2))
    for s in range(samples):
        machine = sampled(soc, numbers, normals[s])
        arch = arch_row(machine, mapped[0].run.tiles, mapped[0].run.requests)[0]
        for i, one in enumerate(mapped):
            total = _evaluated(one, machine, arch)
            latency[i, s], interval[i, s] = total["latency_s"], 1.0 / total["throughput_per_s"]
    return Draws(latency, interval, numbers, normals)


def _latin_hypercube(samples: int, dimensions: int, seed: int) -> Any:
    """Return standard normal deviates, shape (samples, dimensions): a column visits every quantile once."""
    normal = NormalDist()
    column = np.array([normal.inv_cdf((i + 0.5) / samples) for i in range(samples)])
    random = np.random.default_rng(seed)
    columns = [random.permutation(column) for _ in range(dimensions)]
    return np.stack(columns, axis=1) if columns else np.empty((samples, 0))


def _evaluated(mapped: Mapped, machine: Soc, arch: Any) -> Any:
    """Return the totals on one machine."""
    ops = mapped.lowered.ops.copy()
    for i, group in enumerate(mapped.decisions.groups):
        if group.unit is Unit.DSP:
            fill_dsp(ops[i]["dsp"], mapped.graph, mapped.graph.operators[group.main], machine, [])
    results, total = np.zeros(len(ops), RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
    evaluate(arch, ops, results, total[0])
    return total[0]


def _quantiles(values: Any) -> tuple[float, float]:
    low, high = np.percentile(values, [_LOW, _HIGH])
    return float(low), float(high)
