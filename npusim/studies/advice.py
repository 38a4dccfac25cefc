"""Advice on a network: which techniques apply, what each gives, what to rewrite for the others.

The network with its own numbers can be rewritten and compared with the original.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from npusim.documents import Part
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError, InfeasibleError
from npusim.frontends.openvino_ir import SUFFIXES as MODEL_ENDINGS
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.frontends.openvino_write import save_model
from npusim.frontends.pyg import MODULE, named_inputs
from npusim.frontends.valued import ValuedNetwork, load_valued, valued_module
from npusim.graph import Phase
from npusim.rounding import factor, factors, last_digit
from npusim.scenario import Scenario, is_module, name_of
from npusim.studies.comparison import Variant
from npusim.studies.document_head import Interval, Notes, OnMachine, RunConditions, head_of
from npusim.studies.fitting_stacks import LEAST_GAIN, fitting_stacks
from npusim.studies.uncertainty import SAMPLES, Draws
from npusim.studies.whatif import compared
from npusim.techniques import NONE, Stack, Technique, apply, get, legal, parse, rewritings, technique_names

KEEP_ANSWERS = 0.95
"""Least share of answers that the stack to try keeps by default."""
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
    """Share of rows whose largest output is in the same column; of a single column: is within 1 %."""
    same_answers_fp16: float | None
    """The same share for the stack without its 8-bit techniques; null where it has none."""


class Advice(RunConditions, OnMachine):
    """What techniques would do for a network, and the stack to try."""

    schema_: Literal["npusim.advise/1"] = Field("npusim.advise/1", alias="schema")
    techniques: list[TechniqueAdvice]
    """Every technique, those that gain most first."""
    rewritings: list[RewritingAdvice]
    """What to write otherwise, the costliest place first."""
    as_it_is: Variant
    """The network without techniques."""
    today: Variant
    """The stack to try: best of what a model file can hold."""
    with_compiler: Variant
    """Best of all stacks, also of those that need a compiler's help."""
    agreement: list[Agreement]
    """Answers of the stacks that were compared, fastest first, up to the one to try; may be empty."""
    file: str | None = None
    """File that holds the network under the stack to try; null where none was asked for."""
    notes: Notes
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
        Its own techniques are ignored.
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
    tried = {name: _stack_with(scenario, name, grown) for name in technique_names()}
    stacks = [NONE, *today.stacks, *every.stacks]
    for name, stack in tried.items():
        stacks += [] if stack is None else [_without(stack, name), stack]
    comparison, draws = compared(scenario, list(dict.fromkeys(stacks)), samples=samples, seed=seed)
    variants = {variant.techniques: variant for variant in comparison.variants}
    usable = [variants[stack] for stack in dict.fromkeys((NONE, *today.stacks)) if stack in variants]
    best_today, agreement, unwritable = _keeping(sorted(usable, key=_time), judge, keep_answers)
    best = min((best_today, *(variants[s] for s in every.stacks if s in variants)), key=_time)
    techniques = [_advice(scenario, name, stack, variants, draws, best) for name, stack in tried.items()]
    return Advice(
        **head_of(comparison),
        techniques=sorted(techniques, key=lambda t: (_VERDICTS.index(t.verdict), -(t.gain or 0.0))),
        rewritings=_rewritings(scenario),
        as_it_is=variants[NONE],
        today=best_today,
        with_compiler=best,
        agreement=agreement,
        notes=[*comparison.notes, *unwritable],
        conclusion=_conclusion(variants[NONE], best_today, best),
    )


