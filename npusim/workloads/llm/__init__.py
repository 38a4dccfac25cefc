"""Decoders of language as a kind of workload."""

from __future__ import annotations

from pathlib import Path

from npusim.graph import Graph
from npusim.workloads.llm.spec import LlmSpec, rotary_angles
from npusim.workloads.spec import WorkloadKind

__all__ = ["LLM", "LlmSpec", "rotary_angles"]


def _build(spec: LlmSpec, name: str, _: Path) -> Graph:
    from npusim.workloads.llm.decoder import build_decoder  # when one is built

    return build_decoder(spec, name)


LLM = WorkloadKind("llm", "decoders of language: a token at a time, or a prompt", LlmSpec, _build)
