"""Compiles what usual commands run, and packs it into the package: `make kernels`.

Do this after each change of a kernel; a test tells when it is due. It runs on Linux, on a processor with the
instructions of `x86-64-v3`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

from npusim.compiling.kernels import _LEVEL, SHIPPED, VARIABLE, _processor
from npusim.locate import CACHE_VARIABLE

COMMANDS = (
    "estimate gcn-cora",
    "estimate resnet-50 --soc eyeriss",
    "whatif gcn-cora",
    "sweep gcn-cora --keep pareto -o {out}/grid",
    "search gcn-cora --budget 1000 -o {out}/search",
    "map gcn-cora",
    "map resnet-50 --minimise latency,energy",
    "estimate gat-cora --engine event",
)
"""Command lines of npusim; `{out}` is a folder."""


def main() -> None:
    """Run each command with compiled kernels and an empty cache, then pack the cache."""
    if _processor() != _LEVEL:
        sys.exit(f"needs a processor of level {_LEVEL}, and no NUMBA_CPU_NAME")
    with TemporaryDirectory() as cache, TemporaryDirectory() as out:
        settings = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA_")}
        settings |= {CACHE_VARIABLE: cache, VARIABLE: "compiled"}
        for command in COMMANDS:
            print(f"npusim {command}", flush=True)
            words = [sys.executable, "-m", "npusim", *command.format(out=out).split()]
            subprocess.run(words, env=settings, check=True, stdout=subprocess.DEVNULL)
        for archive in SHIPPED.glob("*.zip"):
            archive.unlink()
        SHIPPED.mkdir(exist_ok=True)
        for folder in Path(cache, "kernels").iterdir():
            with ZipFile(SHIPPED / f"{folder.name}.zip", "w", ZIP_DEFLATED) as packed:
                for path in sorted(folder.rglob("*")):
                    packed.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main()
