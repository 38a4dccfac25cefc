"""Write the table of docs/power.md: energy of a period by clock, or race to idle against slow and steady.

python scripts/pacing_page.py
"""

from __future__ import annotations

from pathlib import Path

import npusim
from npusim.reporting.engineering import engineering
from npusim.studies.sustained import energy_in_period

PAGE = Path(__file__).resolve().parents[1] / "docs" / "power.md"
BEGIN, END = "<!-- pacing -->", "<!-- end of pacing -->"
CLOCKS_MHZ = (700, 900, 1100, 1300, 1500, 1700, 1850)
CASES = (("resnet-50", 1 / 30), ("resnet-50", 1 / 300), ("yolov8n", 1 / 30), ("bert-base", 1 / 10))


def _table() -> list[str]:
    """Return the table: a row per network and period, a column per clock."""
    lines = [f"| network, period | {' | '.join(f'{clock} MHz' for clock in CLOCKS_MHZ)} |"]
    lines.append("| --- |" + " ---: |" * len(CLOCKS_MHZ))
    for name, period_s in CASES:
        energies = []
        for clock in CLOCKS_MHZ:
            soc = npusim.load_soc("core-ultra-series2", [f"npu.dpu.clock={clock}MHz"])
            estimate = npusim.estimate(name, soc, settings=["workload.precision=int8"])
            energies.append(energy_in_period(estimate, period_s))
        least = min(energies)
        cells = (f"**{engineering(e, 'J')}**" if e == least else engineering(e, "J") for e in energies)
        lines.append(f"| {name} in int8, {engineering(period_s, 's')} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Write the table between its marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, "", *_table(), "", END + after]), encoding="utf-8")


if __name__ == "__main__":
    main()
