"""How time and memory of an estimate and of a sweep grow: tables and pictures with both axes logarithmic.

Processor time of the work without start-up, memory beyond start-up, each size in a process of its own. `make
bench ROWS=growth` writes docs/growth.svg and the section of docs/performance.md.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_ENGINES = ("analytical", "event")
_LIMIT_S = 120


class Axis(NamedTuple):
    """What grows."""

    name: str
    what: str
    sizes: dict[str, tuple[int, ...]]
    """By engine."""


AXES = (
    Axis(
        "operators",
        "operators of a chain of matrix products",
        {"analytical": (100, 1_000, 10_000, 30_000), "event": (100, 1_000, 10_000)},
    ),
    Axis(
        "nodes",
        "nodes of a graph convolutional network",
        {engine: (2_000, 20_000, 200_000) for engine in _ENGINES},
    ),
    Axis("points", "points of a sweep of GCN on Cora", {"analytical": (10_000, 100_000, 1_000_000)}),
    Axis(
        "requests",
        "requests in flight of GCN on Cora",
        {"analytical": (10, 100, 1_000, 10_000), "event": (10, 100, 1_000)},
    ),
)
Found = dict[str, dict[str, list[list[float]]]]
"""Axis to engine to rows of (size, s, MB)."""

_RUN = """
import json, resource, sys, time
import npusim
from npusim import DType, Editor

name, engine, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
soc = npusim.load_soc("core-ultra-series2", ["dram.capacity=10000GB"])

def chain(length):
    editor = Editor("chain")
    widths = [32 + 16 * (i * 7 % 5) for i in range(length + 1)]
    value = editor.input("x", (64, widths[0]), DType.FP16)
    for i in range(length):
        weights = editor.constant(f"w{i}", (widths[i], widths[i + 1]), DType.FP16)
        value = editor.matmul(value, weights, f"product{i}")
    editor.outputs.append(value)
    return editor.finish()

def convolutions(nodes):
    editor = Editor("convolutions")
    value = editor.input("x", (nodes, 1433), DType.FP16)
    edges = editor.constant("edges", (nodes, nodes), DType.FP16)
    for i, (inputs, outputs) in enumerate(((1433, 64), (64, 7))):
        weights = editor.constant(f"w{i}", (inputs, outputs), DType.FP16)
        value = editor.matmul(edges, editor.matmul(value, weights, f"transform{i}"), f"aggregate{i}")
    editor.outputs.append(value)
    return editor.finish()

