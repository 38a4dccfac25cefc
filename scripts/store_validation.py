"""Stores what ``npusim validate -o FILE.json`` wrote for the page of errors: ``store_validation.py FILE...``.

Suites of the files take the place of those stored before; single rows are left out. The page, "Errors suite
by suite" of the documentation site, is made from the stored file at each build.
"""

from __future__ import annotations

import sys
from pathlib import Path

from npusim.validation.document import SuiteResult, Validation

STORED = Path(__file__).resolve().parents[1] / "docs" / "validation-results.json"


def stored(path: Path = STORED) -> dict[str, SuiteResult]:
    """Return the stored suites by name; none where nothing is stored."""
    return {suite.name: suite for suite in Validation.read(path, "npusim").suites} if path.is_file() else {}


def store(files: list[Path], path: Path = STORED) -> dict[str, SuiteResult]:
    """Store the suites of files that `npusim validate -o` wrote; return all stored suites."""
    suites = stored(path)
    for file in files:
        added = Validation.read(file, "npusim").suites
        suites |= {suite.name: suite.model_copy(update={"rows": []}) for suite in added}
    ordered = {name: suites[name] for name in sorted(suites)}
    path.write_text(Validation(suites=list(ordered.values())).to_json() + "\n")
    return ordered


if __name__ == "__main__":
    print(", ".join(store([Path(name) for name in sys.argv[1:]])))
