"""Writes docs/performance.md and docs/machinery.md from what was measured."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import growth, peers

_MOST_SHARES = 7
_HEAD = """# Performance

Written by `make bench`; `make bench ROWS="sram pareto"` measures single rows, `ROWS=growth` the picture,
`ROWS=peers` other tools (their packages are installed into environments of their own). Each row is a file of
`benchmarks/rows`. *Before* is revision `{base}`, stopped after 15 s where the row says nothing else. Before
and now are measured by turns in one run, each in a process of its own, kernels and bytecode compiled before;
shown is wall time, the median of the turns (one turn where a case takes four seconds). *Faster* is the ratio
of processor times, which depend less than wall time on what else the machine does.
[machinery.md](machinery.md) says where the time goes, what each part of the machinery gives, and how the
search compares with others. Measured on {machine}.
`npusim sweep gcn-cora --keep pareto --cores N` on 16 cores of another machine, at `{base}`: 8.3 to 11.5 s on
one core, 3.3 to 3.7 s on sixteen (wanted: 1.2 s); 10^8 points 46.6 s on two, 17.9 s on sixteen (wanted: 8 s).
Nothing with more than two cores was at hand since.
"""
_MACHINERY = """# What the machinery gives

Written by `make bench`, as [performance.md](performance.md) is.
"""


def pages(rows: dict[str, ModuleType], results: dict[str, Any]) -> dict[str, str]:
    """Return the text of each page by its name.

    Parameters
    ----------
    rows : mapping of name to module
        What the files of benchmarks/rows declare.
    results : mapping of name to figures
        What was measured of them, and of growth and peers.
    """
    base = next((one["base"] for one in results.values()), "none")
    machines = sorted({one["machine"] for one in results.values()})
    parts = [_HEAD.format(base=base, machine=", some rows on ".join(machines)), _table(rows, results)]
    if "growth" in results:
        parts.append(growth.section(results["growth"]["figures"]))
    if "peers" in results:
        parts.append(peers.section(results["peers"]["figures"]))
    machinery = Path(__file__).with_name("machinery.md").read_text(encoding="utf-8")
    return {
        "performance.md": "\n".join(parts),
        "machinery.md": "\n".join([_MACHINERY, _profiles(rows, results), machinery]),
    }


def _table(rows: dict[str, ModuleType], results: dict[str, Any]) -> str:
    lines = [
        "| what | wanted | now | before | faster | memory now | before |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in rows.items():
        if name not in results:
            lines.append(f"| {row.WHAT} | {row.WANTED} | not measured | | | | |")
            continue
        figures = results[name]["figures"]
        cases = [case for case in getattr(row, "COMMANDS", None) or row.CASES if case in figures]
        for number, case in enumerate(cases):
            lines.append(_line(row, case, figures[case]["before"], figures[case]["after"], number == 0))
    return "\n".join([*lines, "", *_scalings(rows, results), ""])


def _line(row: ModuleType, case: str, before: dict[str, Any], after: dict[str, Any], is_first: bool) -> str:
    """Return a line of the table; only the first of a row says what it is."""
    unit = getattr(row, "UNIT", "")
    what = row.WHAT + (f": {case}" if case else "") if is_first else f"… {case}"
    cells = [what, row.WANTED if is_first else "", _time(after, unit), _time(before, unit)]
    both = "wall_s" in before and "wall_s" in after
    cells.append(f"{before['processor_s'] / after['processor_s']:.2g}" if both else "")
    cells += [f"{f['memory_mb']:.0f} MB" if "wall_s" in f else "" for f in (after, before)]
    return "| " + " | ".join(cells) + " |"


def _time(figures: dict[str, Any], unit: str) -> str:
    if "failed" in figures:
        return "fails"
    if "over_s" in figures:
        return f"over {figures['over_s']:g} s"
    seconds = figures["wall_s"]
    if not unit or figures["amount"] is None:
        return f"{seconds:.3g} s"
    return f"{seconds:.3g} s, {_number(figures['amount'] / seconds)} {unit}/s"


def _number(value: float) -> str:
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{float(f'{value:.3g}'):,.0f}"


def _scalings(rows: dict[str, ModuleType], results: dict[str, Any]) -> list[str]:
    """Return a sentence on each row that was measured on one core and on two."""
    found = []
    for name, row in rows.items():
        figures = results.get(name, {}).get("figures", {})
        if {"one core", "two cores"} <= set(figures):
            one, two = figures["one core"]["after"], figures["two cores"]["after"]
            if "wall_s" in one and "wall_s" in two:
                found.append(f"Two cores over one, {row.WHAT}: {one['wall_s'] / two['wall_s']:.2f} times.")
    return found


def _profiles(rows: dict[str, ModuleType], results: dict[str, Any]) -> str:
    lines = [
        "## Where the time goes now",
        "",
        "Shares of processor time by a sampling profiler (`benchmarks/sampling.py`), which counts time in",
        "libraries and compiled code to the package of npusim that calls them, start and preparation too.",
        "",
        "| what | case | processor time | shares |",
        "| --- | --- | ---: | --- |",
    ]
    for name, row in rows.items():
        found = results.get(name, {}).get("profile", {})
        if "shares" in found:
            largest = sorted(found["shares"].items(), key=lambda item: -item[1])[:_MOST_SHARES]
            shares = ", ".join(f"{part} {share:.0%}" for part, share in largest if share >= 0.02)
            lines.append(f"| {row.WHAT} | {found['case']} | {found['processor_s']:.3g} s | {shares} |")
    return "\n".join([*lines, ""])
