"""The plotting library of pages: plotly's script without the modules that no figure of a page needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Addresses in the script that a chart could be sent to, or something be loaded from.
_FOREIGN = ("https://cloud.plotly.com/newchart", "https://plotly.com/", "https://cdn.plot.ly/un/")
KINDS_OF_LESSONS = frozenset({"bar", "box", "heatmap", "histogram", "scatter"})
"""Kinds of traces of the library that all lessons share; kinds that need WebGL would treble it."""
_WRAPPERS = re.compile(r"([\w$]+)=\([\w$,]+\)=>\(\)=>")
_REGISTERED = re.compile(r"\.register\(\[([\w$]+\(\)(?:,[\w$]+\(\))*)\]\)")
_KIND = re.compile(r'moduleType:"\w+",name:"(\w+)"')


@cache
def plotting_library(kinds: frozenset[str]) -> str:
    """Return plotly's script for some kinds of traces, without addresses of others."""
    plotly = find_spec("plotly")
    assert plotly is not None and plotly.origin is not None
    script = (Path(plotly.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")
    for address in _FOREIGN:
        script = script.replace(address, "")
    return trimmed(script, kinds)


def trimmed(script: str, kinds: Collection[str]) -> str:
    """Return plotly's script with the modules that some kinds of traces need; scatter is always there.

    esbuild wraps each module, `var NAME=WRAPPER((...)=>{...});`, and modules call those that they need by
    name; the last module registers all traces. A script that is written otherwise is returned whole.
    """
    listed, wrappers = _REGISTERED.search(script), _WRAPPERS.findall(script[:5000])
    if not listed or not wrappers:
        return script
    wrapped = rf"=(?:{'|'.join(map(re.escape, wrappers))})\((?:\([\w$,]*\)|[\w$]+)=>\{{"
    modules = re.split(rf"(?<=;)(?=var [\w$]+{wrapped})", script)
    named = re.compile(rf"([\w$]+){wrapped}")
    places = {name: place for place, module in enumerate(modules) for name in named.findall(module)}

    def needed(first: int) -> Iterator[int]:
        """Yield the places of modules that one needs, itself first and the nearest next."""
        todo, known = [first], {first}
        for place in todo:
            yield place
            new = {places[name] for name in re.findall(r"[\w$]+", modules[place]) if name in places} - known
            todo += sorted(new)
            known |= new

    def kind(trace: str) -> str:
        described = (_KIND.search(modules[place]) for place in needed(places[trace.removesuffix("()")]))
        return next((each[1] for each in described if each), "")

    traces = [trace for trace in listed[1].split(",") if kind(trace) in kinds]
    modules[-1] = modules[-1].replace(listed[1], ",".join(traces))
    return "".join(modules[place] for place in sorted({*needed(0), *needed(len(modules) - 1)}))
