"""Numbers and cells as engineers write them: three digits, a prefix of a thousand, the unit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from npusim.metrics import FORMATS, METRICS, unit_of
from npusim.rounding import factor, factors, last_digit, last_digit_of_rate, rounded_to

__all__ = ["engineering", "factor", "factors", "last_digit", "last_digit_of_rate", "percent"]

_SHARES = ("agreement", "utilisation", "share", "change", "same_answers")
_FACTORS = ("speedup", "gain", "step_")  # parts of the keys of factors

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNIT_AT_END = re.compile(r"_(per_s|per_j|js|s|j|w|bytes|mm2)$")
_PARTS = re.compile(r"\b(cpu|dma|dpu|dram|dsp|gpu|mpe|npu|soc|sram)\b")
_OWN_INTERVALS = {"speedup_throughput": "speedup", "step_speedup": "step"}
MOST_IN_CELL = 3
"""Values of a list that a cell shows."""
_PREFIXES = {
    -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P",
}  # fmt: skip
_SMALLEST, _LARGEST = min(_PREFIXES), max(_PREFIXES)


def engineering(value: float, unit: str, last: int | None = None) -> str:
    """Return a quantity with three significant digits, or as many as it bears, and a prefix.

    Parameters
    ----------
    value : float
        In the unit itself: seconds, joules, bytes.
    unit : str
        What to write after the prefix; empty for what is counted, ``/s`` for a rate of it.
    last : int, optional
        The last digit that it bears; see `last_digit`.

    Returns
    -------
    str
        Such as ``1.23 ms``, ``14.7 MB``, ``812 /s``; ``-`` for what is no finite number.

    Examples
    --------
    >>> engineering(0.00123456, "s"), engineering(14.7e6, "B"), engineering(0.3571, "/s")
    ('1.23 ms', '14.7 MB', '0.357 /s')
    >>> engineering(0.0330, "s", last_digit((0.012, 0.081)))
    '33 ms'
    """
    if not math.isfinite(value):
        return "-"
    if last is None and abs(value) < 1000 and value == int(value):
        return f"{int(value)} {unit}".strip()  # a count: 12 B, not 12.0 B
    # Round first: 999.96 is 1000 in three digits, and takes the next prefix.
    rounded, place = rounded_to(value, last)
    if not rounded:
        return f"0 {unit}".strip()
    exponent = math.floor(math.log10(abs(rounded)) / 3 + 1e-12) * 3
    exponent = min(max(exponent, _SMALLEST), _LARGEST)
    if exponent < 0 and unit.startswith("/"):
        return f"{rounded:.{max(0, -place)}f} {unit}"  # m/s would read as metres
    decimals = max(0, exponent - place)
    return f"{rounded / 10.0**exponent:.{decimals}f} {_PREFIXES[exponent]}{unit}".strip()


def with_bounds(value: float, unit: str, interval: tuple[float, float] | None) -> str:
    """Return a quantity to its last significant digit, with its interval where it has one.

    Examples
    --------
    >>> with_bounds(0.0736, "J", (0.031, 0.223)), with_bounds(2.0, "W", None)
    ('70 mJ [30 mJ to 220 mJ]', '2 W')
    """
    bounds = (value, *(interval or ()))
    shown, *ends = (engineering(bound, unit, last_digit(interval)) for bound in bounds)
    return f"{shown} [{ends[0]} to {ends[1]}]" if len({*ends}) == 2 else shown


def percent(part: float) -> str:
    """Return a share as whole percent, but tenths where it is small: ``48 %``, ``0.3 %``.

    Examples
    --------
    >>> percent(0.483), percent(0.0031), percent(1e-6), percent(0.0)
    ('48 %', '0.3 %', '<0.1 %', '0 %')
    """
    if not math.isfinite(part):
        return "-"
    hundredths = part * 100
    if 0 < hundredths < 0.05:
        return "<0.1 %"
    return f"{hundredths:.1f} %" if 0 < abs(hundredths) < 0.95 else f"{hundredths:.0f} %"


def quantity_unit(key: str) -> str:
    """Return the unit of a quantity from its key: `x` for a factor, empty for a count or a share."""
    name = key.rpartition(".")[2]
    if name.endswith("macs"):
        return "MAC"
    return unit_of(key) or ("x" if any(word in name for word in _FACTORS) else "")


def quantity(key: str, value: float, last: int | None = None) -> str:
    """Return a number as pages write it: digits, prefix and unit follow from its key.

    Parameters
    ----------
    last : int, optional
        The last digit that it bears; see `last_digit`.

    Examples
    --------
    >>> quantity("latency_s", 0.00123456), quantity("accuracy", 0.8123), quantity("points", 1270)
    ('1.23 ms', '81.2 %', '1,270')
    """
    unit, name = quantity_unit(key), key.rpartition(".")[2]
    if name in FORMATS:
        return FORMATS[name].format(value)
    if unit == "x":
        return factor(value, last)
    if name.endswith("accuracy"):
        return f"{100 * value:.1f} %"
    if name.endswith(_SHARES) and abs(value) <= 1.0:
        return percent(value)
    if unit:
        return engineering(value, unit, last)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a table: shown with three digits, kept whole for CSV."""

    value: Any
    """A number in base units, or several; None shows nothing."""
    unit: str = ""
    shown: str | None = None
    """Text in place of three digits and a prefix."""

    def __str__(self) -> str:
        if self.shown is not None or not isinstance(self.value, int | float):
            return self.shown or ""
        return engineering(self.value, self.unit)


