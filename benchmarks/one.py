"""Runs one case of a row in this process, and prints what its work took: `python one.py FILE CASE`."""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import time
from pathlib import Path
from types import ModuleType


def load_row(path: Path) -> ModuleType:
    """Return the row that a file declares."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Prepare, then measure; memory is the peak of the process."""
    row, case = load_row(Path(sys.argv[1])), sys.argv[2]
    getattr(row, "prepare", lambda case: None)(case)
    wall, processor = time.perf_counter(), time.process_time()
    amount = row.work(case)
    figures = {
        "wall_s": time.perf_counter() - wall,
        "processor_s": time.process_time() - processor,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "amount": amount,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
