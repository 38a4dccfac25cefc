"""Advice on a network: which techniques apply, what each gives, what to rewrite for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.engines.analytical import mapped_estimate
from npusim.errors import InfeasibleError
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.graph import Phase
from npusim.rounding import factor, factors, last_digit
from npusim.scenario import Scenario
from npusim.studies.comparison import Interval, Variant
from npusim.studies.fitting_stacks import LEAST_GAIN, fitting_stacks
from npusim.studies.uncertainty import SAMPLES, Draws
from npusim.studies.whatif import compared
from npusim.techniques import NONE, Technique, get, legal, parse, rewritings, technique_names

KEEP_ANSWERS = 0.95
"""Least share of answers that the stack to try keeps, unless told otherwise."""
Verdict = Literal["gains", "no gain", "instead", "refused"]


class TechniqueAdvice(Part):
    """One technique on a network."""

    technique: str
    """Technique, with settings where they are not its own."""
    verdict: Verdict
    """`gains`; `no gain`: it applies and saves nothing; `instead`: only in place of one that is taken;
    `refused`: the network holds nothing that it works on."""
    stack: str | None
    """Stack in which it was tried: the best that may hold it; null where it is refused."""
    gain: float | None
    """Throughput of that stack over the same without the technique."""
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


class Agreement(Part):
    """Agreement of the rewritten model's file with the original.

    The file runs on OpenVINO's CPU device under its default settings, the original in fp32.
    """

    stack: str
    """Technique stack of the rewritten model."""
    largest_difference: float
    """Largest difference of an output."""
    largest_output: float
    """Largest magnitude of an output of the original."""
    same_answers: float
    """Share of rows whose largest output stands in the same column; of a single column, that is the same to
    1 % of the largest."""
    same_answers_fp16: float | None
    """The same share for the stack without its 8-bit techniques; null where it has none."""


class Advice(Document):
    """What techniques would do for a network, and the stack to try."""

    schema_: Literal["npusim.advise/1"] = Field("npusim.advise/1", alias="schema")
    """Version of this document."""
    workload: str
    """Name of the network."""
    soc: str
    """Name of the SoC."""
    hint: str
    """Performance hint: latency or throughput."""
    requests: int
    """Inferences in flight."""
    tiles: int
    """NPU tiles that an inference uses."""
    npu_tiles: int
    """Tiles of the NPU; 0 without one."""
    contexts: int
    """Inferences that the NPU works on side by side."""
    techniques: list[TechniqueAdvice]
    """Every technique, those that gain most first."""
    rewritings: list[RewritingAdvice]
    """What to write otherwise, the costliest place first."""
    as_it_is: Variant
    """The network without techniques."""
    today: Variant
    """The stack to try: best of what a model file can hold."""
    with_compiler: Variant
    """Best of all stacks, those included that need a compiler's help."""
    agreement: list[Agreement]
    """Answers of the stacks that were tried, fastest first, up to the one to try; empty where the network's
    numbers are not known, or no file can hold the network."""
    file: str | None = None
    """File that holds the network under the stack to try; null where none was asked for."""
    notes: list[str]
    """What one should know before believing a row."""
    conclusion: str
    """One sentence: what to do."""


