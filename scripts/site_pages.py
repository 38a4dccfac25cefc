"""Pages of the documentation site that are made: calls, commands, files, documents, errors of the model.

A hook of mkdocs (`hooks` in mkdocs.yml): the pages are made at each build and are nowhere else.
"""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from npusim.api.exploring import READ_FILES, models
from npusim.cli.program import command_app, command_names
from npusim.config import schema_of
from npusim.lazy import lazy_names
from npusim.reporting.kinds import DOCUMENTS

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "validation-results.json"
"""What `scripts/store_validation.py` stored."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the package."""
    made = {"calls": calls(), "commands": commands(), "files": documents()}
    for name, content in made.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    files.append(File.generated(config, "errors.md", content=errors()))
    return files


def errors() -> str:
    """Return the page of errors: each suite of validation as `npusim validate` last judged it."""
    from npusim.validation.document import Validation
    from npusim.validation.suite import load_suite, suite_names

    stored = {one.name: one for one in Validation.read(RESULTS, "npusim").suites}
    limits = [group for one in stored.values() for group in one.groups if group.limit is not None]
    parts = [
        "# Errors suite by suite\n\nWhat `npusim validate` printed when its results were last stored, "
        f"{len(stored)} suites, {sum(group.rows for one in stored.values() for group in one.groups):,} rows: "
        f"{sum(group.ok for group in limits)} of {len(limits)} limits are kept. An error is "
        "|predicted - measured| / measured, or a difference in points for shares. What the suites are and "
        "where their figures come from: [validation](validation.md).\n\n```console\n"
        "npusim validate SUITE -o suite.json\npython scripts/store_validation.py suite.json\n```\n"
    ]
    for name in suite_names():
        parts.append(f"## {name}\n\n{load_suite(name).title}\n")
        parts.append(_groups(stored[name]) if name in stored else "No result of this suite is stored.\n")
    return "\n".join(parts)


def _groups(suite: Any) -> str:
    rows = [
        "| group | rows | mean | median | 90 % | limit | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in suite.groups:
        unit = " points" if one.error == "points" else " %"
        figures = (one.mean_error, one.median_error, one.p90_error, one.limit)
        shown = ("" if value is None else f"{100 * value:.3g}{unit}" for value in figures)
        verdict = "" if one.limit is None else "kept" if one.ok else "**missed**"
        rows.append(f"| {_cell(one.group)} | {one.rows:,} | {' | '.join(shown)} | {verdict} |")
    return "\n".join(rows) + "\n"


def calls() -> str:
    """Return the page of the Python interface: each public name from its docstring."""
    _, _, names = lazy_names("npusim")
    entries = "\n\n".join(f"::: npusim.{name}" for name in sorted(names, key=str.lower))
    lead = "Everything that `import npusim` offers; [Python](../python.md) shows how it is used."
    return f"# Calls\n\n{lead}\n\n{entries}\n"


def commands() -> str:
    """Return the page of commands: what each says of itself."""
    from typer.main import get_command

    parts = ["# Commands\n\nWhat `npusim COMMAND --help` says.\n"]
    for name in command_names():
        command = get_command(command_app(name))
        parts.append(f"## npusim {name}\n\n{_help(command)}")
        for below in getattr(command, "commands", {}).values():
            parts.append(f"### npusim {name} {below.name}\n\n{_help(below)}")
    return "\n".join(parts)


def _help(command: Any) -> str:
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or not getattr(parameter, "help", None):
            continue
        names = ", ".join(
            f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts) if one.startswith("-")
        )
        shown = names or f"`{parameter.metavar or parameter.name}`"
        rows.append(f"| {shown} | {_cell(parameter.help)} |")
    table = "\n".join(["| | |", "| --- | --- |", *rows]) if rows else ""
    examples = re.sub(r"\[/?[a-z ]+\]", "", command.epilog or "").replace("Examples", "").strip("\n")
    block = f"```console\n{_dedented(examples)}\n```" if examples.strip() else ""
    return "\n\n".join(part for part in (command.help or "", table, block) if part) + "\n"


def _dedented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def documents() -> str:
    """Return the page of files that npusim reads and documents that it writes: each key with its meaning."""
    parts = [
        "# Files and documents\n\nEvery key with its meaning; `npusim schema NAME` prints the JSON schema. "
        "SI units throughout.\n"
    ]
    for title, kinds in (("Files that are read", READ_FILES), ("Documents that are written", DOCUMENTS)):
        parts.append(f"## {title}\n")
        for name in kinds:
            found = resolve_name(models()[name])
            schema = schema_of(found if isinstance(found, type) else found())
            parts.append(f"### {name}\n\n{_cell(schema.get('description', ''))}\n\n{_keys(schema)}")
    return "\n".join(parts)


def _keys(schema: dict[str, Any]) -> str:
    rows = [
        f"| `{key}` | {_cell(str(entry.get('description', '')))} |"
        for key, entry in schema.get("properties", {}).items()
    ]
    return "\n".join(["| key | meaning |", "| --- | --- |", *rows]) + "\n" if rows else ""
