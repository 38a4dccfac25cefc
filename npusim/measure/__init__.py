"""Measurements of real devices, taken with OpenVINO or read from the files of Intel's own tools.

OpenVINO is imported only when something is measured.

>>> from npusim.measure import load_suite
>>> load_suite("default").items[0].id
'Empty'
"""

from typing import TYPE_CHECKING

from npusim.lazy import lazy_names
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

if TYPE_CHECKING:
    from npusim.measure.models import graph_of
    from npusim.measure.reading import merge, read_measurement
    from npusim.measure.running import measure
    from npusim.measure.suites import Item, load_suite

__all__ = [
    "Benchmark",
    "Counter",
    "Device",
    "Item",
    "Measurement",
    "ModelFile",
    "Network",
    "Row",
    "Spread",
    "Workload",
    "graph_of",
    "load_suite",
    "measure",
    "merge",
    "read_measurement",
]

_LATER = {
    "npusim.measure.models": ("graph_of",),
    "npusim.measure.reading": ("merge", "read_measurement"),
    "npusim.measure.running": ("measure",),
    "npusim.measure.suites": ("Item", "load_suite"),
}
__getattr__, __dir__, _ = lazy_names("npusim.measure", _LATER)
