"""Significant digits of a number: three, or fewer if its interval is wide."""

import math

_HUNDREDTHS = -2  # last digit of a factor without an interval


def last_digit(interval: tuple[float, float] | None) -> int | None:
    """Return the power of ten of the last significant digit of a value with an interval; None: no limit.

    This is the rule of the Particle Data Group (Review of Particle Physics, Introduction, "Rounding") for
    half the interval's width: it keeps two digits up to 354 in three digits, else one. Pages show a value and
    its bounds to this digit, and to one digit at least.

    Examples
    --------
    >>> last_digit((1.14, 1.36)), last_digit((16.8, 112.0)), last_digit(None)
    (-2, 1, None)
    """
    error = 0.0 if interval is None else abs(interval[1] - interval[0]) / 2.0
    if not 0.0 < error < math.inf:
        return None
    digits, _, exponent = f"{error:.2e}".partition("e")
    return int(exponent) - (float(digits) < 3.545)


def last_digit_of_rate(interval_s: tuple[float, float] | None) -> int | None:
    """Return the last significant digit of a rate (/s), the inverse of a time with an interval (s)."""
    return None if interval_s is None else last_digit((1.0 / interval_s[1], 1.0 / interval_s[0]))


def rounded_to(value: float, last: int | None) -> tuple[float, int]:
    """Return a value rounded to three digits, or to its last significant one, and the place of that digit."""
    leading = math.floor(math.log10(abs(value)) + 1e-12) if value else 0
    place = leading - 2 if last is None else min(max(last, leading - 2), leading)
    rounded = round(value / 10.0**place) * 10.0**place
    # A value rounded up to the next power of ten ends one place further left.
    carried = abs(rounded) * (1 + 1e-9) >= 10.0 ** (leading + 1) and place == leading - 2
    return rounded, place + carried


def factor(ratio: float, last: int | None = None) -> str:
    """Return a ratio as text, such as ``1.93x``; `last` is its last significant digit.

    Examples
    --------
    >>> factor(1.934), factor(12.44), factor(253.2), factor(0.0801)
    ('1.93x', '12.4x', '253x', '0.08x')
    >>> factor(45.5, last_digit((16.8, 112.0))), factor(0.0219, last_digit((0.009, 0.060)))
    ('50x', '0.022x')
    """
    if not math.isfinite(ratio):
        return "-"
    rounded, place = rounded_to(ratio, _HUNDREDTHS if last is None else last)
    return f"{rounded:.{max(0, -place)}f}x"


def factors(interval: tuple[float, float] | None) -> str:
    """Return the interval of a factor as text, to its last significant digit; empty if it has no width.

    Examples
    --------
    >>> factors((16.8, 112.0)), factors((1.14, 1.357)), factors((1.0, 1.0))
    ('20-110', '1.14-1.36', '')
    """
    last = last_digit(interval)
    if interval is None or last is None:
        return ""
    low, high = (factor(bound, last).removesuffix("x") for bound in interval)
    return "" if low == high else f"{low}-{high}"
