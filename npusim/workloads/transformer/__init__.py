"""Encoders of transformer layers as a kind of workload."""

from __future__ import annotations

from pathlib import Path

from npusim.graph import Graph
from npusim.workloads.spec import WorkloadKind
from npusim.workloads.transformer.spec import TransformerSpec

__all__ = ["TRANSFORMER", "TransformerSpec"]


def _build(spec: TransformerSpec, name: str, _: Path) -> Graph:
    from npusim.workloads.transformer.encoders import build_bert, build_vit  # when one is built

    return (build_vit if spec.model == "vit" else build_bert)(spec, name)


TRANSFORMER = WorkloadKind("transformer", "encoders of texts and images", TransformerSpec, _build)
