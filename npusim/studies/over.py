"""Comparison of technique stacks at every combination of settings, and where their order changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import exp, log

from npusim.config import parse_override, valid_paths
from npusim.errors import IllegalTechniqueError, InfeasibleError, NpusimError
from npusim.ops import DType
from npusim.rounding import factor, last_digit
from npusim.scenario import Scenario
from npusim.studies.comparison import Crossover, Skipped, Variant, WhatIf
from npusim.studies.uncertainty import SAMPLES
from npusim.studies.whatif import whatif
from npusim.techniques import parse, technique_with
from npusim.units import split_number, unit_factor

Settings = tuple[tuple[str, str], ...]
_PRECISION, _INT8 = "workload.precision", "int8"
_TIE = 1e-3
"""Relative difference in time below which two stacks are equally fast."""
_HALVINGS = 6
"""Steps of the bisection between two neighbouring values."""


@dataclass(frozen=True)
class _Point:
    """One combination of the settings."""

    settings: dict[str, str]

    @property
    def loaded(self) -> dict[str, str]:
        """Settings that network and machine are loaded with; 8 bits are a technique, not a file format."""
        return {path: value for path, value in self.settings.items() if (path, value) != (_PRECISION, _INT8)}

    def stack(self, stack: str) -> str:
        """Return what a stack is at this point: in 8 bits, with the technique that quantises."""
        parsed = parse(stack)
        quantising = technique_with(precision=DType.INT8).name
        if self.settings.get(_PRECISION) != _INT8 or quantising in parsed.names:
            return str(parsed)
        return str(parse([*parsed.to_data(), quantising]))


@dataclass
class _Search:
    """Times of stacks at points, each computed once."""

    scenario: Scenario
    known: dict[Settings, dict[str, float]] = field(default_factory=dict)
    kept: dict[Settings, Scenario] = field(default_factory=dict)

    def at(self, point: _Point) -> Scenario:
        """Return the scenario of a point, loaded once."""
        key = tuple(point.loaded.items())
        if key not in self.kept:
            settings = [parse_override(f"{path}={value}") for path, value in key]
            self.kept[key] = self.scenario.with_settings(settings).load()
        return self.kept[key]

    def interval_s(self, point: _Point, stack: str) -> float | None:
        """Return the time between two inferences; None where the stack cannot run there."""
        key = tuple(point.settings.items())
        times = self.known.setdefault(key, {})
        if stack not in times:
            try:
                mapped = self.at(point).with_(techniques=point.stack(stack)).mapped
                times[stack] = 1.0 / float(mapped.total["throughput_per_s"])
            except (IllegalTechniqueError, InfeasibleError):
                return None
        return times[stack]

    def lead(self, point: _Point, a: str, b: str) -> float | None:
        """Return by how much `a` is faster than `b` (logarithm of the ratio), 0 for a tie."""
        times = self.interval_s(point, a), self.interval_s(point, b)
        if times[0] is None or times[1] is None:
            return None
        ratio = log(times[1] / times[0])
        return ratio if abs(ratio) > _TIE else 0.0


def whatif_over(
    scenario: Scenario,
    stacks: Sequence[str],
    over: Mapping[str, Sequence[str]],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> WhatIf:
    """Compare technique stacks at every combination of some settings.

    Parameters
    ----------
    stacks : sequence of str
        Technique stacks, the baseline first.
    over : mapping of str to sequence of str
        Values by path, as `--set` takes them. `workload.precision=int8` means 8-bit integers of the MAC
        grid's operators: every stack gets quantgr.

    Raises
    ------
    NpusimError
        Where a value is not allowed, or no stack can run at any point.
    """
    search = _Search(scenario)
    compared: list[tuple[_Point, WhatIf]] = []
    variants: list[Variant] = []
    skipped: list[Skipped] = []
    for values in product(*over.values()):
        point = _Point(dict(zip(over, values, strict=True)))
        here = search.at(point)
        asked = {str(parse(stack)): point.stack(stack) for stack in stacks}
        try:
            result = whatif(here, list(asked.values()), samples=samples, seed=seed, alone=True)
        except (IllegalTechniqueError, InfeasibleError) as error:
            skipped += [Skipped(techniques=stack, reason=str(error), at=point.settings) for stack in asked]
            continue
        compared.append((point, result))
        skipped += [each.model_copy(update={"at": point.settings}) for each in result.skipped]
        found = {variant.techniques: variant for variant in result.variants}
        times = search.known.setdefault(tuple(point.settings.items()), {})
        for stack, techniques in asked.items():
            if techniques in found:
                update = {"stack": stack, "at": point.settings}
                variants.append(found[techniques].model_copy(update=update))
                times[stack] = 1.0 / found[techniques].throughput_per_s
    if not compared:
        raise NpusimError(f"no stack can run at any point; {skipped[0].techniques}: {skipped[0].reason}")
    first = compared[0][1]
    crossings = _crossovers(search, [str(parse(s)) for s in stacks], over)
    return first.model_copy(
        update={
            "over": {path: list(values) for path, values in over.items()},
            "baseline": variants[0].stack,
            "variants": variants,
            "skipped": skipped,
            "crossovers": crossings,
            "notes": [*_fixed_tiles(scenario, over), *_notes(compared, over)],
            "conclusion": _conclusion(variants, crossings, [p.settings for p, _ in compared]),
        }
    )


def _fixed_tiles(scenario: Scenario, over: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what hides the axis of tiles where their use is fixed."""
    if "npu.tiles" not in over or not isinstance(scenario.tiles, int):
        return []
    return [
        f"--tiles {scenario.tiles} fixes the tiles in use at every point; leave it out to use all npu.tiles"
    ]


