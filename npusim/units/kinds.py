"""Kinds of quantity in a data sheet: pydantic types with unit, bounds and an example.

A field typed `Frequency` takes ``1.85 GHz`` or a mapping
``{value: 1.85 GHz, source: ..., uncertainty: 3 %, note: ...}`` and holds a `Quantity` in Hz.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, NoReturn

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from npusim.errors import nearest, shown
from npusim.units.quantity import USER, Count, Quantity, format_quantity
from npusim.units.symbols import NUMBER_PATTERN, spellings, split_number, unit_factor

_PARTS = ("value", "source", "uncertainty", "note")
_HUGE = 1e300
_BITS = re.compile(r"([kMGT]?)(?:b|bits?)((?:/.*)?)")
_END = r"(?![0-9.])(?![eE][+-]?[0-9])"  # the number ends here: 1e400 is no 1 of a unit "e400"
_UNCERTAINTY = "a relative standard deviation of 0 or more, such as 3 %"


def refuse(found: str, allowed: str, suggestion: str | None = None, at: str = "") -> NoReturn:
    """Raise, inside a validator, the error that the loader completes with file, line and key.

    Parameters
    ----------
    at : str, optional
        Key, relative to what is validated, that is at fault.

    Raises
    ------
    PydanticCustomError
        Always.
    """
    context = {"found": found, "allowed": allowed, "suggestion": suggestion or "", "at": at}
    raise PydanticCustomError("npusim", "found {found}; allowed: {allowed}", context)


def _split_mapping(raw: Any, allowed: str) -> tuple[Any, dict[str, Any]]:
    """Return the value and the provenance of what a file holds for a number."""
    if not isinstance(raw, Mapping):
        return raw, {"source": USER}
    for key in raw:
        if key not in _PARTS:
            refuse(f"the unknown key `{key}`", ", ".join(_PARTS), nearest(str(key), _PARTS), at=str(key))
    if "value" not in raw:
        refuse("no `value`", f"a mapping with `value`, {allowed}")
    told: dict[str, Any] = {"source": USER}
    for key in ("source", "note"):
        text = raw.get(key)
        if text is not None and not (isinstance(text, str) and text.strip()):
            refuse(shown(text), "a text", at=key)
        if text is not None:
            told[key] = text
    if raw.get("uncertainty") is not None:
        told["uncertainty"] = _uncertainty(raw["uncertainty"])
    return raw["value"], told


def _uncertainty(raw: Any) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < 1e9:
        return float(raw)
    split = split_number(raw) if isinstance(raw, str) else None
    factor = unit_factor(split[1], "") if split else None
    if split is None or factor is None or split[0] < 0:
        refuse(shown(raw), _UNCERTAINTY, at="uncertainty")
    return float(split[0] * factor)


def _number_schema(value: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the JSON schema of a number: bare, or with its provenance."""
    with_source = {
        "type": "object",
        "properties": {
            "value": value,
            "source": {"type": "string", "minLength": 1, "description": "Where the number comes from."},
            "uncertainty": {
                "description": "Relative standard deviation.",
                "anyOf": [
                    {"type": "number", "minimum": 0},
                    {"type": "string", "pattern": rf"^{NUMBER_PATTERN}\s*%?$"},
                ],
            },
            "note": {"type": "string", "minLength": 1, "description": "What else a reader should know."},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    return {"title": title, "anyOf": [value, with_source]}


def _core_schema(parse: Callable[[Any], Quantity | Count]) -> CoreSchema:
    return core_schema.no_info_plain_validator_function(
        parse,
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda number: number.as_written(), when_used="json"
        ),
    )


@dataclass(frozen=True)
class Kind:
    """One kind of quantity: what it is called, its SI unit and its bounds."""

    name: str
    """What it is, with its article: "a frequency"."""
    unit: str
    """SI unit a `Quantity` of this kind is in; empty for a plain number."""
    example: str
    """A value as one would write it."""
    lower: float | None = 0.0
    upper: float | None = None
    """`lower`, `upper`: bounds, in `unit`; None for no bound. Beyond the upper one lies what no machine
    has."""
    above: bool = False
    """Whether the lower bound itself is excluded."""

    @property
    def allowed(self) -> str:
        """What may be written, in words."""
        if self.upper is not None and not self.unit and self.upper <= 1.0:
            bound = f" from {self.lower:g} to {self.upper:g}"
        elif self.lower is not None:
            bound = f" above {self.lower:g}" if self.above else f" of {self.lower:g} or more"
        else:
            bound = ""
        return f"{self.name}{bound}{' with its unit' if self.unit else ''}, such as {self.example}"

    def parse(self, raw: Any) -> Quantity:
        """Return what a file or a caller gives as a `Quantity` of this kind, or refuse it."""
        if isinstance(raw, Quantity):
            if raw.unit != self.unit:
                refuse(shown(raw.text), self.allowed)
            self._check(float(raw), raw.text)
            return raw
        value, told = _split_mapping(raw, self.allowed)
        if isinstance(value, Quantity):
            value = value.text
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            refuse(shown(value), self.allowed)
        if not isinstance(value, str) and not self.unit and abs(value) < _HUGE:
            self._check(float(value), repr(value))
            return Quantity(float(value), **told)
        text = value if isinstance(value, str) else repr(value)
        return Quantity(self._si(text), self.unit, text=text.strip(), **told)

    def _si(self, text: str) -> float:
        split = split_number(text)
        if split is None:
            refuse(shown(text), self.allowed)
        number, unit = split
        if self.unit and not unit:
            refuse(f"{shown(text)}, which has no unit", self.allowed)
        factor = unit_factor(unit, self.unit)
        if factor is None:
            refuse(f"{shown(text)}, which is not {self.name}", self.allowed, self._meant(number, unit))
        if number.is_signed() and self.lower is not None:  # -0 too: the schema's pattern knows no sign
            refuse(shown(text), self.allowed)
        value = float(number * factor)
        if value == 0 and number != 0:
            refuse(f"{shown(text)}, which is too small to represent", self.allowed)
        self._check(value, text)
        return value

    def _meant(self, number: Decimal, unit: str) -> str | None:
        """Return what was meant by a number whose unit is none of this kind's."""
        bits = _BITS.fullmatch(unit)
        if bits is not None:  # Gb/s, Mbit and their like: eight bits are a byte
            in_bytes = unit_factor(f"{bits[1]}B{bits[2]}", self.unit)
            if in_bytes is not None:
                return format_quantity(float(number * in_bytes / 8), self.unit)
        usual = [spelling for spelling in spellings(self.unit) if spelling]
        meant = nearest(unit, usual) if unit[:1].isalpha() else None
        return f"{number} {meant}" if meant else None

    def _check(self, value: float, text: str) -> None:
        too_low = self.lower is not None and (value < self.lower or (self.above and value == self.lower))
        if math.isfinite(value) and self.upper is not None and value > self.upper:
            most = format_quantity(self.upper, self.unit)
            refuse(shown(text), self.allowed if most in self.allowed else f"{self.allowed}, at most {most}")
        if not math.isfinite(value) or too_low:
            refuse(shown(text), self.allowed)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Tell pydantic how to read and write a quantity of this kind."""
        return _core_schema(self.parse)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the kind: unit and bounds stand in the schema, for the text as well as for the number."""
        sign = "[+-]?" if self.lower is None else r"\+?"
        nonzero = "(?=[0-9.]*[1-9])" if self.above else ""
        unit = r"[^\s0-9.].*" if self.unit else "%?"
        text: dict[str, Any] = {
            "type": "string",
            "pattern": rf"^\s*{sign}{nonzero}{NUMBER_PATTERN}{_END}\s*{unit}$",
        }
        bounds = {
            "exclusiveMinimum" if self.above else "minimum": self.lower,
            "maximum": self.upper,
        }
        limits = {key: bound for key, bound in bounds.items() if bound is not None}
        value = text if self.unit else {"anyOf": [{"type": "number", **limits}, text]}
        schema = _number_schema(value, self.name)
        schema |= {"x-unit": self.unit, "examples": [self.example]}
        return schema | {f"x-{key}": bound for key, bound in limits.items()}


@dataclass(frozen=True)
class CountKind:
    """A whole number of things, from `lower` to `upper`."""

    lower: int
    upper: int = 1_000_000

    @property
    def allowed(self) -> str:
        """What may be written, in words."""
        return f"a whole number of {self.lower} or more"

    def parse(self, raw: Any) -> Count:
        """Return what a file or a caller gives as a `Count`, or refuse it."""
        if isinstance(raw, Count):
            self._check(int(raw))
            return raw
        value, told = _split_mapping(raw, self.allowed)
        self._check(value)
        return Count(int(value), **told)

    def _check(self, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < self.lower:
            refuse(shown(value), self.allowed)
        if value > self.upper:
            refuse(shown(value), f"{self.allowed}, at most {self.upper:,}")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Tell pydantic how to read and write a count."""
        return _core_schema(self.parse)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the count: an integer with its bounds."""
        return _number_schema({"type": "integer", "minimum": self.lower, "maximum": self.upper}, "a count")


_BYTES = Kind("an amount of data", "B", "1440 KiB", upper=1e15, above=True)
_RATIO = Kind("a ratio", "", "0.5", upper=1e12)

Frequency = Annotated[Quantity, Kind("a frequency", "Hz", "1.85 GHz", upper=1e11, above=True)]
Bytes = Annotated[Quantity, _BYTES]
BytesOrZero = Annotated[Quantity, replace(_BYTES, above=False)]
Bandwidth = Annotated[Quantity, Kind("a bandwidth", "B/s", "58.7 GB/s", upper=1e14, above=True)]
Duration = Annotated[Quantity, Kind("a duration", "s", "0.25 ms", upper=1e6)]
Energy = Annotated[Quantity, Kind("an energy", "J", "5 mJ", upper=1e9)]
Power = Annotated[Quantity, Kind("a power", "W", "1.5 W", upper=1e6)]
Voltage = Annotated[Quantity, Kind("a voltage", "V", "0.75 V", upper=10.0, above=True)]
Area = Annotated[Quantity, Kind("an area", "m^2", "2.5 mm^2", upper=0.1)]
EnergyPerByte = Annotated[Quantity, Kind("an energy per byte", "J/B", "1.6 pJ/B", upper=1e-6)]
EnergyPerMac = Annotated[
    Quantity, Kind("an energy per multiply-accumulate", "J/MAC", "0.1 pJ/MAC", upper=1e-6)
]
EnergyPerOp = Annotated[Quantity, Kind("an energy per operation", "J/op", "0.6 pJ/op", upper=1e-6)]
AreaPerByte = Annotated[Quantity, Kind("an area per byte", "m^2/B", "0.3 um^2/B", upper=1e-6)]
AreaPerMac = Annotated[
    Quantity, Kind("an area per multiply-accumulate unit", "m^2/MAC", "300 um^2/MAC", upper=1e-6)
]
PowerPerArea = Annotated[Quantity, Kind("a power per area", "W/m^2", "20 mW/mm^2", upper=1e8)]
Cycles = Annotated[Quantity, Kind("a number of clock cycles", "cycle", "160 cycle", upper=1e15)]
CyclesPerElement = Annotated[
    Quantity, Kind("clock cycles per element", "cycle/element", "0.5 cycle/element", upper=1e12)
]
DurationPerElement = Annotated[
    Quantity, Kind("a duration per element", "s/element", "0.46 ns/element", upper=1e3)
]
BytesPerCycle = Annotated[
    Quantity, Kind("bytes per clock cycle", "B/cycle", "32 B/cycle", upper=1e6, above=True)
]
MacsPerCycle = Annotated[
    Quantity, Kind("multiply-accumulates per clock cycle", "MAC/cycle", "8 MAC/cycle", upper=1e9, above=True)
]
ElementsPerCycle = Annotated[
    Quantity, Kind("elements per clock cycle", "element/cycle", "8 element/cycle", upper=1e9, above=True)
]
Ratio = Annotated[Quantity, _RATIO]
PositiveRatio = Annotated[Quantity, replace(_RATIO, above=True)]
Fraction = Annotated[Quantity, Kind("a fraction", "", "0.5", upper=1.0)]
PositiveFraction = Annotated[Quantity, Kind("a fraction", "", "0.5", upper=1.0, above=True)]
Coefficient = Annotated[Quantity, Kind("a finite number", "", "-0.5", lower=None)]
PositiveCount = Annotated[Count, CountKind(1)]
TileCount = Annotated[Count, CountKind(1, 1024)]
NaturalCount = Annotated[Count, CountKind(0)]


@dataclass(frozen=True)
class Informative:
    """Marks a field that no estimate reads: it may stand in a file, and is refused in settings and axes."""

    reason: str
    """What the field is for, or what will read it; completes "it is informative: ..."."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Mark the field in the schema."""
        return {**handler(core), "x-informative": self.reason}
