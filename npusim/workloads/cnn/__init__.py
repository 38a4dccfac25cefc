"""Convolutional networks as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from npusim.config.reading import read_yaml
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


_MODELS: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("models.yaml")).data
Pixels = Annotated[int, Field(ge=32, le=8192)]


def _of_model(key: str) -> Any:
    return default_of_model({model: sizes[key] for model, sizes in _MODELS.items()})


class ImageSpec(WorkloadSpec):
    """A convolutional network on images."""

    precision: Literal["fp16", "bf16", "fp32", "int8"] = "fp16"
    """Format of its tensors; `int8`: products multiply bytes, what the grid cannot finish stays fp16."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    """Images of one inference."""
    height: Pixels = 224
    """Rows of an image."""
    width: Pixels = 224
    """Columns of an image."""

    @property
    def facts(self) -> dict[str, Any]:
        """Shape of the input."""
        return {"input": f"{self.batch}x3x{self.height}x{self.width}"}


class CnnSpec(ImageSpec):
    """A convolutional network."""

    kind: Literal["cnn"]
    """Convolutional networks."""
    model: CnnModel
    """The network."""
    height: Pixels = _of_model("height")
    """Rows of an image. Default: what the network was published with, such as 224 for resnet-50."""
    width: Pixels = _of_model("width")
    """Columns of an image. Default: as for `height`."""
    classes: Annotated[int, Field(ge=1, le=100_000)] = _of_model("classes")
    """Classes to tell apart. Default: 1000 of ImageNet, 80, 90 or 91 of COCO, 2 of unet."""

    @model_validator(mode="after")
    def _sizes_suit_the_model(self) -> CnnSpec:
        multiple = _MODELS[self.model].get("multiple", 1)
        for key in ("height", "width"):
            if getattr(self, key) % multiple:
                refuse(f"`{getattr(self, key)}`", f"a multiple of {multiple} for {self.model}", at=key)
        return self


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
    net = Network(name, spec.model, spec.precision, _MODELS[spec.model].get("same_upper", False))
    image = net.image(spec.batch, spec.height, spec.width)
    if "table" in _MODELS[spec.model]:
        return build_table(net, image, shipped_table(_MODELS[spec.model]["table"], classes=spec.classes))
    return builders[spec.model](net, image, spec.classes)


CNN = WorkloadKind("cnn", "convolutional networks on images", CnnSpec, _build)
