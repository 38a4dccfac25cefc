"""Print everything that a user can name, a line each: commands, options, schemas, catalogues, lessons, docs.

    python scripts/inventory.py > before.txt

Run it before and after a change of the package; `diff` of the two shows what a user lost or got.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

ROOT = Path(__file__).resolve().parents[1]
CATALOGUES = ("socs", "workloads", "techniques", "ops", "suites", "spaces")


def commands() -> Iterator[str]:
    """Yield each command with its options and arguments."""
    from npusim.cli.program import command_app, command_names

    for name in command_names():
        yield from _of_command(name, get_command(command_app(name)))


def _of_command(name: str, command: Any) -> Iterator[str]:
    yield f"command {name}"
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            kind = "option" if option.startswith("-") else "argument"
            yield f"{kind} {name} {option if kind == 'option' else parameter.metavar or option}"
    for below, subcommand in getattr(command, "commands", {}).items():
        yield from _of_command(f"{name} {below}", subcommand)


def named_things() -> Iterator[str]:
    """Yield schemas, the entries of each catalogue, the lessons, public calls, docs pages and examples."""
    import npusim

    help_text = " ".join(_npusim("schema", "--help").replace("│", " ").split())
    for names in re.findall(r"\(([a-z-]+(?:, [a-z-]+)+)\)", help_text):
        yield from (f"schema {name}" for name in names.split(", "))
    for catalogue in CATALOGUES:
        for entry in json.loads(_npusim("list", catalogue, "--format", "json"))["entries"]:
            yield f"{catalogue} {entry['name']}"
    for path in (ROOT / "npusim").rglob("*.py"):
        numbered = re.match(r'r?"""(\d+\. .+)', path.read_text(encoding="utf-8"))
        if numbered:
            yield f"lesson {numbered.group(1)}"
    for name in sorted(dir(npusim)):
        if not name.startswith("_"):
            yield f"python npusim.{name}"
    for pattern in ("docs/*.md", "docs/screenshots/*", "examples/**/*.py", "configs/**/*.yaml"):
        for path in sorted(ROOT.glob(pattern)):
            yield f"file {path.relative_to(ROOT).as_posix()}"


def _npusim(*arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "npusim", *arguments], capture_output=True, text=True, check=True
    )
    return run.stdout


if __name__ == "__main__":
    for line in (*commands(), *named_things()):
        print(line)
