"""Performance counters of benchmark_app: executed operators, what ran them, and their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from npusim.config.loading import as_model
from npusim.config.reading import read_json
from npusim.config.tables import Choice, Number, Text, places_of
from npusim.errors import ConfigError, shown
from npusim.files import read_text
from npusim.measure.document import Counter

_MS = 1e-3
_EXECUTED = "EXECUTED"
_STATUSES = ("NOT_RUN", "OPTIMIZED_OUT", _EXECUTED)
_STATUS = Choice("execStatus", _STATUSES)
_COLUMNS = (
    Text("layerName"),
    _STATUS,
    Text("layerType"),
    Text("execType"),
    Number("realTime (ms)", above=False),
    Number("cpuTime (ms)", above=False),
)
_HEADER = ";".join(column.name for column in _COLUMNS)
_TOTAL = "Total"


class _Line(NamedTuple):
    """An operator of one request; time in s."""

    name: str
    status: str
    type: str
    executed_as: str
    time_s: float


Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Node(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    node_type: str
    status: str
    real_time: Milliseconds
    cpu_time: Milliseconds
    exec_type: str


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    nodes: tuple[_Node, ...]
    total_real_time: Milliseconds
    total_cpu_time: Milliseconds


class _Counters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    report_type: str
    avg_performance: _Request | None = None
    detailed_performance: tuple[_Request, ...] = ()


def read_csv_counters(path: Path) -> tuple[Counter, ...]:
    """Return the executed operators of a benchmark_(average|detailed)_counters_report.csv.

    Of several requests an operator's time is the median.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where a column is unknown or missing, a value not allowed, or the file cut off; it names the line.
    """
    requests = list(_csv_requests(path))
    if not requests:
        raise ConfigError("an empty file", file=str(path), line=1, allowed=f"the columns {_HEADER}")
    return _medians(requests)


def _csv_requests(path: Path) -> Iterator[list[_Line]]:
    file, places, lines = str(path), None, list[_Line]()
    number = 1
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        fields = _fields(text, len(_COLUMNS))
        if places is None:
            header = [name.strip() for name in text.strip().removesuffix(";").split(";")]
            places = places_of(header, _COLUMNS, file, number, further=False)
        elif len(fields) != len(_COLUMNS):
            allowed = f"{len(_COLUMNS)}, as in the header"
            raise ConfigError(f"{len(fields)} fields", file=file, line=number, allowed=allowed)
        elif fields[places[0]] == _TOTAL and not fields[places[1]]:
            yield lines
            places, lines = None, []
        else:
            lines.append(_line([fields[place] for place in places], file, number))
    if places is not None:
        found = "a file that ends before its `Total`"
        raise ConfigError(found, file=file, line=number, allowed="a whole file, as benchmark_app leaves it")


def _fields(text: str, wanted: int) -> list[str]:
    """Split a line; the program in C++ ends it with a separator, and a layer's name may hold one."""
    fields = text.strip().split(";")
    if len(fields) > wanted and not fields[-1]:
        fields.pop()
    spare = len(fields) - wanted
    joined = [";".join(fields[: spare + 1]), *fields[spare + 1 :]] if spare > 0 else fields
    return [field.strip() for field in joined]


def _line(fields: Sequence[str], file: str, number: int) -> _Line:
    name, status, kind, executed_as, real, cpu = fields
    status = status.removeprefix("Status.")
    values = (name, status, kind, executed_as, real, cpu)
    for column, text in zip(_COLUMNS, values, strict=True):
        if column.value(text) is None:
            found, key = shown(text), f"{shown(name)} {column.name}"
            raise ConfigError(found, file=file, line=number, key=key, allowed=column.allowed)
    return _Line(name, status, kind, executed_as, float(real) * _MS)


def read_json_counters(path: Path) -> tuple[Counter, ...]:
    """Return the executed operators of a benchmark_(average|detailed)_counters_report.json.

    Errors as for `read_csv_counters`; they name the key.
    """
    document = read_json(path)
    counters = as_model(document, _Counters)
    requests = counters.detailed_performance
    if counters.avg_performance is not None:
        requests = (counters.avg_performance, *requests)
    if not requests:
        allowed = "avg_performance or detailed_performance"
        raise ConfigError("no counters", file=document.name, allowed=allowed)
    lines: list[list[_Line]] = []
    for i, request in enumerate(requests):
        lines.append([])
        for k, node in enumerate(request.nodes):
            status = node.status.removeprefix("Status.")
            if status not in _STATUSES:
                key = f"request {i + 1}, node {k + 1} ({shown(node.name)}): status"
                raise ConfigError(shown(node.status), file=document.name, key=key, allowed=_STATUS.allowed)
            lines[-1].append(_Line(node.name, status, node.node_type, node.exec_type, node.real_time * _MS))
    return _medians(lines)


def _medians(requests: Sequence[Sequence[_Line]]) -> tuple[Counter, ...]:
    """Return the median of each operator over requests, by name and occurrence, in order of the first."""
    found: dict[tuple[str, int], list[_Line]] = {}
    for request in requests:
        seen: dict[str, int] = {}
        for line in request:
            seen[line.name] = seen.get(line.name, 0) + 1
            found.setdefault((line.name, seen[line.name]), []).append(line)
    return tuple(_counter(lines) for lines in found.values() if lines[0].status == _EXECUTED)


def _counter(lines: Sequence[_Line]) -> Counter:
    first = lines[0]
    return Counter(
        name=first.name or "unnamed",
        type=first.type,
        executed_as=first.executed_as,
        latency_s=median(line.time_s for line in lines),
    )
