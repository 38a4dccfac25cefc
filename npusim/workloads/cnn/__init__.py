"""Convolutional networks as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from npusim.graph import Graph
from npusim.workloads.cnn.classifiers import build_mobilenet_v2, build_resnet_50
from npusim.workloads.cnn.detectors import build_efficientdet_d0, build_ssd_mobilenet_v1
from npusim.workloads.cnn.spec import CnnModel, CnnSpec
from npusim.workloads.cnn.unet import build_unet
from npusim.workloads.cnn.yolo import build_yolo11n, build_yolo_v3_tiny, build_yolov8n
from npusim.workloads.spec import WorkloadKind

__all__ = ["CNN", "CnnSpec"]

_BUILDERS: Mapping[CnnModel, Callable[[CnnSpec, str], Graph]] = {
    "resnet-50": build_resnet_50,
    "mobilenet-v2": build_mobilenet_v2,
    "ssd-mobilenet-v1": build_ssd_mobilenet_v1,
    "efficientdet-d0": build_efficientdet_d0,
    "yolo-v3-tiny": build_yolo_v3_tiny,
    "yolov8n": build_yolov8n,
    "yolo11n": build_yolo11n,
    "unet": build_unet,
}


def _build(spec: CnnSpec, name: str, _: Path) -> Graph:
    return _BUILDERS[spec.model](spec, name)


CNN = WorkloadKind("cnn", "convolutional networks on images", CnnSpec, _build)
