"""Unit factors to SI: a short list for the spellings data sheets use, and pint for the rest.

The list is there for speed alone: importing pint and building its registry takes 0.4 s, a third of what a
whole estimate may take, and a file in the usual spellings (``1.85 GHz``, ``pJ/B``) does not need it. A
test holds the list equal to pint.

Bytes are the base of data, and what is counted (cycles, MACs, operations, elements) keeps its own
dimension, so that ``pJ/MAC`` cannot be mistaken for ``pJ/B``.
"""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from typing import Any

NUMBER_PATTERN = r"(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?"
"""An unsigned decimal number; the two digits of exponent keep every product finite."""

_QUANTITY = re.compile(rf"\s*([+-]?{NUMBER_PATTERN})(?![0-9.])\s*(.*?)\s*", re.DOTALL)
_TERM = r"[A-Za-zµμ°%]{1,24}(?:(?:\^|\*\*) ?-?[0-9]|[²³])?"
_UNIT = re.compile(rf"{_TERM}(?: ?[*/·] ?{_TERM}| {_TERM}){{0,6}}")
"""Units that pint may see: named, with one-digit exponents. ``9**9**9`` would keep it busy for ever."""

_COUNTED = ("cycle", "MAC", "op", "element")
_PREFIXES = {
    "T": "1e12", "G": "1e9", "M": "1e6", "k": "1e3", "": "1",
    "m": "1e-3", "u": "1e-6", "µ": "1e-6", "n": "1e-9", "p": "1e-12", "f": "1e-15",
    "Ki": str(2**10), "Mi": str(2**20), "Gi": str(2**30), "Ti": str(2**40),
}  # fmt: skip
_USUAL = {
    "Hz": ("", "k", "M", "G"),
    "B": ("", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"),
    "s": ("", "m", "u", "µ", "n", "p"),
    "J": ("", "m", "u", "µ", "n", "p", "f"),
    "W": ("", "k", "m", "u", "µ"),
    "V": ("", "m"),
}


def _build_atoms() -> dict[str, tuple[str, Decimal]]:
    """Return each usual symbol with its base symbol and its worth in that base."""
    atoms = {
        prefix + base: (base, Decimal(_PREFIXES[prefix]))
        for base, usual in _USUAL.items()
        for prefix in usual
    }
    for prefix in ("", "m", "u", "µ", "n"):
        atoms[f"{prefix}m^2"] = ("m^2", Decimal(_PREFIXES[prefix]) ** 2)
    atoms.update({name: (name, Decimal(1)) for name in _COUNTED})
    atoms.update({"": ("", Decimal(1)), "%": ("", Decimal("0.01")), "bit": ("B", Decimal("0.125"))})
    return atoms


_ATOMS = _build_atoms()


def split_number(text: str) -> tuple[Decimal, str] | None:
    """Return number and unit of a text such as ``1.85 GHz``, or None where it opens with no number."""
    match = _QUANTITY.fullmatch(text)
    return (Decimal(match[1]), match[2]) if match else None


def spellings(unit: str) -> list[str]:
    """Return the usual spellings of a unit, for example Hz, kHz, MHz and GHz for ``Hz``."""
    top, slash, bottom = unit.partition("/")
    return [symbol + slash + bottom for symbol, (base, _) in _ATOMS.items() if base == top]


def unit_factor(unit: str, target: str) -> Decimal | None:
    """Return what one `unit` is worth in `target`, or None where it is no unit of that dimension.

    Parameters
    ----------
    unit : str
        A unit as written, for example ``GB/s``.
    target : str
        The SI unit wanted, for example ``B/s``.

    Returns
    -------
    Decimal or None
        The factor: 1e9 for the example.
    """
    known = _usual_factor(unit, target)
    return known if known is not None else _pint_factor(unit, target)


def _usual_factor(unit: str, target: str) -> Decimal | None:
    if unit == target:
        return Decimal(1)
    top, _, bottom = unit.partition("/")
    base_top, _, base_bottom = target.partition("/")
    above, below = _ATOMS.get(top.strip()), _ATOMS.get(bottom.strip())
    if above is None or below is None or (above[0], below[0]) != (base_top, base_bottom):
        return None
    return above[1] / below[1]


@functools.lru_cache(maxsize=256)
def _pint_factor(unit: str, target: str) -> Decimal | None:
    if not _UNIT.fullmatch(unit):
        return None
    try:
        registry = _registry()
        factor = float(registry.Quantity(1.0, registry.parse_units(unit)).to(registry.parse_units(target)).m)
    except Exception:  # pint raises its own, tokenizer's and arithmetic errors for what is no unit
        return None
    return Decimal(repr(factor)) if 0 < factor < float("inf") else None


@functools.lru_cache(maxsize=1)
def _registry() -> Any:
    """Return pint's registry, built when the first unusual unit is met."""
    import pint

    registry: Any = pint.UnitRegistry(on_redefinition="ignore")
    for name in _COUNTED:
        registry.define(f"{name} = [npusim_{name}]")
    return registry
