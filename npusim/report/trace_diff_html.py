"""Two traces as one HTML file: both runs on one scale, and their layers side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from npusim.measure.traces import ENGINES, LAUNCH, Event, layer_key
from npusim.report.document_html import records_table
from npusim.report.engineering import engineering
from npusim.report.html import COLOURS, GREY, names_axis, page, plot, seconds_axis
from npusim.report.trace_diff import parting

if TYPE_CHECKING:
    from npusim.measure.traces import TraceDiff

_BOTH = {
    "measured": "layer of the first", "simulated": "layer of the second", "measured_s": "first",
    "simulated_s": "second", "measured_start_s": "begins in the first",
    "simulated_start_s": "begins in the second",
}  # fmt: skip
_ALONE = {"name": "layer", "trace": "run", "latency_s": "time", "start_s": "begins"}
_TRACKS = {"launch": "launch", "DMA": "DMA", "DPU": "DPU", "Shave": "DSP", "M2I": "M2I"}
_OTHERS, _LAUNCH_COLOUR = "other layers", "#dddddd"
_MOST_BARS = 4000


def trace_diff_html(
    diff: TraceDiff, command: str = "", first: Sequence[Event] = (), second: Sequence[Event] = ()
) -> str:
    """Return two traces as HTML that needs no other file.

    Parameters
    ----------
    diff : TraceDiff
        What was found.
    command : str
        The command line that asked for it.
    first, second : sequence of Event
        Events of both traces; none leaves the time lines out.
    """
    pairs = [pair.model_dump(mode="json") for pair in diff.layers]
    alone = records_table("alone", [layer.model_dump(mode="json") for layer in diff.alone], _ALONE)
    return page(
        f"Two runs: {diff.first}; {diff.second}",
        _time_lines(diff, first, second) if first and second else "",
        "<h2>Layers of both</h2>",
        records_table("layers", pairs, _BOTH),
        f"<h2>Layers of one alone</h2>{alone}" if diff.alone else "",
        lead=f"First {engineering(diff.measured_launch_s + diff.measured_s, 's')}, "
        f"second {engineering(diff.simulated_launch_s + diff.simulated_s, 's')}; {parting(diff)}.",
        notes=[
            f"the {which} run waits {engineering(launch_s, 's')} for its launch before its first layer"
            for which, launch_s in (("first", diff.measured_launch_s), ("second", diff.simulated_launch_s))
            if launch_s
        ],
        command=command,
    )


def _time_lines(diff: TraceDiff, first: Sequence[Event], second: Sequence[Event]) -> str:
    """Return the engines of both runs one above the other, from the begin of each run, coloured by layer."""
    same = {layer_key(pair.simulated): layer_key(pair.measured) for pair in diff.layers}
    names = {layer_key(pair.measured): pair.measured for pair in diff.layers}
    names |= {layer_key(layer.name): layer.name for layer in diff.alone}
    bars = [(f"{_TRACKS[engine]}, first", key, at, took) for engine, key, at, took in _bars(first)]
    bars += [
        (f"{_TRACKS[engine]}, second", same.get(key, key), at, took)
        for engine, key, at, took in _bars(second)
    ]
    spent: dict[str, float] = {}
    for _, key, _, took in bars:
        spent[key] = spent.get(key, 0.0) + took
    longest = sorted((key for key in spent if key in names), key=lambda key: -spent[key])[: len(COLOURS)]
    colours = dict(zip(longest, COLOURS, strict=False))
    figure = go.Figure()
    for key in [*longest, "", LAUNCH]:
        mine = [bar for bar in bars if bar[1] == key or (not key and bar[1] not in (*longest, LAUNCH))]
        if mine:
            name = "launch" if key == LAUNCH else names.get(key, _OTHERS)
            figure.add_bar(
                base=[at for _, _, at, _ in mine],
                x=[took for *_, took in mine],
                y=[track for track, *_ in mine],
                orientation="h",
                name=name,
                marker={"color": _LAUNCH_COLOUR if key == LAUNCH else colours.get(key, GREY)},
                hovertext=[
                    f"<b>{escape(names.get(k, k))}</b><br>{engineering(t, 's')}" for _, k, _, t in mine
                ],
                hoverinfo="text",
            )
    used = {bar[0] for bar in bars}
    ordered = [f"{track}, {run}" for run in ("first", "second") for track in _TRACKS.values()]
    tracks = [track for track in ordered if track in used]
    figure.update_layout(barmode="overlay", xaxis=seconds_axis("time", log=False), yaxis=names_axis(tracks))
    joined = len(bars) >= 2 * _MOST_BARS
    title = "Both runs on one scale" + (f": the first {_MOST_BARS} bars of each" if joined else "")
    return plot(figure, 140 + 42 * len(tracks), title)


def _bars(events: Sequence[Event]) -> Iterator[tuple[str, str, float, float]]:
    """Yield engine, layer's key, begin and length of work; tasks of a layer that touch become one."""
    shown = [event for event in events if event.category in ENGINES or event.category == LAUNCH]
    if not shown:
        return
    begin = min(event.start_s for event in shown)
    running: dict[str, tuple[str, float, float]] = {}
    count = 0
    for event in sorted(shown, key=lambda event: event.start_s):
        engine = ENGINES.get(event.category, "launch")
        key = LAUNCH if event.category == LAUNCH else layer_key(event.name)
        old = running.get(engine)
        if old is not None and old[0] == key and event.start_s <= old[2] + 1e-9:
            running[engine] = (key, old[1], max(old[2], event.end_s))
            continue
        if old is not None:
            yield engine, old[0], old[1] - begin, old[2] - old[1]
            count += 1
            if count >= _MOST_BARS:
                return
        running[engine] = (key, event.start_s, event.end_s)
    for engine, (key, start, end) in running.items():
        yield engine, key, start - begin, end - start
