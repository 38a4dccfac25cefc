"""Quantities with units: read once, checked against bounds, and plain SI numbers from then on.

A `Quantity` is a float in SI units and a `Count` an int; both carry source, uncertainty and note. Arithmetic
with them is plain and gives plain numbers. A field typed `Frequency` takes ``1.85 GHz`` or a mapping
``{value: 1.85 GHz, source: ..., uncertainty: 3 %, note: ...}``.

Factors to SI come from a list of symbols with their usual prefixes, alone or as a quotient of two; a test
compares the list with pint. Bytes are the base of data; what is counted (cycles, MACs, operations, elements)
has a dimension of its own, so that ``pJ/MAC`` cannot be mistaken for ``pJ/B``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, NoReturn

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from npusim.errors import nearest, shown

NUMBER_PATTERN = r"(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?"
"""An unsigned decimal number; the two digits of exponent keep every product finite."""

_QUANTITY = re.compile(rf"\s*([+-]?{NUMBER_PATTERN})(?![0-9.])\s*(.*?)\s*", re.DOTALL)
_POWERS = dict(zip("EPTGMkmuµnpf", (18, 15, 12, 9, 6, 3, -3, -6, -6, -9, -12, -15), strict=True)) | {"": 0}
_PREFIXES = {prefix: Decimal(f"1e{power}") for prefix, power in _POWERS.items()}
_PREFIXES |= {f"{letter}i": Decimal(2) ** (10 * i) for i, letter in enumerate("KMGTPE", start=1)}
_USUAL = {
    "Hz": ("", "k", "M", "G"),
    "B": ("", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"),
    "s": ("", "m", "u", "n", "p"),
    "J": ("", "m", "u", "n", "p", "f"),
    "W": ("", "k", "m", "u"),
    "V": ("", "m"),
    "K": ("",),
    "m^2": ("", "m", "u", "n"),
}
"""Prefixes that numbers of a base unit are written with."""
_ATOMS = {
    prefix + base: (base, factor ** (2 if base == "m^2" else 1))
    for base in _USUAL
    for prefix, factor in _PREFIXES.items()
}
"""Symbols, each with its base symbol and its factor to that base."""
_ATOMS |= {f"{prefix}bit": ("B", factor / 8) for prefix, factor in _PREFIXES.items()}
_ATOMS |= {name: (name, Decimal(1)) for name in ("", "cycle", "MAC", "op", "element")}
_ATOMS |= {"%": ("", Decimal("0.01")), "min": ("s", Decimal(60)), "h": ("s", Decimal(3600))}


def split_number(text: str) -> tuple[Decimal, str] | None:
    """Return number and unit of a text such as ``1.85 GHz``; None if it does not begin with a number."""
    match = _QUANTITY.fullmatch(text)
    return (Decimal(match[1]), match[2]) if match else None


def spellings(unit: str) -> list[str]:
    """Return the usual spellings of a unit, for example Hz, kHz, MHz and GHz for ``Hz``."""
    top, slash, bottom = unit.partition("/")
    return [prefix + top + slash + bottom for prefix in _USUAL.get(top, ("",))]


def unit_factor(unit: str, target: str) -> Decimal | None:
    """Return the factor from a unit to an SI unit; None if their dimensions differ.

    Examples
    --------
    >>> unit_factor("GB/s", "B/s")
    Decimal('1E+9')
    """
    if unit == target:
        return Decimal(1)
    (base, above), (per, below) = (_atom(part) for part in unit.partition("/")[::2])
    return above / below if (base, per) == target.partition("/")[::2] else None


def _atom(symbol: str) -> tuple[str, Decimal]:
    """Return the base symbol of a symbol, and its factor to that base."""
    symbol = symbol.strip().replace("²", "^2").replace("**", "^").replace("μ", "µ")
    return _ATOMS.get(symbol, ("unknown", Decimal(1)))


USER = "user"
"""Source of a number whose source is not stated."""


def format_quantity(value: float, unit: str) -> str:
    """Return an SI value as the shortest exact text, such as ``1.85 GHz``; it parses to the same float."""
    if not math.isfinite(value):  # fields refuse it, and messages show it
        return f"{float(value)} {unit}".strip()
    exact = Decimal(repr(float(value)))
    best = f"{_plain(exact)} {unit}".strip()
    for spelling in spellings(unit):
        factor = unit_factor(spelling, unit) or Decimal(1)
        scaled = exact / factor
        if 1 <= abs(scaled) < 10_000 and scaled * factor == exact:
            written = f"{_plain(scaled)} {spelling}".strip()
            best = written if len(written) <= len(best) else best
    return best


def _plain(number: Decimal) -> str:
    """Return a decimal without trailing zeros, with an exponent if it is long."""
    number = number.normalize()
    return f"{number:f}" if -7 < number.adjusted() < 15 else f"{number:e}"


class Sourced:
    """What a number of a data sheet says besides its value."""

    source: str
    uncertainty: float | None
    note: str

    def _tell(self, source: str, uncertainty: float | None, note: str) -> None:
        self.source, self.uncertainty, self.note = source, uncertainty, note

    @property
    def _provenance(self) -> dict[str, Any]:
        return {"source": self.source, "uncertainty": self.uncertainty, "note": self.note}

    def _written(self, value: str | float) -> Any:
        default = {"source": USER, "uncertainty": None, "note": ""}
        stated = {key: part for key, part in self._provenance.items() if part != default[key]}
        return {"value": value} | stated if stated else value


class Quantity(Sourced, float):
    """A float in SI units with its unit, source, uncertainty and text.

    `value` is in `unit`, an SI unit: Hz, B, B/s, s, J, W, V, m^2, J/B, J/MAC ...; empty for a plain number.
    `uncertainty` is a relative standard deviation, 0.03 for 3 %; None if not stated. `text` is the value as
    written.
    """

    unit: str
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
        """Create the float; the class documents the parameters."""
        self = super().__new__(cls, value)
        self.unit, self._text = unit, text
        self._tell(source, uncertainty, note)
        return self

    @property
    def text(self) -> str:
        """The value with its unit: as written, or else the shortest exact text."""
        return self._text if self._text is not None else format_quantity(self, self.unit)

    def __getnewargs_ex__(self) -> tuple[tuple[float, str], dict[str, Any]]:
        """Return what pickle and copy create it from."""
        return (float(self), self.unit), {"text": self._text} | self._provenance

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Return a schema that lets a `Quantity` be the default of a field."""
        return core_schema.is_instance_schema(cls, serialization=_AS_WRITTEN)

    def as_written(self) -> Any:
        """Return what a YAML file holds for it: bare text, or a mapping if it has a source or a note."""
        bare_number = not self.unit and self._text is None
        return self._written(float(self) if bare_number else self.text)


