"""From the words of the command line to a `Scenario`, and a number of cores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.mapping import SwapOperands
    from npusim.scenario import Scenario

SWAPS: dict[str, SwapOperands] = {"none": False, "all": True, "search": "search"}
_SIZE = re.compile(r"[0-9]{1,12}")


def scenario_of(
    workload: str,
    soc: str,
    techniques: str = "none",
    settings: Sequence[str] | None = None,
    shapes: Sequence[str] | None = None,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | None = None,
    device: str = "auto",
    swap_operands: str = "none",
) -> Scenario:
    """Return the scenario of a command's options, network and SoC loaded."""
    from npusim.scenario import Scenario

    return Scenario(
        workload, soc, techniques, hint=hint, requests=requests, tiles=tiles, device=device,
        settings=settings or (), shapes=parse_shapes(shapes or ()), swap_operands=SWAPS[swap_operands],
    ).load()  # fmt: skip


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

        from npusim.cost import start_threads

        start_threads()
        numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))
