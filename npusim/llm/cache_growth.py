"""Passes over the cache of a language model, each costed at two lengths of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from npusim.documents import Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate, OperatorCost
from npusim.mapping import Mapped
from npusim.studies.uncertainty import draw

_LAYER = re.compile(r"^layer\d+/attention/")
_TELLING = 0.005
"""Share of the growth from which on a pass has a line of its own."""
_OTHERS = "all else"


class CachePass(Part):
    """One operator of attention, of all layers together."""

    name: str
    """Operator of a layer; `cache` stands for that of keys and that of values."""
    type: str
    """OpenVINO's type; empty for all else."""
    unit: str
    """Unit that runs it."""
    count: int
    """Operators in an inference."""
    dram_bytes: tuple[float, float]
    """DRAM traffic at the shorter and the longer cache, in bytes."""
    time_s: tuple[float, float]
    """Its part of the latency at both, in s."""


class CacheGrowth(Part):
    """Time of an inference with a short and with a long cache, pass by pass."""

    model: str
    device: str
    max_sequence: tuple[int, int]
    """Places of both caches."""
    latency_s: tuple[float, float]
    """Time of an inference at both, in s."""
    growth_s: float
    """The latter less the former, in s."""
    growth_interval_s: tuple[float, float]
    """90 % interval of that, from the data sheet's uncertainties, in s."""
    passes: list[CachePass]
    """Costliest first; together they are the latency but for launches."""


def cache_growth(
    model: str, device: str, mapped: Mapping[int, Mapped], samples: int = 24, seed: int = 0
) -> CacheGrowth:
    """Return the passes over the cache of a model that is mapped at two lengths.

    Parameters
    ----------
    mapped : mapping of int to Mapped
        The shorter cache first, by its places.
    samples : int
        Machines drawn for the interval.
    """
    estimates = [mapped_estimate(one) for one in mapped.values()]
    short, long = (one.latency_s for one in estimates)
    drawn = draw(list(mapped.values()), samples, seed).latency_s
    low, high = np.quantile(drawn[1] - drawn[0], (0.05, 0.95))
    first, second = mapped
    return CacheGrowth(
        model=model, device=device, max_sequence=(first, second), latency_s=(short, long),
        growth_s=long - short, growth_interval_s=(float(low), float(high)),
        passes=_passes(estimates, long - short),
    )  # fmt: skip


def _passes(estimates: Sequence[Estimate], growth_s: float) -> list[CachePass]:
    """Return the operators whose time grows, and all others as one."""
    found = [_by_name(one) for one in estimates]
    rows, rest = list[CachePass](), list[list[OperatorCost]]([[], []])
    for name in dict.fromkeys([*found[1], *found[0]]):
        members = [one.get(name, []) for one in found]
        times = tuple(_time_s(ops) for ops in members)
        if name != _OTHERS and times[1] - times[0] > _TELLING * growth_s:
            rows.append(_pass(name, members))
        else:
            rest = [[*kept, *ops] for kept, ops in zip(rest, members, strict=True)]
    rows.sort(key=lambda one: one.time_s[0] - one.time_s[1])
    return [*rows, _pass(_OTHERS, rest)]


def _by_name(estimate: Estimate) -> dict[str, list[OperatorCost]]:
    """Return operators by what they are in any layer."""
    found: dict[str, list[OperatorCost]] = {}
    for op in estimate.operators:
        in_layer = _LAYER.match(op.name)
        name = re.sub(r"cache_[kv]", "cache", op.name[in_layer.end() :]) if in_layer else _OTHERS
        found.setdefault(name, []).append(op)
    return found


def _time_s(ops: Sequence[OperatorCost]) -> float:
    return sum(op.critical_s or 0.0 for op in ops)


def _pass(name: str, members: Sequence[Sequence[OperatorCost]]) -> CachePass:
    short, long = members
    alike = name != _OTHERS and bool(long)
    return CachePass(
        name=name, type=long[0].type if alike else "", unit=long[0].unit if alike else "", count=len(long),
        dram_bytes=(sum(op.dram_bytes for op in short), sum(op.dram_bytes for op in long)),
        time_s=(_time_s(short), _time_s(long)),
    )  # fmt: skip
