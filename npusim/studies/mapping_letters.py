"""Placements of a chain of blocks as letters, a letter a device, as Table 3 of MaGNAS has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from npusim.errors import ConfigError

_GRAPHER = re.compile(r"grapher\d+$")
_FFN = re.compile(r"ffn\d+$")


def parts_of(blocks: Sequence[str]) -> list[list[int]]:
    """Return which blocks each part of a mapping stands for: of a Vision GNN four, else one of all."""
    graphers = [i for i, block in enumerate(blocks) if _GRAPHER.match(block)]
    ffns = [i for i, block in enumerate(blocks) if _FFN.match(block)]
    if not graphers:
        return [list(range(len(blocks)))]
    before = list(range(graphers[0]))
    behind = [i for i in range(graphers[0], len(blocks)) if i not in {*graphers, *ffns}]
    return [part for part in (before, graphers, ffns, behind) if part]


def letters_of(devices: Sequence[str]) -> dict[str, str]:
    """Return a letter for each device: the first of its name that no other has.

    Of names that begin alike up to a `_`, such as `dsa_k` and `dsa_y`, it is the first behind that.

    Examples
    --------
    >>> letters_of(["npu", "gpu", "cpu"]), letters_of(["dsa_k", "dsa_y", "dsa_d"])
    ({'npu': 'N', 'gpu': 'G', 'cpu': 'C'}, {'dsa_k': 'K', 'dsa_y': 'Y', 'dsa_d': 'D'})
    """
    found: dict[str, str] = {}
    families = Counter(device.partition("_")[0] for device in devices)
    for device in devices:
        family, _, own = device.partition("_")
        told = f"{own}{family}" if families[family] > 1 else device
        free = [c.upper() for c in (*told, *"abcdefghijklmnopqrstuvwxyz") if c.isalpha()]
        found[device] = next(c for c in free if c not in found.values())
    return found


def written(blocks: Sequence[str], letters: Mapping[str, str], units: Sequence[str]) -> str:
    """Return a placement as letters, parts parted by `/`."""
    return "/".join("".join(letters[units[i]] for i in part) for part in parts_of(blocks))


def placement_of(
    blocks: Sequence[str],
    units: Sequence[str],
    said: Sequence[str],
    source: str | None = None,
) -> np.ndarray:
    """Return the unit of each block that letters say, by parts; a `-` between letters is not looked at.

    Raises
    ------
    ConfigError
        Where there are more or fewer letters than blocks, or one stands for no device.
    """
    parts, said = parts_of(blocks), [text.upper().replace("-", "") for text in said]
    text, lengths = "/".join(said), "/".join(str(len(part)) for part in parts)
    if [len(part) for part in parts] != [len(one) for one in said]:
        found = "/".join(str(len(one)) for one in said)
        raise ConfigError(f"`{text}`, {found} letters", file=source, allowed=f"{lengths} letters")
    letters = letters_of(units)
    unit_of = {letter: i for i, letter in enumerate(letters.values())}
    placement = np.zeros(len(blocks), np.int64)
    for part, chosen in zip(parts, said, strict=True):
        for i, letter in zip(part, chosen, strict=True):
            if letter not in unit_of:
                known = ", ".join(f"{letter} ({unit})" for unit, letter in letters.items())
                raise ConfigError(f"`{letter}` in `{text}`", file=source, allowed=known)
            placement[i] = unit_of[letter]
    return placement
