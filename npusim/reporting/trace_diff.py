"""The page of two traces: both runs on one scale, their layers, the largest differences first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from rich.text import Text

from npusim.measuring.traces import ENGINES, LAUNCH, Event, LayerPair, TraceDiff, layer_key
from npusim.reporting.charts import Figure, add_spans, blank_figure
from npusim.reporting.engineering import engineering
from npusim.reporting.html import COLOURS, GREY, names_axis, seconds_axis
from npusim.reporting.page import (
    FOLD,
    Amount,
    Cell,
    Column,
    Page,
    Plot,
    Remark,
    Section,
    Table,
    cells_table,
    part,
    summed,
)

_MOST_ROWS = 30
_TRACKS = {"launch": "launch", "DMA": "DMA", "DPU": "DPU", "Shave": "DSP", "M2I": "M2I"}
_OTHERS, _LAUNCH_COLOUR = "other layers", "#dddddd"
_MOST_BARS = 4000
_TOUCH_S = 1e-9
"""Tasks of a layer that lie no further apart become one bar."""
_DIFFERS = 0.1
"""Part of a layer's length from which a difference counts."""


def diff_page(
    diff: TraceDiff, read_events: Callable[[], tuple[Sequence[Event], Sequence[Event]]] | None = None
) -> Page:
    """Return the page of two traces; `read_events` returns the events of both for their time lines."""
    parting = _parting(diff)
    first_s, second_s = diff.measured_launch_s + diff.measured_s, diff.simulated_launch_s + diff.simulated_s
    launches = (("first", diff.measured_launch_s), ("second", diff.simulated_launch_s))
    waits = [
        f"the {run} run waits {engineering(launch_s, 's')} for its launch before its first layer"
        for run, launch_s in launches
        if launch_s
    ]
    time_lines = None
    if read_events is not None:
        time_lines = Plot("Both runs on one scale", lambda: _time_lines(diff, *read_events()))
    return Page(
        f"Two runs: {diff.first}; {diff.second}",
        sections=[time_lines, _runs(diff, first_s, second_s), Text(parting), *_layers(diff)],
        remarks=[Remark("Note", waits)],
        lead=f"First {engineering(first_s, 's')}, second {engineering(second_s, 's')}; {parting}.",
    )


def _runs(diff: TraceDiff, first_s: float, second_s: float) -> Table:
    """Return both runs by name, with the launch apart from the layers."""
    rows: list[tuple[Cell, ...]] = [
        (name, Amount(launch, "s", None if launch else "not told"), Amount(layers, "s"), Amount(whole, "s"))
        for name, launch, layers, whole in (
            (f"first: {diff.first}", diff.measured_launch_s, diff.measured_s, first_s),
            (f"second: {diff.second}", diff.simulated_launch_s, diff.simulated_s, second_s),
        )
    ]
    off = second_s / first_s - 1.0 if first_s else None
    rows.append(("second / first - 1", "", "", Amount(off, "", "-" if off is None else f"{off:+.1%}")))
    return cells_table(("run", "launch", "layers", "in all"), rows)


def _parting(diff: TraceDiff) -> str:
    """Return the first layer whose begin differs by a tenth of its length in the first run or more."""
    for pair in diff.layers:
        off = pair.simulated_start_s - pair.measured_start_s
        if abs(off) > _DIFFERS * max(pair.measured_s, _TOUCH_S) and off:
            return (
                f"they part before {pair.measured}: it begins at "
                f"{engineering(pair.measured_start_s, 's')} in the first, "
                f"{engineering(pair.simulated_start_s, 's')} in the second"
            )
    return "they keep step: every layer begins within a tenth of its length of the other's begin"


