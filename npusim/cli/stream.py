"""``npusim stream``: keeping up with a graph that changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as opt
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.studies.stream import Update

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim stream gcn-cora
  npusim stream gcn-cora --capacity 3000 --updates 500 --inferences 10
  npusim stream gat-cora --mix add_node=1,add_edge=9 --techniques effop --format json
  npusim stream gcn-cora --events changes.csv --set toolchain.compile_fixed=5s
  npusim stream gcn-cora --kept 2800,2900,3000 --batch 500 -o page.html
  npusim stream gcn-cora --batch 500 --accuracy --data planetoid
"""


_TOOLCHAIN = "toolchain."
"""Beginning of the paths that lead into the compiler's data sheet."""
_LONGEST_COUNT = 10
"""Digits that a number of nodes has fewer than."""


_Updates = Annotated[int, opt.option("--updates N", "Length of a generated stream.", min=1, max=100_000)]
_Seed = Annotated[int, opt.option("--seed N", "Seed of a generated stream.", min=0)]
_Mix = Annotated[
    str | None,
    opt.option(
        "--mix EVENT=W,...",
        "How often add_node, remove_node, add_edge, remove_edge happen. [dim]\\[3, 1, 5, 1][/dim]",
    ),
]
_Events = Annotated[
    Path | None,
    opt.option("--events FILE", "CSV with update, event, count instead of a generated stream."),
]
_Capacity = Annotated[
    int | None,
    opt.option(
        "--capacity N",
        "Nodes that pad and mask is compiled for.",
        default="whole thousands",
        min=1,
        max=10**9,
    ),
]
_Kept = Annotated[
    str | None,
    opt.option(
        "--kept N,N,...",
        "Capacities compiled beforehand where several blobs are kept.",
        default="four steps up to --capacity",
    ),
]
_Batch = Annotated[
    int | None,
    opt.option("--batch N", "Nodes of a mini-batch.", default="1000, or half the graph", min=1),
]
_Accuracy = Annotated[
    bool,
    opt.option(
        "--accuracy",
        "Train the network on its real data (kept in the cache): what mini-batches cost in accuracy.",
    ),
]
_Inferences = Annotated[int, opt.option("--inferences K", "Inferences after each update.", min=1)]


@app.command(epilog=_EXAMPLES)
def stream(
    workload: opt.GnnName,
    soc: opt.SocName = opt.DEFAULT_SOC,
    techniques: opt.TechniqueStack = "none",
    updates: _Updates = 200,
    seed: _Seed = 0,
    mix: _Mix = None,
    events: _Events = None,
    capacity: _Capacity = None,
    kept: _Kept = None,
    batch: _Batch = None,
    accuracy: _Accuracy = False,
    data: opt.Data = None,
    inferences: _Inferences = 1,
    settings: opt.Settings = None,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Follow a graph that changes: recompile, pad and mask (NodePad), keep several versions, mini-batches?

    Nodes and edges come and go. Compares the time for compiling, correcting the mask and inferring, the
    memory of the compiled versions, and says up to which capacity padding pays and which way leaves time
    for most inferences at which rate of updates.
    """
    from npusim.cli.output import Destination

    destination = Destination(output, form)

    from npusim.arch.toolchain import load_toolchain
    from npusim.cli.inputs import scenario_of
    from npusim.studies.stream import follow

    if workload.endswith((".xml", ".onnx")):
        allowed = "a named workload or a workload YAML: a model file says nothing of its data graph"
        raise ConfigError(f"`{workload}`", file="WORKLOAD", allowed=allowed)
    ours = [text.strip() for text in settings or ()]
    of_toolchain = [text.removeprefix(_TOOLCHAIN) for text in ours if text.startswith(_TOOLCHAIN)]
    others = [text for text in ours if not text.startswith(_TOOLCHAIN)]
    toolchain = load_toolchain(overrides=of_toolchain)
    scenario = scenario_of(workload, soc, techniques, others, None, hint, requests, tiles)
    judge = None
    if accuracy:
        from npusim.accuracy.batches import judge_of

        judge = judge_of(scenario, data)
    result = follow(
        scenario,
        _updates(events, updates, seed, mix),
        toolchain,
        capacity=capacity,
        kept=_capacities(kept),
        batch=batch,
        judge=judge,
        inferences=inferences,
        seed=None if events is not None else seed,
    )

    from npusim.report.stream import stream_page

    destination.write(lambda: stream_page(result), result)


def _capacities(text: str | None) -> list[int]:
    parts = [part.strip() for part in text.split(",")] if text is not None else []
    if not all(part.isdecimal() and len(part) < _LONGEST_COUNT for part in parts):
        raise ConfigError(f"`{text}`", file="--kept", allowed="numbers of nodes, such as 2800,2900,3000")
    return [int(part) for part in parts]


def _updates(events: Path | None, updates: int, seed: int, mix: str | None) -> list[Update]:
    from npusim.studies.stream import generated, read_events
    from npusim.studies.stream.updates import MIX

    if events is not None:
        return read_events(events)
    if mix is None:
        return generated(updates, seed, MIX)
    weights: dict[str, float] = {}
    for part in mix.split(","):
        name, _, weight = part.partition("=")
        if name.strip() in weights:
            raise ConfigError(f"`{name.strip()}` a second time", file="--mix", allowed="each event once")
        try:
            weights[name.strip()] = float(weight)
        except ValueError:
            allowed = "EVENT=WEIGHT,... such as add_node=1,add_edge=9"
            raise ConfigError(f"`{part}`", file="--mix", allowed=allowed) from None
    return generated(updates, seed, weights)
