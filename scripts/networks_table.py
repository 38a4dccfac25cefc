"""Print measured, predicted and error of every published network, one row each."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from npusim.validation.running import run_suite

_COLUMNS = ("platform", "unit", "workload", "precision", "quantity", "anomalous")


def main() -> None:
    """Run the suite `networks` and print its rows; with `--before`, what an earlier run predicted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", type=Path, help="another table of the same form")
    parser.add_argument("--before", type=Path, help="JSON document of an earlier `npusim validate networks`")
    arguments = parser.parse_args()
    evidence = run_suite("networks", arguments.figures).evidence
    before = _predicted(arguments.before) if arguments.before else [None] * len(evidence.ids)
    rows = zip(
        evidence.ids,
        zip(*(evidence.columns[name] for name in _COLUMNS), strict=True),
        evidence.measured,
        evidence.predicted,
        before,
        strict=True,
    )
    for line, words, measured, predicted, earlier in rows:
        *named, anomalous = words
        told = f"{line:>4}  " + "  ".join(
            f"{word:<{width}}" for word, width in zip(named, (20, 8, 17, 5, 10), strict=True)
        )
        told += f"  {measured:>10.5g}  {predicted:>10.5g}  {predicted / measured - 1.0:+7.1%}"
        told += f"  before {earlier / measured - 1.0:+7.1%}" if earlier is not None else ""
        print(told + ("  anomalous" if anomalous == "yes" else ""))


def _predicted(path: Path) -> list[float]:
    document = json.loads(path.read_text(encoding="utf-8"))
    suite = next(suite for suite in document["suites"] if suite["name"] == "networks")
    return [float(row["predicted"]) for row in suite["rows"]]


if __name__ == "__main__":
    main()