def _layers(diff: TraceDiff) -> list[Section]:
    """Return the layers of both runs, largest differences first on the terminal, and those of one alone."""
    paired_s = sum(abs(pair.difference_s) for pair in diff.layers)
    gap_s = paired_s + sum(layer.latency_s for layer in diff.alone)

    def of_all(seconds: float) -> Cell:
        return part(abs(seconds) / gap_s) if gap_s else "-"

    def difference(pair: LayerPair) -> Amount:
        sign = "+" if pair.difference_s >= 0.0 else "-"
        return Amount(pair.difference_s, "s", f"{sign}{engineering(abs(pair.difference_s), 's')}")

    both = (
        Column("measured", "layers of both"),
        Column("simulated", "in the second", only="html"),
        Column("", "in the second", _other_name, "terminal", layout=FOLD),
        Column("measured_s", "first"),
        Column("simulated_s", "second"),
        Column("", "difference", difference),
        Column("", "of all", lambda pair: of_all(pair.difference_s)),
        Column("measured_start_s", "begins in the first", only="html"),
        Column("simulated_start_s", "begins in the second", only="html"),
    )
    alone = (
        Column("name", "layers of one alone"),
        Column("trace", "run"),
        Column("latency_s", "time"),
        Column("", "of all", lambda layer: of_all(layer.latency_s)),
        Column("start_s", "begins"),
    )
    return [
        Table(
            both,
            diff.layers,
            "Layers of both",
            "layers",
            terminal=sorted(diff.layers, key=lambda pair: -abs(pair.difference_s)),
            most=_MOST_ROWS,
            style=lambda pair: "" if abs(pair.difference_s) <= _DIFFERS * pair.measured_s else "yellow",
        ),
        Table(alone, diff.alone, "Layers of one alone", "alone", most=_MOST_ROWS, style=lambda _: "yellow"),
    ]


def _other_name(pair: LayerPair) -> str:
    return "" if pair.measured == pair.simulated else pair.simulated


def _time_lines(diff: TraceDiff, first: Sequence[Event], second: Sequence[Event]) -> Figure:
    """Return the engines of both runs one above the other, from the begin of each run, coloured by layer."""
    same = {layer_key(pair.simulated): layer_key(pair.measured) for pair in diff.layers}
    names = {layer_key(pair.measured): pair.measured for pair in diff.layers}
    names |= {layer_key(layer.name): layer.name for layer in diff.alone}
    runs: Any = (("first", {}, first), ("second", same, second))
    bars = [
        (f"{_TRACKS[engine]}, {run}", paired.get(key, key), begin_s, length_s)
        for run, paired, events in runs
        for engine, key, begin_s, length_s in _bars(events)
    ]
    spent = summed((key, length_s) for _, key, _, length_s in bars)
    longest = sorted((key for key in spent if key in names), key=lambda key: -spent[key])[: len(COLOURS)]
    colours = {**dict(zip(longest, COLOURS, strict=False)), "": GREY, LAUNCH: _LAUNCH_COLOUR}
    labels = {**names, "": _OTHERS, LAUNCH: "launch"}
    figure = blank_figure()
    for key in colours:
        of_key = [
            (begin_s, length_s, track, f"<b>{escape(names.get(k, k))}</b><br>{engineering(length_s, 's')}")
            for track, k, begin_s, length_s in bars
            if (k if k in colours else "") == key
        ]
        if of_key:
            add_spans(figure, labels[key], colours[key], of_key)
    used = {track for track, *_ in bars}
    ordered = [f"{track}, {run}" for run in ("first", "second") for track in _TRACKS.values()]
    tracks = [track for track in ordered if track in used]
    cut = f": the first {_MOST_BARS} bars of each" if len(bars) >= 2 * _MOST_BARS else ""
    figure.update_layout(
        barmode="overlay",
        xaxis=seconds_axis("time", log=False),
        yaxis=names_axis(tracks),
        height=140 + 42 * len(tracks),
        title=f"Both runs on one scale{cut}",
    )
    return figure


def _bars(events: Sequence[Event]) -> Iterator[tuple[str, str, float, float]]:
    """Yield engine, layer's key, begin and length of work; tasks of a layer that touch become one."""
    shown = [event for event in events if event.category in ENGINES or event.category == LAUNCH]
    if not shown:
        return
    begin_s = min(event.start_s for event in shown)
    running: dict[str, tuple[str, float, float]] = {}
    count = 0
    for event in sorted(shown, key=lambda event: event.start_s):
        engine = ENGINES.get(event.category, "launch")
        key = LAUNCH if event.category == LAUNCH else layer_key(event.name)
        last = running.get(engine)
        if last is not None and last[0] == key and event.start_s <= last[2] + _TOUCH_S:
            running[engine] = (key, last[1], max(last[2], event.end_s))
            continue
        if last is not None:
            yield engine, last[0], last[1] - begin_s, last[2] - last[1]
            count += 1
            if count >= _MOST_BARS:
                return
        running[engine] = (key, event.start_s, event.end_s)
    for engine, (key, start_s, end_s) in running.items():
        yield engine, key, start_s - begin_s, end_s - start_s
