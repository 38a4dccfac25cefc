"""Writes fitted numbers into a data sheet; comments, order and blanks stay."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from npusim.errors import ConfigError
from npusim.units import format_quantity, split_number, unit_factor

_WIDEST = 10.0
"""Widest error bar that is written; a wider one says no more."""


@dataclass(frozen=True)
class FittedNumber:
    """One fitted number of a data sheet."""

    path: str
    """Its path, as in `--set`: `npu.dma.model.start_cycles`."""
    value: float
    """In `unit`."""
    unit: str
    """SI unit; empty for a plain number."""
    relative_sigma: float | None
    """One standard deviation over the value; None where the number was chosen, not fitted."""
    source: str
    """Source to be written."""
    on_silicon: bool
    """Whether any measured row affects it."""


def with_numbers(text: str, numbers: Iterable[FittedNumber]) -> str:
    """Return a SoC file with fitted numbers; a number that is written the same stays, source and all.

    Raises
    ------
    ConfigError
        Where the file lacks a number, or its value and source.
    """
    edits: list[tuple[int, int, str]] = []
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for number in numbers:
        edits += _edits(_node(root, number.path), number)
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def as_written(number: FittedNumber) -> tuple[str, str]:
    """Return value and uncertainty as text: four digits with a unit, two digits in percent."""
    value = format_quantity(float(f"{number.value:.4g}"), number.unit)
    if number.relative_sigma is None:
        return value, ""
    return value, f"{float(f'{100 * min(number.relative_sigma, _WIDEST):.2g}'):g} %"


def quoted(text: str) -> str:
    """Return a text in double quotes, with escapes."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _node(root: Any, path: str) -> Any:
    keys = path.split(".")
    node = root
    # A device's numbers stand below `devices`; paths leave that out, as `--set` does.
    for key in keys if _child(root, keys[0]) is not None else ("devices", *keys):
        node = _child(node, key)
        if node is None:
            raise ConfigError(
                "no such number", key=path, allowed="a number that the data sheet holds already"
            )
    if (
        not isinstance(node, yaml.MappingNode)
        or _child(node, "value") is None
        or _child(node, "source") is None
    ):
        allowed = "{value: ..., source: ..., uncertainty: ...}"
        raise ConfigError("a number without source", line=node.start_mark.line + 1, key=path, allowed=allowed)
    return node


def _child(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _edits(node: Any, number: FittedNumber) -> list[tuple[int, int, str]]:
    """Return the edits of one number: (begin, end, new text)."""
    value, sigma = as_written(number)
    held, source, spread = (_child(node, key) for key in ("value", "source", "uncertainty"))
    edits = []
    if not _same(held.value, value, number.unit):
        edits.append((*_span(held), value))
    # A longer note about the same source stays.
    if not source.value.startswith(number.source):
        edits.append((*_span(source), quoted(number.source)))
    if spread is not None:
        if not _same(spread.value, sigma or "0 %", ""):
            edits.append((*_span(spread), sigma or "0 %"))
    elif sigma:
        end = node.end_mark.index - 1
        edits.append((end, end, f", uncertainty: {sigma}"))
    return edits


def _same(held: str, written: str, unit: str) -> bool:
    """Return whether two texts are equal quantities: 4096 B and 4.096 kB, 110 % and 1.1e+02 %."""
    first, second = (_value(text, unit) for text in (held, written))
    if first is None or second is None:
        return held == written
    return math.isclose(first, second, rel_tol=1e-9)


def _value(text: str, unit: str) -> float | None:
    """Return a text's value in a unit; None where it has another unit."""
    split = split_number(text)
    factor = unit_factor(split[1], unit) if split is not None else None
    return None if split is None or factor is None else float(split[0] * factor)


def _span(node: Any) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index
