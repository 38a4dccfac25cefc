"""Write docs/soak.svg: memory after each round of mixed commands and lesson sessions in one process.

python scripts/soak_page.py            # runs tests/test_soak.py for half an hour
python scripts/soak_page.py 15         # for so many minutes
python scripts/soak_page.py curve.csv  # draws what NPUSIM_SOAK_CURVE=curve.csv has written
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "soak.svg"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 260, 62, 40, 24, 20
_STEP_MB, _STEP_MINUTES = 100, 5


def measured(minutes: float, file: Path) -> None:
    """Run the soak, which writes a line to a file after each round."""
    variables = {"NPUSIM_SOAK_MINUTES": str(minutes), "NPUSIM_SOAK_CURVE": str(file)}
    words = ["-m", "pytest", "-q", "-m", "slow", "tests/test_soak.py"]
    subprocess.run([sys.executable, *words], cwd=ROOT, env=os.environ | variables, check=True)


def curve(file: Path) -> list[tuple[float, float]]:
    """Return minutes and megabytes after each round."""
    with file.open(encoding="utf-8", newline="") as stream:
        return [(float(row["minutes"]), float(row["megabytes"])) for row in csv.DictReader(stream)]


def picture(points: list[tuple[float, float]]) -> str:
    """Return the curve as a picture, with memory from 0."""
    last, most = points[-1][0], max(megabytes for _, megabytes in points)
    width, height, bottom = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM, _HEIGHT - _BOTTOM
    track = " ".join(
        f"{_LEFT + width * minutes / last:.1f},{bottom - height * megabytes / most:.1f}"
        for minutes, megabytes in points
    )
    title = f"Resident memory (MB) over {len(points)} rounds in {last:.0f} minutes"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 14, title, "start"),
    ]
    for megabytes in range(0, int(most) + 1, _STEP_MB):
        y = bottom - height * megabytes / most
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{width}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, str(megabytes), "end"))
    for minutes in range(0, int(last) + 1, _STEP_MINUTES):
        parts.append(_text(_LEFT + width * minutes / last, bottom + 16, str(minutes), "middle"))
    parts.append(_text(_LEFT + width / 2, bottom + 32, "minutes", "middle"))
    parts.append(f'<polyline points="{track}" fill="none" stroke="#0b6e99" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{words}</text>'


def main() -> None:
    """Run the soak unless a curve is named, and draw it."""
    word = sys.argv[1] if len(sys.argv) > 1 else "30"
    with TemporaryDirectory() as folder:
        file = Path(word) if word.endswith(".csv") else Path(folder) / "curve.csv"
        if not word.endswith(".csv"):
            measured(float(word), file)
        points = curve(file)
    PICTURE.write_text(picture(points), encoding="utf-8")
    quarter = len(points) // 4
    early, late = (max(mb for _, mb in part) for part in (points[quarter : 2 * quarter], points[-quarter:]))
    print(f"{len(points)} rounds, {points[-1][0]:.1f} min: second quarter {early:.0f} MB, last {late:.0f} MB")


if __name__ == "__main__":
    main()
