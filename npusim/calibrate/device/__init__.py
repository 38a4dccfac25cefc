"""A SoC fitted to measurements of one of its devices: files in, a report and a new data sheet out.

>>> from npusim.calibrate.device import calibrate
>>> calibrate.__name__
'calibrate'
"""

from npusim.calibrate.device.calibrating import Calibrated, calibrate

__all__ = ["Calibrated", "calibrate"]