Cell: TypeAlias = "str | Amount | RenderableType"
"""What a table shows: words on the left, amounts on the right; a bar is drawn on the terminal alone."""


def flattened(record: Mapping[str, Any] | BaseModel, prefix: str = "") -> dict[str, Any]:
    """Return a record with the keys of its parts among its own, as `part.key`."""
    flat: dict[str, Any] = {}
    values = record.model_dump(mode="json") if isinstance(record, BaseModel) else record
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            flat[f"{prefix}{key}"] = f"{len(value)} entries"
        else:
            flat[prefix + key] = value
    return flat


def worded(key: str) -> str:
    """Return the words for a key: without its unit, blanks in place of joints.

    Examples
    --------
    >>> worded("input_bytes"), worded("throughput_per_s"), worded("costs.npu.latency_s")
    ('input', 'throughput', 'costs NPU latency')
    """
    if key in METRICS:
        return METRICS[key].title
    words = _UNIT_AT_END.sub("", key).replace("_", " ").replace(".", " ")
    return _PARTS.sub(lambda match: match[0].upper(), words)


def interval_key(key: str) -> str:
    """Return the key of a value's interval.

    Examples
    --------
    >>> interval_key("latency_s"), interval_key("gain")
    ('latency_interval_s', 'gain_interval')
    """
    key = _OWN_INTERVALS.get(key, key)
    unit = _UNIT_AT_END.search(key)
    return f"{key[: unit.start()]}_interval{unit[0]}" if unit else f"{key}_interval"


def cell(key: str, value: Any, last: int | None = None) -> Cell:
    """Return a value as a cell: a number with three digits and the unit that the end of its key says.

    Parameters
    ----------
    last : int, optional
        The last digit that it bears; see `npusim.rounding.last_digit`.
    """
    unit = quantity_unit(key)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return Amount(value, unit, quantity(key, value, last))
    if isinstance(value, list | tuple) and value and all(isinstance(v, int | float) for v in value):
        if len(value) == 2 and "interval" in key:
            return span(value, unit)
        several = f"{len(value)} values" if len(value) > MOST_IN_CELL else ""
        return Amount(list(value), unit, several or " to ".join(quantity(key, float(v), last) for v in value))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if value is None:
        return Amount(None, unit) if unit and "interval" not in key and unit != "x" else ""
    return "" if isinstance(value, dict) else str(value)


def part(value: float | None) -> Cell:
    """Return a share as a cell."""
    return "" if value is None else Amount(value, "", percent(value))


def times(value: float | None, last: int | None = None) -> Cell:
    """Return a factor as a cell, to the digit that it bears."""
    return "" if value is None else Amount(value, "x", factor(value, last))


def span(interval: Sequence[float] | None, unit: str = "s") -> Cell:
    """Return an interval as a cell, to the digit that it bears; its unit once where both ends share it."""
    if interval is None:
        return ""
    low, high = interval
    if unit == "x":
        return Amount([low, high], unit, factors((low, high)))
    if not unit:
        return Amount([low, high], unit, f"{low:.3g} to {high:.3g}")
    first, last = (engineering(bound, unit, last_digit((low, high))) for bound in (low, high))
    number, first_unit = first.split()
    shown = f"{number}-{last}" if last.endswith(f" {first_unit}") else f"{first}-{last}"
    return Amount([low, high], unit, shown)
