"""Time and memory of an estimate over the number of operators, for both engines: a table and a picture.

Run `python benchmarks/growth.py docs`: it writes docs/growth.md and docs/growth.svg. Each size runs in a
process of its own, kernels compiled before; processor time without start-up, memory beyond start-up.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

SIZES = {engine: (10, 100, 1_000, 10_000, 100_000) for engine in ("analytical", "event")}
TURNS = 3

_RUN = """
import json, resource, sys, time
import npusim
from npusim import DType, Editor

def chain(length):
    editor = Editor("chain")
    widths = [32 + 16 * (i * 7 % 5) for i in range(length + 1)]
    value = editor.input("x", (64, widths[0]), DType.FP16)
    for i in range(length):
        weights = editor.constant(f"w{i}", (widths[i], widths[i + 1]), DType.FP16)
        value = editor.matmul(value, weights, f"product{i}")
    editor.outputs.append(value)
    return editor.finish()

engine, length = sys.argv[1], int(sys.argv[2])
soc = npusim.load_soc("core-ultra-series2")
npusim.estimate(chain(3), soc, engine=engine)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
npusim.estimate(chain(length), soc, engine=engine)
seconds = time.process_time() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


def measure() -> dict[str, list[tuple[int, float, float]]]:
    """Return (operators, median s, MB) by engine."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for engine, sizes in SIZES.items():
        for size in sizes:
            turns = [
                json.loads(
                    subprocess.run(
                        [sys.executable, "-c", _RUN, engine, str(size)],
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
                for _ in range(TURNS if size < 100_000 else 1)
            ]
            seconds = sorted(turn[0] for turn in turns)[len(turns) // 2]
            found.setdefault(engine, []).append((size, seconds, max(turn[1] for turn in turns) / 1024))
            print(engine, *found[engine][-1], file=sys.stderr)
    return found


def picture(found: dict[str, list[tuple[int, float, float]]]) -> str:
    """Return a log-log plot of time over operators as SVG, with a straight line of slope 1 beside it."""
    width, height, left, bottom = 640, 400, 70, 350

    def place(operators: float, seconds: float) -> tuple[float, float]:
        return left + (math.log10(operators) - 1) / 4 * 540, bottom - (math.log10(seconds) + 3) / 5.5 * 320

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for power in range(1, 6):
        x, _ = place(10**power, 1e-3)
        parts.append(f'<path d="M{x:.0f} 30V{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="370" text-anchor="middle">{10**power:,}</text>')
    for power, name in ((-3, "1 ms"), (-2, "10 ms"), (-1, "0.1 s"), (0, "1 s"), (1, "10 s"), (2, "100 s")):
        _, y = place(10, 10**power)
        parts.append(f'<path d="M{left} {y:.0f}H610" stroke="#ddd"/>')
        parts.append(f'<text x="62" y="{y + 4:.0f}" text-anchor="end">{name}</text>')
    parts.append('<text x="340" y="392" text-anchor="middle">operators of a chain of matrix products</text>')
    parts.append(
        '<text x="340" y="18" text-anchor="middle">processor time of an estimate, core-ultra-series2</text>'
    )
    (x1, y1), (x2, y2) = place(100, 2e-3), place(100_000, 2)
    parts.append(f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" stroke="#999" stroke-dasharray="5 4"/>')
    parts.append(f'<text x="{x2 - 6:.0f}" y="{y2 + 26:.0f}" text-anchor="end" fill="#777">slope 1</text>')
    for (engine, rows), (colour, below) in zip(
        found.items(), (("#0072b2", 22), ("#d55e00", -8)), strict=True
    ):
        points = [place(size, seconds) for size, seconds, _ in rows]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(
            f'<text x="{x - 8:.0f}" y="{y + below:.0f}" text-anchor="end" fill="{colour}">{engine}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def slope(rows: list[tuple[int, float, float]], column: int) -> float:
    """Return the slope of the last two decades on logarithmic axes."""
    (n1, *a), (n2, *b) = rows[-3], rows[-1]
    return math.log(b[column] / a[column]) / math.log(n2 / n1)


def page(found: dict[str, list[tuple[int, float, float]]]) -> str:
    """Return the page with the table and the picture."""
    lines = [
        "# How an estimate grows with the network", "",
        "A chain of matrix products of five widths on `core-ultra-series2`; processor time without start-up,",
        "kernels compiled before;",
        "memory beyond start-up. Made by `python benchmarks/growth.py docs`.", "",
        "![time over operators](growth.svg)", "",
        "| operators | " + " | ".join(f"{engine}, s | MB" for engine in found) + " |",
        "| ---: |" + " ---: | ---: |" * len(found),
    ]  # fmt: skip
    for rows in zip(*found.values(), strict=True):
        lines.append(f"| {rows[0][0]:,} | " + " | ".join(f"{s:.3g} | {mb:.3g}" for _, s, mb in rows) + " |")
    lines.append("")
    for engine, rows in found.items():
        slopes = f"{slope(rows, 0):.2f} in time, {slope(rows, 1):.2f} in memory"
        lines.append(f"Slope of the last two decades, {engine}: {slopes}.")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    result = measure()
    (folder / "growth.svg").write_text(picture(result), encoding="utf-8")
    (folder / "growth.md").write_text(page(result), encoding="utf-8")
