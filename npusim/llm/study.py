"""Language models on a machine: which fit, and how fast each device makes tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from npusim.arch import Soc
from npusim.config.overrides import Settings, as_overrides
from npusim.documents import Document, Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate, OperatorCost
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Graph
from npusim.llm.spec import LlmSpec
from npusim.mapping import Mapped
from npusim.ops import TensorKind
from npusim.reporting.pages import DocumentKind
from npusim.scenario import Scenario, split_settings
from npusim.studies.uncertainty import draw
from npusim.workloads import load_spec

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


_DRAWS = 24
"""Machines drawn for the interval of a row that unpacks weights by operators."""


class LanguageMemory(Part):
    """DRAM that a model for single tokens occupies on a device, and what compiling it takes."""

    file_bytes: float
    """Weights in the file, with their scales, in bytes."""
    weights_bytes: float
    """Weights as the device holds them: unpacked or widened copies where it works on these, in bytes."""
    states_bytes: float
    """Keys and values, with copies of them that are written, in bytes."""
    other_bytes: float
    """Inputs, outputs and intermediate results, in bytes."""
    compile_peak_bytes: float | None
    """Memory at the peak of compiling; null where no data sheet of a compiler tells, in bytes."""
    compile_interval_bytes: tuple[float, float] | None
    """90 % interval of that, in bytes."""


class LanguageRow(Part):
    """A model in one format on one device."""

    model: str
    weights: str
    """Format of its weights."""
    device: str
    problem: str
    """Why it does not run; empty where it does."""
    token_s: float | None
    """Time of a token, in s."""
    tokens_per_s: float | None
    """Tokens a second."""
    first_token_s: float | None
    """Time to the first new token where the prompt is taken in token by token, in s."""
    prefill_s: float | None
    """The same where a second model, compiled for the prompt's length, takes it in at once, in s."""
    memory_bytes: float | None
    """DRAM that the model for single tokens occupies."""
    energy_per_token_j: float | None
    """Energy of the package for a token, in J."""
    token_interval_s: tuple[float, float] | None = None
    """90 % interval of `token_s` where the device unpacks weights by operators, from no longer than weights
    unpacked ahead would take; null elsewhere, in s."""
    direct_token_s: float | None = None
    """Time of a token if the device multiplied packed weights as they are; null where it does, in s."""
    memory: LanguageMemory | None = None
    """What `memory_bytes` is made of."""


class Speculation(Part):
    """A draft that guesses some tokens, and a target that checks them at once (Leviathan et al., 2023)."""

    draft: str
    draft_device: str
    target: str
    device: str
    """Device of the target."""
    guesses: int
    """Tokens that the draft guesses in a round."""
    acceptance: float
    """Share of guesses that the target accepts."""
    tokens_per_round: float
    """Tokens that a round gives on average: (1 - a^(n + 1)) / (1 - a)."""
    round_s: float
    """Time of a round: the guesses, one after the other, then one inference of the target on all of them."""
    token_s: float
    """Time of a token, in s."""
    alone_s: float
    """Time of a token of the target alone, in s."""
    speedup: float
    """The latter over the former."""
    least_acceptance: float | None
    """Acceptance from which it pays; null where it never does."""


class LanguageModels(Document):
    """Language models on a machine; SI units throughout."""

    schema_: Literal["npusim.llm/1"] = Field("npusim.llm/1", alias="schema")
    """Version of this document."""
    soc: str
    prompt: int
    """Tokens of the prompt."""
    max_sequence: int
    """Places of the cache."""
    rows: list[LanguageRow]
    speculation: list[Speculation]
    """One entry for each target and device where a draft was named."""
    growth: list[CacheGrowth] = Field(default_factory=list)
    """Passes over the cache at two lengths, by model and device, where lengths were named."""


def language_models(
    models: Sequence[str],
    soc: Soc,
    weights: Sequence[str],
    devices: Sequence[str],
    settings: Settings = (),
    lengths: tuple[int, int] | None = None,
) -> LanguageModels:
    """Estimate models in formats on devices.

    Parameters
    ----------
    lengths : pair of int, optional
        Places of a short and a long cache whose passes are compared, with weights in the first format.

    Raises
    ------
    ConfigError
        For a workload of another kind, or an impossible setting.
    """
    specs = [language_spec(model, settings) for model in models]
    rows = [
        _row(model, soc, form, device, settings) for model in models for form in weights for device in devices
    ]
    return LanguageModels(
        soc=soc.name,
        prompt=specs[0].prompt,
        max_sequence=specs[0].max_sequence,
        rows=rows,
        speculation=[],
        growth=[
            _growth(
                row.model,
                soc,
                row.device,
                [*as_overrides(settings), *as_overrides([f"workload.weights={weights[0]}"])],
                lengths,
            )
            for row in rows
            if lengths is not None and row.weights == weights[0] and not row.problem
        ],
    )


def _growth(model: str, soc: Soc, device: str, settings: Settings, lengths: tuple[int, int]) -> CacheGrowth:
    mapped = {
        places: scenario_of(model, soc, device, settings, [f"workload.max_sequence={places}"]).mapped
        for places in lengths
    }
    return cache_growth(model, device, mapped)


