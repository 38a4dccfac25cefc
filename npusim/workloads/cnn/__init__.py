"""Convolutional networks as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from npusim.graph import Graph
from npusim.workloads.cnn.spec import CnnModel, CnnSpec
from npusim.workloads.spec import WorkloadKind

__all__ = ["CNN", "CnnSpec"]


def _build(spec: CnnSpec, name: str, _: Path) -> Graph:
    from npusim.workloads.cnn import classifiers, detectors, unet, yolo  # of one kind, when one is built

    builders: Mapping[CnnModel, Callable[[CnnSpec, str], Graph]] = {
        "resnet-50": classifiers.build_resnet_50,
        "mobilenet-v2": classifiers.build_mobilenet_v2,
        "ssd-mobilenet-v1": detectors.build_ssd_mobilenet_v1,
        "efficientdet-d0": detectors.build_efficientdet_d0,
        "yolo-v3-tiny": yolo.build_yolo_v3_tiny,
        "yolov8n": yolo.build_yolov8n,
        "yolo11n": yolo.build_yolo11n,
        "unet": unet.build_unet,
    }
    return builders[spec.model](spec, name)


CNN = WorkloadKind("cnn", "convolutional networks on images", CnnSpec, _build)
