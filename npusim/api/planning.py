"""Calls that plan how a network runs: placement, rewriting, changing data graphs, mixes.

The docstrings are the help of the command line too: what stands under a parameter is shown beside its option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from npusim.api import as_numbers, node_counts
from npusim.api.asking import MODEL_FILES, How, Machine, Progress, refuse_ignored, scenario_of
from npusim.config import Override
from npusim.config.overrides import Settings, as_overrides
from npusim.errors import ConfigError, as_list
from npusim.mapping import Granularity
from npusim.scenario import Network, Scenario
from npusim.techniques import Stack, apply

if TYPE_CHECKING:
    from npusim.graph import GraphDifference
    from npusim.studies.map_front import Limits
    from npusim.studies.placement_document import MapFront, Placement
    from npusim.studies.stream import Followed, StorePlan, Update
    from npusim.system.document import MixResult, MixStudy
    from npusim.system.mix import Mix

_BOTH = "latency,energy"


def map(
    network: Network | Scenario,
    soc: Machine = None,
    *,
    minimise: Literal["latency", "energy", "latency,energy"] = "latency",
    devices: str | Sequence[str] | None = None,
    profiles: Sequence[str | Path] = (),
    granularity: Granularity | None = None,
    mapping: str | None = None,
    split: int | None = None,
    dvfs: bool = False,
    max_latency: str | float | None = None,
    max_energy: str | float | None = None,
    max_power: str | float | None = None,
    max_transitions: int | None = None,
    max_share: Mapping[str, float] | Sequence[str] = (),
    exponents: str | tuple[float, float] = "1,1",
    method: Literal["exact", "nsga2", "random"] | None = None,
    evaluations: int = 5000,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Unpack[How],
) -> Placement | MapFront:
    """Place a network over NPU, CPU and GPU at the least latency or energy.

    Counts what every operator costs on each device, the launches, and transfers between devices; the table
    shows what a split after each operator would cost. With several inferences in flight, latency means the
    time between two of them. With --minimise latency,energy the answer is a front within the limits: exact
    for a chain of blocks, by dynamic programming over blocks and devices; by NSGA-II for other networks.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`.
    minimise : {"latency", "energy", "latency,energy"}
        What the placement minimises; with both, the front of placements of a chain of blocks.
    devices : sequence of str, or str with commas, optional
        Devices to choose from, parted by commas. None: all there are
    profiles : sequence of str or Path
        Measured times of this network's operators on a device, from `npusim measure WORKLOAD`: they replace
        the model's. Repeatable: one file per device.
    granularity : {"operator", "layer", "block"}, optional
        What is placed as one. None: operator; block with two objectives
    mapping : str, optional
        Cost this placement too: a letter a block; of a Vision GNN stem, graphers, FFNs and head, such as
        G/GGGG/DDDD/G. A letter is the first of its device's name that no other has (G gpu, D dla; of dsa_k
        and dsa_y K and Y); the answer's second line says which is which.
    split : int from 2 to 16, optional
        Place over so many devices of the main one's kind, too, and compare with shares of each operator by
        rows or channels; devices that the machine lacks are added. None: do not
    dvfs : bool
        Try every combination of operating points.
    max_latency : str or float (s), optional
        At most, such as 20ms.
    max_energy : str or float (J), optional
        At most, such as 100mJ.
    max_power : str or float (W), optional
        Mean of the package, such as 5W.
    max_transitions : int of at least 0, optional
        How often work may pass to another device.
    max_share : mapping of str to float, or sequence of str
        Share of the blocks on a device, such as gpu=0.5. Repeatable.
    exponents : str or pair of float
        Exponents of energy and latency in the product that picks one.
    method : {"exact", "nsga2", "random"}, optional
        How placements are found. None: exact for chains of blocks, nsga2 for other networks
    evaluations : int of at least 1
        Placements that a search costs.
    seed : int of at least 0
        Of a search.
    progress : callable, optional
        Called with the settings done and their number.

    Returns
    -------
    Placement or MapFront
        The best placement, or with two objectives the front.

    Examples
    --------
    >>> import npusim
    >>> npusim.map("gcn-cora", devices=["npu", "cpu"]).exact
    True

    Command lines
    -------------
        npusim map gcn-cora
        npusim map gat-cora --techniques effop --devices npu,cpu --minimise energy
        npusim map vig-s --granularity block
        npusim map bert-base --split 2
        npusim map sage-max-cora --hint throughput --format json
        npusim map magnas-vig --minimise latency,energy --devices npu,gpu --max-transitions 4
        npusim map vit --minimise latency,energy --dvfs --max-power 5W -o front.html
        npusim measure gcn-cora --device CPU -o cpu.json && npusim map gcn-cora --profile cpu.json
    """
    scenario, names = scenario_of(network, soc, how), [name.lower() for name in as_list(devices)] or None
    if minimise != _BOTH:
        from npusim.measuring.models import operator_profiles
        from npusim.studies.placement import place

        amounts = {"max_latency": max_latency, "max_energy": max_energy, "max_power": max_power}
        of_fronts: dict[str, Any] = amounts | {"max_transitions": max_transitions, "max_share": max_share}
        of_fronts |= {"dvfs": dvfs, "mapping": mapping, "method": method, "exponents": exponents}
        of_fronts |= {"evaluations": evaluations, "seed": seed}
        usual: dict[str, Any] = {"exponents": "1,1", "evaluations": 5000, "seed": 0}
        refuse_ignored(of_fronts, f"it goes with --minimise {_BOTH}", usual)
        scenario.load()
        measured = operator_profiles(profiles, scenario) if profiles else []
        size = granularity or "operator"
        objective: Literal["latency", "energy"] = "energy" if minimise == "energy" else "latency"
        ways, machine = None, scenario
        if split is not None:
            from npusim.studies.placement import divided, on_equal_devices

            ways = divided(scenario, split)
            machine = scenario.on(on_equal_devices(scenario.machine, split)[0])
        result = place(machine, minimise=objective, devices=names, profiles=measured, granularity=size)
        return result.model_copy(update={"divided": ways})
    of_one = {"profile": profiles, "split": split}
    refuse_ignored(of_one, f"it goes with one objective, not --minimise {_BOTH}")
    from npusim.studies.evolution import Budget
    from npusim.studies.map_front import map_front

    return map_front(
        scenario.load(),
        devices=names,
        limits=limits_of(max_latency, max_energy, max_power, max_transitions, max_share),
        operating_points=dvfs,
        exponents=_pair(exponents, *_EXPONENTS),
        mapping=mapping,
        method=method,
        granularity=granularity or "block",
        budget=Budget(evaluations=evaluations, seed=seed),
        tell=progress or (lambda done, total: None),
    )


def limits_of(
    max_latency: str | float | None = None,
    max_energy: str | float | None = None,
    max_power: str | float | None = None,
    max_transitions: int | None = None,
    max_share: Mapping[str, float] | Sequence[str] | None = None,
) -> Limits:
    """Return the limits of a placement: texts with units, or numbers in SI units."""
    from npusim.studies.map_front import Limits
    from npusim.units import Duration, Energy, Power

    shares = max_share if isinstance(max_share, Mapping) else named_numbers(max_share or (), *_SHARES)
    return Limits(
        _amount("max-latency", max_latency, Duration),
        _amount("max-energy", max_energy, Energy),
        _amount("max-power", max_power, Power),
        max_transitions,
        {name.lower(): share for name, share in shares.items()},
    )


def _amount(name: str, value: str | float | None, of: Any) -> float | None:
    """Return a quantity in SI units: a number is in them already, a text has a unit."""
    from pydantic import TypeAdapter, ValidationError

    if value is None or not isinstance(value, str):
        return value
    try:
        return float(TypeAdapter(of).validate_python(value))
    except ValidationError as error:
        raise ConfigError(f"`{value}`", file=f"--{name}", allowed=of.__metadata__[0].allowed) from error


def named_numbers(texts: Sequence[str], option: str, allowed: str, most: float = inf) -> dict[str, float]:
    """Return numbers from 0 to `most` by name, from texts such as ``add_node=1``; each name once."""
    numbers: dict[str, float] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name in numbers:
            raise ConfigError(f"`{name}` a second time", file=option, allowed="each name once")
        (numbers[name],) = as_numbers([value], float, option, allowed, most)
    return numbers


def _pair(
    pair: str | tuple[float, float], option: str, allowed: str, most: float, least: float = 0.0
) -> tuple[float, float]:
    """Return two numbers up to `most`, not both 0, none of them below `least`."""
    numbers = as_numbers(pair, float, option, allowed, most)
    if len(numbers) != 2 or not any(numbers) or min(numbers) < least:
        raise ConfigError(f"`{pair}`", file=option, allowed=allowed)
    return numbers[0], numbers[1]


_EXPONENTS = "--exponents", "two numbers from 0 to 100, not both 0, such as 1,1", 100.0
_RATES = "--rates", "two numbers above 0, updates and requests a second, such as 0.05,10", 1e6, 1e-300
_SHARES = "--max-share", "DEVICE=SHARE, a share of 0 to 1", 1.0
_WEIGHTS = "--mix", "EVENT=WEIGHT,... such as add_node=1,add_edge=9"


def stream(
    network: Network | Scenario,
    soc: Machine = None,
    updates: int | str | Path | Sequence[Update] = 200,
    *,
    seed: int = 0,
    mix: str | Mapping[str, float] | None = None,
    capacity: int | None = None,
    kept: str | Sequence[int] | None = None,
    batch: int | None = None,
    accuracy: bool = False,
    data: str | Path | None = None,
    inferences: int = 1,
    rates: tuple[float, float] | str | None = None,
    roots: str | Sequence[int] | None = None,
    stored: str | Sequence[float] | None = None,
    age: int | None = None,
    renew: int | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
    **how: Unpack[How],
) -> Followed:
    """Follow a graph that changes: recompile, pad and mask (NodePad), keep several versions, mini-batches?

    Nodes and edges come and go. Compares the time for compiling, correcting the mask and inferring, the
    memory of the compiled versions, and says up to which capacity padding pays and which way leaves time
    for most inferences at which rate of updates.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`; the network is a workload of kind gnn, or a factory that takes `structure`.
        Settings that begin with `toolchain.` are those of the compiler's data sheet.
    updates : int, str, Path or sequence of Update
        Length of a generated stream.
    seed : int of at least 0
        Seed of a generated stream.
    mix : str or mapping of str to float, optional
        How often add_node, remove_node, add_edge, remove_edge happen. None: 3, 1, 5, 1
    capacity : int from 1 to 1,000,000,000, optional
        Nodes that pad and mask is compiled for. None: whole thousands
    kept : sequence of int, or str with commas, optional
        Capacities compiled beforehand where several blobs are kept. None: four steps up to --capacity
    batch : int of at least 1, optional
        Nodes of a mini-batch. None: 1000, or half the graph
    accuracy : bool
        Train the network on its real data (kept in the cache): what mini-batches cost in accuracy.
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    inferences : int of at least 1
        Inferences after each update.
    rates : pair of float, or str, optional
        Updates and requests a second, such as 0.05,10: both come at random times and wait for each other;
        adds the times to an answer. None: no queues
    roots : sequence of int, or str with commas, optional
        Also answer for batches of so many target nodes, with stored hidden features of nodes answered before
        (sage-concat); --accuracy runs them on real data.
    stored : sequence of float, or str with commas, optional
        Shares of answered nodes that are stored. None: 1
    age : int of at least 0, optional
        Batches after which stored features are dropped. None: never
    renew : int of at least 1, optional
        Batches after which the model is renewed. None: never
    store : str or Path, optional
        Keep stored features here from run to run; needs --accuracy, one size and one share.
    progress : callable, optional
        Called with versions estimated, the most there may be, and the technique stack.

    Notes
    -----
    In Python `updates` may also be a CSV file of events, or the updates themselves.

    Examples
    --------
    >>> import npusim
    >>> npusim.stream("gcn-cora", updates=5).strategies[0].name
    'recompile'

    Command lines
    -------------
        npusim stream gcn-cora
        npusim stream gcn-cora --capacity 3000 --updates 500 --inferences 10
        npusim stream gat-cora --mix add_node=1,add_edge=9 --techniques effop --format json
        npusim stream gcn-cora --events changes.csv --set toolchain.compile_fixed=5s
        npusim stream gcn-cora --kept 2800,2900,3000 --batch 500 -o page.html
        npusim stream gcn-cora --rates 0.05,10
        npusim stream gcn-cora --batch 500 --accuracy --data planetoid
        npusim stream sage-concat-cora --roots 32,64,128,256,512 --renew 10 --accuracy --data planetoid
    """
    from npusim.arch.loading import load_toolchain
    from npusim.studies.stream import follow, stored_features

    scenario = scenario_of(network, soc, how)
    if str(scenario.network).endswith(MODEL_FILES):
        allowed = "a named workload or a workload YAML: a model file says nothing of its data graph"
        raise ConfigError(f"`{scenario.network}`", file="WORKLOAD", allowed=allowed)
    settings = as_overrides(scenario.settings)
    of_toolchain = [one.at(one.path[1:], one.value) for one in settings if one.path[0] == "toolchain"]
    toolchain = load_toolchain(overrides=of_toolchain)
    if of_toolchain:
        scenario = scenario.with_(settings=[one for one in settings if one.path[0] != "toolchain"])
    scenario.load()
    accuracy = accuracy or data is not None
    plan = _store_plan(roots, stored, age, renew, store, accuracy)
    judge = run = None
    if accuracy:
        from npusim.gnn_models.batches import judge_of, runner_of

        folder = None if data is None else Path(data)
        judge, run = judge_of(scenario, folder), runner_of(folder)
    features = None if plan is None else stored_features(scenario, plan, run)
    generated = isinstance(updates, int)
    result = follow(
        scenario,
        _stream_updates(updates, seed, mix),
        toolchain,
        capacity=capacity,
        kept=[] if kept is None else node_counts(kept, "--kept", "2800,2900,3000"),
        batch=batch,
        judge=judge,
        inferences=inferences,
        rates=None if rates is None else _pair(rates, *_RATES),
        seed=seed if generated else None,
        progress=progress,
    )
    return result.model_copy(update={"stored_features": features})


def mix(
    *streams: str | Path | Mix,
    soc: str | Path | None = None,
    settings: Sequence[str | Override] = (),
    scheduler: str | None = None,
    duration: str | None = None,
    requests: int | None = None,
    seed: int | None = None,
    find_rate: str | None = None,
    over: Mapping[str, str | Sequence[Any]] | None = None,
    changes: bool = False,
    placements: bool = False,
    minimise: str | Sequence[str] = "p99_s,power_w,area_mm2",
    judged: str | None = None,
    progress: Progress | None = None,
) -> MixResult | MixStudy:
    """Simulate many networks that share a SoC: response times, tails, deadlines, queues and energy.

    Each stream has arrivals, a deadline, a priority and a batch policy. Service times, DRAM traffic and
    energy come from estimates; DRAM is shared by max-min fairness, as in the event engine.

    Parameters
    ----------
    *streams : str, Path or Mix
        A scenario file (docs/mix.md), or streams NETWORK:ARRIVALS[,KEY=VALUE...]: 30/s, poisson=5/s,
        bursts=8@2/s, closed, trace=FILE.csv; then name, deadline, priority, share, batch=4@5ms, jitter,
        clients, think, inferences, spread, device (npu+npu2: both at once), hint, sram, io, techniques.
    soc : str or Path, optional
        Machine: a name from `npusim list socs` or a SoC YAML. None: that of the file, or the default SoC
    settings : sequence of str
        Change a value of the SoC (npu.sram.per_tile=2MiB). Repeatable.
    scheduler : str, optional
        Order of the queues: fifo, priority, edf, fair, or one of a package. None: that of the file, or fifo
    duration : str, optional
        Simulated time, such as 60s. None: until mean and 99th percentile are known within 5 %
    requests : int from 100 to 100,000,000, optional
        Requests to simulate, about. None: as many as the intervals need, at most 200,000
    seed : int of at least 0, optional
        Of all random numbers. None: that of the file, or 0
    find_rate : str, optional
        Also find the largest rate of this stream at which its 99th percentile keeps the deadline.
    over : mapping of str to sequence, optional
        Simulate every combination of values: settings of the SoC, soc, scheduler, devices.npu.preemption,
        streams.NAME.KEY (streams.* for all). Designs see the same arrivals, with further seeds until a
        comparison is decided. Repeatable.
    changes : bool
        Simulate one change at a time: more tiles, DRAM bandwidth, contexts, preemption, schedulers, a
        second NPU.
    placements : bool
        Simulate every placement of the streams on the devices of the machine; of more than 1,000 those near
        the one that balances the load, with bounds.
    minimise : str or sequence of str
        Objectives of the front of designs: p99_s, mean_s, missed_share, power_w, energy_j, area_mm2.
    judged : str, optional
        Stream whose response times are compared. None: the first with a deadline
    progress : callable, optional
        Called with the number of designs done, their total, and the latest.

    Returns
    -------
    MixResult or MixStudy
        The streams and the resources; with `over`, `changes` or `placements` a row for each design.

    Raises
    ------
    ConfigError
        Where a load is above capacity, a deadline shorter than the service, or a trace empty or unsorted.

    Examples
    --------
    >>> import npusim
    >>> camera = npusim.mix("yolov8n:10/s,deadline=33ms", duration="20s").streams[0]
    >>> camera.mean_s == npusim.estimate("yolov8n").latency_s
    True
    >>> study = npusim.mix("yolov8n:10/s", duration="20s", over={"npu.tiles": [3, 6]})
    >>> [row.at for row in study.rows]
    [{}, {'npu.tiles': '3'}, {'npu.tiles': '6'}]

    Command lines
    -------------
        npusim mix yolov8n:30/s,deadline=33ms llama3.2-1b:closed gcn-cora:poisson=5/s
        npusim mix yolov8n:30/s,deadline=33ms llama3.2-1b:closed --scheduler priority --find-rate yolov8n
        npusim mix laptop.yaml --soc core-ultra-series2 -o mix.html
        npusim mix laptop.yaml --changes
        npusim mix laptop.yaml --over npu.tiles=2,4,6 --over scheduler=priority,edf
    """
    from npusim.system.answering import answer
    from npusim.system.mix import load_mix

    fields = {"soc": None if soc is None else str(soc), "scheduler": scheduler, "duration": duration}
    overrides = {".".join(one.path): one.value for one in as_overrides(settings or ())}
    scenario = load_mix(streams, **fields, requests=requests, seed=seed, set=overrides)
    kinds = {"--over": over, "--changes": changes, "--placements": placements}
    asked = [name for name, value in kinds.items() if value]
    if not asked:
        of_designs = {"judged": judged, "minimise": minimise}
        usual = {"minimise": "p99_s,power_w,area_mm2"}
        refuse_ignored(of_designs, f"only with {', '.join(kinds)}", usual)
        return answer(scenario, find_rate)
    if len(asked) > 1:
        raise ConfigError(" and ".join(asked), file="mix", allowed="one of them")
    refuse_ignored({"find_rate": find_rate}, f"without {asked[0]}")
    from npusim.explore import mix_study

    values = {path: as_list(listed) for path, listed in (over or {}).items()}
    designs = mix_study.usual_changes(scenario) if changes else mix_study.combinations(values)
    designs, notes = mix_study.placements(scenario) if placements else (designs, [])
    return mix_study.study_mix(scenario, designs, as_list(minimise), judged, progress, notes)


def show(
    network: Network | Scenario,
    after: str | Stack,
    *,
    techniques: str | Stack | None = None,
    settings: Settings = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Any = None,
) -> GraphDifference:
    """Show the operator graph of a network before and after a technique stack, and what changed.

    A technique is a pass over the graph. Operators that it removes, adds or changes are listed; with -o
    page.html both graphs are drawn.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module, callable or Scenario
        As for `estimate`.
    after : str or Stack
        Technique stack of the second graph, such as stagr+quantgr.
    techniques : str or Stack, optional
        Technique stack of the first graph. None: the network as it is
    settings, shapes, inputs
        As for `npusim.Scenario`.

    Examples
    --------
    >>> import npusim
    >>> difference = npusim.show("gcn-cora", "stagr")
    >>> [operator.type for operator in difference.added]
    ['MatMul', 'MatMul']

    Command lines
    -------------
        npusim show gcn-cora --after stagr
        npusim show gat-cora --techniques stagr --after stagr+quantgr+grax1
        npusim show gcn-cora --after stagr+symg -o graphs.html
    """
    fields = {"techniques": techniques, "settings": settings, "shapes": shapes, "inputs": inputs}
    scenario = scenario_of(network, None, {name: value for name, value in fields.items() if value})
    from npusim.graph import graph_difference

    return graph_difference(scenario.graph, apply(scenario.baseline, after))


def _stream_updates(
    updates: int | str | Path | Sequence[Update], seed: int, mix: str | Mapping[str, float] | None
) -> Sequence[Update]:
    """Return the updates of a stream: generated, read from a file, or as they are."""
    from npusim.studies.stream import generated, read_events
    from npusim.studies.stream.updates import MIX

    if isinstance(updates, int):
        weights = named_numbers(mix.split(","), *_WEIGHTS) if isinstance(mix, str) else mix
        return generated(updates, seed, MIX if weights is None else weights)
    refuse_ignored({"mix": mix}, "only with a generated stream")
    return read_events(Path(updates)) if isinstance(updates, str | Path) else updates


def _store_plan(
    roots: str | Sequence[int] | None,
    stored: str | Sequence[float] | None,
    age: int | None,
    renew: int | None,
    store: str | Path | None,
    accuracy: bool,
) -> StorePlan | None:
    """Return how hidden features are stored; None without batch sizes."""
    from npusim.studies.stream import StorePlan

    if not accuracy:
        refuse_ignored({"store": store}, "only with --accuracy, which runs on real data")
    if roots is None:
        of_roots = {"stored": stored, "age": age, "renew": renew, "store": store}
        refuse_ignored(of_roots, "only with --roots N,N,...")
        return None
    sizes = node_counts(roots, "--roots", "64,128,256,512")
    texts = "1" if stored is None else stored
    shares = as_numbers(texts, float, "--stored", "shares from 0 to 1, such as 0.5,1", 1.0)
    if store is not None and len(sizes) * len(shares) > 1:
        allowed = "one size of --roots and one share of --stored: a store is one run's"
        raise ConfigError(f"`{store}`", file="--store", allowed=allowed)
    return StorePlan(sizes, shares, age, renew, file=None if store is None else Path(store))
