"""Measurements: what real devices did, taken with OpenVINO or from the files of Intel's own tools."""

from npusim.measure.document import (
    Benchmark,
    Counter,
    Device,
    Measurement,
    ModelFile,
    Network,
    Row,
    Spread,
    Workload,
)

__all__ = [
    "Benchmark",
    "Counter",
    "Device",
    "Measurement",
    "ModelFile",
    "Network",
    "Row",
    "Spread",
    "Workload",
]
