"""The calls of `import npusim`, by what they are for; `npusim/__init__.pyi` lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from npusim.config.overrides import as_list
from npusim.errors import ConfigError

Number = TypeVar("Number", int, float)


def as_numbers(
    texts: str | Sequence[Any], kind: Callable[[str], Number], option: str, allowed: str, most: float = inf
) -> list[Number]:
    """Return the numbers of a list, or of a text with commas; refuse numbers beyond 0 to `most`."""
    try:
        numbers = [kind(text) for text in as_list(texts)]
    except ValueError:
        numbers = [kind("-1")]
    if not all(0 <= number <= most for number in numbers):
        raise ConfigError(f"`{texts}`", file=option, allowed=allowed)
    return numbers
