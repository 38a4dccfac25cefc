"""Decoders of language as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npusim.graph import Graph
from npusim.llm.spec import LlmSpec
from npusim.workloads import WorkloadKind


def _build(spec: LlmSpec, name: str, _: Path) -> Graph:
    from npusim.llm.decoder import build_decoder  # loaded when a decoder is built

    return build_decoder(spec, name)


def _export(spec: LlmSpec, folder: Path, weights: Path | None, tell: Callable[[str], None]) -> None:
    from npusim.llm.converting import export_llm  # loads PyTorch

    export_llm(spec, folder, weights, tell)


LLM = WorkloadKind(
    "llm",
    "decoders of language: a token at a time, or a prompt",
    LlmSpec,
    _build,
    folder=Path(__file__).with_name("workloads"),
    export=_export,
    is_large=True,
)