def _notes(compared: Sequence[tuple[_Point, WhatIf]], over: Mapping[str, Sequence[str]]) -> list[str]:
    notes = list(dict.fromkeys(note for _, result in compared for note in result.notes))
    # What holds at one point only is told by its figures.
    common = [note for note in notes if all(note in result.notes for _, result in compared)]
    if _INT8 in over.get(_PRECISION, ()):
        name = technique_with(precision=DType.INT8).name
        common.insert(0, f"{_PRECISION}={_INT8}: every stack with {name}, which makes the integers")
    return common


def _crossovers(search: _Search, stacks: Sequence[str], over: Mapping[str, Sequence[str]]) -> list[Crossover]:
    """Find where two stacks change places between neighbouring values of an axis."""
    found = []
    for axis, values in over.items():
        others = {path: texts for path, texts in over.items() if path != axis}
        for rest in product(*others.values()):
            fixed = dict(zip(others, rest, strict=True))
            points = [_Point({path: {**fixed, axis: v}[path] for path in over}) for v in values]
            for a, b in combinations(dict.fromkeys(stacks), 2):
                found += _changes(search, axis, fixed, points, a, b)
    return found


def _changes(
    search: _Search, axis: str, fixed: dict[str, str], points: Sequence[_Point], a: str, b: str
) -> list[Crossover]:
    found = []
    before: tuple[_Point, float] | None = None
    for point in points:
        lead = search.lead(point, a, b)
        if not lead:
            continue
        if before is not None and (lead > 0.0) != (before[1] > 0.0):
            first, then = (a, b) if before[1] > 0.0 else (b, a)
            ends = before[0].settings[axis], point.settings[axis]
            near = _bisected(search, axis, before[0], point, first, then)
            found.append(Crossover(axis=axis, at=fixed, first=first, then=then, between=ends, near=near))
        before = point, lead
    return found


def _bisected(search: _Search, axis: str, left: _Point, right: _Point, first: str, then: str) -> str | None:
    """Halve the distance between two values while `first` leads on the left, as far as numbers allow."""
    start, end = _number(search, axis, left), _number(search, axis, right)
    if start is None or end is None or start[1] != end[1] or start[0] == end[0]:
        return None
    (low, unit, whole), high = start, end[0]
    middle = low
    for _ in range(_HALVINGS):
        middle = exp((log(low) + log(high)) / 2.0) if low > 0.0 and high > 0.0 else (low + high) / 2.0
        middle = float(round(middle)) if whole else middle
        if middle in (low, high):
            break
        text = f"{int(middle)}" if whole else f"{middle:.6g}{unit}"
        lead = search.lead(_Point({**left.settings, axis: text}), first, then)
        if not lead:
            break
        low, high = (middle, high) if lead > 0.0 else (low, middle)
    return f"{int(middle)}" if whole else f"{middle:.3g}{unit}"


def _number(search: _Search, axis: str, point: _Point) -> tuple[float, str, bool] | None:
    """Return a value as number and unit, and whether it must be whole; None where it is none."""
    text = point.settings[axis]
    split = split_number(text)
    if split is None:
        return None
    present = valid_paths(search.at(point).machine).get(axis)
    unit = getattr(present, "unit", "")
    if unit_factor(split[1], unit) is None:
        return None
    whole = isinstance(present, int) or (present is None and split[0] == int(split[0]))
    return float(split[0]), split[1], whole


def _conclusion(
    variants: Sequence[Variant], crossings: Sequence[Crossover], points: Sequence[dict[str, str]]
) -> str:
    """Say which stack is fastest at how many points, and whether the order changes at all."""
    wins: dict[str, list[Variant]] = {}
    for point in points:
        best = max((v for v in variants if v.at == point), key=lambda v: v.throughput_per_s)
        wins.setdefault(best.stack, []).append(best)
    parts = []
    for stack, gains in sorted(wins.items(), key=lambda item: -len(item[1])):
        ends = [choose(gains, key=lambda v: v.speedup_throughput) for choose in (min, max)]
        texts = [factor(v.speedup_throughput, last_digit(v.speedup_interval)) for v in ends]
        span = " to ".join(dict.fromkeys(texts))
        parts.append(f"{stack} at {len(gains)} of {len(points)} points ({span} {variants[0].stack})")
    order = f"{len(crossings)} crossover{'s' if len(crossings) != 1 else ''}" if crossings else "no crossover"
    return f"Fastest: {', '.join(parts)}; {order}."
