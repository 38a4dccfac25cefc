"""Print which headline errors of `npusim validate` moved since they were stored, and by how much.

    python scripts/golden.py [SUITE ...] [--write]

The stored errors are `tests/golden.json`: mean and median of each group of all suites that run in seconds.
A moved figure is no failure, since a better model moves figures, too: the change that moves them renews the
table with `--write`, and its difference shows them to who reads the change.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import npusim

STORED = Path(__file__).resolve().parents[1] / "tests" / "golden.json"
LONG = ("accuracy", "engines", "gcnp", "magnas-mapping")
"""Suites that need raw data sets or minutes."""
DIGITS = 6
"""Significant digits that are stored: what differs beyond them is rounding of another processor."""

Errors = dict[str, dict[str, dict[str, float]]]
"""Error by suite, group and statistic."""


def errors(suites: Sequence[str]) -> Errors:
    """Return the errors of some suites as the shipped numbers give them."""
    results: Errors = {}
    for name in suites:
        print(f"{name} ...", file=sys.stderr, flush=True)
        (suite,) = npusim.validate(name).suites
        results[name] = {
            group.group: {
                statistic: float(f"{value:.{DIGITS}g}")
                for statistic, value in (("mean", group.mean_error), ("median", group.median_error))
            }
            for group in suite.groups
        }
    return results


def moved(before: Errors, after: Errors) -> Iterator[str]:
    """Yield a line for each figure that differs, appeared or went: old, new and difference."""
    old, new = (dict(_flat(table)) for table in (before, after))
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            yield f"{name}: {'absent' if was is None else was} -> {'absent' if now is None else now}"
        elif was != now:
            yield f"{name}: {was} -> {now} ({now - was:+.2g})"


def _flat(table: Errors) -> Iterator[tuple[str, float]]:
    for suite, groups in table.items():
        for group, statistics in groups.items():
            for statistic, value in statistics.items():
                yield f"{suite}, {group}, {statistic}", value


def main(arguments: Sequence[str] | None = None, path: Path = STORED) -> int:
    """Compare the errors of some suites with the stored ones, or store them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="suites to compare; none: all stored ones")
    parser.add_argument("--write", action="store_true", help="store the errors of today")
    options = parser.parse_args(arguments)
    stored: Errors = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    today = errors(options.suites or sorted(stored))
    lines = list(moved({name: stored.get(name, {}) for name in today}, today))
    print("\n".join(lines or ["no figure moved"]))
    if options.write:
        path.write_text(_written(stored | today), encoding="utf-8")
    return 0


def _written(table: Errors) -> str:
    """Return the table as JSON with a line per group, so that a difference names each."""
    suites = []
    for suite, groups in sorted(table.items()):
        lines = (f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in groups.items())
        suites.append(f" {json.dumps(suite)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(suites) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
