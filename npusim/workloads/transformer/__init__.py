"""Encoders of transformer layers as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from npusim.graph import Graph
from npusim.workloads.spec import WorkloadKind
from npusim.workloads.transformer.encoders import build_bert, build_vit
from npusim.workloads.transformer.spec import TransformerModel, TransformerSpec

__all__ = ["TRANSFORMER", "TransformerSpec"]

_BUILDERS: Mapping[TransformerModel, Callable[[TransformerSpec, str], Graph]] = {
    "bert-base": build_bert,
    "bert-large": build_bert,
    "vit": build_vit,
}


def _build(spec: TransformerSpec, name: str, _: Path) -> Graph:
    return _BUILDERS[spec.model](spec, name)


TRANSFORMER = WorkloadKind("transformer", "encoders of texts and images", TransformerSpec, _build)
