"""Write the table of SoCs of docs/mix.md, and docs/mix.svg: camera, language model and GNN on three SoCs.

python scripts/mix_page.py
"""

from __future__ import annotations

from math import log10
from pathlib import Path

import npusim
from npusim.reporting.engineering import engineering
from npusim.system.document import MixResult

ROOT = Path(__file__).parents[1]
PAGE, PICTURE, MIX = (
    ROOT / "docs" / "mix.md",
    ROOT / "docs" / "mix.svg",
    ROOT / "examples" / "camera-llm-gnn.yaml",
)
SOCS, SCHEDULERS = ("core-ultra-series1", "core-ultra-series2", "core-ultra-series3"), ("priority", "fifo")
BEGIN, END = "<!-- table: scripts/mix_page.py -->", "<!-- end of table -->"
COLOURS = ("#0072b2", "#e69f00")
_LEFT, _WIDTH, _ROW, _TOP = 150, 420, 16, 40
_LEAST_S, _MOST_S = 1e-3, 1e2
"""Ends of the logarithmic axis, in s."""


def row(result: MixResult) -> str:
    """Return the row of the table of a SoC under a scheduler."""
    camera, llm, gnn = result.streams
    npu = next(resource for resource in result.resources if resource.name == "npu")
    second = {relief.stream: relief.mean_s for relief in result.relief}
    cells = (
        result.soc,
        result.scheduler,
        f"{npu.utilisation:.0%}",
        engineering(camera.p99_s, "s"),
        f"{camera.missed_share:.2%}",
        engineering(llm.mean_s, "s"),
        engineering(gnn.mean_s, "s"),
        engineering(second[gnn.name], "s") if result.contended == "npu" else "-",
    )
    return f"| {' | '.join(cells)} |"


def table(results: list[MixResult]) -> list[str]:
    """Return the lines of the table."""
    names = (
        "SoC",
        "scheduler",
        "NPU busy",
        "camera p99",
        "missed frames",
        "LLM, mean",
        "GNN, mean",
        "GNN, second NPU",
    )
    return [f"| {' | '.join(names)} |", "| --- | --- |" + " ---: |" * 6, *map(row, results)]


def x_of(seconds: float) -> float:
    """Return the place of a time on the axis."""
    return _LEFT + _WIDTH * log10(seconds / _LEAST_S) / log10(_MOST_S / _LEAST_S)


def picture(results: list[MixResult]) -> str:
    """Return the 99th percentile of the camera by SoC and scheduler, with the deadline as a line."""
    height = _TOP + len(results) * (_ROW + 6) + 40
    line = x_of(results[0].streams[0].deadline_s or _MOST_S)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-weight="bold">99th percentile of the camera, deadline 33 ms</text>',
    ]
    for number, result in enumerate(results):
        y, colour = _TOP + number * (_ROW + 6), COLOURS[SCHEDULERS.index(result.scheduler)]
        camera = result.streams[0]
        end = x_of(camera.p99_s)
        label = f"{result.soc.removeprefix('core-ultra-')}, {result.scheduler}"
        value = f"{engineering(camera.p99_s, 's')}, {camera.missed_share:.1%} missed"
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{label}</text>',
            f'<circle cx="{end:.1f}" cy="{y + _ROW / 2}" r="6" fill="{colour}"/>',
            f'<text x="{max(end, line) + 12:.1f}" y="{y + 12}">{value}</text>',
        ]
    bottom = height - 34
    parts.append(f'<path d="M{line:.1f} {_TOP - 8}V{bottom}" stroke="#d55e00" stroke-dasharray="4 3"/>')
    parts.append(f'<path d="M{_LEFT} {bottom}h{_WIDTH}" stroke="#999"/>')
    for power in range(-3, 3):
        x = x_of(10.0**power)
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{engineering(10.0**power, "s")}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Simulate all, and write table and picture."""
    results = [npusim.mix(MIX, soc=soc, scheduler=name) for soc in SOCS for name in SCHEDULERS]
    mixes = [result for result in results if isinstance(result, MixResult)]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, *table(mixes), END + after]))
    PICTURE.write_text(picture(mixes))
    for result in mixes:
        print(result.soc, result.scheduler, result.conclusion)


if __name__ == "__main__":
    main()
