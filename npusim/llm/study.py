"""Language models on a machine: which fit, and how fast each device makes tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from npusim.api import as_numbers
from npusim.api.asking import changed, refuse_ignored
from npusim.arch import Soc
from npusim.config.overrides import Settings, as_overrides
from npusim.documents import Document, Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate, OperatorCost
from npusim.errors import ConfigError, InfeasibleError, UnknownNameError, as_list
from npusim.graph import Graph
from npusim.llm.spec import LlmSpec
from npusim.locate import DEFAULT_SOC
from npusim.mapping import Mapped
from npusim.ops import Family, TensorKind
from npusim.reporting.kinds import DocumentKind
from npusim.scenario import Scenario, split_settings
from npusim.studies.uncertainty import draw
from npusim.workloads import load_of_kind

_LAYER = re.compile(r"^layer\d+/attention/")
_TELLING = 0.005
"""Share of the growth from which on a pass has a line of its own."""
_FORMATS = ("fp16", "int8", "int4")
_MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3-8b")
_OTHERS = "all else"
_DRAWS = 24
"""Machines drawn for an interval."""


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


def cache_growth(model: str, device: str, mapped: Mapping[int, Mapped], samples: int = _DRAWS) -> CacheGrowth:
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
    drawn = draw(list(mapped.values()), samples).latency_s
    low, high = np.quantile(drawn[1] - drawn[0], (0.05, 0.95))
    first, second = mapped
    return CacheGrowth(
        model=model,
        device=device,
        max_sequence=(first, second),
        latency_s=(short, long),
        growth_s=long - short,
        growth_interval_s=(float(low), float(high)),
        passes=_passes(estimates, long - short),
    )


def _passes(estimates: Sequence[Estimate], growth_s: float) -> list[CachePass]:
    """Return the operators whose time grows, by their name within a layer, and all others as one."""
    by_name: dict[str, tuple[list[OperatorCost], list[OperatorCost]]] = {}
    for place in (1, 0):
        for op in estimates[place].operators:
            in_layer = _LAYER.match(op.name)
            name = re.sub(r"cache_[kv]", "cache", op.name[in_layer.end() :]) if in_layer else _OTHERS
            by_name.setdefault(name, ([], []))[place].append(op)
    passes = [_pass(name, *both) for name, both in by_name.items() if name != _OTHERS]
    growing = [one for one in passes if one.time_s[1] - one.time_s[0] > _TELLING * growth_s]
    growing.sort(key=lambda one: one.time_s[0] - one.time_s[1])
    rest = [both for name, both in by_name.items() if name not in {one.name for one in growing}]
    others = ([op for both in rest for op in both[place]] for place in (0, 1))
    return [*growing, _pass(_OTHERS, *others)]


def _pass(name: str, short: Sequence[OperatorCost], long: Sequence[OperatorCost]) -> CachePass:
    first = long[0] if long and name != _OTHERS else None
    dram_bytes, time_s = (
        (sum(getattr(op, key) or 0.0 for op in short), sum(getattr(op, key) or 0.0 for op in long))
        for key in ("dram_bytes", "critical_s")
    )
    return CachePass(
        name=name,
        type=first.type if first else "",
        unit=first.unit if first else "",
        count=len(long),
        dram_bytes=dram_bytes,
        time_s=time_s,
    )


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


class TokenBytes(Part):
    """DRAM traffic of a token beside the least that any decoder moves: its weights and cache, once."""

    moved_bytes: float
    """DRAM traffic of an inference, in bytes."""
    weights_bytes: float
    """Weights of products as the file stores them, with scales, in bytes."""
    cache_bytes: float
    """Keys and values that attention reads once, in bytes."""
    unpacked_bytes: float
    """Further bytes of both where the device holds them in a wider format."""
    spilled_bytes: float
    """Intermediate results written to DRAM and read back, in bytes."""

    @property
    def least_bytes(self) -> float:
        """Weights and cache, in bytes."""
        return self.weights_bytes + self.cache_bytes

    @property
    def other_bytes(self) -> float:
        """All else: small constants, inputs and results, states rewritten, in bytes."""
        return self.moved_bytes - self.least_bytes - self.unpacked_bytes - self.spilled_bytes


class LanguageRow(Part):
    """A model in one format on one device."""

    model: str
    weights: str
    """Format of its weights."""
    device: str
    problem: str
    """Why it does not run; empty where it does."""
    token_s: float | None = None
    """Time of a token, in s."""
    tokens_per_s: float | None = None
    """Tokens a second."""
    first_token_s: float | None = None
    """Time to the first new token where the prompt is taken in token by token, in s."""
    prefill_s: float | None = None
    """The same where a second model, compiled for the prompt's length, takes it in at once, in s."""
    memory_bytes: float | None = None
    """DRAM that the model for single tokens occupies."""
    energy_per_token_j: float | None = None
    """Energy of the package for a token, in J."""
    token_interval_s: tuple[float, float] | None = None
    """90 % interval of `token_s` (s) where operators unpack weights; null elsewhere."""
    direct_token_s: float | None = None
    """Time of a token if the device multiplied packed weights as they are; null where it does, in s."""
    memory: LanguageMemory | None = None
    """What `memory_bytes` is made of."""
    token_bytes: TokenBytes | None = None
    """DRAM traffic of an inference for one token."""


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


