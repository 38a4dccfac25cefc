"""``npusim stream``: keeping up with a graph that changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as opt
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.scenario import Scenario
    from npusim.studies.stream import StorePlan, Update
    from npusim.studies.stream.stored import StoredFeatures

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim stream gcn-cora
  npusim stream gcn-cora --capacity 3000 --updates 500 --inferences 10
  npusim stream gat-cora --mix add_node=1,add_edge=9 --techniques effop --format json
  npusim stream gcn-cora --events changes.csv --set toolchain.compile_fixed=5s
  npusim stream gcn-cora --kept 2800,2900,3000 --batch 500 -o page.html
  npusim stream gcn-cora --batch 500 --accuracy --data planetoid
  npusim stream sage-concat-cora --roots 32,64,128,256,512 --renew 10 --accuracy --data planetoid
"""


_TOOLCHAIN = "toolchain."
"""Beginning of the paths that lead into the compiler's data sheet."""
_LONGEST_COUNT = 10
"""Digits that a number of nodes has fewer than."""


_STORED = "Batches with stored hidden features"


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
_Roots = Annotated[
    str | None,
    opt.option(
        "--roots N,N,...",
        "Also answer for batches of so many target nodes, with stored hidden features of nodes answered "
        "before (sage-concat); --accuracy runs them on real data.",
        panel=_STORED,
    ),
]
_Shares = Annotated[
    str | None,
    opt.option("--stored SHARE,...", "Shares of answered nodes that are stored.", default="1", panel=_STORED),
]
_Age = Annotated[
    int | None,
    opt.option(
        "--age N", "Batches after which stored features are dropped.", default="never", min=0, panel=_STORED
    ),
]
_Renew = Annotated[
    int | None,
    opt.option(
        "--renew N", "Batches after which the model is renewed.", default="never", min=1, panel=_STORED
    ),
]
_Store = Annotated[
    Path | None,
    opt.option(
        "--store FILE",
        "Keep stored features here from run to run; needs --accuracy, one size and one share.",
        panel=_STORED,
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
    roots: _Roots = None,
    stored: _Shares = None,
    age: _Age = None,
    renew: _Renew = None,
    store: _Store = None,
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

    from npusim.arch.loading import load_toolchain
    from npusim.cli.inputs import scenario_of
    from npusim.studies.stream import follow

    if workload.endswith((".xml", ".onnx")):
        allowed = "a named workload or a workload YAML: a model file says nothing of its data graph"
        raise ConfigError(f"`{workload}`", file="WORKLOAD", allowed=allowed)
    of_toolchain, others = _settings(settings)
    toolchain = load_toolchain(overrides=of_toolchain)
    plan = _store_plan(roots, stored, age, renew, _kept_file(store, accuracy))
    scenario = scenario_of(workload, soc, techniques, others, None, hint, requests, tiles)
    kept_features = _stored_features(scenario, plan, data if accuracy else None, accuracy)
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

    result = result.model_copy(update={"stored_features": kept_features})

    from npusim.report.stream import stream_page

    destination.write(lambda: stream_page(result), result)


def _settings(settings: list[str] | None) -> tuple[list[str], list[str]]:
    """Return settings of the toolchain, and all others."""
    ours = [text.strip() for text in settings or ()]
    of_toolchain = [text.removeprefix(_TOOLCHAIN) for text in ours if text.startswith(_TOOLCHAIN)]
    return of_toolchain, [text for text in ours if not text.startswith(_TOOLCHAIN)]


def _kept_file(file: Path | None, accuracy: bool) -> Path | None:
    if file is not None and not accuracy:
        allowed = "only with --accuracy, which runs on real data"
        raise ConfigError(f"`{file}`", file="--store", allowed=allowed)
    return file


def _store_plan(
    roots: str | None, stored: str | None, age: int | None, renew: int | None, file: Path | None
) -> StorePlan | None:
    """Return what is asked about stored features; None where no batch sizes are given."""
    from npusim.studies.stream import StorePlan

    if roots is None:
        given = {"--stored": stored, "--age": age, "--renew": renew, "--store": file}
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"`{value}`", file=name, allowed="only with --roots N,N,...")
        return None
    sizes = [part.strip() for part in roots.split(",")]
    if not all(part.isdecimal() and len(part) < _LONGEST_COUNT for part in sizes):
        raise ConfigError(f"`{roots}`", file="--roots", allowed="numbers of nodes, such as 64,128,256,512")
    try:
        shares = [float(part) for part in (stored or "1").split(",")]
    except ValueError:
        allowed = "shares from 0 to 1, such as 0.5,1"
        raise ConfigError(f"`{stored}`", file="--stored", allowed=allowed) from None
    if file is not None and len(sizes) * len(shares) > 1:
        allowed = "one size of --roots and one share of --stored: a store is one run's"
        raise ConfigError(f"`{file}`", file="--store", allowed=allowed)
    return StorePlan([int(part) for part in sizes], shares, age, renew, file=file)


def _stored_features(
    scenario: Scenario, plan: StorePlan | None, data: Path | None, real: bool
) -> StoredFeatures | None:
    from npusim.studies.stream import stored_features

    if plan is None:
        return None
    run = None
    if real:
        from npusim.accuracy.batches import runner_of

        run = runner_of(data)
    return stored_features(scenario, plan, run)


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
