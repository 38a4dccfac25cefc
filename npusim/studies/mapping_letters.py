"""Placements of a chain of blocks as letters, a letter a device, as in Table 3 of MaGNAS."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_lowercase

import numpy as np

from npusim.errors import ConfigError

_KIND = re.compile(r"(grapher|ffn)\d+$")


def parts_of(blocks: Sequence[str]) -> list[list[int]]:
    """Return which blocks each part of a mapping stands for: four parts of a Vision GNN, else one of all."""
    kinds = [match[1] if (match := _KIND.match(block)) else "stem" for block in blocks]
    if "grapher" not in kinds:
        return [list(range(len(blocks)))]
    first = kinds.index("grapher")
    kinds[first:] = ["head" if kind == "stem" else kind for kind in kinds[first:]]
    names = ("stem", "grapher", "ffn", "head")
    parts = ([i for i, kind in enumerate(kinds) if kind == name] for name in names)
    return [part for part in parts if part]


def letters_of(devices: Sequence[str]) -> dict[str, str]:
    """Return a letter for each device: the first of its name that no other has.

    If names begin alike up to a `_`, such as `dsa_k` and `dsa_y`, it is the first letter behind that.

    Examples
    --------
    >>> letters_of(["npu", "gpu", "cpu"]), letters_of(["dsa_k", "dsa_y", "dsa_d"])
    ({'npu': 'N', 'gpu': 'G', 'cpu': 'C'}, {'dsa_k': 'K', 'dsa_y': 'Y', 'dsa_d': 'D'})
    """
    letters: dict[str, str] = {}
    families = Counter(device.partition("_")[0] for device in devices)
    for device in devices:
        family, _, own = device.partition("_")
        name = f"{own}{family}" if families[family] > 1 else device
        candidates = [c.upper() for c in (*name, *ascii_lowercase) if c.isalpha()]
        letters[device] = next(c for c in candidates if c not in letters.values())
    return letters


def written(blocks: Sequence[str], letters: Mapping[str, str], units: Sequence[str]) -> str:
    """Return a placement as letters, parts parted by `/`."""
    return "/".join("".join(letters[units[i]] for i in part) for part in parts_of(blocks))


def placement_of(
    blocks: Sequence[str], units: Sequence[str], texts: Sequence[str], source: str | None = None
) -> np.ndarray:
    """Return the unit of each block by letters, a text for each part; a `-` between letters is ignored.

    Raises
    ------
    ConfigError
        Where there are more or fewer letters than blocks, or one stands for no device.
    """
    parts, texts = parts_of(blocks), [text.upper().replace("-", "") for text in texts]
    whole = "/".join(texts)
    needed, given = ("/".join(str(len(each)) for each in sequence) for sequence in (parts, texts))
    if needed != given:
        raise ConfigError(f"`{whole}`, {given} letters", file=source, allowed=f"{needed} letters")
    letters = letters_of(units)
    unit_of = {letter: i for i, letter in enumerate(letters.values())}
    placement = np.zeros(len(blocks), np.int64)
    for part, text in zip(parts, texts, strict=True):
        for i, letter in zip(part, text, strict=True):
            if letter not in unit_of:
                known = ", ".join(f"{letter} ({unit})" for unit, letter in letters.items())
                raise ConfigError(f"`{letter}` in `{whole}`", file=source, allowed=known)
            placement[i] = unit_of[letter]
    return placement