@dataclass(frozen=True)
class _OnMachine:
    """A machine that runs language models, and settings of the workloads."""

    soc: Soc
    settings: Settings = ()

    def scenario(self, model: str, device: str, *changes: str) -> Scenario:
        """Return a model on a device under the settings and further changes."""
        settings = [*as_overrides(self.settings), *as_overrides(changes)]
        return Scenario(model, self.soc, device=device, settings=settings)

    def latency_s(self, model: str, device: str, *changes: str) -> float:
        """Return the time of an inference (s)."""
        return float(self.scenario(model, device, *changes).mapped.total["latency_s"])


def language_models(
    models: str | Sequence[str] = (),
    soc: Soc | str | Path | None = None,
    *,
    weights: str | Sequence[str] = "fp16,int8,int4",
    devices: str | Sequence[str] | None = None,
    draft: str | None = None,
    draft_device: str = "npu",
    guesses: int = 4,
    acceptance: float = 0.7,
    growth: str | Sequence[int] | None = None,
    settings: Settings = (),
) -> LanguageModels:
    """Compare language models on a machine: time of a token, time to the first one, memory, energy.

    Parameters
    ----------
    models : sequence of str, or str with commas
        Workloads of kind llm; none: the shipped ones.
    soc : Soc, str or Path, optional
        Machine: a name from `npusim list socs` or a SoC YAML.
    weights : sequence of str, or str with commas
        Formats of weights: fp16, int8, int4.
    devices : sequence of str, or str with commas, optional
        Devices; none: all of the SoC.
    draft : str, optional
        A smaller model that guesses tokens.
    draft_device : str
        Where it runs.
    guesses : int
        Tokens that it guesses in a round.
    acceptance : float
        Guesses that are accepted.
    growth : pair of int, or str with a comma, optional
        Also each pass over a cache of so many places, short and long.
    settings : settings
        Of the workloads and the SoC, as for `npusim.Scenario`.

    Examples
    --------
    >>> import npusim
    >>> compared = npusim.language_models("llama3.2-1b", "core-ultra-nitro", weights="int8", devices="npu")
    >>> len(compared.rows)
    1

    Command lines
    -------------
        npusim llm --soc core-ultra-nitro
        npusim llm llama3.2-1b --weights int8,int4 --devices gpu --set workload.max_sequence=2048
        npusim llm llama3-8b --soc core-ultra-nitro --weights fp16 --growth 128,2048
        npusim llm --soc core-ultra-nitro -o models.html
        npusim llm llama3-8b --devices gpu --draft llama3.2-1b --draft-device npu --acceptance 0.7
    """
    names, formats, of_workload = (
        as_list(models) or list(_MODELS),
        as_list(weights),
        split_settings(settings)[0],
    )
    scenario = Scenario(names[0], DEFAULT_SOC if soc is None else soc, settings=settings)
    machine = _OnMachine(scenario.machine, of_workload)
    known_devices = tuple(machine.soc.devices)
    chosen = list(known_devices) if devices is None else as_list(devices)
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"`{repeated}` a second time", file="MODELS", allowed="each model once")
    used = chosen if draft is None else [*chosen, draft_device]
    for noun, given, known in (("format of weights", formats, _FORMATS), ("device", used, known_devices)):
        for name in given:
            if name not in known:
                raise UnknownNameError(noun, name, known)
    lengths, drafts = None if growth is None else _lengths(growth), list[Speculation]()
    if draft is None:
        of_draft = {"draft_device": (draft_device, "npu"), "guesses": (guesses, 4)}
        refuse_ignored(changed(of_draft | {"acceptance": (acceptance, 0.7)}), "only with `--draft`")
    else:
        targets = product(names, chosen)
        drafts = [_speculation((draft, draft_device), one, machine, guesses, acceptance) for one in targets]
    first, *_ = [load_of_kind(name, LlmSpec, as_overrides(of_workload)) for name in names]
    rows = [_row(machine, *case) for case in product(names, formats, chosen)]
    growths = []
    for row in rows:
        if lengths is not None and row.weights == formats[0] and not row.problem:
            changes = [(f"workload.weights={row.weights}", f"workload.max_sequence={n}") for n in lengths]
            mapped = [machine.scenario(row.model, row.device, *change).mapped for change in changes]
            growths.append(cache_growth(row.model, row.device, dict(zip(lengths, mapped, strict=True))))
    return LanguageModels(
        soc=machine.soc.name,
        prompt=first.prompt,
        max_sequence=first.max_sequence,
        rows=rows,
        speculation=drafts,
        growth=growths,
    )