class Count(Sourced, int):
    """An int that carries its source: tiles, cores, ports."""

    def __new__(
        cls, value: int, *, source: str = USER, uncertainty: float | None = None, note: str = ""
    ) -> Count:
        """Create the int; `Quantity` documents the parameters."""
        self = super().__new__(cls, value)
        self._tell(source, uncertainty, note)
        return self

    @property
    def text(self) -> str:
        """The number as text."""
        return str(int(self))

    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, Any]]:
        """Return what pickle and copy create it from."""
        return (int(self),), self._provenance

    def as_written(self) -> Any:
        """Return what a YAML file holds for it: a bare int, or a mapping if it has a source or a note."""
        return self._written(int(self))


_AS_WRITTEN = core_schema.plain_serializer_function_ser_schema(
    lambda number: number.as_written(), when_used="json"
)
_PARTS = ("value", "source", "uncertainty", "note")
_HUGE = 1e300
_BITS = re.compile(r"([kMGT]?)(?:b|bits?)((?:/.*)?)")
_END = r"(?![0-9.])(?![eE][+-]?[0-9])"  # the number ends here: 1e400 is not 1 with a unit "e400"
_UNCERTAINTY = "a relative standard deviation of 0 or more, such as 3 %"


def refuse(found: str, allowed: str, suggestion: str | None = None, at: str = "") -> NoReturn:
    """Raise a validation error, which the loader completes with file, line and key.

    Parameters
    ----------
    at : str, optional
        The key at fault, relative to what is validated.
    """
    context = {"found": found, "allowed": allowed, "suggestion": suggestion or "", "at": at}
    raise PydanticCustomError("npusim", "found {found}; allowed: {allowed}", context)


def require(name: str, known: Iterable[str], noun: str, at: str) -> None:
    """Refuse a name that is none of the known ones; the message names the nearest."""
    names = list(known)
    if name not in names:
        refuse(f"the {noun} `{name}`", ", ".join(names), nearest(name, names), at=at)


def _split_mapping(raw: Any, allowed: str) -> tuple[Any, dict[str, Any]]:
    """Return value and provenance of a number as a file holds it."""
    if not isinstance(raw, Mapping):
        return raw, {"source": USER}
    for key in raw:
        if key not in _PARTS:
            refuse(f"the unknown key `{key}`", ", ".join(_PARTS), nearest(str(key), _PARTS), at=str(key))
    if "value" not in raw:
        refuse("no `value`", f"a mapping with `value`, {allowed}")
    provenance = {key: raw[key] for key in _PARTS[1:] if raw.get(key) is not None}
    for key, text in provenance.items():
        if key != "uncertainty" and not (isinstance(text, str) and text.strip()):
            refuse(shown(text), "a text", at=key)
    if "uncertainty" in provenance:
        provenance["uncertainty"] = _uncertainty(provenance["uncertainty"])
    return raw["value"], {"source": USER} | provenance


