"""Vision GNNs, which classify an image as a graph of its patches, as a kind of workload."""

from __future__ import annotations

from pathlib import Path

from npusim.graph import Graph
from npusim.workloads.spec import WorkloadKind
from npusim.workloads.vision_gnn.spec import VisionGnnSpec

__all__ = ["VISION_GNN", "VisionGnnSpec"]


def _build(spec: VisionGnnSpec, name: str, _: Path) -> Graph:
    from npusim.workloads.vision_gnn.vig import build_vig  # when one is built

    return build_vig(spec, name)


VISION_GNN = WorkloadKind("vision-gnn", "graph networks on the patches of images", VisionGnnSpec, _build)
