"""Check of lab 8: tokens per second of language models, by bytes and bandwidth."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

import npusim
from npusim.llm.study import LanguageRow

MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3-8b")
LEAST_TOKENS, LEAST_CHOSEN, MOST_GB = 30.0, 20.0, 3.0


def _row(model: str, weights: str, bandwidth_gb_s: int = 0) -> LanguageRow:
    settings = [f"dram.bandwidth={bandwidth_gb_s}GB/s"] if bandwidth_gb_s else []
    return npusim.language_models([model], weights=weights, devices="npu", settings=settings).rows[0]


def check_prediction(tokens_per_s: float) -> Iterator[tuple[bool, str, str]]:
    row = _row("llama3.2-3b", "int4")
    ratio = tokens_per_s / row.tokens_per_s
    hint = "3.2e9 weights * 4.8 bits / 8 are the bytes; divide the bandwidth by them"
    if ratio > 6:
        hint = "4.8 bits are 0.6 bytes"
    yield 0.85 <= ratio <= 1.15, f"{tokens_per_s:.1f} tokens/s are within 15 % of the model", hint


def check_bandwidth(bandwidth_gb_s: Annotated[int, Field(ge=2, le=136)]) -> Iterator[tuple[bool, str, str]]:
    rate = _row("llama3.2-3b", "int4", bandwidth_gb_s).tokens_per_s
    hint = "tokens per second times bytes per token, and a little more: not all of the time is DMA"
    yield rate >= LEAST_TOKENS, f"{bandwidth_gb_s} GB/s give {rate:.2f} tokens/s, at least 30", hint
    less = _row("llama3.2-3b", "int4", bandwidth_gb_s - 1).tokens_per_s
    yield less < LEAST_TOKENS, f"{bandwidth_gb_s} GB/s are the least", "1 GB/s less is enough, too"


def check_model(
    model: Literal["llama3.2-1b", "llama3.2-3b", "llama3-8b"], weights: Literal["fp16", "int8", "int4"]
) -> Iterator[tuple[bool, str, str]]:
    row = _row(model, weights)
    claim = f"{model} in {weights} writes {row.tokens_per_s:.1f} tokens/s, at least 20"
    yield (
        row.tokens_per_s >= LEAST_CHOSEN,
        claim,
        "fewer bytes per token: fewer weights, or fewer bits of each",
    )
    claim = f"it takes {row.memory_bytes / 1e9:.2f} GB, at most 3"
    yield row.memory_bytes <= 1e9 * MOST_GB, claim, "fewer bits per weight"
    for larger in MODELS[MODELS.index(model) + 1 :]:
        rows = [_row(larger, each) for each in ("int4", "int8")]
        fits = any(r.tokens_per_s >= LEAST_CHOSEN and r.memory_bytes <= 1e9 * MOST_GB for r in rows)
        yield not fits, f"{larger} does not meet both limits", "a larger model meets both with fewer bits"