def _keeping(
    variants: Sequence[Variant], judge: Callable[[str], Agreement] | None, least: float
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
        if agreement[-1].same_answers >= least:
            break
    return (variant, agreement, reasons) if agreement else (variants[0], agreement, reasons[:1])


def _runs_today(technique: Technique) -> bool:
    return not technique.compiler_only and not technique.what_if


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
) -> TechniqueAdvice:
    """Return the gain of a technique in a stack, over the same stack without it."""
    technique = get(name)
    today = _runs_today(technique)
    advice = partial(TechniqueAdvice, technique=name, today=today, numerics=technique.numerics)
    if stack is None or not {stack, _without(stack, name)} <= set(variants):
        reason = legal(scenario.baseline, name) or "it does not fit into SRAM"
        return advice(verdict="refused", stack=None, gain=None, gain_interval=None, reason=reason)
    reason = technique.what_if or "only a compiler can do it: no model file can ask for it"
    before = _without(stack, name)
    gain, place = variants[stack].throughput_per_s / variants[before].throughput_per_s, list(variants).index
    excluded = set(technique.excludes) & set(parse(best.techniques).names)
    return advice(
        verdict="instead" if excluded else "gains" if gain > 1.0 + LEAST_GAIN else "no gain",
        stack=stack,
        gain=gain,
        gain_interval=None if draws is None else draws.speedup_interval(place(stack), place(before)),
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


def _conclusion(plain: Variant, today: Variant, best: Variant) -> str:
    text = "No technique that runs today makes it faster"
    if today.techniques != NONE:
        interval = today.speedup_interval
        gain = factor(today.throughput_per_s / plain.throughput_per_s, last_digit(interval))
        text = f"Try {today.techniques}: {gain} the throughput of the network as it is"
        text += f" (90 %: {factors(interval)})" if interval is not None else ""
    if best.techniques != today.techniques:
        more = best.throughput_per_s / today.throughput_per_s
        text += f"; with a compiler's help {best.techniques} would give {more:.3g} times that"
    return f"{text}."


_CLOSE = 0.01
"""Share of the largest output within which two answers of a single number are the same."""


@dataclass
class NumericalRewriting:
    """A network with its own numbers, rewritten and compared with the original."""

    network: ValuedNetwork
    _models: dict[str, Any] = field(default_factory=dict)
    _original: npt.NDArray[Any] | None = None
    """Answers of the original, once they were computed."""

    @classmethod
    def of(
        cls, scenario: Scenario, values: str | Path | None, *, required: bool
    ) -> NumericalRewriting | None:
        """Load a network with its numbers.

        Parameters
        ----------
        values : str or Path, optional
            An `.npz` file with values of a model file's inputs.
        required : bool
            Refuse a network whose numbers are not known, instead of returning None.

        Raises
        ------
        ConfigError
            Where it is refused.
        """
        network = scenario.network
        if is_module(network) and scenario.inputs is not None:
            return cls(valued_module(network, named_inputs(network, scenario.inputs), name_of(network)))
        path = str(network) if isinstance(network, str | Path) else ""
        if MODULE.fullmatch(path) or (path.endswith(MODEL_ENDINGS) and (values is not None or required)):
            return cls(load_valued(path, values, scenario.shapes))
        if required or values is not None:
            raise ConfigError(
                f"the numbers of {name_of(network)}",
                allowed="a module (model.py:net) or a model file (.xml, .onnx): the weights of a workload "
                "are made up; `npusim export` trains one",
            )
        return None

    def model(self, stack: str) -> Any:
        """Return the network under a stack as an `openvino.Model`; 8 bits scaled on the example inputs."""
        if stack not in self._models:
            entries, floating = parse(stack), _floating(stack)
            before = apply(self.network.graph, floating) if len(floating) < len(entries) else None
            self._models[stack] = self.network.rewritten(apply(self.network.graph, entries), before)
        return self._models[stack]

    def judge(self, stack: str) -> Agreement:
        """Compare the file of the network under a stack with the original, as a user would run it.

        The file holds weights in fp16, and runs on OpenVINO's CPU device under its default settings.

        Raises
        ------
        UnwritableError
            Where the network cannot be written so that it computes what the original computes.
        """
        answers, original = self._answers(stack), self._answers_of_original()
        same = _share_of_same(answers, original)
        floating = str(_floating(stack))
        half = None if floating == stack else _share_of_same(self._answers(floating), original)
        return Agreement(
            stack=stack,
            largest_difference=float(np.abs(answers - original).max()),
            largest_output=float(np.abs(original).max()),
            same_answers=same,
            same_answers_fp16=half,
        )

    def _answers(self, stack: str) -> npt.NDArray[Any]:
        """Return the answers of the file of the network under a stack."""
        return self.network.outputs_of_file(apply(self.network.graph, stack), self.model(stack))[0]

    def _answers_of_original(self) -> npt.NDArray[Any]:
        """Return the answers of the original, once the network as it is written gives the same."""
        if self._original is None:
            original = self.network.answers()
            written = self.network.outputs(self.network.graph, self.model(NONE))[0]
            difference, largest = float(np.abs(written - original).max()), float(np.abs(original).max())
            if not difference <= _CLOSE * largest:
                raise UnwritableError(
                    f"{self.network.graph.name} cannot be exported: the network as npusim writes it differs "
                    f"from the original by {difference:.3g} of {largest:.3g}; convert it with "
                    "openvino.convert_model instead"
                )
            self._original = original
        return self._original

    def save(self, stack: str, file: Path) -> None:
        """Write the network under a stack as OpenVINO IR, weights in fp16."""
        save_model(self.model(stack), file, half=True)


def _floating(stack: str) -> Stack:
    """Return a stack without its techniques of 8 bits."""
    return Stack(tuple(entry for entry in parse(stack) if entry.technique.precision is None))


def _share_of_same(answers: npt.NDArray[Any], original: npt.NDArray[Any]) -> float:
    """Return the share of rows with the same answer; see `Agreement.same_answers`."""
    if original.ndim > 0 and original.shape[-1] > 1:
        return float(np.mean(answers.argmax(-1) == original.argmax(-1)))
    return float(np.mean(np.abs(answers - original) < _CLOSE * np.abs(original).max()))
