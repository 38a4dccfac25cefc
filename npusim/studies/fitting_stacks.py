"""The technique stacks that fit a network: all that are legal, stacked greedily by what they gain."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple, get_args, get_origin

from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.scenario import Scenario
from npusim.techniques import BASE, Stack, Technique, get, legal, parse, technique_names

LEAST_GAIN = 0.005
"""Least share of the time that a technique has to save to be stacked."""


class FittingStacks(NamedTuple):
    """Stacks worth comparing on a network."""

    stacks: tuple[str, ...]
    """The baseline first, then what gains on it by itself, then more at a time up to the best."""
    left_out: str
    """What else there is, by reason, in a sentence; empty where nothing is left."""


def interval_s(scenario: Scenario, stack: Stack | str) -> float:
    """Return the time between two inferences (s); infinite where a stack is illegal or does not fit."""
    try:
        return 1.0 / float(scenario.with_(techniques=str(stack)).mapped.total["throughput_per_s"])
    except (IllegalTechniqueError, InfeasibleError):
        return inf


def fitting_stacks(
    scenario: Scenario,
    usable: Callable[[Technique], bool] = lambda technique: True,
    times: dict[str, float] | None = None,
) -> FittingStacks:
    """Find the technique stack that makes a network fastest, greedily, and the stacks on the way to it.

    The baseline is what runs fastest today with the same results. Where that is legal, it is `BASE`: all that
    follows from the edges of a graph alone, as its norm matrix, is computed before inferences. Else it is the
    network itself, or the best exact technique that needs no new compiler. On the baseline the technique that
    saves most is stacked, then the next, until none saves `LEAST_GAIN` of the time. A technique that needs
    another first is tried together with it.

    Parameters
    ----------
    scenario : Scenario
        Its own techniques are ignored.
    usable : callable, optional
        Which techniques to choose from; all by default.
    times : dict of str to float, optional
        Times of stacks on the same scenario, which the search reads and adds to.

    Returns
    -------
    FittingStacks
        `stacks` are without repeats and in this order: the baseline; it with each one technique that gains
        on it, fastest first; the stacks grown from it, one technique more at a time, the best last.

    Examples
    --------
    >>> fitting_stacks(Scenario("resnet-50")).stacks
    ('none', 'quantgr')
    """
    techniques = [get(name) for name in technique_names() if usable(get(name))]
    return _Search(scenario.load(), techniques, {} if times is None else times).result()


@dataclass
class _Search:
    """Greedy search for a technique stack; each stack is mapped once."""

    scenario: Scenario
    techniques: list[Technique]
    times: dict[str, float]

    def result(self) -> FittingStacks:
        """Return the baseline, the techniques that gain on it alone, and the stacks up to the best one."""
        base = self._baseline()
        grown = [base]
        while (following := self._grown(grown[-1])) is not None:
            grown.append(following)
        alone = [_with(base, option) for technique in self.techniques for option in _options(technique)]
        gaining = [stack for stack in alone if stack is not None and self._gains(stack, base)]
        fastest = {stack.names: stack for stack in sorted(gaining, key=self._time, reverse=True)}
        chosen = [base, *sorted(fastest.values(), key=self._time), *grown[1:]]
        return FittingStacks(tuple(dict.fromkeys(map(str, chosen))), self._left_out(base, chosen))

    def _time(self, stack: Stack) -> float:
        name = str(stack)
        if name not in self.times:
            self.times[name] = interval_s(self.scenario, name)
        return self.times[name]

    def _gains(self, stack: Stack, before: Stack) -> bool:
        return self._time(stack) < (1.0 - LEAST_GAIN) * self._time(before)

    def _baseline(self) -> Stack:
        base, empty = parse(BASE), parse(None)
        if legal(self.scenario.baseline, base) is None and self._time(base) < inf:
            return base
        today = [t for t in self.techniques if t.exact and not t.compiler_only and not t.what_if]
        best = min((parse(t.name) for t in today), key=self._time, default=empty)
        return best if self._gains(best, empty) else empty

    def _grown(self, stack: Stack) -> Stack | None:
        """Return the stack with the technique that saves most on it, or None where none saves enough."""
        candidates: list[tuple[str, Stack]] = []
        illegal: list[str] = []
        for option in (option for technique in self.techniques for option in _options(technique)):
            candidate = _with(stack, option)
            if candidate is not None and self._time(candidate) < inf:
                candidates.append((option, candidate))
            elif candidate is not None:
                illegal.append(option)
        for option in illegal:
            # It may leave nothing for the baseline to prepare.
            alone = _with(_without(stack, BASE), option)
            if alone is not None and len(alone) == len(stack) and self._time(alone) < inf:
                candidates.append((option, alone))
            # It may need another one first: a rewritten operator, a ready-made mask.
            for helper in [helper for helper, _ in candidates if _rewrites(helper)]:
                both = _with(stack, helper, option) if _name(helper) != _name(option) else None
                if both is not None and legal(self.scenario.baseline, both) is None:
                    candidates.append((option, both))
        best = min((candidate for _, candidate in candidates), key=self._time, default=stack)
        return best if self._gains(best, stack) else None

    def _left_out(self, base: Stack, chosen: list[Stack]) -> str:
        """Return the techniques that are in no stack, by reason."""
        used = {name for stack in chosen for name in stack.names}
        reasons: dict[str, list[str]] = {}
        for name in (technique.name for technique in self.techniques if technique.name not in used):
            alone = _with(base, name)
            reason = f"instead of {base}"
            if alone is not None:
                reason = "no gain" if self._time(alone) < inf else "do not apply"
            reasons.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())


def _options(technique: Technique) -> Iterator[str]:
    """Yield a technique in its default form, then in its other forms."""
    yield technique.name
    for key, info in technique.parameters.model_fields.items() if technique.precision is None else ():
        if get_origin(info.annotation) is Literal:
            choices = (choice for choice in get_args(info.annotation) if choice != info.default)
            yield from (f"{technique.name}:{key}={choice}" for choice in choices)


def _name(option: str) -> str:
    return option.partition(":")[0]


def _with(stack: Stack, *options: str) -> Stack | None:
    """Return a stack with more techniques; None where it has one of them or one excludes another."""
    names = set(map(_name, options))
    present = {*stack.names, *names}
    if names & set(stack.names) or any(present & set(get(name).excludes) for name in present):
        return None
    return parse([*stack.to_data(), *options])


def _without(stack: Stack, name: str) -> Stack:
    return Stack(tuple(entry for entry in stack if entry.technique.name != name))


def _rewrites(option: str) -> bool:
    technique = get(_name(option))
    return technique.annotation is None and technique.precision is None
