"""Exploring: design spaces, sweeps, fronts, search and what matters most."""

from npusim.explore.spaces import Space, load_space, parse_keep, space_names
from npusim.explore.sweep import SweepResult, sweep

__all__ = ["Space", "SweepResult", "load_space", "parse_keep", "space_names", "sweep"]