def _lengths(growth: str | Sequence[int]) -> tuple[int, int]:
    """Return two lengths of the cache, the shorter one first."""
    allowed = "two different numbers of places, such as 128,2048"
    lengths = sorted(as_numbers(growth, int, "--growth", allowed, 1e9))
    if len(lengths) != 2 or lengths[0] == lengths[1]:
        raise ConfigError(f"`{growth}`", file="--growth", allowed=allowed)
    return lengths[0], lengths[1]


def _row(machine: _OnMachine, model: str, weights: str, device: str) -> LanguageRow:
    try:
        scenario, at_once = (
            machine.scenario(model, device, f"workload.weights={weights}", f"workload.phase={phase}")
            for phase in ("decode", "prefill")
        )
        mapped, prefill = scenario.mapped, at_once.mapped
    except InfeasibleError as error:
        return LanguageRow(model=model, weights=weights, device=device, problem=error.reason)
    decode = mapped_estimate(mapped)
    language, use, compiling = decode.language, decode.memory, decode.compilation
    constants = (t for t in scenario.graph.tensors.values() if t.kind is TensorKind.CONSTANT)
    prompt = mapped_estimate(prefill).language
    assert language is not None and prompt is not None, "a language model has figures by the token"
    return LanguageRow(
        model=model,
        weights=weights,
        device=device,
        problem="",
        token_s=language.token_s,
        tokens_per_s=language.tokens_per_s,
        first_token_s=language.time_to_first_token_s,
        prefill_s=prompt.time_to_first_token_s,
        memory_bytes=decode.memory.dram_peak_bytes,
        energy_per_token_j=language.energy_per_token_j,
        memory=LanguageMemory(
            file_bytes=sum(t.stored_bytes for t in constants),
            weights_bytes=use.constants_bytes,
            states_bytes=use.states_bytes,
            other_bytes=use.dram_peak_bytes - use.constants_bytes - use.states_bytes,
            compile_peak_bytes=None if compiling is None else compiling.memory_peak_bytes,
            compile_interval_bytes=None if compiling is None else compiling.memory_peak_interval_bytes,
        ),
        token_bytes=token_bytes(scenario, decode),
        **_packed_readings(machine, model, weights, device, mapped),
    )


