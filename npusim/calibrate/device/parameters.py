"""Parameters of a calibration: the numbers of a data sheet it may change, with their priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.errors import ConfigError, nearest
from npusim.mapping import Mapped
from npusim.studies.perturbation import Uncertain, number_at, numbers_of, uncertain_numbers, with_library

_FAR = 100.0
"""A fit may change a number by this factor at most."""
_VAGUE = 1.0
"""Relative uncertainty beforehand of a number that a user frees and whose sheet states none: 100 %."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a data sheet that a fit may change."""

    number: Uncertain
    """Path, value and uncertainty beforehand."""
    unit: str
    low: float
    high: float
    """`low`, `high`: bounds, in the unit."""
    in_file: bool
    """Whether the SoC's own file holds it, and not a library beside it."""

    @property
    def name(self) -> str:
        """The path as `--set` writes it."""
        return self.number.name


def candidates(soc: Soc, kind: str, mapped: Sequence[Mapped]) -> tuple[Soc, list[Parameter]]:
    """Return every number of a device, and of the DRAM, that affects time and is not known exactly."""
    home = next(name for name, device in soc.devices.items() if device.kind == kind)
    own = {number.path for number, _ in numbers_of(soc)}
    soc, used = with_library(soc, mapped) if kind == "npu" else (soc, frozenset())
    found = [
        _parameter(soc, number, number.path in own)
        for number in uncertain_numbers(soc, used)
        if not number.whole and (number.path[0] == "dram" or number.path[1] == home)
    ]
    return soc, found


def _parameter(soc: Soc, number: Uncertain, in_file: bool) -> Parameter:
    unit = str(getattr(number_at(soc, number.path), "unit", ""))
    high = min(number.value * _FAR, number.upper)
    if (
        number.path == ("dram", "bandwidth") or number.path[-1] == "dram_bandwidth"
    ) and soc.dram.peak_bandwidth is not None:
        high = min(high, float(soc.dram.peak_bandwidth))  # a sheet that beats its own memory does not load
    return Parameter(number, unit, number.value / _FAR, max(high, number.value), in_file)


def chosen(
    soc: Soc, parameters: Sequence[Parameter], free: Sequence[str], hold: Sequence[str]
) -> tuple[list[Parameter], set[str]]:
    """Return all parameters with those that a user frees, and the names of those that may move.

    Parameters
    ----------
    free : sequence of str
        Paths to free, and no others; a path may end at a section. Empty: all that the data may determine.

    Raises
    ------
    ConfigError
        Where a path names no number that can be fitted; the nearest one is told.
    """
    everything = {number.name: (number, stated) for number, stated in numbers_of(soc)}
    listed = {one.name: one for one in parameters}
    wanted: set[str] = set()
    for path in free:
        names = _below(path, everything, "--free")
        # A section stands for its uncertain numbers; a number named by itself need not state any.
        if path in everything:
            number, stated = everything[path]
            if number.value <= 0.0 or number.whole:
                what = "a count" if number.whole else "0, which has no logarithm"
                allowed = "a positive number that is no count"
                raise ConfigError(what, file="--free", key=path, allowed=allowed)
            if not stated:
                sigma = float(np.sqrt(np.log1p(_VAGUE**2)))
                number = Uncertain(number.path, number.value, sigma, number.upper, number.whole)
            listed.setdefault(path, _parameter(soc, number, True))
        wanted.update(name for name in names if name in listed)
    held = {name for path in hold for name in _below(path, everything, "--hold")}
    moving = (wanted if free else set(listed)) - held
    return list(listed.values()), {name for name in moving if listed[name].in_file}


def _below(path: str, names: dict[str, Any], option: str) -> list[str]:
    found = [name for name in names if name == path or name.startswith(path + ".")]
    if not found:
        raise ConfigError(
            f"the unknown path `{path}`",
            file=option,
            allowed="the path of a number or section of the SoC, as --set has it",
            suggestion=nearest(path, names),
        )
    return found
