"""Measurements of real devices, taken with OpenVINO or read from the files of Intel's own tools.

OpenVINO is imported only when something is measured.

>>> from npusim.measure import load_suite
>>> load_suite("default").items[0].id
'Empty'
"""

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOME_OF = {
    "Item": "npusim.measure.suites",
    "graph_of": "npusim.measure.models",
    "load_suite": "npusim.measure.suites",
    "measure": "npusim.measure.running",
    "merge": "npusim.measure.reading",
    "read_measurement": "npusim.measure.reading",
}


def __getattr__(name: str) -> object:
    """Import a name on first use and keep it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'npusim.measure' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
