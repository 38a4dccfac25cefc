"""The calls of `import npusim`, by what they are for; `npusim/__init__.pyi` lists them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from npusim.errors import ConfigError, as_list
from npusim.files import read_text

Number = TypeVar("Number", int, float)
_MOST_NODES = 10**9 - 1


def as_numbers(
    texts: str | Sequence[Any], kind: Callable[[str], Number], option: str, allowed: str, most: float = inf
) -> list[Number]:
    """Return the numbers of a list, or of a text with commas; refuse numbers beyond 0 to `most`."""
    with suppress(ValueError):
        numbers = [kind(text) for text in as_list(texts)]
        if all(0 <= number <= most for number in numbers):
            return numbers
    found = texts if isinstance(texts, str) else ",".join(map(str, texts))
    raise ConfigError(f"`{found}`", file=option, allowed=allowed)


def node_counts(numbers: str | Path | Sequence[int], option: str, example: str) -> list[int]:
    """Return numbers of nodes from a list, a text that parts them by commas, or a text file."""
    if isinstance(numbers, Path) or (isinstance(numbers, str) and "." in numbers):
        numbers = ",".join(re.split(r"[,\s]+", read_text(Path(numbers).expanduser()).strip()))
    return as_numbers(numbers, int, option, f"numbers of nodes, such as {example}", _MOST_NODES)