def advise(
    scenario: Scenario,
    *,
    judge: Callable[[str], Agreement] | None = None,
    keep_answers: float = KEEP_ANSWERS,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Advice:
    """Say which techniques pay on a network, and what to rewrite for those that do not apply.

    Parameters
    ----------
    scenario : Scenario
        Its own techniques are not looked at.
    judge : callable, optional
        Returns how the answers of a stack agree with the original's, where the network's numbers are known;
        raises an UnwritableError for a stack that no file can hold.
    keep_answers : float
        Least share of rows whose answer the stack to try keeps.
    samples, seed : int
        Machines drawn for the 90 % intervals (0: none), and the seed of the draws.

    Examples
    --------
    >>> advise(Scenario("gcn-cora"), samples=0).today.techniques
    'stagr+quantgr'
    """
    today, every = fitting_stacks(scenario, usable=_runs_today), fitting_stacks(scenario)
    grown = [every.stacks[-1], today.stacks[-1], every.stacks[0], NONE]
    tried = {name: _tried(scenario, name, grown) for name in technique_names()}
    asked = [NONE, *today.stacks, *every.stacks]
    for name, stack in tried.items():
        if stack is not None:
            asked += [_without(stack, name), stack]
    told, draws = compared(scenario, list(dict.fromkeys(asked)), samples=samples, seed=seed)
    found = {variant.techniques: variant for variant in told.variants}
    usable = [found[stack] for stack in dict.fromkeys((NONE, *today.stacks)) if stack in found]
    best_today, judged, unwritable = _keeping(sorted(usable, key=_time), judge, keep_answers)
    best = min((best_today, *(found[s] for s in every.stacks if s in found)), key=_time)
    of_gains = _Gains(found, draws)
    techniques = [_advice(scenario, name, stack, of_gains, best) for name, stack in tried.items()]
    rank = {"gains": 0, "no gain": 1, "instead": 2, "refused": 3}
    return Advice(
        **{key: getattr(told, key) for key in _HEAD},
        techniques=sorted(techniques, key=lambda one: (rank[one.verdict], -(one.gain or 0.0))),
        rewritings=_rewritings(scenario),
        as_it_is=found[NONE],
        today=best_today,
        with_compiler=best,
        agreement=judged,
        notes=[*told.notes, *unwritable],
        conclusion=_conclusion(found[NONE], best_today, best),
    )


_HEAD = ("workload", "soc", "hint", "requests", "tiles", "npu_tiles", "contexts")


def _keeping(
    variants: Sequence[Variant], judge: Callable[[str], Agreement] | None, least: float
) -> tuple[Variant, list[Agreement], list[str]]:
    """Return the first variant that keeps enough answers, the judgements, and a note if there is none.

    Without a judgement it is the first variant. Where none keeps enough it is the network without techniques,
    judged last.
    """
    judged: list[Agreement] = []
    if judge is None:
        return variants[0], judged, []
    reasons: list[str] = []
    for variant in sorted(variants, key=lambda one: one.techniques == NONE):
        try:
            judged.append(judge(variant.techniques))
        except UnwritableError as error:
            reasons.append(f"answers of {variant.techniques} were not compared: {error}")
            continue
        if judged[-1].same_answers >= least:
            break
    return (variant, judged, reasons) if judged else (variants[0], judged, reasons[:1])


def _runs_today(technique: Technique) -> bool:
    return not technique.compiler_only and not technique.what_if


def _time(variant: Variant) -> float:
    return 1.0 / variant.throughput_per_s


def _without(stack: str, name: str) -> str:
    return str(parse([one for one in parse(stack).to_data() if _name(one) != name]))


def _name(entry: object) -> str:
    return next(iter(entry)) if isinstance(entry, dict) else str(entry)


def _tried(scenario: Scenario, name: str, stacks: Sequence[str]) -> str | None:
    """Return the first stack that is legal with a technique and without it; None: there is none."""
    graph = scenario.baseline
    for stack in stacks:
        present = parse(stack)
        whole = present if name in present.names else parse([*present.to_data(), name])
        if legal(graph, whole) is None and legal(graph, _without(str(whole), name)) is None:
            return str(whole)
    return None


@dataclass(frozen=True, slots=True)
class _Gains:
    """Variants of a comparison by stack, and the machines that were drawn for them."""

    found: dict[str, Variant]
    draws: Draws | None

    def of(self, stack: str, before: str) -> tuple[float, Interval | None]:
        """Return the throughput of a stack over that of another, and its 90 % interval."""
        place = list(self.found).index
        gain = self.found[stack].throughput_per_s / self.found[before].throughput_per_s
        if self.draws is None:
            return gain, None
        return gain, self.draws.speedup_interval(place(stack), place(before))


def _advice(
    scenario: Scenario, name: str, stack: str | None, gains: _Gains, best: Variant
) -> TechniqueAdvice:
    technique = get(name)
    runs = _runs_today(technique)
    reason = "" if runs else technique.what_if or "only a compiler can do it: no model file can ask for it"
    if stack is None or not {stack, _without(stack, name)} <= set(gains.found):
        return TechniqueAdvice(
            technique=name, verdict="refused", stack=None, gain=None, gain_interval=None, today=runs,
            numerics=technique.numerics, reason=legal(scenario.baseline, name) or "it does not fit into SRAM",
        )  # fmt: skip
    gain, interval = gains.of(stack, _without(stack, name))
    verdict: Verdict = "gains" if gain > 1.0 + LEAST_GAIN else "no gain"
    if set(technique.excludes) & set(parse(best.techniques).names):
        verdict = "instead"
    return TechniqueAdvice(
        technique=name, verdict=verdict, stack=stack, gain=gain,
        gain_interval=interval, today=runs, numerics=technique.numerics, reason=reason,
    )  # fmt: skip


def _rewritings(scenario: Scenario) -> list[RewritingAdvice]:
    try:
        plain = mapped_estimate(scenario.with_(techniques=NONE).mapped)
    except InfeasibleError:
        return []
    rows = {name: row for row in plain.operators for name in (row.name, *row.fused)}
    regions: dict[tuple[str, str], float] = {}
    for row in plain.operators:
        regions[row.block, row.phase] = regions.get((row.block, row.phase), 0.0) + row.latency_s
    found = [
        RewritingAdvice(
            operator=one.operator, region=one.region, what=one.what, opens=list(one.opens),
            share=rows[one.operator].latency_s / plain.latency_s,
            block=rows[one.operator].block, phase=rows[one.operator].phase,
            region_share=regions[rows[one.operator].block, rows[one.operator].phase] / plain.latency_s,
        )
        for one in rewritings(scenario.baseline)
        if one.operator in rows
    ]  # fmt: skip
    return sorted(found, key=lambda one: -one.region_share)


def _conclusion(plain: Variant, today: Variant, best: Variant) -> str:
    if today.techniques == NONE:
        text = "No technique that runs today makes it faster"
    else:
        gain, interval = today.throughput_per_s / plain.throughput_per_s, today.speedup_interval
        told = factor(gain, last_digit(interval))
        text = f"Try {today.techniques}: {told} the throughput of the network as it is"
        if interval is not None:
            text += f" (90 %: {factors(interval)})"
    if best.techniques != today.techniques:
        more = best.throughput_per_s / today.throughput_per_s
        text += f"; with a compiler's help {best.techniques} would give {more:.3g} times that"
    return text + "."
