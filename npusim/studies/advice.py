"""Advice on a network: which techniques apply, what each gives, what to rewrite for the others.

The network with its own numbers can be rewritten and compared with the original.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from math import inf
from typing import Literal

from pydantic import Field

from npusim.documents import DISPLAYS, Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.document_head import Interval, Notes, OnMachine, RunConditions, head_of
from npusim.errors import InfeasibleError
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.graph import Phase
from npusim.metrics import SAMPLES
from npusim.rounding import factor, factors, last_digit
from npusim.scenario import Scenario
from npusim.studies.agreement import Agreement, rounding_notes
from npusim.studies.comparison import Variant
from npusim.studies.deployments import (
    Buckets,
    Deployment,
    compare_buckets,
    compare_deployments,
    fixes_edges,
    memory_problem,
)
from npusim.studies.fitting_stacks import LEAST_GAIN, fitting_stacks
from npusim.studies.uncertainty import Draws
from npusim.studies.whatif import compared
from npusim.techniques import (
    NONE,
    EdgeData,
    Stack,
    Technique,
    get,
    legal,
    parse,
    rewritings,
    technique_names,
    technique_with,
)

_ADVISED = 1.05
"""Least gain for which a change of the model is advised: less is within what a data sheet leaves open."""
_WIDE = 2.0
"""Upper over lower end from which an interval is called wide."""
_MASKED = technique_with(edges=EdgeData.INPUT).name
"""Technique that takes the edges of each request as a matrix."""
_VERDICTS = ("gains", "no gain", "instead", "refused")
"""Verdicts in the order of the table."""


class TechniqueAdvice(Part):
    """One technique on a network.

    `gains`; `no gain`: it applies and saves nothing; `instead`: only in place of a technique of the best
    stack; `refused`: the network holds nothing that it works on.
    """

    technique: str
    """Technique, with settings where they are not its own."""
    verdict: Literal["gains", "no gain", "instead", "refused"]
    """Whether it pays."""
    stack: str | None
    """Stack in which it was tried: the best that may hold it; null where it is refused."""
    gain: float | None
    """Throughput of that stack over the same without the technique; null where that does not fit."""
    gain_interval: Interval | None
    """90 % interval of the gain."""
    today: bool
    """Whether a model file can hold it, so that a device of today runs it."""
    numerics: str
    """What it does to the results."""
    reason: str
    """Why it is refused, or who cannot run it yet; empty otherwise."""


class RewritingAdvice(Part):
    """A change of the model by hand that opens it to techniques."""

    operator: str
    """Operator that is in the way."""
    region: str
    """Part of the network."""
    what: str
    """What is written there, and what to write instead."""
    opens: list[str]
    """Techniques that apply then."""
    share: float
    """Share of the latency without techniques that the operator takes."""
    block: str
    """Block of the network that it belongs to."""
    phase: Phase
    """Phase of work that it belongs to."""
    region_share: float
    """Share of the latency without techniques that its block spends in this phase."""


class Advice(RunConditions, OnMachine):
    """What techniques would do for a network, and the stack to try."""

    schema_: Literal["npusim.advise/1"] = Field("npusim.advise/1", alias="schema")
    techniques: list[TechniqueAdvice]
    """Every technique, those that gain most first."""
    rewritings: list[RewritingAdvice]
    """What to write otherwise, the costliest place first."""
    as_it_is: Variant | None
    """The network without techniques; null where the machine has too little memory for it."""
    today: Variant
    """The stack to try: best of what a model file can hold."""
    with_compiler: Variant
    """Best of all stacks, also of those that need a compiler's help."""
    deployments: list[Deployment]
    """Ways to compute the answers of all nodes, on each device, fastest first."""
    buckets: list[Buckets] = Field(default_factory=list)
    """Sizes to compile for, where requests have different numbers of nodes; empty where none were named."""
    agreement: list[Agreement]
    """Answers of the stacks that were compared, fastest first, up to the one to try; may be empty."""
    file: str | None = None
    """File that holds the network under the stack to try; null where none was asked for."""
    benchmark: str | None = None
    """Command that times the file with OpenVINO's own tool; null as above."""
    notes: Notes
    conclusion: str
    """One sentence: what to do."""

    def __str__(self) -> str:
        """Return what `npusim advise` prints."""
        display = next(iter(DISPLAYS.values()), None)
        return repr(self) if display is None else display.page_of(self)


