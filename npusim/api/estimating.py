"""Calls that estimate: each makes a `Scenario` and hands it to an engine or a study."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from npusim.arch import Soc
from npusim.config.overrides import Settings
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import ConfigError, UnknownNameError
from npusim.locate import DEFAULT_SOC
from npusim.mapping import SwapOperands
from npusim.scenario import Network, Scenario
from npusim.studies.uncertainty import SAMPLES, with_interval
from npusim.techniques import Stack, completed

if TYPE_CHECKING:
    from npusim.studies.comparison import WhatIf
    from npusim.studies.placement_document import Placement
    from npusim.studies.side_by_side import Comparison
    from npusim.studies.stream import Followed, StorePlan, Update

_ENGINES = ("analytical", "event")


class What(TypedDict, total=False):
    """What is done to a network before it runs: fields of `Scenario`."""

    techniques: str | Stack
    settings: Settings
    shapes: Mapping[str, Sequence[int]] | None
    inputs: Any


class How(What, total=False):
    """How a network is asked about: the fields of `Scenario` beside network and SoC."""

    hint: str
    requests: int | None
    tiles: int | Literal["all"] | None
    device: str
    swap_operands: SwapOperands


class Common(How, total=False):
    """What holds for all runs of a comparison: all fields of `Scenario` but the network."""

    soc: Soc | str | Path


def estimate(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    *,
    engine: str = "analytical",
    interval: bool | None = None,
    every_tile: bool = False,
    **how: Unpack[How],
) -> Estimate:
    """Estimate what one inference of a network costs on a SoC.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module, callable or Scenario
        A graph, the name or file of a workload or model, a PyG or torch module with `inputs`, or a factory of
        graphs. A `Scenario` holds everything but `engine` and `interval`.
    soc : Soc, str or Path
        From `npusim.load_soc`, or its name or file.
    engine : {"analytical", "event"}
        Closed-form sum, or event simulation.
    interval : bool, optional
        Whether to find the 90 % interval of the latency; None: where the SoC was fitted to measurements. By
        the analytical engine only.
    every_tile : bool
        Event engine: whether to simulate every turn of a loop; default: extrapolate the steady state, which
        moves no figure by more than 0.1 %.
    **how
        techniques, hint, requests, tiles, device, swap_operands, settings, shapes, inputs: as for
        `npusim.Scenario`.

    Returns
    -------
    Estimate
        Figures as attributes; `to_frame()` has the operators, `timeline` the event engine's run.

    Examples
    --------
    >>> import npusim
    >>> graph = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
    >>> e = npusim.estimate(graph, npusim.load_soc("core-ultra-series2"))
    >>> e.operators[0].unit
    'npu.dpu'
    >>> e == npusim.estimate("gcn-cora", techniques="stagr")
    True
    >>> npusim.estimate("gcn-cora", techniques="stagr", engine="event").engine
    'event'
    """
    if engine not in _ENGINES:
        raise UnknownNameError("engine", engine, _ENGINES)
    if every_tile and engine != "event":
        raise ConfigError(f"the {engine} engine", file="every_tile", allowed='engine="event"')
    scenario = scenario_of(network, soc, how)
    with _garbage_kept():
        if engine == "event":
            from npusim.engines.event import event_estimate

            return event_estimate(scenario, every_tile)
        found = mapped_estimate(scenario.mapped)
        wanted = scenario.machine.calibration is not None if interval is None else interval
        return with_interval(found, scenario.mapped) if wanted else found


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Let Python look for garbage rarely: of ten thousand operators that is a sixth of the time."""
    usual, *others = gc.get_threshold()
    gc.set_threshold(max(usual, 200_000) if usual else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(usual, *others)


def compare(
    *what: Network | Soc | Stack | Scenario | Estimate, engine: str = "analytical", **how: Unpack[Common]
) -> Comparison:
    """Compare networks, SoCs, technique stacks, scenarios or estimates, as `npusim compare` does.

    Parameters
    ----------
    *what
        Several networks, SoCs or stacks, by name, file or as objects, and one of another kind that holds for
        all; or several scenarios, estimates and files of estimates. The first is what ratios are to.
    engine : {"analytical", "event"}
        As for `estimate`.
    **how
        Fields of `npusim.Scenario` that hold for all: soc, techniques, hint, requests, tiles, device,
        swap_operands, settings, shapes, inputs.

    Examples
    --------
    >>> import npusim
    >>> found = npusim.compare("gcn-cora", "stagr", "stagr+quantgr")
    >>> found.differ_in, found.runs[1].ratios["dram_bytes"] < 1.0
    ('techniques', True)
    """
    from npusim.studies.side_by_side import compare as side_by_side

    return side_by_side(what, how, lambda scenario: estimate(scenario, engine=engine))


def whatif(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    stacks: Sequence[str] | str = "default",
    *,
    over: Mapping[str, Sequence[str]] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    **how: Unpack[How],
) -> WhatIf:
    """Compare technique stacks on a network.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`; techniques are not looked at.
    stacks : sequence of str, or str
        Technique stacks, the baseline first; or what `npusim whatif --stack` takes: "default" are those that
        fit the network: all that apply, stacked by what they gain.
    over : mapping of str to sequence of str, optional
        Settings to vary, with their values: every combination is compared.
    samples, seed : int
        Machines drawn for the 90 % intervals (0: none), and the seed of the draws.

    Examples
    --------
    >>> import npusim
    >>> gcn, soc = npusim.load_workload("gcn-cora"), npusim.load_soc("core-ultra-series2")
    >>> compared = npusim.whatif(gcn, soc, ["stagr", "stagr+symg"])
    >>> compared.variants[1].step_from
    'stagr'
    """
    from npusim.studies.over import whatif_over

    scenario, added = scenario_of(network, soc, how), None
    from npusim.studies.fitting_stacks import fitting_stacks
    from npusim.studies.whatif import whatif as of_stacks

    left_out = ""
    if stacks == "default":
        fitting = fitting_stacks(scenario)
        stacks, left_out = fitting.stacks, fitting.left_out
    elif isinstance(stacks, str):
        chosen, added = completed(scenario.baseline, stacks)
        stacks = [str(one) for one in chosen]
    if over:
        result = whatif_over(scenario, stacks, over, samples=samples, seed=seed)
    else:
        result = of_stacks(scenario, stacks, samples=samples, seed=seed)
    notes = [added, *result.notes] if added else result.notes
    return result.model_copy(update={"notes": notes, "left_out": left_out})


def place(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    *,
    minimise: Literal["latency", "energy"] = "latency",
    devices: Sequence[str] | None = None,
    profiles: Sequence[str | Path] = (),
    granularity: Literal["operator", "layer", "block"] = "operator",
    **how: Unpack[How],
) -> Placement:
    """Find the best placement of a network over the devices of a SoC, as `npusim map` does.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`.
    devices : sequence of str, optional
        Devices to choose from; None: all that the SoC has, of npu, cpu and gpu.
    profiles : sequence of str or Path
        Files of `npusim measure` with times of this network's operators, one for each device measured: they
        replace the model's.
    granularity : {"operator", "layer", "block"}
        What is placed as one: operators that run as one, those of one module, or of one block.

    Examples
    --------
    >>> import npusim
    >>> npusim.place("gcn-cora", devices=["npu", "cpu"]).exact
    True
    """
    from npusim.studies.placement import place as best_placement

    scenario, measured = scenario_of(network, soc, how), []
    if profiles:
        from npusim.measure.predicting import operator_profiles

        measured = operator_profiles(profiles, scenario)
    return best_placement(
        scenario, minimise=minimise, devices=devices, profiles=measured, granularity=granularity
    )


def stream(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    updates: int | str | Path | Sequence[Update] = 200,
    *,
    capacity: int | None = None,
    kept: Sequence[int] = (),
    batch: int | None = None,
    data: str | Path | None = None,
    inferences: int = 1,
    seed: int = 0,
    toolchain: Settings = (),
    stored: StorePlan | None = None,
    **how: Unpack[How],
) -> Followed:
    """Follow a data graph that changes: recompile, pad and mask, keep several versions, or mini-batches.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`; the network is a workload of kind gnn, or a factory that takes `structure`.
    updates : int, str, Path or sequence of Update
        Length of a generated stream, a CSV file of events, or the updates themselves.
    capacity : int, optional
        Nodes that pad and mask is compiled for.
    kept : sequence of int
        Capacities that are compiled beforehand where several blobs are kept; empty: four up to `capacity`.
    batch : int, optional
        Nodes of a mini-batch; None: a thousand, or half of the graph.
    data : str or Path, optional
        Folder with the raw data sets: a workload is trained on its own and judged batch by batch; None:
        batches lose edges at random, and no accuracy is told.
    inferences : int
        Inferences after each update.
    seed : int
        Seed of a generated stream.
    toolchain : settings
        Settings of the compiler's data sheet, such as "compile_fixed=5s".
    stored : StorePlan, optional
        Batches of target nodes with stored hidden features (sage-concat), run for real where `data` is given.

    Examples
    --------
    >>> import npusim
    >>> npusim.stream("gcn-cora", updates=5).strategies[0].name
    'recompile'
    """
    from npusim.arch.loading import load_toolchain
    from npusim.studies.stream import follow, generated, read_events, stored_features

    scenario, drawn = scenario_of(network, soc, how), isinstance(updates, int)
    if isinstance(updates, int):
        updates = generated(updates, seed)
    elif isinstance(updates, str | Path):
        updates = read_events(Path(updates))
    judge = run = None
    if data is not None:
        from npusim.accuracy.batches import judge_of, runner_of

        judge, run = judge_of(scenario, Path(data)), runner_of(Path(data))
    features = stored_features(scenario, stored, run) if stored is not None else None
    found = follow(
        scenario, updates, load_toolchain(overrides=toolchain),
        capacity=capacity, kept=kept, batch=batch, judge=judge, inferences=inferences,
        seed=seed if drawn else None,
    )  # fmt: skip
    return found.model_copy(update={"stored_features": features})


def scenario_of(network: Network | Scenario, soc: Soc | str | Path, how: How) -> Scenario:
    """Return what is asked as a scenario."""
    return network if isinstance(network, Scenario) else Scenario(network, soc, **how)
