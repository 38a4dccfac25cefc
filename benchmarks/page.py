"""Writes docs/performance.md from what was measured."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import growth, peers

_MOST_SHARES = 7
_HEAD = """# Performance

Written by `make bench`, which measures all rows again in some 15 minutes; `make bench ROWS="sram pareto"`
measures single rows, `ROWS=growth` the pictures, `ROWS=peers` other tools (their packages are installed into
environments of their own). Each row is a file of `benchmarks/rows`. *Before* is revision `{base}` in a folder
of its own, stopped after 15 s where the row says nothing else. Before and after are measured by turns in one
run, each in a process of its own, kernels and bytecode compiled before; shown is the median of the turns (one
turn where a case takes four seconds). The ratio is that of processor time, which depends less than wall time
on what else the machine does. Measured on {machine}.
"""


def written(rows: dict[str, ModuleType], results: dict[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    rows : mapping of name to module
        What the files of benchmarks/rows declare.
    results : mapping of name to figures
        What was measured of them, and of growth and peers.
    """
    first = next(iter(results.values()), {"base": "none", "machine": "nothing"})
    parts = [_HEAD.format(base=first["base"], machine=first["machine"]), _table(rows, results)]
    parts.append(_profiles(rows, results))
    parts.append(Path(__file__).with_name("machinery.md").read_text(encoding="utf-8"))
    if "growth" in results:
        parts.append(growth.section(results["growth"]["figures"]))
    if "peers" in results:
        parts.append(peers.section(results["peers"]["figures"]))
    return "\n".join(parts)


def _table(rows: dict[str, ModuleType], results: dict[str, Any]) -> str:
    lines = [
        "| what | wall before | after | processor before | after | ratio | memory before | after | wanted |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, row in rows.items():
        if name not in results:
            lines.append(f"| {row.WHAT} | not measured | | | | | | | {row.WANTED} |")
            continue
        figures = results[name]["figures"]
        for case in getattr(row, "COMMANDS", None) or row.CASES:
            if case in figures:
                lines.append(_line(row, case, figures[case]["before"], figures[case]["after"]))
    return "\n".join([*lines, "", *_scalings(rows, results), ""])


def _line(row: ModuleType, case: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    what = f"{row.WHAT}, {case}" if case else row.WHAT
    cells = [what]
    for key in ("wall_s", "processor_s"):
        for figures in (before, after):
            cells.append(_time(figures, key, getattr(row, "UNIT", "")))
    both = "wall_s" in before and "wall_s" in after
    cells.append(f"{before['processor_s'] / after['processor_s']:.3g}" if both else "")
    cells += [f"{f['memory_mb']:.0f} MB" if "wall_s" in f else "" for f in (before, after)]
    return "| " + " | ".join([*cells, row.WANTED]) + " |"


def _time(figures: dict[str, Any], key: str, unit: str) -> str:
    if "failed" in figures:
        return f"fails: {figures['failed'][:80]}" if key == "wall_s" else ""
    if "over_s" in figures:
        return f"over {figures['over_s']:g} s"
    seconds = figures[key]
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
