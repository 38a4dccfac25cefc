"""Numbers as engineers write them: three digits, a prefix of a thousand, the unit."""

from __future__ import annotations

import math

_PREFIXES = {
    -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P",
}  # fmt: skip
_SMALLEST, _LARGEST = min(_PREFIXES), max(_PREFIXES)


def engineering(value: float, unit: str) -> str:
    """Return a quantity with three significant digits and a prefix.

    Parameters
    ----------
    value : float
        In the unit itself: seconds, joules, bytes.
    unit : str
        What to write after the prefix; empty for what is counted, ``/s`` for a rate of it.

    Returns
    -------
    str
        Such as ``1.23 ms``, ``14.7 MB``, ``812 /s``; ``-`` for what is no finite number.

    Examples
    --------
    >>> engineering(0.00123456, "s"), engineering(14.7e6, "B"), engineering(0.3571, "/s")
    ('1.23 ms', '14.7 MB', '0.357 /s')
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) < 1000 and value == int(value):
        return f"{int(value)} {unit}".strip()  # a count: 12 B, not 12.0 B
    # Round first: 999.96 is 1000 in three digits, and takes the next prefix.
    rounded = float(f"{value:.2e}")
    exponent = math.floor(math.log10(abs(rounded)) / 3 + 1e-12) * 3
    exponent = min(max(exponent, _SMALLEST), _LARGEST)
    if exponent < 0 and unit.startswith("/"):
        return f"{rounded:.3g} {unit}"  # m/s would read as metres
    mantissa = float(f"{rounded / 10.0**exponent:.3g}")  # 1e-7 / 1e-9 is a little less than 100
    return f"{_three_digits(mantissa)} {_PREFIXES[exponent]}{unit}".strip()


def _three_digits(mantissa: float) -> str:
    whole_digits = len(str(int(abs(mantissa))))
    return f"{mantissa:.{max(0, 3 - whole_digits)}f}"


def factor(ratio: float) -> str:
    """Return how many times more something is: ``1.93x``, ``12.4x``, ``0.08x``.

    Examples
    --------
    >>> factor(1.934), factor(12.44), factor(253.2), factor(0.0801)
    ('1.93x', '12.4x', '253x', '0.08x')
    """
    if not math.isfinite(ratio):
        return "-"
    decimals = 2 if ratio < 9.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:.{decimals}f}x"


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
