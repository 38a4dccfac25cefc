"""A JSON document as an HTML page: its figures and tables, which hold what the JSON holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from npusim.documents import Document
from npusim.metrics import METRICS, unit_of
from npusim.report.engineering import engineering, factor, percent
from npusim.report.html import (
    COLOURS,
    Amount,
    Cell,
    amount_axis,
    bullets,
    log_axis,
    names_axis,
    page,
    plot,
    table,
    text,
)

_UNIT_AT_END = re.compile(r"_(per_s|per_j|js|s|j|w|bytes|mm2)$")
_SHARES = ("accuracy", "agreement", "utilisation", "share", "change")
_REMARKS = ("notes", "warnings")
_TITLE = ("workload", "soc", "techniques")
_MOST_ROWS = 1000
_MOST_IN_CELL = 3
_FLATTENS = 10.0
"""Ratio of the longest to the shortest bar from which a linear axis would flatten the short ones."""


def document_html(document: Document, command: str, *pictures: str, title: str = "", lead: str = "") -> str:
    """Return a document as HTML that needs no other file.

    Parameters
    ----------
    *pictures : str
        HTML to stand above the tables.
    """
    data = document.model_dump(mode="json", by_alias=True)
    kind = str(data.pop("schema")).partition("/")[0].removeprefix("npusim.")
    remarks = [line for key in _REMARKS for line in data.pop(key, ())]
    return page(
        title or titled(kind.replace("-", " "), data),
        *pictures,
        *tables(data),
        lead=lead or str(data.get("conclusion", "")),
        notes=remarks,
        command=command,
    )


def titled(what: str, data: Mapping[str, Any]) -> str:
    """Return a title: what is shown, of which network, on which machine, with which techniques."""
    workload, soc, techniques = (data.get(key) for key in _TITLE)
    named = f"{workload} on {soc}" if workload and soc else str(workload or soc or data.get("catalogue", ""))
    changed = f" with {techniques}" if techniques and techniques != "none" else ""
    return f"{what.capitalize()}{': ' if named else ''}{named}{changed}"


def tables(data: Mapping[str, Any]) -> list[str]:
    """Return the parts of a JSON document as HTML: scalars in one table, a table for each list of records."""
    scalars: dict[str, Any] = {}
    found = []
    for key, value in data.items():
        heading = f"<h2>{worded(key).capitalize()}</h2>"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            found.append(heading + records_table(key, value))
        elif isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            found.append(heading + records_table(key, [{"name": name, **v} for name, v in value.items()]))
        elif isinstance(value, list) and len(value) > 3 and all(isinstance(v, str) for v in value):
            found.append(heading + bullets(value))
        else:
            scalars |= _flat(value, f"{key}.") if isinstance(value, dict) else {key: value}
    rows = [
        (worded(key), cell(key, value)) for key, value in scalars.items() if value not in ("", None, [], {})
    ]
    if rows:
        found.append("<h2>All figures</h2>" + table(("what", "value"), rows, (0, 1), name="figures"))
    return found


def records_table(
    name: str,
    records: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str] | None = None,
    most: int = _MOST_ROWS,
) -> str:
    """Return a table of the records of a JSON list, which can be saved as CSV.

    Parameters
    ----------
    name : str
        Where the list stands in the document.
    columns : mapping of str to str, optional
        Keys to show with their headings; `a.b` leads into a part. None: all of them.
    most : int
        Rows that are shown; a line tells how many more there are.
    """
    flat = [_flat(record) for record in records[:most]]
    if columns is None:
        columns = {key: worded(key) for record in flat for key in record}
        columns = {
            key: head for key, head in columns.items() if any(r.get(key) not in (None, "") for r in flat)
        }
    wordy = [
        i
        for i, key in enumerate(columns)
        if any(isinstance(record.get(key), str) for record in flat) and not key.endswith(("_s", "_j"))
    ]
    rows = [[cell(key, record.get(key)) for key in columns] for record in flat]
    left = len(records) - len(flat)
    rest = text(f"and {left:,} more, which --format json has", "note") if left > 0 else ""
    return table(list(columns.values()), rows, wordy, name=name, keys=list(columns)) + rest


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a record with the keys of its parts beside its own, as `part.key`."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            found[f"{prefix}{key}"] = f"{len(value)} entries"
        else:
            found[prefix + key] = value
    return found


def worded(key: str) -> str:
    """Return the words for a key: without its unit, blanks in place of joints.

    Examples
    --------
    >>> worded("input_bytes"), worded("throughput_per_s"), worded("costs.npu.latency_s")
    ('input', 'throughput', 'costs npu latency')
    """
    if key in METRICS:
        return METRICS[key].title
    return _UNIT_AT_END.sub("", key).replace("_", " ").replace(".", " ")


def cell(key: str, value: Any) -> Cell:
    """Return a value of a JSON document as a cell: numbers with three digits and the unit of their key."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and not unit_of(key):
        return Amount(value, "", f"{value:,}")
    if isinstance(value, int | float):
        return Amount(value, _unit(key), _shown(key, value))
    if isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
        several = f"{len(value)} values" if len(value) > _MOST_IN_CELL else ""
        return Amount(value, _unit(key), several or " to ".join(_shown(key, v) for v in value))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict) or value is None:
        return ""
    return str(value)


def _shown(key: str, value: float) -> str:
    last = key.rpartition(".")[2]
    if "speedup" in last:
        return factor(value)
    if last.endswith(_SHARES) and abs(value) <= 1.0:
        return percent(value)
    return engineering(value, _unit(key)) if _unit(key) else f"{value:.4g}"


def _unit(key: str) -> str:
    return "MAC" if key.endswith("macs") else unit_of(key)


def bars(
    title: str,
    axis: str,
    unit: str,
    values: Mapping[str, float | None],
    *,
    data: str = "",
    colours: Mapping[str, str] | None = None,
    linear: bool = False,
) -> str:
    """Return horizontal bars by name, each with its amount beside it; nothing where no name has one."""
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return ""
    figure = go.Figure(
        go.Bar(
            x=list(known.values()),
            y=list(known),
            orientation="h",
            marker={"color": [(colours or {}).get(name, COLOURS[0]) for name in known]},
            text=[engineering(value, unit) for value in known.values()],
            textposition="auto",
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    positive = [value for value in known.values() if value > 0.0]
    far_apart = not linear and len(positive) == len(known) and max(positive) > _FLATTENS * min(positive)
    scale = log_axis(axis, unit, min(positive) / 2, max(positive)) if far_apart else amount_axis(axis, unit)
    figure.update_layout(xaxis=scale, yaxis=names_axis(list(known)))
    return plot(figure, 130 + 30 * len(known), title, data=data)
