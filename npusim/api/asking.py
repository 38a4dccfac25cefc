"""Calls that ask about a network: each hands a `Scenario` to an engine or a study.

The docstrings are the help of the command line too: what stands under a parameter is shown beside its option.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from npusim.api import node_counts
from npusim.arch import Soc
from npusim.arch.npu import MappingObjective
from npusim.config.overrides import Settings
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import ConfigError, NpusimError, UnknownNameError, as_list
from npusim.locate import DEFAULT_SOC
from npusim.mapping import SwapOperands
from npusim.metrics import SAMPLES
from npusim.plugins import announced, named
from npusim.scenario import Network, Scenario, split_settings
from npusim.techniques import Stack, completed
from npusim.workloads import load_gnn

if TYPE_CHECKING:
    from npusim.mapping import MappingFile, OwnMapping
    from npusim.studies.advice import Advice
    from npusim.studies.comparison import WhatIf
    from npusim.studies.side_by_side import Comparison
    from npusim.system.document import MixStudy

Machine = Soc | str | Path | None
"""A SoC, its name or its file; None: the default SoC."""
Progress = Callable[..., None]
"""Called with the work done, the total and the present step."""
_ENGINES = ("analytical", "event")
MODEL_FILES = (".xml", ".onnx")


class What(TypedDict, total=False):
    """Fields of `Scenario` that say what a network is before it runs."""

    techniques: str | Stack
    settings: Settings
    shapes: Mapping[str, Sequence[int]] | None
    inputs: Any


class How(What, total=False):
    """Fields of `Scenario` other than network and SoC."""

    hint: str
    requests: int | None
    tiles: int | Literal["all"] | None
    device: str
    swap_operands: SwapOperands
    first: bool
    mapping_objective: MappingObjective | None


class Placed(How, total=False):
    """As `How`, with a mapping of one's own."""

    mapping: OwnMapping | MappingFile | str | Path | Mapping[str, Any] | None


class Common(Placed, total=False):
    """All fields of `Scenario` but the network."""

    soc: Soc | str | Path


def scenario_of(
    network: Network | Scenario, soc: Machine = None, how: Mapping[str, Any] = MappingProxyType({})
) -> Scenario:
    """Return the scenario that a call is about.

    Raises
    ------
    ConfigError
        For an argument beside a `Scenario`, which says everything itself.
    """
    if not isinstance(network, Scenario):
        return Scenario(network, DEFAULT_SOC if soc is None else soc, **how)
    refuse_ignored(
        {"soc": soc, **how}, "no such argument with a Scenario; change it by `scenario.with_(...)`"
    )
    return network


