"""Numbers as engineers write them: three digits, a prefix of a thousand, the unit."""

from __future__ import annotations

import math

from npusim.rounding import factor, factors, last_digit, last_digit_of_rate, rounded_to

__all__ = ["engineering", "factor", "factors", "last_digit", "last_digit_of_rate", "percent"]

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