def advise(
    scenario: Scenario,
    *,
    judge: Callable[[str], Agreement] | None = None,
    sizes: Sequence[int] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Advice:
    """Say which techniques pay on a network, and what to rewrite for those that do not apply.

    Parameters
    ----------
    scenario : Scenario
        Its own techniques are ignored.
    judge : callable, optional
        Returns how the answers of a stack agree with the original's, where the network's numbers are known;
        raises an UnwritableError for a stack that no file can hold.
    sizes : sequence of int, optional
        Numbers of nodes of requests, for which buckets are compared.
    samples, seed : int
        Machines drawn for the 90 % intervals (0: none), and the seed of the draws.

    Examples
    --------
    >>> advise(Scenario("gcn-cora"), samples=0).today.techniques
    'stagr+quantgr'
    """
    times: dict[str, float] = {}
    today = fitting_stacks(scenario, _runs_today, times).stacks
    fitting = fitting_stacks(scenario, lambda _: True, times).stacks
    bases = [fitting[-1], today[-1], fitting[0], NONE]
    holders = {name: _stack_with(scenario, name, bases) for name in technique_names()}
    pairs = [(_without(stack, name), stack) for name, stack in holders.items() if stack is not None]
    stacks = dict.fromkeys([NONE, *today, *fitting, *chain.from_iterable(pairs)])
    comparison, draws = compared(scenario, list(stacks), samples=samples, seed=seed)
    variants = {variant.techniques: variant for variant in comparison.variants}
    plain = variants.get(NONE)
    runnable = [variants[stack] for stack in dict.fromkeys((NONE, *today)) if stack in variants]
    best_today, agreement, unwritable = _keeping(_worth_trying(scenario, runnable, plain), judge)
    best = min((best_today, *(variants[s] for s in fitting if s in variants)), key=_time)
    best = best if _gain(best, best_today) >= _ADVISED else best_today
    deployments = compare_deployments(scenario, best_today.techniques, is_run=judge is not None)
    of_any_edges = [v.techniques for v in runnable if not fixes_edges(v.techniques)]
    buckets = [] if sizes is None else compare_buckets(scenario, [*of_any_edges, _MASKED], sizes)
    reasons = {each.techniques: each.reason for each in comparison.skipped}
    techniques = [
        _advice(scenario, name, stack, variants, draws, best, reasons) for name, stack in holders.items()
    ]
    return Advice(
        **head_of(comparison),
        techniques=sorted(techniques, key=lambda t: (_VERDICTS.index(t.verdict), -(t.gain or inf))),
        rewritings=_rewritings(scenario),
        as_it_is=plain,
        today=best_today,
        with_compiler=best,
        deployments=deployments,
        buckets=buckets,
        agreement=agreement,
        notes=[
            *(f"{NONE}: {reason}" for stack, reason in reasons.items() if stack == NONE),
            *comparison.notes,
            *unwritable,
            *rounding_notes(agreement),
            *_narrowing(best_today),
        ],
        conclusion=_conclusion(plain, best_today, best, deployments) + _advised_buckets(buckets),
    )


def _keeping(
    variants: Sequence[Variant], judge: Callable[[str], Agreement] | None
) -> tuple[Variant, list[Agreement], list[str]]:
    """Return the first variant that keeps enough answers, all agreements up to it, and notes.

    Without a judge it is the first variant. If none keeps enough, it is the network without techniques.
    """
    agreement: list[Agreement] = []
    reasons: list[str] = []
    if judge is None:
        return variants[0], agreement, reasons
    for variant in sorted(variants, key=lambda v: v.techniques == NONE):
        try:
            agreement.append(judge(variant.techniques))
        except UnwritableError as error:
            reasons.append(f"answers of {variant.techniques} were not compared: {error}")
            continue
        if agreement[-1].kept:
            break
    return (variant, agreement, reasons) if agreement else (variants[0], agreement, reasons[:1])


def _narrowing(today: Variant) -> list[str]:
    """Return how to narrow the interval of the stack to try, where it is wide."""
    interval = today.speedup_interval
    if interval is None or interval[1] < _WIDE * interval[0]:
        return []
    return [
        f"the gain of {today.techniques} spans a factor of {interval[1] / interval[0]:.2g}: `npusim measure "
        "--for` measures the operators that the network rests on, in two minutes on the machine itself, and "
        "`npusim calibrate` fits the data sheet to them"
    ]


def _runs_today(technique: Technique) -> bool:
    return not technique.compiler_only and not technique.what_if


def _pays(scenario: Scenario, variant: Variant, plain: Variant | None) -> bool:
    """Whether a stack gains enough to be advised, and this machine can compile it."""
    gains = plain is None or _gain(variant, plain) >= _ADVISED
    return gains and not memory_problem(scenario.machine, variant.compilation)


def _worth_trying(scenario: Scenario, variants: Sequence[Variant], plain: Variant | None) -> list[Variant]:
    """Return the variants that pay, and `plain` (without techniques) if it fits; fastest first."""
    usable = [variant for variant in variants if variant is plain or _pays(scenario, variant, plain)]
    if not usable:
        mapped_estimate(scenario.with_(techniques=NONE).mapped)  # raises what the network lacks
    return sorted(usable, key=_time)


def _gain(variant: Variant, other: Variant) -> float:
    return variant.throughput_per_s / other.throughput_per_s


def _time(variant: Variant) -> float:
    return 1.0 / variant.throughput_per_s


def _without(stack: str, name: str) -> str:
    return str(Stack(tuple(entry for entry in parse(stack) if entry.technique.name != name)))


def _stack_with(scenario: Scenario, name: str, stacks: Sequence[str]) -> str | None:
    """Return the first stack that is legal both with a technique and without it; None if there is none."""
    graph = scenario.baseline
    for stack in map(parse, stacks):
        whole = stack if name in stack.names else parse([*stack.to_data(), name])
        if legal(graph, whole) is None and legal(graph, _without(str(whole), name)) is None:
            return str(whole)
    return None


def _advice(
    scenario: Scenario,
    name: str,
    stack: str | None,
    variants: dict[str, Variant],
    draws: Draws | None,
    best: Variant,
    reasons: Mapping[str, str],
) -> TechniqueAdvice:
    """Return the gain of a technique in a stack, over the same stack without it.

    `reasons` says why the machine cannot run a stack.
    """
    technique = get(name)
    today = _runs_today(technique)
    advice = partial(TechniqueAdvice, technique=name, today=today, numerics=technique.numerics)
    if stack is None or stack not in variants:
        reason = legal(scenario.baseline, name) or reasons.get(stack or "", "")
        return advice(verdict="refused", stack=None, gain=None, gain_interval=None, reason=reason)
    reason = technique.what_if or "only a compiler can do it: no model file can ask for it"
    before, gain, interval = _without(stack, name), None, None
    if before in variants:
        gain = _gain(variants[stack], variants[before])
        rows = [list(variants).index(each) for each in (stack, before)]
        interval = None if draws is None else draws.speedup_interval(*rows)
    excluded = set(technique.excludes) & set(parse(best.techniques).names)
    return advice(
        verdict="instead" if excluded else "gains" if (gain or inf) > 1.0 + LEAST_GAIN else "no gain",
        stack=stack,
        gain=gain,
        gain_interval=interval,
        reason="" if today else reason,
    )


def _rewritings(scenario: Scenario) -> list[RewritingAdvice]:
    """Return the changes of the model that open it to techniques, most costly part of it first."""
    try:
        plain = mapped_estimate(scenario.with_(techniques=NONE).mapped)
    except InfeasibleError:
        return []
    rows = {name: row for row in plain.operators for name in (row.name, *row.fused)}
    regions: dict[tuple[str, str], float] = defaultdict(float)
    for row in plain.operators:
        regions[row.block, row.phase] += row.latency_s
    advice = []
    for rewriting in rewritings(scenario.baseline):
        if rewriting.operator in rows:
            row = rows[rewriting.operator]
            advice.append(
                RewritingAdvice(
                    **asdict(rewriting),
                    share=row.latency_s / plain.latency_s,
                    block=row.block,
                    phase=row.phase,
                    region_share=regions[row.block, row.phase] / plain.latency_s,
                )
            )
    return sorted(advice, key=lambda each: -each.region_share)


def _advised_buckets(buckets: Sequence[Buckets]) -> str:
    """Return which sizes to compile for, and what one for all would take."""
    for each in (each for each in buckets if each.advised):
        sizes = ", ".join(f"{nodes:,}" for nodes in each.capacities)
        text = f" Compile {each.techniques} for {sizes} nodes: {each.latency_s * 1e3:.3g} ms on average"
        alone = f", {buckets[0].latency_s * 1e3:.3g} ms for {buckets[0].capacities[0]:,} alone"
        return f"{text}{alone if len(each.capacities) > 1 else ''}."
    return ""


def _conclusion(
    plain: Variant | None, today: Variant, best: Variant, deployments: Sequence[Deployment]
) -> str:
    """Say which stack to try, what a compiler's help would add, and which device to run it on."""
    text = "No technique that runs today makes it faster"
    if plain is None:
        text = f"Try {today.techniques}: the network as it is takes more memory than the machine has"
    elif today.techniques != NONE:
        interval = today.speedup_interval
        gain = factor(_gain(today, plain), last_digit(interval))
        if float(gain.removesuffix("x")) == 1.0:  # more digits than it bears, for "1x" would say nothing
            gain = factor(_gain(today, plain))
        text = f"Try {today.techniques}: {gain} the throughput of the network as it is"
        text += f" (90 %: {factors(interval)})" if interval is not None else ""
    if best.techniques != today.techniques:
        text += f"; with a compiler's help {best.techniques} would give {_gain(best, today):.3g} times that"
    return f"{text}.{_advised_device(today, deployments)}"


def _advised_device(today: Variant, deployments: Sequence[Deployment]) -> str:
    """Return which device to run on, where that pays beyond the stack to try."""
    advisable = [each for each in deployments if each.is_advisable]
    fastest = min(advisable, key=lambda each: each.all_nodes_s or inf, default=None)
    if fastest is None or fastest.all_nodes_s is None:
        return ""
    gain = 1.0 / fastest.all_nodes_s / today.throughput_per_s
    if gain < _ADVISED:
        return ""
    stack = "as it is" if fastest.techniques == NONE else f"with {fastest.techniques}"
    graph = "" if fastest.runs == 1 else f" in {fastest.graph}"
    return f" Run it on the {fastest.device.upper()} {stack}{graph}: {factor(gain)} the throughput of that."
