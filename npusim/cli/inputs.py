"""Turns what the user named into a graph, a machine and a number of cores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from npusim.config import Override, parse_override
from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from npusim.arch import Soc
    from npusim.graph import Graph

__all__ = ["load_inputs", "parse_shapes", "split_settings", "use_cores"]

WORKLOAD = "workload"
"""First word of the paths that lead into the workload; all others lead into the SoC."""

_SIZE = re.compile(r"[0-9]{1,12}")


def load_inputs(
    workload: str, soc: str, settings: Sequence[str] | None, shapes: Sequence[str] | None
) -> tuple[Graph, Soc]:
    """Load a workload and a SoC with their settings.

    Parameters
    ----------
    workload, soc : str
        A name or a file each.
    settings : sequence of str or None
        What ``--set`` was given.
    shapes : sequence of str or None
        What ``--shape`` was given.

    Returns
    -------
    tuple of Graph and Soc
        The graph before any technique, and the machine.
    """
    from npusim.arch import load_soc
    from npusim.workloads import load_workload

    of_workload, of_soc = split_settings(settings or ())
    machine = load_soc(soc, of_soc)
    return load_workload(workload, of_workload, parse_shapes(shapes or ())), machine


def split_settings(settings: Sequence[str]) -> tuple[list[Override], list[Override]]:
    """Return the settings of the workload and those of the SoC.

    Raises
    ------
    ConfigError
        Where one is no ``PATH=VALUE``, or misspells ``workload``.
    """
    overrides = [parse_override(setting) for setting in settings]
    for override in overrides:
        first = override.path[0]
        if first != WORKLOAD and nearest(first, [WORKLOAD]) == WORKLOAD:
            right = ".".join((WORKLOAD, *override.path[1:]))
            raise ConfigError(
                f"the unknown path `{'.'.join(override.path)}`",
                file=override.origin,
                allowed="a path that begins with `workload` or with a part of the SoC",
                suggestion=right,
            )
    of_workload = [override for override in overrides if override.path[0] == WORKLOAD]
    return of_workload, [override for override in overrides if override.path[0] != WORKLOAD]


def parse_shapes(shapes: Sequence[str]) -> dict[str, list[int]]:
    """Return the shape of each input: ``x=[2708,1433]``, brackets and blanks as one likes.

    Raises
    ------
    ConfigError
        Where one is no ``INPUT=[N,...]`` with whole numbers of at least 1, or names an input twice.
    """
    parsed: dict[str, list[int]] = {}
    for text in shapes:
        # The last `=`: names of inputs may hold one, shapes cannot.
        name, _, shape = text.rpartition("=")
        sizes = [size.strip() for size in shape.strip().strip("[]").split(",")]
        if not name.strip() or not all(_SIZE.fullmatch(size) and int(size) > 0 for size in sizes):
            raise ConfigError(
                f"`{text}`",
                file="--shape",
                allowed="INPUT=[N,...] with whole numbers of at least 1, such as 'x=[2708,1433]'",
            )
        if name.strip() in parsed:
            raise ConfigError(
                f"the input `{name.strip()}` a second time", file="--shape", allowed="each input once"
            )
        parsed[name.strip()] = [int(size) for size in sizes]
    return parsed


def use_cores(cores: int | None) -> None:
    """Let compiled loops use so many cores, as far as there are."""
    if cores is not None:
        import numba

        numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))
