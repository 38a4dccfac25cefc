"""What stands in a column of a table of figures, and how its text becomes a value.

Like the marks on a set of measuring cups: each takes one kind of thing, and says so when it is handed
another.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Choice", "Column", "Number", "Pair", "Text"]

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Column(ABC):
    """One column by its name in the header."""

    name: str

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What may stand in it."""

    @abstractmethod
    def value(self, text: str) -> float | str | None:
        """Return the value of a text, or None where it is none."""


@dataclass(frozen=True)
class Text(Column):
    """Any text, also none."""

    @property
    def allowed(self) -> str:
        """What may stand in it."""
        return "any text"

    def value(self, text: str) -> str:
        """Return the text."""
        return text


@dataclass(frozen=True)
class Choice(Column):
    """One of a few words."""

    choices: Sequence[str]

    @property
    def allowed(self) -> str:
        """What may stand in it."""
        return f"one of {', '.join(self.choices)}"

    def value(self, text: str) -> str | None:
        """Return the word, or None."""
        return text if text in self.choices else None


@dataclass(frozen=True)
class Number(Column):
    """A finite number between bounds."""

    least: float = 0.0
    above: bool = True
    """Whether the number must lie above `least`, not at it."""
    most: float = math.inf
    whole: bool = False

    @property
    def allowed(self) -> str:
        """What may stand in it."""
        kind = "a whole number" if self.whole else "a number"
        bound = f"above {self.least:g}" if self.above else f"of at least {self.least:g}"
        return f"{kind} {bound}" + (f" and at most {self.most:g}" if math.isfinite(self.most) else "")

    def value(self, text: str) -> float | None:
        """Return the number, or None."""
        if not _NUMBER.fullmatch(text):
            return None
        number = float(text)
        low = number > self.least if self.above else number >= self.least
        fits = low and number <= self.most and math.isfinite(number)
        return number if fits and (not self.whole or number.is_integer()) else None


@dataclass(frozen=True)
class Pair(Column):
    """Whole numbers with a sign between them: a kernel as `3x5`, padding as `1-0-1-1`."""

    parts: int
    sign: str
    least: int = 1

    @property
    def allowed(self) -> str:
        """What may stand in it."""
        return self.sign.join("N" * self.parts) + f" with whole numbers of at least {self.least}"

    def value(self, text: str) -> str | None:
        """Return the text where it is well formed, or None."""
        numbers = text.split(self.sign)
        well = len(numbers) == self.parts and all(re.fullmatch("[0-9]{1,6}", number) for number in numbers)
        return text if well and all(int(number) >= self.least for number in numbers) else None

    def numbers(self, text: str) -> list[float]:
        """Return the numbers of a well-formed text."""
        return [float(number) for number in text.split(self.sign)]
