"""Bars as SVG, and what every study of the gallery does when it is run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

_LEFT, _WIDTH, _ROW, _TOP = 230, 380, 24, 40
_COLOUR, _MARKED = "#2c5f8a", "#c2571a"


class Study(NamedTuple):
    """What a study found."""

    sentence: str
    """Its conclusion, computed from the figures."""
    title: str
    """What the bars are, with their unit."""
    bars: Mapping[str, float]
    marked: str = ""
    """The bar that the sentence is about."""


def svg(study: Study) -> str:
    """Return horizontal bars, a row for each name."""
    longest = max(study.bars.values())
    height = _TOP + _ROW * len(study.bars) + 10
    size = f'viewBox="0 0 {_LEFT + _WIDTH + 90} {height}"'
    font = 'role="img" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    parts = [head, f"<title>{escape(study.sentence)}</title>"]
    parts.append(f'<text x="10" y="20" font-weight="bold">{escape(study.title)}</text>')
    for place, (name, value) in enumerate(study.bars.items()):
        y, wide = _TOP + _ROW * place, _WIDTH * value / longest
        colour = _MARKED if name == study.marked else _COLOUR
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{wide:.1f}" height="16" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + wide + 6:.1f}" y="{y + 13}">{value:.3g}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(study: Callable[[], Study], file: str) -> None:
    """Print the conclusion and write the picture into a folder: the first argument, else this one."""
    found = study()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (folder / f"{Path(file).stem}.svg").write_text(svg(found), encoding="utf-8")
    print(found.sentence)
