"""Validation: predictions beside measured and published figures, suite by suite."""

from npusim.validation.document import Validation
from npusim.validation.running import Judged, run_suite
from npusim.validation.suite import Suite, load_suite, suite_names

__all__ = ["Judged", "Suite", "Validation", "load_suite", "run_suite", "suite_names"]
