"""Vision GNNs, which classify an image as a graph of its patches, as a kind of workload."""

from __future__ import annotations

from pathlib import Path

from npusim.graph import Graph
from npusim.magnas.spec import VisionGnnSpec
from npusim.workloads import WorkloadKind


def _build(spec: VisionGnnSpec, name: str, _: Path) -> Graph:
    from npusim.magnas.graph import build_vig  # loaded when a network is built

    return build_vig(spec, name)


VISION_GNN = WorkloadKind(
    "vision-gnn",
    "graph networks on the patches of images",
    VisionGnnSpec,
    _build,
    folder=Path(__file__).with_name("workloads"),
    is_large=True,
)
