"""Comparison of technique stacks at every combination of settings, and where their order changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import exp, inf, log

from npusim.config import full_factorial, parse_override, valid_paths
from npusim.errors import IllegalTechniqueError, InfeasibleError, NpusimError
from npusim.metrics import SAMPLES
from npusim.ops import DType
from npusim.rounding import factor, last_digit
from npusim.scenario import Scenario
from npusim.studies.comparison import Crossover, Skipped, Variant, WhatIf
from npusim.studies.fitting_stacks import interval_s
from npusim.studies.whatif import whatif
from npusim.techniques import parse, technique_with
from npusim.units import split_number, unit_factor

Point = dict[str, str]
"""One combination of the settings: values by path."""
_PRECISION, _INT8 = "workload.precision", "int8"
_TIE = 1e-3
"""Relative difference in time below which two stacks are equally fast."""
_HALVINGS = 6
"""Steps of the bisection between two neighbouring values."""


def _stack_at(point: Point, stack: str) -> str:
    """Return the stack at a point; if the point asks for 8 bits, with the technique that quantises."""
    parsed = parse(stack)
    quantising = technique_with(precision=DType.INT8).name
    if point.get(_PRECISION) != _INT8 or quantising in parsed.names:
        return str(parsed)
    return str(parse([*parsed.to_data(), quantising]))


@dataclass
class _Search:
    """Times of stacks at points, each computed once."""

    scenario: Scenario
    times: dict[tuple[tuple[str, str], ...], dict[str, float]] = field(default_factory=dict)
    """Times between two inferences (s) by the items of a point, and by stack."""
    loaded: dict[tuple[str, ...], Scenario] = field(default_factory=dict)

    def at(self, point: Point) -> Scenario:
        """Return the scenario of a point, loaded once; 8 bits are a technique, not a file format."""
        key = tuple(f"{path}={v}" for path, v in point.items() if (path, v) != (_PRECISION, _INT8))
        if key not in self.loaded:
            self.loaded[key] = self.scenario.with_settings([parse_override(text) for text in key]).load()
        return self.loaded[key]

    def times_at(self, point: Point) -> dict[str, float]:
        """Return the cache of stack times at a point."""
        return self.times.setdefault(tuple(point.items()), {})

    def lead(self, point: Point, a: str, b: str) -> float | None:
        """Return log(time of b / time of a): above 0 if `a` is faster, 0 for a tie; None: one cannot run."""
        times = self.times_at(point)
        for stack in {a, b} - set(times):
            times[stack] = interval_s(self.at(point), _stack_at(point, stack))
        if inf in (times[a], times[b]):
            return None
        ratio = log(times[b] / times[a])
        return ratio if abs(ratio) > _TIE else 0.0


def refuse_impossible_values(scenario: Scenario, over: Mapping[str, Sequence[str]]) -> None:
    """Load points that have every value at least once, so that a wrong one is refused before any work."""
    search = _Search(scenario)
    for i in range(max(map(len, over.values()), default=0)):
        search.at({path: values[min(i, len(values) - 1)] for path, values in over.items()})


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
    results: list[tuple[Point, WhatIf]] = []
    variants: list[Variant] = []
    skipped: list[Skipped] = []
    for point in full_factorial(over):
        here = search.at(point)
        names = {str(parse(stack)): _stack_at(point, stack) for stack in stacks}
        try:
            result = whatif(here, list(names.values()), samples=samples, seed=seed, alone=True)
        except (IllegalTechniqueError, InfeasibleError) as error:
            skipped += [Skipped(techniques=stack, reason=str(error), at=point) for stack in names]
            continue
        results.append((point, result))
        skipped += [each.model_copy(update={"at": point}) for each in result.skipped]
        by_stack = {variant.techniques: variant for variant in result.variants}
        for stack, techniques in names.items():
            if techniques in by_stack:
                variant = by_stack[techniques]
                variants.append(variant.model_copy(update={"stack": stack, "at": point}))
                search.times_at(point)[stack] = 1.0 / variant.throughput_per_s
    if not results:
        raise NpusimError(f"no stack can run at any point; {skipped[0].techniques}: {skipped[0].reason}")
    crossings = _crossovers(search, [str(parse(s)) for s in stacks], over)
    return results[0][1].model_copy(
        update={
            "over": {path: list(values) for path, values in over.items()},
            "baseline": variants[0].stack,
            "variants": variants,
            "skipped": skipped,
            "crossovers": crossings,
            "notes": _notes(scenario, [result for _, result in results], over),
            "conclusion": _conclusion(variants, crossings, [point for point, _ in results]),
        }
    )


def _notes(scenario: Scenario, results: Sequence[WhatIf], over: Mapping[str, Sequence[str]]) -> list[str]:
    """Return notes on settings that hide an axis, and the notes that hold at all points."""
    notes = []
    if "npu.tiles" in over and isinstance(scenario.tiles, int):
        fixed = f"--tiles {scenario.tiles} fixes the tiles in use at every point"
        notes.append(f"{fixed}; leave it out to use all npu.tiles")
    if _INT8 in over.get(_PRECISION, ()):
        name = technique_with(precision=DType.INT8).name
        notes.append(f"{_PRECISION}={_INT8}: every stack with {name}, which makes the integers")
    common = dict.fromkeys(note for result in results for note in result.notes)
    return [*notes, *(note for note in common if all(note in result.notes for result in results))]


def _crossovers(search: _Search, stacks: Sequence[str], over: Mapping[str, Sequence[str]]) -> list[Crossover]:
    """Return where the order of two stacks reverses between neighbouring values of an axis."""
    crossings = []
    for axis, values in over.items():
        others = {path: texts for path, texts in over.items() if path != axis}
        for fixed in full_factorial(others):
            points = [{path: {**fixed, axis: v}[path] for path in over} for v in values]
            for a, b in combinations(dict.fromkeys(stacks), 2):
                crossings += _changes(search, axis, points, a, b)
    return crossings


def _changes(search: _Search, axis: str, points: Sequence[Point], a: str, b: str) -> list[Crossover]:
    """Return where the order of two stacks reverses along points that differ in one setting."""
    crossings = []
    before: tuple[Point, float] | None = None
    for point in points:
        lead = search.lead(point, a, b)
        if not lead:
            continue
        if before is not None and (lead > 0.0) != (before[1] > 0.0):
            first, then = (a, b) if before[1] > 0.0 else (b, a)
            fixed, ends = {k: v for k, v in point.items() if k != axis}, (before[0][axis], point[axis])
            near = _bisected(search, axis, before[0], point, first, then)
            crossings.append(Crossover(axis=axis, at=fixed, first=first, then=then, between=ends, near=near))
        before = point, lead
    return crossings


def _bisected(search: _Search, axis: str, left: Point, right: Point, first: str, then: str) -> str | None:
    """Return the value at which two stacks are equally fast, between two where their order differs."""
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
        lead = search.lead({**left, axis: text}, first, then)
        if not lead:
            break
        low, high = (middle, high) if lead > 0.0 else (low, middle)
    return f"{int(middle)}" if whole else f"{middle:.3g}{unit}"


def _number(search: _Search, axis: str, point: Point) -> tuple[float, str, bool] | None:
    """Return (number, unit, whether it must be whole) of an axis value; None if it is no number."""
    split = split_number(point[axis])
    present = valid_paths(search.at(point).machine).get(axis)
    if split is None or unit_factor(split[1], getattr(present, "unit", "")) is None:
        return None
    whole = isinstance(present, int) or (present is None and split[0] == int(split[0]))
    return float(split[0]), split[1], whole


def _conclusion(variants: Sequence[Variant], crossings: Sequence[Crossover], points: Sequence[Point]) -> str:
    """Return a sentence: the fastest stack, at how many points, and whether the order changes."""
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
