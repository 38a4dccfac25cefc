"""Writes fitted numbers into a data sheet; comments, order and blanks stay."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from npusim.errors import ConfigError
from npusim.units import format_quantity, split_number, unit_factor

Edit = tuple[int, int, str]
"""Begin, end and new text of a part of a file."""
_WIDEST = 10.0  # widest error bar that is written; a wider one says no more


@dataclass(frozen=True)
class FittedNumber:
    """One fitted number of a data sheet, in its SI unit (empty for a plain number)."""

    path: str  # its path, as in `--set`: `npu.dma.model.start_cycles`
    value: float
    unit: str
    relative_sigma: float | None
    """One standard deviation over the value; None where the number was chosen, not fitted."""
    source: str
    on_silicon: bool  # whether any measured row affects it


def with_numbers(text: str, numbers: Iterable[FittedNumber]) -> str:
    """Return a SoC file with fitted numbers; a number that is written the same stays, source and all.

    Raises
    ------
    ConfigError
        Where the file lacks a number, or its value and source.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return edited(text, [edit for number in numbers for edit in _edits(_node(root, number.path), number)])


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with parts replaced."""
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def paths_held(text: str, paths: Iterable[str]) -> set[str]:
    """Return the paths at which a SoC file holds a number with its source."""
    root, held = yaml.compose(text, Loader=yaml.SafeLoader), set()
    for path in paths:
        with suppress(ConfigError):
            _node(root, path)
            held.add(path)
    return held


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
    """Return the node of a number; refuse a missing number, or one without source."""
    keys = path.split(".")
    node = root
    # A device's numbers stand below `devices`; paths leave that out, as `--set` does.
    for key in keys if _child(root, keys[0]) is not None else ("devices", *keys):
        node = _child(node, key)
        if node is None:
            allowed = "a number that the data sheet holds already"
            raise ConfigError("no such number", key=path, allowed=allowed)
    if _child(node, "value") is None or _child(node, "source") is None:
        allowed = "{value: ..., source: ..., uncertainty: ...}"
        raise ConfigError("a number without source", line=node.start_mark.line + 1, key=path, allowed=allowed)
    return node


def _child(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _edits(node: Any, number: FittedNumber) -> Iterator[Edit]:
    """Yield the edits of one number."""
    value, sigma = as_written(number)
    held, source, spread = (_child(node, key) for key in ("value", "source", "uncertainty"))
    if not _same(held.value, value, number.unit):
        yield held.start_mark.index, held.end_mark.index, value
    # A longer note about the same source stays.
    if not source.value.startswith(number.source):
        yield source.start_mark.index, source.end_mark.index, quoted(number.source)
    if spread is not None and not _same(spread.value, sigma or "0 %", ""):
        yield spread.start_mark.index, spread.end_mark.index, sigma or "0 %"
    if spread is None and sigma:
        end = node.end_mark.index - 1
        yield end, end, f", uncertainty: {sigma}"


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