def token_bytes(scenario: Scenario, estimate: Estimate) -> TokenBytes:
    """Return the DRAM traffic of a decoding inference by what it is."""
    assert isinstance(scenario.network, str | Path), "a language model is a workload"
    spec = load_of_kind(scenario.network, LlmSpec, split_settings(scenario.settings)[0])
    weights_bytes = _product_weights_bytes(scenario.graph)
    held_bytes = estimate.dram.compulsory_weights_bytes
    cache_bytes = estimate.memory.states_bytes if spec.form == "runtime" else spec.cache_bytes
    return TokenBytes(
        moved_bytes=estimate.dram_bytes,
        weights_bytes=weights_bytes,
        cache_bytes=spec.cache_bytes,
        unpacked_bytes=max(0.0, held_bytes - weights_bytes) + max(0.0, cache_bytes - spec.cache_bytes),
        spilled_bytes=estimate.dram.spilled_bytes,
    )


def _product_weights_bytes(graph: Graph) -> float:
    """Return the stored bytes of the weights of all products, each once."""
    read = {op.inputs[1]: graph.tensors[op.inputs[1]] for op in graph if op.family is Family.MATMUL}
    return float(sum(t.stored_bytes for t in read.values() if t.kind is TensorKind.CONSTANT))


def _packed_readings(
    machine: _OnMachine, model: str, weights: str, device: str, mapped: Mapped
) -> dict[str, Any]:
    """Return the time with packed weights multiplied as they are, and the interval of the row's own time."""
    handling = getattr(machine.soc.devices[device], "packed_weights", {}).get(weights, "product")
    if handling == "product":
        return {}
    tokens = mapped.graph.meta.new_tokens or 1

    def token_s(other: str) -> float:
        changes = f"workload.weights={weights}", f"{device}.packed_weights.{weights}={other}"
        return machine.latency_s(model, device, *changes) / tokens

    readings: dict[str, Any] = {"direct_token_s": token_s("product")}
    if handling == "kernel":
        low, high = draw([mapped], _DRAWS).latency_interval(0)
        readings["token_interval_s"] = (min(low / tokens, token_s("ahead")), high / tokens)
    return readings


def _speculation(
    draft: tuple[str, str], target: tuple[str, str], machine: _OnMachine, guesses: int, acceptance: float
) -> Speculation:
    """Return the gain of a draft; draft and target are pairs of model and device.

    Notes
    -----
    The target is compiled for `guesses + 1` tokens; places of rejected guesses are masked from then on. Draft
    and target work one after the other.
    """
    draft_s, alone_s = (machine.latency_s(*one, "workload.tokens=1") for one in (draft, target))
    round_s = guesses * draft_s + machine.latency_s(*target, f"workload.tokens={guesses + 1}")

    def tokens(share: float) -> float:
        return sum(share**i for i in range(guesses + 1))

    least = next((s / 100 for s in range(101) if tokens(s / 100) * alone_s > round_s), None)
    return Speculation(
        draft=draft[0],
        draft_device=draft[1],
        target=target[0],
        device=target[1],
        guesses=guesses,
        acceptance=acceptance,
        tokens_per_round=tokens(acceptance),
        round_s=round_s,
        token_s=round_s / tokens(acceptance),
        alone_s=alone_s,
        speedup=alone_s * tokens(acceptance) / round_s,
        least_acceptance=least,
    )


DOCUMENT = DocumentKind("llm", "npusim.llm.study:LanguageModels", page="npusim.llm.page:language_page")
