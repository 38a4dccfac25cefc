"""Write docs/fronts.svg and the tables of docs/silicon.md: which values two fronts hold of each axis.

    python scripts/fronts_page.py

The studies stand in examples/architect.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import npusim
from npusim.explore.fronts import Front
from npusim.reporting.exploration import shown_value

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "silicon.md", ROOT / "docs" / "fronts.svg"
BEGIN, END = "<!-- fronts -->", "<!-- end of fronts -->"
STUDIES = ("space.yaml", "space2.yaml")
_ROW, _LEFT, _WIDTH, _STUDY, _TALL = 26, 190, 560, 300, 14
_COLOURS = ("#2c5f8a", "#c9d6e2")


def _bars(front: Front, top: int) -> list[str]:
    """Return the picture of one study: a row per axis, a bar per value as wide as its share of the front."""
    rows = [row for i, row in enumerate(front.rows) if front.stands_in[i] == i]
    parts = [f'<text x="10" y="{top}" font-weight="bold">{front.title}: {len(rows)} distinct points</text>']
    for number, axis in enumerate(front.axes):
        y = top + 14 + number * _ROW
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end">{axis}</text>')
        values = sorted(Counter(row[axis] for row in rows).items(), key=lambda item: item[0])
        x = float(_LEFT)
        for value, count in values:
            wide, words = _WIDTH * count / len(rows), shown_value(axis, value, front.units)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_TALL}" stroke="white" '
                f'fill="{_COLOURS[1]}"><title>{words}: {count}</title></rect>'
            )
            anchor = f'<text x="{x + 3:.1f}" y="{y + 11}" fill="{_COLOURS[0]}">'
            shown = words if wide > 6 * len(words) else words[: int(wide / 6) - 1] + "…"
            parts.append(f"{anchor}{shown}</text>")
            x += wide
    return parts


def _table(front: Front) -> list[str]:
    """Return the table of one study: the best points and the knee."""
    rows = {f"least {name}": min(front.rows, key=lambda row, n=name: row[n]) for name in front.minimise}
    rows["knee"] = front.knee
    names = [*front.minimise, *front.axes]
    lines = [f"**{front.title}**: {front.front} points on the front of {front.points:,}", ""]
    lines += [f"| | {' | '.join(rows)} |", f"| --- |{' ---: |' * len(rows)}"]
    for name in names:
        cells = " | ".join(shown_value(name, row[name], front.units) for row in rows.values())
        lines.append(f"| {name} | {cells} |")
    return [*lines, "", *(f"{note[0].upper()}{note[1:]}." for note in front.notes), ""]


def main() -> None:
    """Sweep both studies and write both files."""
    os.chdir(ROOT / "examples" / "architect")
    with tempfile.TemporaryDirectory() as folder:
        fronts = [npusim.pareto(npusim.sweep(study, f"{folder}/{study}")) for study in STUDIES]
    parts = [part for i, front in enumerate(fronts) for part in _bars(front, 24 + i * _STUDY // 4 * 3)]
    size = f'viewBox="0 0 {_LEFT + _WIDTH + 10} {24 + 2 * _STUDY // 4 * 3}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    PICTURE.write_text("\n".join([head, *parts, "</svg>\n"]), encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    lines = [line for front in fronts for line in _table(front)]
    text = "\n".join([f"{before}{BEGIN}", "", *lines, f"{END}{rest.partition(END)[2]}"])
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
