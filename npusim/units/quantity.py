"""A number that remembers where it comes from.

A `Quantity` is a float in SI units and a `Count` an int, so arithmetic is plain Python arithmetic and
gives plain numbers: a result has another source than its parts.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from pydantic_core import CoreSchema, core_schema

from npusim.units.symbols import spellings, unit_factor

USER = "user"
"""The source of a number that was given without one."""


def format_quantity(value: float, unit: str) -> str:
    """Return a value in SI as exact text in the handiest spelling of its unit.

    Parameters
    ----------
    value : float
        Finite value, in `unit`.
    unit : str
        SI unit, for example ``Hz``; empty for a plain number.

    Returns
    -------
    str
        For example ``1.85 GHz``; it parses to the same float.
    """
    if not math.isfinite(value):  # no field takes it, but a message must be able to show it
        return f"{float(value)} {unit}".strip()
    exact = Decimal(repr(float(value)))
    best = f"{_plain(exact)} {unit}".strip()
    for spelling in spellings(unit):
        factor = unit_factor(spelling, unit)
        if factor is None or spelling.startswith(("%", "bit", "µ")):
            continue
        scaled = exact / factor
        written = f"{_plain(scaled)} {spelling}".strip()
        if 1 <= abs(scaled) < 10_000 and len(written) <= len(best) and scaled * factor == exact:
            best = written
    return best


def _plain(number: Decimal) -> str:
    """Return a decimal without needless zeros, in figures where that is short."""
    number = number.normalize()
    return f"{number:f}" if -7 < number.adjusted() < 15 else f"{number:e}"


class Quantity(float):
    """A float in SI units that carries its unit, source, uncertainty and the text it was written as.

    Parameters
    ----------
    value : float
        Value in `unit`.
    unit : str, optional
        SI unit: Hz, B, B/s, s, J, W, V, m^2, J/B, J/MAC, ...; empty for a plain number.
    source : str, optional
        Where the number comes from; "user" unless told.
    uncertainty : float, optional
        Relative standard deviation, so 0.03 for 3 %; None where nobody stated one.
    note : str, optional
        What else a reader should know.
    text : str, optional
        The value as written; made from value and unit unless given.
    """

    __slots__ = ("_text", "note", "source", "uncertainty", "unit")

    unit: str
    source: str
    uncertainty: float | None
    note: str
    _text: str | None

    def __new__(
        cls,
        value: float,
        unit: str = "",
        *,
        source: str = USER,
        uncertainty: float | None = None,
        note: str = "",
        text: str | None = None,
    ) -> Quantity:
        """Make the float; see the class for the parameters."""
        self = super().__new__(cls, value)
        self.unit, self.source, self.uncertainty, self.note, self._text = (
            unit,
            source,
            uncertainty,
            note,
            text,
        )
        return self

    @property
    def text(self) -> str:
        """The value with its unit: as it was written, else in the handiest spelling."""
        return self._text if self._text is not None else format_quantity(self, self.unit)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with source and unit."""
        return _quantity, (float(self), self.unit, self.source, self.uncertainty, self.note, self._text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Let a `Quantity` be a field's default: the JSON schema then shows it as a file would hold it."""
        return core_schema.is_instance_schema(
            cls,
            serialization=core_schema.plain_serializer_function_ser_schema(cls.as_written, when_used="json"),
        )

    def as_written(self) -> Any:
        """Return what a YAML file holds for it: bare text, or a mapping where there is a source to tell."""
        bare_number = not self.unit and self._text is None
        return _as_written(float(self) if bare_number else self.text, self)


def _quantity(
    value: float, unit: str, source: str, uncertainty: float | None, note: str, text: str | None
) -> Quantity:
    return Quantity(value, unit, source=source, uncertainty=uncertainty, note=note, text=text)


class Count(int):
    """An int that carries its source: tiles, cores, ports."""

    source: str
    uncertainty: float | None
    note: str

    def __new__(
        cls, value: int, *, source: str = USER, uncertainty: float | None = None, note: str = ""
    ) -> Count:
        """Make the int; see the class for the parameters."""
        self = super().__new__(cls, value)
        self.source, self.uncertainty, self.note = source, uncertainty, note
        return self

    @property
    def text(self) -> str:
        """The figure."""
        return str(int(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with the source."""
        return _count, (int(self), self.source, self.uncertainty, self.note)

    def as_written(self) -> Any:
        """Return what a YAML file holds for it: a bare int, or a mapping where there is a source to tell."""
        return _as_written(int(self), self)


def _count(value: int, source: str, uncertainty: float | None, note: str) -> Count:
    return Count(value, source=source, uncertainty=uncertainty, note=note)


def _as_written(value: str | float, number: Quantity | Count) -> Any:
    told: dict[str, Any] = {"value": value}
    if number.source != USER:
        told["source"] = number.source
    if number.uncertainty is not None:
        told["uncertainty"] = number.uncertainty
    if number.note:
        told["note"] = number.note
    return told if len(told) > 1 else value
