"""Streams of updates of a data graph, and how long answers take behind them.

Nodes and edges come and go, by a generated stream or one of a file. Where requests and updates come at random
times, one server does both, in order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf, isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npusim.config.tables import Choice, MaybeNumber, Number, csv_records, read_table
from npusim.errors import ConfigError, UnknownNameError, shown
from npusim.files import read_text
from npusim.system.demands import Demand
from npusim.system.mix import DeviceSpec, StreamSpec
from npusim.system.schedulers import SCHEDULERS
from npusim.system.simulation import Flow, Simulation, System
from npusim.system.statistics import figures, steady

EVENTS = ("add_node", "remove_node", "add_edge", "remove_edge")
"""What can happen; an edge is undirected."""
MIX: Mapping[str, float] = {"add_node": 3.0, "remove_node": 1.0, "add_edge": 5.0, "remove_edge": 1.0}
"""How often each event happens in a generated stream: a graph that grows slowly."""
_MOST = 1e9
_MOST_NODES = 10_000_000


_COLUMNS = (
    Number("update", above=False, most=_MOST, whole=True),
    Choice("event", EVENTS),
    MaybeNumber("count", above=False, most=_MOST, whole=True),
)


@dataclass(frozen=True, slots=True)
class Update:
    """What changes between two inferences."""

    counts: Mapping[str, int]
    """How often each event of `EVENTS` happens; those that do not are left out."""
    origin: str = field(default="", compare=False)
    """File and line that say so; a generated update has none."""


class Size(NamedTuple):
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

    Rows with the same number in `update` happen together, each event once; numbers rise from row to row.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, or a row says something impossible; the error names the line.
    """
    with_count = any("count" in record for _, record in islice(csv_records(read_text(path), str(path)), 1))
    table = read_table(path, _COLUMNS if with_count else _COLUMNS[:2], further=False)
    number, event, count = (table.columns.get(column.name, [1.0] * len(table.lines)) for column in _COLUMNS)
    updates: list[Update] = []
    last: float | None = None
    counts: dict[str, int] = {}
    for line, at, name, times in zip(table.lines, number, event, count, strict=True):
        if last is None or float(at) > last:
            counts = {}
            updates.append(Update(counts, f"{table.file}:{line}"))
        elif float(at) < last:
            allowed = f"numbers that rise, so {last:.0f} or more"
            raise ConfigError(f"`{at:.0f}`", file=table.file, line=line, key="update", allowed=allowed)
        elif name in counts:
            allowed = "each event of an update once"
            raise ConfigError(f"{shown(name)} a second time", file=table.file, line=line, allowed=allowed)
        last = float(at)
        counts[str(name)] = 1 if isnan(float(times)) else int(times)
    return updates


def sizes(start: Size, updates: Sequence[Update]) -> Iterator[Size]:
    """Yield the graph's size after each update.

    A node that leaves takes its edges along, the mean number of them. A generated stream takes nothing away
    that is not there; a file that does is wrong.

    Raises
    ------
    ConfigError
        Where a file takes away the last node, or more edges than there are, or adds edges beyond all pairs.
    """
    nodes, edges = start.nodes, start.edges
    for update in updates:
        counts = update.counts
        nodes += counts.get("add_node", 0)
        if counts.get("remove_node", 0) >= nodes:
            allowed = f"fewer than the {nodes} that there are"
            _refuse(update, f"{counts['remove_node']} nodes removed", allowed)
        for _ in range(min(counts.get("remove_node", 0), nodes - 1)):
            edges -= min(edges, round(2.0 * edges / nodes))
            nodes -= 1
        edges, most = edges + counts.get("add_edge", 0), nodes * (nodes - 1) // 2
        if edges > most or counts.get("remove_edge", 0) > edges:
            left = edges - counts.get("remove_edge", 0)
            _refuse(update, f"{left} edges between {nodes} nodes", f"from 0 to {most}")
        edges = min(max(edges - counts.get("remove_edge", 0), 0), most)
        if nodes > _MOST_NODES:
            file = update.origin or "stream"
            raise ConfigError(f"{nodes:,} nodes", file=file, allowed=f"at most {_MOST_NODES:,}")
        yield Size(nodes, edges)


def _refuse(update: Update, found: str, allowed: str) -> None:
    if update.origin:
        raise ConfigError(found, file=update.origin, allowed=allowed)


_SERVER, _ANSWERS, _MOST = "server", 20_000, 50_000


Rates = tuple[float, float]
"""Mean rates of independent updates and requests, each at random times, in 1/s."""


def response_times(update_s: Sequence[float], inference_s: Sequence[float], rates: Rates) -> dict[str, float]:
    """Return mean and 99th percentile of the time to an answer, and the mean time to the end of an update.

    Parameters
    ----------
    update_s, inference_s : sequence of float
        Times of successive updates, and of inferences; repeated where they end. None is returned of them
        where they take more time than there is: the queue would grow without end.
    """
    sizes = (update_s, inference_s)
    if sum(rate * float(np.mean(times_s)) for rate, times_s in zip(rates, sizes, strict=True)) >= 1.0:
        return {}
    flows = []
    for name, rate, times_s in zip(("updates", "requests"), rates, sizes, strict=True):
        arrivals = {"kind": "poisson", "rate": f"{rate!r} Hz"}
        spec = StreamSpec.model_validate({"network": name, "arrivals": arrivals})
        flows.append(Flow(spec, {_SERVER: Demand(1.0, 1.0)}, times_s))
    simulation = Simulation(System(flows, {_SERVER: (DeviceSpec(), 1)}, inf, SCHEDULERS["fifo"]))
    simulation.run(min(_ANSWERS / min(rates), _MOST / sum(rates)))
    updates, requests = (figures(steady(np.array(each.response_s))) for each in simulation.answers)
    values = {
        "answer_s": requests["mean_s"],
        "answer_p99_s": requests["p99_s"],
        "in_force_s": updates["mean_s"],
    }
    return {name: value for name, (value, _) in values.items()}