def refuse_ignored(
    arguments: Mapping[str, Any], allowed: str, usual: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Raise a `ConfigError` that names the first argument that a call would ignore, if there is any.

    Arguments that are empty, or have their usual value, say nothing.
    """
    for name, value in arguments.items():
        is_plain = isinstance(value, str | Path | int | float) and not isinstance(value, bool)
        is_empty = isinstance(value, bool | str | list | tuple | dict) and not value
        if value is None or is_empty or (name in usual and value == usual[name]):
            continue
        found = f"`{value}`" if is_plain else "a value"
        raise ConfigError(found, file=f"--{name.replace('_', '-')}", allowed=allowed)


def changed(arguments: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return the arguments that differ from their defaults; each comes with its default."""
    return {name: value for name, (value, default) in arguments.items() if value != default}


def without_techniques(
    network: Network | Scenario, soc: Machine, how: Mapping[str, Any], allowed: str
) -> Scenario:
    """Return the scenario of a call that chooses the techniques itself; refuse techniques."""
    scenario = scenario_of(network, soc, how)
    if "techniques" in how or str(scenario.techniques) != "none":
        raise ConfigError(f"techniques `{scenario.techniques}`", allowed=allowed)
    return scenario


def of_workload(settings: Settings, why: str) -> list[Any]:
    """Return settings of a workload; refuse settings of a SoC, and say why."""
    own, others = split_settings(settings)
    if others:
        raise ConfigError(
            f"`{'.'.join(others[0].path)}`",
            file=others[0].origin,
            allowed=f"settings of the workload, such as workload.hidden=128{why}",
        )
    return own


def estimate(
    network: Network | Scenario,
    soc: Machine = None,
    *,
    engine: str = "analytical",
    interval: bool | None = None,
    sustained: bool = False,
    split: int | None = None,
    every_tile: bool = False,
    **how: Unpack[Placed],
) -> Estimate:
    """Estimate latency, throughput, energy and memory traffic of a network.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module, callable or Scenario
        A graph, the name or file of a workload or model, a PyG or torch module with `inputs`, or a factory of
        graphs. A `Scenario` says how it runs too: an argument beside it is refused.
    soc : Soc, str or Path
        From `npusim.load_soc`, or its name or file.
    engine : str
        analytical: closed-form sum; event: simulation of every tile; or an installed package's own by name.
    interval : bool, optional
        Find 90 % intervals of latency, energy, power and area from the data sheet's uncertainties. A SoC that
        was fitted to measurements always gets them.
    sustained : bool
        Also say what a package sustains when inferences follow each other without end: how long a burst
        lasts until power or heat limits it, and the throughput after it.
    split : int from 2 to 16, optional
        Also divide the network over so many devices of the main one's kind, by requests, rows, channels or
        layers; devices that the machine lacks are added. None: do not
    every_tile : bool
        Event engine: simulate every loop iteration. By default some are simulated and the steady state is
        extrapolated, which moves no figure by more than 0.1 %; --trace simulates all.
    **how
        techniques, hint, requests, tiles, device, swap_operands, first, mapping_objective, mapping, settings,
        shapes, inputs: as for `npusim.Scenario`.

    Returns
    -------
    Estimate
        Figures as attributes; `to_frame()` has the operators.

    Examples
    --------
    >>> import npusim
    >>> graph = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
    >>> e = npusim.estimate(graph, npusim.load_soc("core-ultra-series2"))
    >>> e.operators[0].unit
    'npu.dpu'

    Command lines
    -------------
        npusim estimate gcn-cora
        npusim estimate gat-cora --techniques stagr+effop+quantgr --hint throughput
        npusim estimate gcn-cora --set npu.tiles=4 --set workload.hidden=128
        npusim estimate gcn-cora --techniques stagr --engine event --trace run.json --advice
        npusim estimate my_model.onnx --shape 'input=[1,3,224,224]' -o result.json
        npusim estimate bert-base --split 2 -o page.html
        npusim estimate gcn-cora --save-mapping nests.yaml
        npusim estimate gcn-cora --mapping nests.yaml --engine event
    """
    others = announced("npusim.engines")
    if engine not in (*_ENGINES, *others):
        raise UnknownNameError("engine", engine, (*_ENGINES, *others))
    for option, is_set, needed in (("every-tile", every_tile, "event"), ("interval", interval, "analytical")):
        if is_set and engine != needed:
            raise ConfigError(f"the {engine} engine", file=f"--{option}", allowed=f"--engine {needed}")
    scenario = scenario_of(network, soc, how)
    with _rare_garbage_collection():
        if engine == "event":
            from npusim.engines.event import event_estimate

            result = event_estimate(scenario, every_tile)
        elif engine in others:
            with named(others[engine], "engine"):
                own = Estimate.model_validate(others[engine].load()(scenario))
            result = own.model_copy(update={"engine": engine})
        else:
            result = mapped_estimate(scenario.mapped)
        if sustained:
            from npusim.studies.sustained import with_sustained

            result = with_sustained(result, scenario.machine)
        is_asked = scenario.machine.calibration is not None if interval is None else interval
        if engine == "analytical" and is_asked:
            from npusim.studies.uncertainty import with_interval

            result = with_interval(result, scenario.mapped)
    if split is None:
        return result
    from npusim.studies.placement import divided

    return result.model_copy(update={"divided": divided(scenario, split)})


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: with ten thousand operators it takes a sixth of the time."""
    usual, *others = gc.get_threshold()
    gc.set_threshold(max(usual, 200_000) if usual else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(usual, *others)


def compare(
    *what: Network | Soc | Stack | Scenario | Estimate,
    engine: str = "analytical",
    interval: bool | None = None,
    **how: Unpack[Common],
) -> Comparison:
    """Compare networks, SoCs or technique stacks side by side, operator by operator.

    Operators are matched by name; ratios are those to the first. Options say what holds for all.

    Parameters
    ----------
    what
        Networks, SoCs or technique stacks, by name or file: several of one kind, and one of another that
        holds for all. Or files that `npusim estimate -o FILE.json` wrote.
    engine : {"analytical", "event"}
        Closed-form sum, or simulation of every tile and transfer and what each waits for.
    interval : bool, optional
        Find 90 % intervals from the data sheet's uncertainties. A SoC that was fitted to measurements has
        them unless False
    **how
        Fields of `npusim.Scenario` that hold for all: soc, techniques, hint, requests, tiles, device,
        swap_operands, first, mapping_objective, settings, shapes, inputs.

    Notes
    -----
    In Python also graphs, SoCs, stacks, scenarios and estimates as objects.

    Examples
    --------
    >>> import npusim
    >>> comparison = npusim.compare("gcn-cora", "stagr", "stagr+quantgr")
    >>> comparison.differ_in, comparison.runs[1].ratios["dram_bytes"] < 1.0
    ('techniques', True)

    Command lines
    -------------
        npusim compare gcn-cora stagr stagr+quantgr
        npusim compare gcn-cora core-ultra-series1 core-ultra-series2 --techniques stagr
        npusim compare gcn-cora gat-cora --hint throughput
        npusim compare before.onnx after.onnx -o comparison.html
        npusim compare monday.json today.json      (written by npusim estimate -o)
    """
    from npusim.studies.side_by_side import compare as side_by_side
    from npusim.studies.side_by_side import kind_of

    if any(kind_of(one) == "estimate" for one in what):
        refuse_ignored(how, "no option with scenarios or estimates, which say how they run")
    return side_by_side(what, how, lambda scenario: estimate(scenario, engine=engine, interval=interval))


def whatif(
    network: Network | Scenario,
    soc: Machine = None,
    stacks: Sequence[str] | str = "default",
    *,
    over: Mapping[str, str | Sequence[Any]] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    scheduler: bool = False,
    accuracy: bool = False,
    data: str | Path | None = None,
    progress: Progress | None = None,
    **how: Unpack[How],
) -> WhatIf | MixStudy:
    """Compare technique stacks: what would SymG, CacheG or INT8 give this network?

    Starts from the best that runs today with the same results; the network without techniques stands above
    it on each device. Then a waterfall of what each technique adds, with 90 % intervals that follow from the
    uncertainties of the data sheet, what was left out and why, and what more of each resource saved when it
    was tried on the best stack.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`, without techniques: `stacks` names them. A scenario file of a mix (docs/mix.md) is
        simulated under one change at a time, as by `npusim.mix(file, changes=True)`.
    stacks : sequence of str, or str
        A named list (paper, all, storage), or stacks parted by commas. The first is the baseline; for a
        single one that is `none`. Stacks that need a ready-made matrix get stagr. Default: what fits the
        network, stacked by gain.
    over : mapping of str to sequence, optional
        Compare at each of these values, and find where stacks change places. Repeatable: every combination.
    samples : int
        Machines drawn for the 90 % intervals; 0: no intervals.
    seed : int of at least 0
        Seed of the draws behind the 90 % intervals.
    scheduler : bool
        Also what a perfect scheduler would save on the best stack, and the bound for any scheduler: weights
        prefetched and kept in SRAM, layers depth-first (npu.schedule).
    accuracy : bool
        Also train the model on its real data, found by --data, and say how many test nodes each stack
        classifies correctly. Needs the extra `gnn`.
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    progress : callable, optional
        Called with the share of the training that is done, 1.0 and the present step.

    Examples
    --------
    >>> import npusim
    >>> gcn, soc = npusim.load_workload("gcn-cora"), npusim.load_soc("core-ultra-series2")
    >>> compared = npusim.whatif(gcn, soc, ["stagr", "stagr+symg"])
    >>> compared.variants[1].step_from
    'stagr'

    Command lines
    -------------
        npusim whatif gcn-cora
        npusim whatif gcn-cora --hint throughput --tiles 4 --stack paper --html waterfall.html
        npusim whatif gat-cora --stack stagr,stagr+quantgr,stagr+effop+quantgr
        npusim whatif gcn-cora --set npu.sparsity.decompress_activations=true
        npusim whatif gcn-cora --stack symg,cacheg,symg+cacheg --over npu.sram.per_tile=1MiB,2MiB,4MiB
        npusim whatif resnet-50 --stack none --scheduler
        npusim whatif laptop.yaml
    """
    from npusim.api.planning import mix
    from npusim.studies.fitting_stacks import fitting_stacks
    from npusim.studies.over import refuse_impossible_values, whatif_over
    from npusim.studies.whatif import whatif as of_stacks
    from npusim.system.document import MixStudy
    from npusim.system.mix import is_mix

    stacks_only = "`stacks`: this call compares the stacks that they name"
    scenario = without_techniques(network, soc, how, stacks_only)
    if is_mix(scenario.network):
        options = {"over": over, "scheduler": scheduler, "accuracy": accuracy, "stack": stacks}
        refuse_ignored(options, "for a network; see npusim mix", {"stack": "default"})
        machine = None if scenario.soc == DEFAULT_SOC else str(scenario.soc)
        study = mix(str(scenario.network), soc=machine, settings=list(scenario.settings), changes=True)
        assert isinstance(study, MixStudy)  # several designs
        return study
    if accuracy:
        _refuse_unjudgeable(scenario, data, "--accuracy")
    else:
        refuse_ignored({"data": data}, "only with --accuracy")
    values = {path: as_list(listed) for path, listed in (over or {}).items()}
    refuse_impossible_values(scenario, values)
    refuse_ignored({"scheduler": values and scheduler}, "one machine: leave out --over")
    added, left_out, bars = None, "", ""
    if stacks == "paper":
        from npusim.validation.granite import paper_bars

        bars = paper_bars(str(network))
    if stacks == "default":
        fitting = fitting_stacks(scenario)
        stacks, left_out = fitting.stacks, fitting.left_out
    elif isinstance(stacks, str):
        chosen, added = completed(scenario.baseline, stacks)
        stacks = [str(stack) for stack in chosen]
    if values:
        result = whatif_over(scenario, stacks, values, samples=samples, seed=seed)
    else:
        result = of_stacks(scenario, stacks, samples=samples, seed=seed, is_scheduled=scheduler)
    notes = [*filter(None, (added, bars)), *result.notes]
    result = result.model_copy(update={"notes": notes, "left_out": left_out})
    folder = None if data is None else Path(data)
    return _with_accuracy(result, scenario, folder, progress) if accuracy else result


def _refuse_unjudgeable(scenario: Scenario, data: str | Path | None, option: str) -> None:
    """Refuse a network that npusim cannot train, or whose raw data is missing."""
    from npusim.gnn_models.planetoid import raw_folder

    network = scenario.network
    if not isinstance(network, str | Path):
        allowed = "a workload that npusim trains: a name from `npusim list workloads`, or a workload YAML"
        raise ConfigError("a network without data", file=option, allowed=allowed)
    spec = load_gnn(str(network), split_settings(scenario.settings)[0])
    raw_folder(spec.dataset, None if data is None else Path(data))


def _with_accuracy(
    result: WhatIf, scenario: Scenario, data: Path | None, progress: Progress | None
) -> WhatIf:
    """Return a comparison with the accuracy of each stack, from one training on the raw data."""
    at = {id(variant): _model_settings(variant.at) for variant in result.variants}
    stacks: dict[tuple[str, ...], list[str]] = {point: [] for point in at.values()}
    for variant in result.variants:
        stacks[at[id(variant)]].append(variant.techniques)
    found = {point: _accuracies(scenario, some, data, point, progress) for point, some in stacks.items()}
    variants = [
        variant.model_copy(update={"accuracy": found[at[id(variant)]].get(variant.techniques)})
        for variant in result.variants
    ]
    return result.model_copy(update={"variants": variants})


def _accuracies(
    scenario: Scenario,
    stacks: Sequence[str],
    data: Path | None,
    settings: Settings = (),
    progress: Progress | None = None,
) -> dict[str, float]:
    """Return the accuracy of a trained network by stack; the last number format is the machine's."""
    from npusim.gnn_models.judging import judge

    own = [*split_settings(scenario.settings)[0], *split_settings(settings)[0]]
    report = judge([str(scenario.network)], stacks, data, overrides=own, tell=telling(progress))
    return {one.techniques: one.accuracy for one in report.results}


def _model_settings(at: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings of a point that change the model; 8 bits stand in the stack as quantgr."""
    own = {path: value for path, value in at.items() if path.startswith("workload.")}
    return tuple(f"{path}={value}" for path, value in own.items() if value != "int8")


def telling(progress: Progress | None) -> Callable[[str, float], None] | None:
    """Return a callback that takes a step and a share, for `progress`, which takes share, total and step."""
    if progress is None:
        return None
    return lambda step, share: progress(share, 1.0, step)


_NOT_COMPARED = "answers were not compared, which takes minutes for so many edges; an export compares them"


def advise(
    network: Network | Scenario,
    soc: Machine = None,
    *,
    values: str | Path | None = None,
    export: str | Path | None = None,
    calibration: str | Path | None = None,
    data: str | Path | None = None,
    keep_answers: float = 0.95,
    sizes: str | Path | Sequence[int] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    **how: Unpack[How],
) -> Advice:
    """Say which techniques pay on a network, which would if it were written otherwise, and what to try.

    Takes a workload, a model file, or a module of a Python file, which it runs: `model.py:net`.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`, without techniques: the call finds them. A module with `inputs`, or a file's as
        `model.py:net`, is rewritten with its own numbers, and its answers are compared.
    values : str or Path, optional
        Values of a model file's inputs (edges, features): what is made ready beforehand follows from them,
        and answers are compared on them. A module brings its own.
    export : str or Path, optional
        Write the network under the stack to try as OpenVINO IR, and compare its answers with the original's
        on this machine's CPU.
    calibration : str or Path, optional
        An .npz file with values of the inputs, several along a first axis, from which NNCF takes the ranges
        of 8-bit numbers. None: the example inputs, and others made of them
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    keep_answers : float from 0 to 1
        Least share of rows whose answer the stack to try keeps, where the network's numbers are known.
    sizes : sequence of int, str or Path, optional
        Numbers of nodes of requests, as often as they occur: parted by commas, or a text file. Adds the sizes
        to compile for.
    samples : int
        Machines drawn for the 90 % intervals; 0: no intervals.
    seed : int of at least 0
        Seed of the draws behind the 90 % intervals.

    Examples
    --------
    >>> import npusim
    >>> npusim.advise("gcn-cora", samples=0).today.techniques
    'stagr+quantgr'

    Command lines
    -------------
    npusim advise gat-cora
    npusim advise gcn-cora --data planetoid               # train it, and say what the stacks cost in accuracy
    npusim advise model.py:net --export rewritten.xml     # the stack to try, with the module's own numbers
    npusim advise model.onnx --values inputs.npz --export rewritten.xml
    npusim advise model.py:net --sizes sizes.txt          # numbers of nodes of requests: sizes to compile for
    """
    from npusim.frontends.openvino_write import refuse_target
    from npusim.studies.advice import advise as advice_on
    from npusim.studies.agreement import MOST_COMPARED, NumericalRewriting

    scenario = without_techniques(network, soc, how, "no techniques: this call finds those that pay")
    if data is not None:
        _refuse_unjudgeable(scenario, data, "--data")
    is_large = export is None and scenario.baseline.meta.known.elements > MOST_COMPARED
    numbers = None
    if not is_large:
        how_judged: dict[str, Any] = {"calibration": calibration, "keep_answers": keep_answers}
        numbers = NumericalRewriting.of(scenario, values, required=export is not None, **how_judged)
    judge = None if numbers is None else numbers.judge
    file = None if export is None else Path(export)
    if file is not None:
        refuse_target(file)
    nodes = None if sizes is None else node_counts(sizes, "--sizes", "500,500,1200, or a file of them")
    advice = advice_on(scenario, judge=judge, sizes=nodes, samples=samples, seed=seed)
    if is_large:
        advice = advice.model_copy(update={"notes": [*advice.notes, _NOT_COMPARED]})
    if data is not None:
        advice = advice.model_copy(update=_judged(scenario, advice, Path(data)))
    if numbers is None or file is None:
        return advice
    if not advice.agreement:
        numbers.judge(advice.today.techniques)  # raises the reason why no file can hold the network
    last = advice.agreement[-1]
    if not last.kept:
        raise NpusimError(
            f"{advice.workload}: no stack answers as the original does, not even `{last.stack}` as a file "
            f"with weights in {last.weights}: {last.same_answers:.0%} of the answers are the same "
            f"(--keep-answers {keep_answers:.0%}), and outputs differ by up to {last.error:.2g} of the "
            f"largest as OpenVINO computes by default ({last.precision}), by {last.error_fp32:.2g} in fp32; "
            "nothing was exported"
        )
    numbers.save(advice.today.techniques, file)
    line = numbers.benchmark_line(advice.today.techniques, file)
    notes = [*advice.notes, *numbers.fixed_note(advice.today.techniques)]
    return advice.model_copy(update={"file": str(file), "benchmark": line, "notes": notes})


def _judged(scenario: Scenario, advice: Advice, data: Path) -> dict[str, Any]:
    """Return the stacks of advice with the accuracy of the trained network under each."""
    rows = {name: getattr(advice, name) for name in ("as_it_is", "today", "with_compiler")}
    rows = {name: row for name, row in rows.items() if row is not None}
    found = _accuracies(scenario, [row.techniques for row in rows.values()], data)
    return {
        name: row.model_copy(update={"accuracy": found.get(row.techniques)}) for name, row in rows.items()
    }
