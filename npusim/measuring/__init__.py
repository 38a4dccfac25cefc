"""Measurements of real devices, taken with OpenVINO or read from the files of Intel's own tools.

`npusim.measure(...)` measures a network or a suite. OpenVINO is imported only when something is measured.

>>> from npusim.measuring import load_suite
>>> load_suite("default").items[0].id
'Empty'
"""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
