"""Writes a calibrated SoC: the parent's text with the fitted numbers, and what they rest on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from npusim.arch import Calibration
from npusim.calibrate.data_sheet import FittedNumber, with_numbers

__all__ = ["fitted_text", "source_after"]

_BEFORE = "; before "


def source_after(measured: str, before: str, source: str) -> str:
    """Return the source of a fitted number: what was measured, and where the number stood before.

    Parameters
    ----------
    measured : str
        What it was fitted to.
    before : str
        Its value before, with unit.
    source : str
        Its source before; of a number that was calibrated already, the one it had at first is kept.
    """
    if source.startswith("measured: ") and _BEFORE in source:
        return f"{_clean(measured)}{_BEFORE}{source.split(_BEFORE, 1)[1]}"
    return _clean(f"{measured}{_BEFORE}{before}, {source}")


def _clean(text: str) -> str:
    """Return a text that can stand between double quotes on one line."""
    return re.sub(r"\s+", " ", text.replace("\\", "/").replace('"', "'"))


def fitted_text(
    text: str, numbers: Sequence[FittedNumber], calibration: Calibration, name: str | None = None
) -> str:
    """Return a SoC file with fitted numbers and its calibration.

    Parameters
    ----------
    text : str
        The parent's file; comments, order and blanks stay.
    numbers : sequence of FittedNumber
    calibration : Calibration
        Takes the place of the one that the file has, if any.
    name : str, optional
        New short name.
    """
    text = with_numbers(text, numbers)
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    found = {key.value: (key, value) for key, value in root.value}
    edits: list[tuple[int, int, str]] = []
    block = _block(calibration)
    if "calibration" in found:
        key, value = found["calibration"]
        edits.append((key.start_mark.index, value.end_mark.index, block))
    else:
        edits.append((len(text), len(text), ("" if text.endswith("\n") else "\n") + "\n" + block))
    if name is not None:
        value = found["name"][1]
        edits.append((value.start_mark.index, value.end_mark.index, _quoted(name)))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _block(calibration: Calibration) -> str:
    errors = ", ".join(f"{name}: {share:.4f}" for name, share in calibration.model_error.items())
    lines = [
        "calibration:                                    # written by `npusim calibrate`",
        f"  device: {calibration.device}",
        f"  chip: {_quoted(calibration.chip)}",
        f"  date: {_quoted(calibration.date)}",
        f"  rows: {calibration.rows}",
        f"  noise: {calibration.noise:.4f}",
        f"  model_error: {{{errors}}}",
    ]
    if calibration.parameters:
        lines += ["  parameters:", *(f"    - {path}" for path in calibration.parameters), "  correlation:"]
        lines += [f"    - [{_numbers(row)}]" for row in calibration.correlation]
    return "\n".join(lines) + "\n"


def _numbers(row: Sequence[float]) -> str:
    return ", ".join(f"{float(value):.3f}".replace("-0.000", "0.000") for value in row)


def _quoted(text: str) -> str:
    return f'"{_clean(text)}"'
