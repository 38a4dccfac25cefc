"""The technique stacks that fit a network: all that are legal, stacked greedily by what they gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.scenario import Scenario
from npusim.techniques import BASE, Stack, Technique, get, legal, parse, technique_names

LEAST_GAIN = 0.005
"""Least share of the time that a technique has to save to be stacked."""


@dataclass(frozen=True, slots=True)
class FittingStacks:
    """Stacks worth comparing on a network."""

    stacks: tuple[str, ...]
    """The baseline first, then what gains on it by itself, then more at a time up to the best."""
    left_out: str
    """What else there is, by reason, in a sentence; empty where nothing is left."""


@dataclass
class _Times:
    """Times between two inferences by stack, each found once."""

    scenario: Scenario
    names: tuple[str, ...]
    """Techniques to choose from."""
    known: dict[str, float] = field(default_factory=dict)

    def of(self, stack: Stack) -> float:
        """Return the time of a stack (s); infinite where it is illegal or does not fit into SRAM."""
        name = str(stack)
        if name not in self.known:
            try:
                total = self.scenario.with_(techniques=name).mapped.total
                self.known[name] = 1.0 / float(total["throughput_per_s"])
            except (IllegalTechniqueError, InfeasibleError):
                self.known[name] = inf
        return self.known[name]


def fitting_stacks(
    scenario: Scenario, usable: Callable[[Technique], bool] = lambda technique: True
) -> FittingStacks:
    """Find the stacks that fit a network.

    The baseline is what runs fastest today with the same results: the network with what follows from its
    edges ready-made (`BASE`) where that is legal, else the network itself or the best exact technique that
    needs no new compiler. On it the technique that saves most is stacked, then the next, until none saves
    `LEAST_GAIN`; one that needs another first is tried together with it.

    Parameters
    ----------
    scenario : Scenario
        Its own techniques are not looked at.
    usable : callable, optional
        Which techniques to choose from; all by default.

    Examples
    --------
    >>> fitting_stacks(Scenario("resnet-50")).stacks
    ('none', 'quantgr')
    """
    times = _Times(scenario, tuple(name for name in technique_names() if usable(get(name))))
    base = _baseline(times)
    grown = [base]
    while (following := _grown(times, grown[-1])) is not None:
        grown.append(following)
    alone = [_with(base, option) for name in times.names for option in _options(name)]
    single = [stack for stack in alone if stack is not None and _gains(times, stack, base)]
    single = list({stack.names: stack for stack in sorted(single, key=times.of, reverse=True)}.values())
    chosen = [base, *sorted(single, key=times.of), *grown[1:]]
    shown = dict.fromkeys(map(str, chosen))
    return FittingStacks(tuple(shown), _left_out(times, base, chosen))


def _baseline(times: _Times) -> Stack:
    graph, empty = times.scenario.baseline, parse(None)
    if legal(graph, BASE) is None and times.of(parse(BASE)) < inf:
        return parse(BASE)
    today = [get(name) for name in times.names]
    options = [parse(t.name) for t in today if t.exact and not t.compiler_only and not t.what_if]
    best = min(options, key=times.of, default=empty)
    return best if _gains(times, best, empty) else empty


def _gains(times: _Times, stack: Stack, before: Stack) -> bool:
    return times.of(stack) < (1.0 - LEAST_GAIN) * times.of(before)


def _options(name: str) -> Iterator[str]:
    """Yield a technique as it is by default, then in its other forms."""
    yield name
    technique = get(name)
    for key, info in technique.parameters.model_fields.items() if technique.forms is not None else ():
        if isinstance(info.default, Enum):
            for choice in type(info.default):
                if choice is not info.default:
                    yield f"{name}:{key}={choice.value}"


def _with(stack: Stack, *options: str) -> Stack | None:
    """Return a stack with more techniques; None where one stands in it already or excludes another."""
    names = {option.partition(":")[0] for option in options}
    present = {*stack.names, *names}
    if names & set(stack.names) or any(present & set(get(name).excludes) for name in present):
        return None
    return parse([*stack.to_data(), *options])


def _grown(times: _Times, stack: Stack) -> Stack | None:
    """Return the stack with the technique that saves most on it, or None where none saves enough."""
    graph = times.scenario.baseline
    found: list[tuple[str, Stack]] = []
    illegal: list[tuple[str, Stack]] = []
    for name in times.names:
        for option in _options(name):
            candidate = _with(stack, option)
            if candidate is not None:
                (found if times.of(candidate) < inf else illegal).append((option, candidate))
    for option, _ in illegal:
        # It may need another one first: a rewritten operator, a ready-made mask.
        for helper, _ in list(found):
            both = (
                _with(stack, helper, option) if _rewrites(helper) and _name(helper) != _name(option) else None
            )
            if both is not None and legal(graph, both) is None:
                found.append((option, both))
    best = min((candidate for _, candidate in found), key=times.of, default=stack)
    return best if _gains(times, best, stack) else None


def _name(option: str) -> str:
    return option.partition(":")[0]


def _rewrites(option: str) -> bool:
    technique: Technique = get(_name(option))
    return technique.annotation is None and technique.precision is None


def _left_out(times: _Times, base: Stack, chosen: list[Stack]) -> str:
    """Return which techniques no stack has, by reason."""
    used = {name for stack in chosen for name in stack.names}
    reasons: dict[str, list[str]] = {}
    for name in times.names:
        if name in used:
            continue
        alone = _with(base, name)
        if alone is None:
            reason = f"instead of {base}"
        elif times.of(alone) < inf:
            reason = "no gain"
        else:
            reason = "do not apply"
        reasons.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