def _uncertainty(raw: Any) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < 1e9:
        return float(raw)
    split = split_number(raw) if isinstance(raw, str) else None
    factor = unit_factor(split[1], "") if split else None
    if split is None or factor is None or split[0] < 0:
        refuse(shown(raw), _UNCERTAINTY, at="uncertainty")
    return float(split[0] * factor)


def _number_schema(value: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the JSON schema of a number, bare or with its provenance."""
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


class NumberKind:
    """A kind of number that a field of a data sheet holds."""

    parse: Callable[[Any], Quantity | Count]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how pydantic reads and writes a number of this kind."""
        return core_schema.no_info_plain_validator_function(self.parse, serialization=_AS_WRITTEN)


@dataclass(frozen=True)
class Kind(NumberKind):
    """One kind of quantity: its name, SI unit and bounds."""

    name: str
    """Name with its article: "a frequency"."""
    unit: str
    """SI unit; empty for a plain number."""
    example: str
    most: float
    least: float = 0.0
    """`least`, `most`: bounds in `unit`."""

    @property
    def allowed(self) -> str:
        """Text that says what may be written."""
        if not self.unit and self.most <= 1.0:
            bound = f" from 0 to {self.most:g}"
        else:
            bound = " above 0" if self.least > 0 else " of 0 or more"
        return f"{self.name}{bound}{' with its unit' if self.unit else ''}, such as {self.example}"

    def parse(self, raw: Any) -> Quantity:
        """Return a value of a file or a caller as a `Quantity` of this kind, or refuse it."""
        if isinstance(raw, Quantity):
            if raw.unit != self.unit:
                refuse(shown(raw.text), self.allowed)
            self._check(float(raw), raw.text)
            return raw
        value, provenance = _split_mapping(raw, self.allowed)
        if isinstance(value, Quantity):
            value = value.text
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            refuse(shown(value), self.allowed)
        if not isinstance(value, str) and not self.unit and abs(value) < _HUGE:
            self._check(float(value), repr(value))
            return Quantity(float(value), **provenance)
        text = value if isinstance(value, str) else repr(value)
        return Quantity(self._si(text), self.unit, text=text.strip(), **provenance)

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
        if number.is_signed():  # -0 too: the schema's pattern has no sign
            refuse(shown(text), self.allowed)
        value = float(number * factor)
        self._check(value, text)
        return value

    def _meant(self, number: Decimal, unit: str) -> str | None:
        """Return the nearest quantity of this kind for a number with another unit."""
        bits = _BITS.fullmatch(unit)
        if bits is not None:  # Gb/s, Mbit: eight bits are a byte
            in_bytes = unit_factor(f"{bits[1]}B{bits[2]}", self.unit)
            if in_bytes is not None:
                return format_quantity(float(number * in_bytes / 8), self.unit)
        usual = [spelling for spelling in spellings(self.unit) if spelling]
        meant = nearest(unit, usual) if unit[:1].isalpha() else None
        return f"{number} {meant}" if meant else None

    def _check(self, value: float, text: str) -> None:
        if not math.isfinite(value) or value < 0 or (self.least > 0 and value == 0):
            refuse(shown(text), self.allowed)
        if not self.least <= value <= self.most:
            word, bound = ("at most", self.most) if value > self.most else ("at least", self.least)
            limit = format_quantity(bound, self.unit)
            refuse(shown(text), self.allowed if limit in self.allowed else f"{self.allowed}, {word} {limit}")

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema with unit and bounds, for a text as well as for a number."""
        nonzero = "(?=[0-9.]*[1-9])" if self.least > 0 else ""
        unit = r"[^\s0-9.].*" if self.unit else "%?"
        pattern = rf"^\s*\+?{nonzero}{NUMBER_PATTERN}{_END}\s*{unit}$"
        text: dict[str, Any] = {"type": "string", "pattern": pattern}
        limits = {"minimum": self.least, "maximum": self.most}
        value = text if self.unit else {"anyOf": [{"type": "number", **limits}, text]}
        schema = _number_schema(value, self.name)
        schema |= {"x-unit": self.unit, "examples": [self.example]}
        return schema | {f"x-{key}": bound for key, bound in limits.items()}


@dataclass(frozen=True)
class CountKind(NumberKind):
    """A whole number of things, from `lower` to `upper`."""

    lower: int
    upper: int = 1_000_000

    @property
    def allowed(self) -> str:
        """Text that says what may be written."""
        return f"a whole number of {self.lower} or more"

    def parse(self, raw: Any) -> Count:
        """Return a value of a file or a caller as a `Count`, or refuse it."""
        if isinstance(raw, Count):
            self._check(int(raw))
            return raw
        value, provenance = _split_mapping(raw, self.allowed)
        self._check(value)
        return Count(int(value), **provenance)

    def _check(self, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < self.lower:
            refuse(shown(value), self.allowed)
        if value > self.upper:
            refuse(shown(value), f"{self.allowed}, at most {self.upper:,}")

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema: an integer with its bounds."""
        return _number_schema({"type": "integer", "minimum": self.lower, "maximum": self.upper}, "a count")


_BYTES = Kind("an amount of data", "B", "1440 KiB", 1e15, 1e-6)
_RATIO = Kind("a ratio", "", "0.5", 1e12)

_FREQUENCY = Kind("a frequency", "Hz", "1.85 GHz", 1e11, 1e3)
Frequency = Annotated[Quantity, _FREQUENCY]
RequestRate = Annotated[Quantity, replace(_FREQUENCY, least=1e-6)]
Bytes = Annotated[Quantity, _BYTES]
BytesOrZero = Annotated[Quantity, replace(_BYTES, least=0.0)]
Bandwidth = Annotated[Quantity, Kind("a bandwidth", "B/s", "58.7 GB/s", 1e14, 1e3)]
_DURATION = Kind("a duration", "s", "0.25 ms", 1e6)
Duration = Annotated[Quantity, _DURATION]
PositiveDuration = Annotated[Quantity, replace(_DURATION, least=1e-15)]
Energy = Annotated[Quantity, Kind("an energy", "J", "5 mJ", 1e9)]
Power = Annotated[Quantity, Kind("a power", "W", "1.5 W", 1e6)]
Voltage = Annotated[Quantity, Kind("a voltage", "V", "0.75 V", 10.0, 1e-3)]
TemperatureRise = Annotated[Quantity, Kind("a rise of temperature", "K", "75 K", 1e4, 1e-2)]
DieRise = Annotated[Quantity, Kind("a rise of temperature", "K", "60 K", 200.0, 1e-2)]
HeatResistance = Annotated[Quantity, Kind("a thermal resistance", "K/W", "1.4 K/W", 1e6, 1e-4)]
HeatCapacity = Annotated[Quantity, Kind("a heat capacity", "J/K", "40 J/K", 1e9, 1e-4)]
Area = Annotated[Quantity, Kind("an area", "m^2", "2.5 mm^2", 0.1)]
EnergyPerByte = Annotated[Quantity, Kind("an energy per byte", "J/B", "1.6 pJ/B", 1e-6)]
EnergyPerMac = Annotated[Quantity, Kind("an energy per MAC", "J/MAC", "0.1 pJ/MAC", 1e-6)]
EnergyPerOp = Annotated[Quantity, Kind("an energy per operation", "J/op", "0.6 pJ/op", 1e-6)]
AreaPerByte = Annotated[Quantity, Kind("an area per byte", "m^2/B", "0.3 um^2/B", 1e-6)]
AreaPerMac = Annotated[Quantity, Kind("an area per MAC unit", "m^2/MAC", "300 um^2/MAC", 1e-6)]
PowerPerArea = Annotated[Quantity, Kind("a power per area", "W/m^2", "20 mW/mm^2", 1e8)]
Cycles = Annotated[Quantity, Kind("a number of clock cycles", "cycle", "160 cycle", 1e15)]
CyclesPerElement = Annotated[Quantity, Kind("cycles per element", "cycle/element", "0.5 cycle/element", 1e12)]
BytesPerCycle = Annotated[Quantity, Kind("bytes per cycle", "B/cycle", "32 B/cycle", 1e6, 1e-3)]
MacsPerCycle = Annotated[Quantity, Kind("MACs per cycle", "MAC/cycle", "8 MAC/cycle", 1e9, 1e-3)]
ElementsPerCycle = Annotated[
    Quantity, Kind("elements per cycle", "element/cycle", "8 element/cycle", 1e9, 1e-3)
]
Ratio = Annotated[Quantity, _RATIO]
PositiveRatio = Annotated[Quantity, replace(_RATIO, least=1e-12)]
Fraction = Annotated[Quantity, Kind("a fraction", "", "0.5", 1.0)]
PositiveFraction = Annotated[Quantity, Kind("a fraction", "", "0.5", 1.0, 1e-12)]
PositiveCount = Annotated[Count, CountKind(1)]
TileCount = Annotated[Count, CountKind(1, 1024)]
NaturalCount = Annotated[Count, CountKind(0)]


@dataclass(frozen=True)
class Informative:
    """Mark of a field that no estimate reads: files may hold it, settings and axes may not."""

    reason: str
    """What the field is for, or what reads it; completes "it is informative: ..."."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the field with its mark."""
        return {**handler(core), "x-informative": self.reason}