def sweep_of(points):
    from npusim.explore.campaign import Campaign
    from npusim.explore.spaces import Space
    axes = {"dram.bandwidth": {"from": "30GB/s", "to": "270GB/s", "count": 100},
            "npu.dpu.clock": {"from": "1GHz", "to": "2GHz", "count": points // 100}}
    space = {"schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "axes": axes}
    campaign = Campaign(Space.model_validate(space))
    return lambda: [campaign.totals(i, min(i + 65536, points)) for i in range(0, points, 65536)][:0]

def work_of(size):
    if name == "points":
        return sweep_of(size)
    if name == "requests":
        run = {"workload": "gcn-cora", "techniques": "stagr", "hint": "throughput", "requests": size}
        network = run.pop("workload")
        return lambda: npusim.estimate(network, soc, engine=engine, **run)
    network = (chain if name == "operators" else convolutions)(size)
    return lambda: npusim.estimate(network, soc, engine=engine)

work_of(200 if name == "points" else 3)()
work = work_of(size)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
work()
seconds = time.process_time() - start
print(json.dumps([size, seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024]))
"""


def measure(environment: dict[str, str]) -> Found:
    """Return time and memory of all sizes; a size that takes too long ends its engine's row."""
    # Compiled code is loaded by a process's first, small run, which is not measured.
    environment = {**environment, "NPUSIM_KERNELS": "compiled"}
    found: Found = {}
    for axis in AXES:
        for engine, sizes in axis.sizes.items():
            rows = found.setdefault(axis.name, {}).setdefault(engine, [])
            command = [sys.executable, "-c", _RUN, axis.name, engine]
            # What is not compiled yet is compiled here, however long that takes.
            subprocess.run([*command, str(sizes[0])], capture_output=True, check=True, env=environment)
            for size in sizes:
                try:
                    done = subprocess.run(
                        [*command, str(size)],
                        capture_output=True, text=True, check=True, timeout=_LIMIT_S, env=environment,
                    )  # fmt: skip
                except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                    said = (getattr(error, "stderr", None) or "").strip().splitlines()[-1:]
                    print(f"{axis.name} {engine} {size:,}: {type(error).__name__} {said}", file=sys.stderr)
                    break
                rows.append(json.loads(done.stdout))
    return found


def slope(rows: list[list[float]], column: int) -> float | None:
    """Return the slope between the first size that can be measured well and the last; None without two."""
    least = 0.02 if column == 1 else 2.0
    good = [row for row in rows if row[column] >= least]
    if len(good) < 2:
        return None
    first, last = good[0], good[-1]
    return math.log(last[column] / first[column]) / math.log(last[0] / first[0])


_COLOURS = {"analytical": "#0072b2", "event": "#d55e00"}
_WIDTH, _HEIGHT = 330, 250


def _panel(axis: Axis, rows: dict[str, list[list[float]]], column: int, left: int, top: int) -> list[str]:
    """Return one plot of time (column 1) or memory (column 2) over size, as parts of an SVG."""
    floor = 1e-3 if column == 1 else 0.1
    shown = {
        engine: [(row[0], max(floor, row[column])) for row in found]
        for engine, found in rows.items()
        if found
    }
    points = [point for line in shown.values() for point in line]
    if not points:
        return []
    logarithms = [[math.log10(point[i]) for point in points] for i in (0, 1)]
    spans = [(math.floor(min(one)), math.ceil(max(one))) for one in logarithms]
    (x0, x1), (y0, y1) = [(low, max(low + 1, high)) for low, high in spans]

    def place(size: float, value: float) -> tuple[float, float]:
        across = (math.log10(size) - x0) / (x1 - x0) * (_WIDTH - 90)
        up = (math.log10(value) - y0) / (y1 - y0) * (_HEIGHT - 80)
        return left + 60 + across, top + _HEIGHT - 45 - up

    unit = "processor time, s" if column == 1 else "memory, MB"
    parts = [f'<text x="{left + _WIDTH / 2:.0f}" y="{top + 22}" text-anchor="middle">{unit}</text>']
    parts.append(
        f'<text x="{left + _WIDTH / 2:.0f}" y="{top + _HEIGHT - 8}" text-anchor="middle">{axis.what}</text>'
    )
    for power in range(x0, x1 + 1):
        (x, low), (_, high) = place(10**power, 10**y0), place(10**power, 10**y1)
        parts.append(f'<path d="M{x:.0f} {low:.0f}V{high:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{low + 16:.0f}" text-anchor="middle">{10**power:,}</text>')
    for power in range(y0, y1 + 1):
        (x, y), (end, _) = place(10**x0, 10**power), place(10**x1, 10**power)
        parts.append(f'<path d="M{x:.0f} {y:.0f}H{end:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{10**power:g}</text>')
    # As steep as what grows with its work, through the largest of the first engine.
    size, value = next(iter(shown.values()))[-1]
    steps = min(math.log10(size) - x0, math.log10(value) - y0)
    (x, y), (end, top_y) = place(size / 10**steps, value / 10**steps), place(size, value)
    parts.append(f'<path d="M{x:.0f} {y:.0f}L{end:.0f} {top_y:.0f}" stroke="#999" stroke-dasharray="5 4"/>')
    for engine, line in shown.items():
        placed = [place(*point) for point in line]
        track = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{track}" fill="none" stroke="{_COLOURS[engine]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_COLOURS[engine]}"/>' for x, y in placed]
    return parts


def write_pictures(found: Found, folder: Path) -> None:
    """Write growth.svg: a row of two plots for each axis."""
    height = len(AXES) * _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{2 * _WIDTH}" height="{height}" fill="white"/>',
    ]
    for i, (engine, colour) in enumerate(_COLOURS.items()):
        parts.append(f'<text x="{60 + 130 * i}" y="20" fill="{colour}" font-size="13">{engine} engine</text>')
    parts.append('<path d="M330 16H370" stroke="#999" stroke-dasharray="5 4"/>')
    parts.append('<text x="378" y="20" fill="#777" font-size="13">in proportion (slope 1)</text>')
    for i, axis in enumerate(AXES):
        for column in (1, 2):
            parts += _panel(axis, found.get(axis.name, {}), column, (column - 1) * _WIDTH, 25 + i * _HEIGHT)
    (folder / "growth.svg").write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def section(found: Found) -> str:
    """Return the section of docs/performance.md."""
    lines = ["## How time and memory grow", "", "![time and memory over sizes](growth.svg)", ""]
    lines += ["Processor time of the work and memory beyond start-up, `core-ultra-series2`.", ""]
    lines += ["| what grows | engine | sizes | s | MB | slope in time | in memory |"]
    lines += ["| --- | --- | --- | --- | --- | ---: | ---: |"]
    for axis in AXES:
        for engine, rows in found.get(axis.name, {}).items():
            columns = [", ".join(f"{row[0]:,}" for row in rows)]
            columns += [", ".join(f"{row[i]:.3g}" for row in rows) for i in (1, 2)]
            slopes = [slope(rows, i) for i in (1, 2)]
            columns += ["" if one is None else f"{one:.2f}" for one in slopes]
            lines.append(f"| {axis.what} | {engine} | " + " | ".join(columns) + " |")
    note = "A slope is that between the first size that takes 20 ms or 2 MB and the last."
    return "\n".join([*lines, "", note, ""])
