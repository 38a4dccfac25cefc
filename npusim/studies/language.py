"""Which language model fits a machine, and how fast: models x formats of weights x devices; drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from npusim.arch import Soc
from npusim.config.overrides import Settings, as_overrides
from npusim.documents import Document, Part
from npusim.engines import Estimate, estimate
from npusim.errors import ConfigError, InfeasibleError
from npusim.scenario import Scenario, split_settings
from npusim.workloads import load_spec
from npusim.workloads.llm import LlmSpec


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
    """One entry where a draft was named."""


def language_models(
    models: Sequence[str], soc: Soc, weights: Sequence[str], devices: Sequence[str], settings: Settings = ()
) -> LanguageModels:
    """Estimate models in formats on devices.

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
    )


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
        decode, prefill = (
            _estimated(
                model, soc, device, settings, [f"workload.weights={weights}", f"workload.phase={phase}"]
            )
            for phase in ("decode", "prefill")
        )
    except InfeasibleError as error:
        return row.model_copy(update={"problem": str(error).partition(";")[0]})
    found = decode.language
    assert found is not None, "a language model has figures by the token"
    return row.model_copy(
        update={
            "token_s": found.token_s,
            "tokens_per_s": found.tokens_per_s,
            "first_token_s": found.time_to_first_token_s,
            "prefill_s": prefill.latency_s,
            "memory_bytes": decode.memory.dram_peak_bytes,
            "energy_per_token_j": found.energy_per_token_j,
        }
    )


def _estimated(model: str, soc: Soc, device: str, settings: Settings, more: Sequence[str]) -> Estimate:
    of_workload, of_soc = split_settings([*as_overrides(settings), *as_overrides(more)])
    return estimate(Scenario(model, soc, device=device, settings=[*of_workload, *of_soc]))


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
    draft_s = _estimated(draft[0], soc, draft[1], settings, [one]).latency_s
    alone_s = _estimated(target[0], soc, target[1], settings, [one]).latency_s
    checked_s = _estimated(target[0], soc, target[1], settings, [many]).latency_s
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
