"""Convolutional networks as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from npusim.graph import Graph
from npusim.units import refuse
from npusim.workloads.spec import WorkloadKind, WorkloadSpec, default_of_model

CnnModel = Literal[
    "resnet-50",
    "mobilenet-v2",
    "ssd-mobilenet-v1",
    "efficientdet-d0",
    "yolo-v3-tiny",
    "yolov8n",
    "yolo11n",
    "unet",
]


class _Sizes(NamedTuple):
    """Defaults of a model, and what its image sizes are multiples of."""

    height: int
    width: int
    classes: int
    multiple: int = 1
    same_upper: bool = False
    """Whether it pads as TensorFlow does; see `Network`."""


_SIZES: dict[str, _Sizes] = {
    "resnet-50": _Sizes(224, 224, 1000),
    "mobilenet-v2": _Sizes(224, 224, 1000),
    "ssd-mobilenet-v1": _Sizes(300, 300, 91, same_upper=True),
    "efficientdet-d0": _Sizes(512, 512, 90, 128, same_upper=True),
    "yolo-v3-tiny": _Sizes(416, 416, 80, 32, same_upper=True),
    "yolov8n": _Sizes(640, 640, 80, 32),
    "yolo11n": _Sizes(640, 640, 80, 32),
    "unet": _Sizes(256, 256, 2, 16),
}

_TABLES: dict[str, str] = {
    "resnet-50": "resnet50",
    "mobilenet-v2": "mobilenetv2_100",
    "yolov8n": "yolov8n",
    "yolo11n": "yolo11n",
}
"""Variants of shipped families that models are."""

Pixels = Annotated[int, Field(ge=32, le=8192)]


def _of_model(key: str) -> Any:
    return default_of_model({model: getattr(sizes, key) for model, sizes in _SIZES.items()})


class CnnSpec(WorkloadSpec):
    """A convolutional network."""

    kind: Literal["cnn"]
    """Convolutional networks."""
    model: CnnModel
    """The network."""
    precision: Literal["fp16", "bf16", "fp32", "int8"] = "fp16"
    """Format of its tensors; `int8`: products multiply bytes, what the grid cannot finish stays fp16."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    """Images of one inference."""
    height: Pixels = _of_model("height")
    """Rows of an image. Default: what the network was published with, such as 224 for resnet-50."""
    width: Pixels = _of_model("width")
    """Columns of an image. Default: as for `height`."""
    classes: Annotated[int, Field(ge=1, le=100_000)] = _of_model("classes")
    """Classes to tell apart. Default: 1000 of ImageNet, 80, 90 or 91 of COCO, 2 of unet."""

    @model_validator(mode="after")
    def _sizes_suit_the_model(self) -> CnnSpec:
        multiple = _SIZES[self.model].multiple
        for key in ("height", "width"):
            if getattr(self, key) % multiple:
                refuse(f"`{getattr(self, key)}`", f"a multiple of {multiple} for {self.model}", at=key)
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """Shape of the input."""
        return {"input": f"{self.batch}x3x{self.height}x{self.width}"}


def _build(spec: CnnSpec, name: str, _: Path) -> Graph:
    from npusim.workloads.cnn import networks  # when one is built
    from npusim.workloads.cnn.table import build_table, shipped_table
    from npusim.workloads.network import Network

    builders: Mapping[CnnModel, Callable[[Network, str, int], Graph]] = {
        "ssd-mobilenet-v1": networks.build_ssd_mobilenet_v1,
        "efficientdet-d0": networks.build_efficientdet_d0,
        "yolo-v3-tiny": networks.build_yolo_v3_tiny,
        "unet": networks.build_unet,
    }
    net = Network(name, spec.model, spec.precision, _SIZES[spec.model].same_upper)
    image = net.image(spec.batch, spec.height, spec.width)
    if spec.model in _TABLES:
        return build_table(net, image, shipped_table(_TABLES[spec.model], classes=spec.classes))
    return builders[spec.model](net, image, spec.classes)


CNN = WorkloadKind("cnn", "convolutional networks on images", CnnSpec, _build)