def language_spec(model: str, settings: Settings = ()) -> LlmSpec:
    """Return the specification of a language model; a `ConfigError` refuses other kinds."""
    spec = load_spec(model, split_settings(settings)[0])
    if not isinstance(spec, LlmSpec):
        raise ConfigError(
            f"`{model}`, a workload of kind {spec.kind}", allowed="one of kind llm, such as llama3-8b"
        )
    return spec


def _row(model: str, soc: Soc, weights: str, device: str, settings: Settings) -> LanguageRow:
    row = LanguageRow(
        model=model, weights=weights, device=device, problem="", token_s=None, tokens_per_s=None,
        first_token_s=None, prefill_s=None, memory_bytes=None, energy_per_token_j=None,
    )  # fmt: skip
    try:
        asked, at_once = (
            scenario_of(
                model, soc, device, settings, [f"workload.weights={weights}", f"workload.phase={phase}"]
            )
            for phase in ("decode", "prefill")
        )
        mapped, prefill = asked.mapped, at_once.mapped
    except InfeasibleError as error:
        return row.model_copy(update={"problem": str(error).partition(";")[0]})
    decode = mapped_estimate(mapped)
    found = decode.language
    assert found is not None, "a language model has figures by the token"
    return row.model_copy(
        update={
            "token_s": found.token_s,
            "tokens_per_s": found.tokens_per_s,
            "first_token_s": found.time_to_first_token_s,
            "prefill_s": float(prefill.total["latency_s"]),
            "memory_bytes": decode.memory.dram_peak_bytes,
            "energy_per_token_j": found.energy_per_token_j,
            "memory": _memory(decode, asked.graph),
            **_other_readings(model, soc, weights, device, settings, mapped),
        }
    )


def _memory(decode: Estimate, graph: Graph) -> LanguageMemory:
    use, compiling = decode.memory, decode.compilation
    stored = (t for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT)
    return LanguageMemory(
        file_bytes=sum(t.stored_bytes for t in stored),
        weights_bytes=use.constants_bytes,
        states_bytes=use.states_bytes,
        other_bytes=use.dram_peak_bytes - use.constants_bytes - use.states_bytes,
        compile_peak_bytes=None if compiling is None else compiling.memory_peak_bytes,
        compile_interval_bytes=None if compiling is None else compiling.memory_peak_interval_bytes,
    )


def _other_readings(
    model: str, soc: Soc, weights: str, device: str, settings: Settings, mapped: Mapped
) -> dict[str, object]:
    """Return what the device would take that multiplies packed weights, and what its own time rests on."""
    handling = getattr(soc.devices[device], "packed_weights", None)
    how = getattr(handling, weights, "product")
    if how == "product":
        return {}

    def token_s(reading: str) -> float:
        asked = [f"workload.weights={weights}", f"{device}.packed_weights.{weights}={reading}"]
        other = scenario_of(model, soc, device, settings, asked).mapped
        return float(other.total["latency_s"]) / (other.graph.meta.new_tokens or 1)

    found: dict[str, object] = {"direct_token_s": token_s("product")}
    if how == "kernel":
        low, high = draw([mapped], _DRAWS).latency_interval(0)
        tokens = mapped.graph.meta.new_tokens or 1
        found["token_interval_s"] = (min(low / tokens, token_s("ahead")), high / tokens)
    return found


def scenario_of(model: str, soc: Soc, device: str, settings: Settings, more: Sequence[str]) -> Scenario:
    """Return a model on a device under settings of workload and SoC, and some more."""
    of_workload, of_soc = split_settings([*as_overrides(settings), *as_overrides(more)])
    return Scenario(model, soc, device=device, settings=[*of_workload, *of_soc])


def speculation(
    draft: tuple[str, str],
    target: tuple[str, str],
    soc: Soc,
    guesses: int,
    acceptance: float,
    settings: Settings = (),
) -> Speculation:
    """Return what a draft gives; models and devices in pairs.

    Notes
    -----
    The target is compiled for `guesses + 1` tokens; places of rejected guesses are masked from then on. Draft
    and target work one after the other.
    """
    one, many = ("workload.tokens=1", f"workload.tokens={guesses + 1}")

    def latency_s(who: tuple[str, str], tokens: str) -> float:
        return float(scenario_of(who[0], soc, who[1], settings, [tokens]).mapped.total["latency_s"])

    draft_s = latency_s(draft, one)
    alone_s = latency_s(target, one)
    checked_s = latency_s(target, many)
    round_s = guesses * draft_s + checked_s

    def tokens(share: float) -> float:
        return sum(share**i for i in range(guesses + 1))

    least = next((s / 100 for s in range(101) if tokens(s / 100) * alone_s > round_s), None)
    return Speculation(
        draft=draft[0], draft_device=draft[1], target=target[0], device=target[1], guesses=guesses,
        acceptance=acceptance, tokens_per_round=tokens(acceptance), round_s=round_s,
        token_s=round_s / tokens(acceptance), alone_s=alone_s,
        speedup=alone_s * tokens(acceptance) / round_s, least_acceptance=least,
    )  # fmt: skip


DOCUMENT = DocumentKind("llm", "npusim.llm.study:LanguageModels", page="npusim.llm.page:language_page")
