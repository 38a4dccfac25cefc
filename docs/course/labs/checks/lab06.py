"""Check of lab 6: the dataflow of least traffic for each layer, and a dataflow for a depthwise layer."""

from collections.abc import Iterator
from typing import Literal

import yaml

from npusim.course.machine import convolution, estimate, machine
from npusim.engines import Estimate
from npusim.graph import Graph

LAYERS = {"last": (7, 512, 512, 3), "pointwise": (56, 64, 64, 1), "wide": (14, 64, 1024, 1)}
HINTS = {
    "last": "sums over 512 x 9 terms: what would travel unfinished, and what stays?",
    "pointwise": "64 x 64 weights serve 3136 pixels each",
    "wide": "1024 output channels read the same 196 x 64 inputs",
}
FLOWS = ("output_stationary", "weight_stationary", "input_stationary", "row_stationary")
Flow = Literal["output_stationary", "weight_stationary", "input_stationary", "row_stationary"]


def _cost(layer: Graph, dataflow: str) -> Estimate:
    return estimate(layer, machine("core-ultra-series2", f"npu.dpu.dataflow={dataflow}"))


def check_layers(last: Flow, pointwise: Flow, wide: Flow) -> Iterator[tuple[bool, str, str]]:
    for name, chosen in {"last": last, "pointwise": pointwise, "wide": wide}.items():
        layer = convolution(*LAYERS[name])
        traffic = {flow: _cost(layer, flow).sram_traffic_bytes for flow in FLOWS}
        claim = f"`{name}`: {chosen} moves {traffic[chosen] / 1e6:.2f} MB, the least of the four"
        yield traffic[chosen] <= min(traffic.values()) * (1 + 1e-9), claim, HINTS[name]


def check_depthwise(unroll: list[list[str]]) -> Iterator[tuple[bool, str, str]]:
    layer = convolution(112, 64, 64, kernel=3, groups=64)
    own = yaml.safe_dump({"unroll": unroll, "stationary": "weights"}, default_flow_style=True, width=1000)
    share = _latency(layer, own.strip()) / _latency(layer, "weight_stationary")
    yield (
        share <= 0.25,
        f"your dataflow takes {share:.2f} of the time of weight_stationary, at most 0.25",
        "which loops of this layer have many steps? Input channels of a group are one; groups are 64, pixels 112 x 112",
    )


def _latency(layer: Graph, dataflow: str) -> float:
    return _cost(layer, dataflow).operators[0].latency_s
