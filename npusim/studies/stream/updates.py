"""Streams of updates of a data graph: nodes and edges that come and go, generated or read from a file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npusim.errors import ConfigError, FileError, UnknownNameError

EVENTS = ("add_node", "remove_node", "add_edge", "remove_edge")
"""What can happen; an edge is undirected."""
MIX: Mapping[str, float] = {"add_node": 3.0, "remove_node": 1.0, "add_edge": 5.0, "remove_edge": 1.0}
"""How often each event happens in a generated stream: a graph that grows slowly."""
_COLUMNS = ("update", "event", "count")


@dataclass(frozen=True, slots=True)
class Update:
    """What changes between two inferences."""

    counts: Mapping[str, int]
    """How often each event of `EVENTS` happens; those that do not are left out."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the graph is."""

    nodes: int
    edges: int
    """Undirected, without self-loops."""

    @property
    def degree(self) -> float:
        """Mean number of neighbours."""
        return 2.0 * self.edges / self.nodes if self.nodes else 0.0


def generated(updates: int, seed: int = 0, mix: Mapping[str, float] = MIX) -> list[Update]:
    """Return a random stream of updates, one event each.

    Parameters
    ----------
    mix : mapping of str to float
        How often each event happens, relative to the others.

    Raises
    ------
    UnknownNameError
        For an event that there is not.
    """
    for name in mix:
        if name not in EVENTS:
            raise UnknownNameError("event", name, EVENTS)
    weights = np.array([mix.get(name, 0.0) for name in EVENTS])
    if not (np.isfinite(weights).all() and (weights >= 0.0).all() and weights.sum() > 0.0):
        raise ConfigError(str(dict(mix)), file="--mix", allowed="weights of 0 or more, at least one above 0")
    drawn = np.random.default_rng(seed).choice(len(EVENTS), size=updates, p=weights / weights.sum())
    return [Update({EVENTS[i]: 1}) for i in drawn]


def read_events(path: Path) -> list[Update]:
    """Read a stream from a CSV file with the columns `update`, `event` and, unless it is 1, `count`.

    Rows with the same number in `update` happen together; numbers rise from row to row.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, or a row says something impossible; the line is told.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(str(path), f"cannot be read ({error})", "name a CSV file") from None
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in _COLUMNS[:2] if name not in (reader.fieldnames or ())]
    if missing:
        allowed = "the columns update, event and, unless it is 1, count"
        raise ConfigError(f"no column `{missing[0]}`", file=str(path), line=1, allowed=allowed)
    found: list[dict[str, int]] = []
    last: int | None = None
    for row in reader:
        number = _whole(row, "update", path, reader.line_num)
        event = (row["event"] or "").strip()
        if event not in EVENTS:
            allowed = ", ".join(EVENTS)
            raise ConfigError(
                f"`{event}`", file=str(path), line=reader.line_num, key="event", allowed=allowed
            )
        count = _whole(row, "count", path, reader.line_num) if (row.get("count") or "").strip() else 1
        if last is None or number > last:
            found.append({})
        elif number < last:
            allowed = f"numbers that rise, so {last} or more"
            raise ConfigError(
                f"`{number}`", file=str(path), line=reader.line_num, key="update", allowed=allowed
            )
        last = number
        found[-1][event] = found[-1].get(event, 0) + count
    if not found:
        raise ConfigError("no event", file=str(path), allowed="at least one row")
    return [Update(counts) for counts in found]


def _whole(row: Mapping[str, str | None], column: str, path: Path, line: int) -> int:
    text = (row[column] or "").strip()
    if not (text.isascii() and text.isdigit() and int(text) < 10**9):
        raise ConfigError(
            f"`{text}`", file=str(path), line=line, key=column, allowed="a whole number of 0 or more"
        )
    return int(text)


def sizes(start: Size, updates: Sequence[Update]) -> Iterator[Size]:
    """Yield the graph's size after each update.

    A node that leaves takes its edges along, the mean number of them; a graph keeps at least one node, no
    fewer than 0 edges and no more than there are pairs.
    """
    nodes, edges = start.nodes, start.edges
    for update in updates:
        nodes += update.counts.get("add_node", 0)
        for _ in range(min(update.counts.get("remove_node", 0), nodes - 1)):
            edges -= min(edges, round(2.0 * edges / nodes))
            nodes -= 1
        edges += update.counts.get("add_edge", 0) - update.counts.get("remove_edge", 0)
        edges = min(max(edges, 0), nodes * (nodes - 1) // 2)
        yield Size(nodes, edges)
