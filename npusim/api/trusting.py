"""Calls that run networks for real and check the model: measure, judge answers, export.

The docstrings are the help of the command line too: what stands under a parameter is shown beside its option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from npusim.api.asking import Progress, What, of_workload, refuse_ignored, scenario_of, telling
from npusim.config.overrides import Settings
from npusim.errors import ConfigError, shown
from npusim.scenario import Network, Scenario, is_module

if TYPE_CHECKING:
    from npusim.arch import Soc
    from npusim.gnn_models.document import AccuracyReport
    from npusim.gnn_models.export import Export
    from npusim.measuring.document import Comparison, Measurement
    from npusim.measuring.suites import Hint, Item
    from npusim.measuring.traces import TraceDiff
    from npusim.studies.agreement import Agreement

_MOST_SEEDS = 1000


def measure(
    network: Network | Scenario | Sequence[Network | Scenario] | None = None,
    device: str | None = None,
    *,
    suite: str | Path | None = None,
    operators: bool = False,
    compare: Network | Scenario | None = None,
    hint: str = "both",
    requests: int | None = None,
    tiles: int | None = None,
    precision: str | None = None,
    seconds: float | None = None,
    hwinfo: str | Path | None = None,
    processor_time: bool = False,
    soc: str | Path | Soc | None = None,
    tool: str | None = None,
    platform: str | None = None,
    model: str | Path | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    earlier: Measurement | None = None,
    save: Callable[[Measurement], None] | None = None,
    **what: Unpack[What],
) -> Measurement:
    """Measure networks on a device of this machine with OpenVINO, or take in what Intel's tools measured.

    Ctrl-C keeps what was measured. Nothing that tells whose machine it is gets written.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module, callable or Scenario, or a sequence of them, optional
        A workload's name or YAML file, an OpenVINO .xml or an .onnx file, a folder of .xml files, or a
        language model's folder of `npusim export`; with --from what the other tool wrote. None: the suite
    device : str, optional
        Device that runs; GPU.1 is a second one. None: NPU
    suite : str or Path, optional
        What to measure where no WORKLOAD is named (`npusim schema measurement-suite`). None: default, which
        takes under 10 minutes
    operators : bool
        Measure not WORKLOAD but each operator that it rests on, as it is and under --techniques, in some two
        minutes: what `npusim calibrate` needs. Without --techniques: the stack that `npusim advise` names.
    compare : Graph, str, Path, torch.nn.Module, callable or Scenario, optional
        Network that a model file was made of: both run by turns, and their answers are compared.
    hint : {"latency", "throughput", "both"}
        One inference at a time, several in flight, or a row of each; for a WORKLOAD.
    requests : int from 1 to 1,024, optional
        Inferences in flight, for a WORKLOAD. None: 1 for latency, the device's optimum for throughput
    tiles : int of at least 1, optional
        Tiles of the NPU to compile for. None: the compiler's choice
    precision : {"f32", "bf16", "f16"}, optional
        Format of floating point to compute in. None: f32 on a CPU, f16 elsewhere
    seconds : float from 0.05 to 3,600 (s), optional
        Time for a row, without compiling; slow networks take longer. None: 2
    hwinfo : str or Path, optional
        Log that HWiNFO is writing meanwhile: energy on Windows.
    processor_time : bool
        Read the processor's time of one thread, not the clock: on a CPU that other programs keep busy.
    soc : str, Path or Soc, optional
        Show this machine's estimate beside each row: one fitted by `npusim calibrate`, or a shipped one.
    tool : {"benchmark_app", "npu-profiling", "openvino-benchmarks"}, optional
        Take in what this tool wrote; nothing is run.
    platform : str, optional
        Chip, where the file does not tell or has several.
    model : str or Path, optional
        Model that ran, where the file does not tell (npu-profiling).
    progress, stop : callable, optional
        Called with the rows done, their number and the present one; says whether to stop.
    earlier : Measurement, optional
        An interrupted measurement of the same rows on the same device: its rows are kept.
    save : callable, optional
        Called with the rows so far after each group of networks (not with `hwinfo`).
    **what
        techniques, settings, shapes, inputs: as for `npusim.Scenario`. A module runs as it is, with the
        values of `inputs`.

    Raises
    ------
    NpusimError
        Where OpenVINO or the device is missing, or nothing could be measured.

    Examples
    --------
    >>> import npusim
    >>> run = npusim.measure("gcn-cora", "CPU", techniques="stagr", hint="latency", seconds=0.05)
    >>> run.rows[0].id
    'gcn-cora:stagr'

    Command lines
    -------------
        npusim measure --device NPU -o run.json
        npusim measure --device CPU -o cpu.json --seconds 1
        npusim measure --suite aggregation -o aggregation.json
        npusim measure gcn-cora --techniques stagr+quantgr --device NPU
        npusim measure my_model.onnx --shape x=5000,128 --device GPU --hint latency -o run.json
        npusim measure tiny/ --device NPU -o tiny.json
        npusim measure pruned/ --device CPU --hint latency --soc fitted.yaml
        npusim measure rewritten.xml --compare model.py:net --device CPU
        npusim measure --for model.py:net --device CPU -o operators.json
        npusim measure out/ --from benchmark_app -o run.json
        npusim measure profiling.json --from npu-profiling --model my_model.xml -o run.json
    """
    names, usual = {"settings": "set", "shapes": "shape"}, {"hint": "both", "device": "CPU"}
    of_network = {names.get(name, name): value for name, value in what.items()}
    of_network |= {"requests": requests, "hint": hint}
    running = {"precision": precision, "tiles": tiles, "hwinfo": hwinfo}
    if tool is not None:
        others = {"suite": suite, "processor_time": processor_time, "soc": soc, "seconds": seconds}
        ran = of_network | running | others | {"resume": earlier}
        refuse_ignored(ran, f"no option of running: --from {tool} runs nothing", usual)
        return _imported(tool, network, device, platform, None if model is None else str(model))
    refuse_ignored({"platform": platform, "model": model}, "only with --from, which takes in a file")
    files: dict[str, Path | Scenario] = {}
    items: list[Item] = []
    from npusim.measuring.suites import items_of, load_suite

    if network is None:
        refuse_ignored({"for": operators, "compare": compare}, "with a WORKLOAD, such as model.xml")
        compared = None
        refuse_ignored(of_network, "with a WORKLOAD; a suite's rows say their own", usual)
        items += load_suite("default" if suite is None else suite).items
    else:
        refuse_ignored({"suite": suite}, f"a suite or the workload `{network}`, not both")
        networks: Any = list(network) if isinstance(network, list | tuple) else [network]
        compared = None if compare is None else _compared(networks, compare, device or "NPU", operators)
        networks += [] if compare is None else [compare]
        for each in networks:
            scenario = scenario_of(each, None, what)
            if operators:
                items += _operator_items(scenario, device or "NPU", soc)
                continue
            rows, sources = items_of(scenario, hint, requests)
            items += rows
            files |= sources
    of_pytorch = any(item.of_pytorch for item in items)
    machine = _machine(soc, "CPU" if of_pytorch else device or "NPU")
    if of_pytorch:
        refuse_ignored({"processor_time": processor_time}, "not with this suite, which reads it always")
        refuse_ignored({"resume": earlier}, "not with this suite, which is written at its end")
        refuse_ignored(running, "no such option: PyTorch Geometric runs this suite in fp32 on the CPU")
        refuse_ignored({"device": device}, "CPU for this suite", usual)
        from npusim.measuring.aggregation import measure_aggregations

        result = measure_aggregations(items, budget_s=seconds or 2.0, progress=progress, stop=stop)
    else:
        from npusim.measuring.running import measure as run

        result = run(
            items,
            device or "NPU",
            precision=precision,
            budget_s=2.0 if seconds is None else seconds,
            tiles=tiles,
            processor_time=processor_time,
            files=files,
            progress=progress,
            stop=stop,
            hwinfo=None if hwinfo is None else Path(hwinfo),
            earlier=earlier,
            save=save,
        )
    if compared is not None:
        result = result.model_copy(update={"comparison": compared(result)})
    if machine is None:
        return result
    from npusim.measuring.models import predicted

    return predicted(result, machine, files)


def _compared(
    networks: Sequence[Any], original: Any, device: str, operators: bool
) -> Callable[[Measurement], Comparison]:
    """Compare the answers of a model file with those of its original; return what adds their times."""
    from npusim.measuring.devices import find_device, load_openvino
    from npusim.measuring.document import Comparison, ModelFile
    from npusim.scenario import name_of
    from npusim.studies.agreement import answers_beside

    refuse_ignored({"for": operators}, "without --compare: operators have no answers")
    file = Path(networks[0]) if len(networks) == 1 and isinstance(networks[0], str | Path) else Path()
    if file.suffix not in (".xml", ".onnx"):
        raise ConfigError(f"`{networks[0]}`", file="--compare", allowed="beside a model file: .xml, .onnx")
    scenario = original if isinstance(original, Scenario) else Scenario(original)
    device = find_device(load_openvino().Core(), device)
    same, error = answers_beside(file, scenario, device)

    def beside(measurement: Measurement) -> Comparison:
        times: dict[bool, dict[Hint, float]] = {True: {}, False: {}}
        for row in measurement.rows:
            of_file = isinstance(row.model, ModelFile) and row.model.name == file.name
            times[of_file][row.hint] = row.measured_s
        both = times[True].keys() & times[False].keys()
        speedups = {hint: times[False][hint] / times[True][hint] for hint in both}
        names = {"file": file.name, "original": name_of(scenario.network)}
        return Comparison(**names, speedups=speedups, same_answers=same, error=error)

    return beside


def _operator_items(scenario: Scenario, device: str, soc: str | Path | Soc | None) -> tuple[Item, ...]:
    """Return the rows of a network's operators; operators are joined as on a machine of that device."""
    from npusim.locate import DEFAULT_SOC
    from npusim.measuring.devices import kind_of
    from npusim.measuring.suites import operator_items

    kind, stack = kind_of(device), str(scenario.techniques)
    machine = soc or ("generic-cpu" if kind == "cpu" else DEFAULT_SOC)
    if stack == "none":
        from npusim.studies.advice import advise

        stack = advise(scenario, samples=0).today.techniques
    return operator_items(scenario.with_(soc=machine, device=kind), list(dict.fromkeys(("none", stack))))


def _machine(soc: str | Path | Soc | None, device: str) -> Soc | None:
    """Return the machine of --soc; refuse it before anything runs."""
    if soc is None:
        return None
    from npusim.arch import Soc, load_soc
    from npusim.measuring.devices import kind_of

    machine = soc if isinstance(soc, Soc) else load_soc(soc)
    if not machine.has(kind_of(device)):
        raise ConfigError(f"`{soc}`", file="--soc", allowed=f"a machine with a {kind_of(device).upper()}")
    return machine


def _imported(
    tool: str, path: Any, device: str | None, platform: str | None, model: str | None
) -> Measurement:
    """Return what another tool measured."""
    from pydantic import ValidationError

    from npusim.measuring import traces
    from npusim.measuring.benchmark_app import from_benchmark_app
    from npusim.measuring.devices import kind_of

    if path is None:
        raise ConfigError(
            "no file to read", file=f"--from {tool}", allowed=f"npusim measure FILE --from {tool}"
        )
    try:
        if tool == "benchmark_app":
            return from_benchmark_app(path, kind=kind_of(device) if device else None, name=platform)
        if tool == "npu-profiling":
            return traces.from_npu_profiling(path, model=model, name=platform)
        return traces.choose_platform(traces.from_openvino_benchmarks(path), platform)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(shown(first["input"]), file=str(path), key=key, allowed=first["msg"]) from None


def accuracy(
    network: str | Path | Sequence[str] | Any,
    techniques: str | Sequence[str] = "accuracy",
    *,
    data: Any = None,
    inputs: Any = None,
    mask: Any = None,
    seeds: str | Sequence[int] = "0",
    settings: Settings = (),
    batch: int | None = None,
    retrain: bool = False,
    progress: Progress | None = None,
) -> AccuracyReport:
    """Judge technique stacks by the answers of models trained on real data.

    Accuracy on the test nodes, agreement with the model without techniques on all nodes, and the largest
    difference of a log-probability, in fp32, in fp16 and, with quantgr, in 8 bits. Training takes seconds a
    model and is kept in the cache; needs the extra `gnn`.

    Parameters
    ----------
    network : str, Path, sequence of str, or torch.nn.Module
        GNNs: names from `npusim list workloads`, or workload YAMLs of kind gnn; or one module, as
        `model.py:net`, whose example inputs are a data object with `y` and `test_mask`.
    techniques : str or sequence of str
        A stack, stacks parted by commas, or a named list (accuracy: every technique). The model without
        techniques is always judged.
    data : Path, or data object
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    inputs : mapping of str to tensor, optional
        Values for a module's `forward`; None: the attributes of `data` that it names.
    mask : tensor of bool, optional
        Nodes of a module that count; None: `data.test_mask`, or all.
    seeds : sequence of int, or str
        Trainings, such as 0-2 or 0,3,7.
    settings : settings
        Change a value of the workload (workload.hidden=128). Repeatable.
    batch : int from 1 to 1,000,000,000, optional
        Training nodes of a step, such as GraNNite's 64; None: all in one step.
    retrain : bool
        Train even where the cache has the trained parameters.
    progress : callable, optional
        Called with the share that is done, 1.0 and the present step.

    Returns
    -------
    AccuracyReport
        A result per stack and number format, and the stacks left out with the reason.

    Raises
    ------
    NpusimError
        Where PyTorch or data are missing, or a module's result is no score per node.

    Notes
    -----
    A trained module of one's own comes with `data` that has `x`, `edge_index`, `y` and `test_mask`, as
    `torch_geometric.data.Data` has them.

    Command lines
    -------------
        npusim accuracy gat-cora --techniques effop+grax1+grax2:form=rank2 --data planetoid
        npusim accuracy gcn-cora gcn-citeseer -t stagr+quantgr,grad+nodepad --seeds 0-2
        npusim accuracy sage-max-cora -t accuracy --format json
        npusim accuracy model.py:net -t stagr,stagr+quantgr
    """
    from npusim.techniques.stack import listed

    chosen = parse_seeds(seeds)
    own_settings = of_workload(settings, ": accuracy depends on no machine")
    texts = [techniques] if isinstance(techniques, str) else techniques
    stacks = [str(stack) for text in texts for stack in listed(str(text))]
    from npusim.frontends.pyg import MODULE, module_at

    single = [network] if isinstance(network, str | Path) else network
    names = [] if is_module(network) else [str(each) for each in single]
    modules = [name for name in names if MODULE.fullmatch(name)]
    if is_module(network) or modules:
        of_training = {"seeds": chosen, "retrain": retrain, "batch": batch, "set": own_settings}
        refuse_ignored(of_training, "only for a workload that npusim trains", {"seeds": [0]})
        from npusim.gnn_models.judging import judge_module

        if not modules:
            return judge_module(network, data, stacks, inputs, mask)
        if len(names) > 1 or data is not None:
            found = f"`{names[-1]}` beside `{modules[0]}`" if len(names) > 1 else "--data"
            raise ConfigError(found, allowed="one module, with its own data: a data object with y, test_mask")
        named = module_at(modules[0])
        return judge_module(named.module, named.example, stacks, named.inputs, mask)
    refuse_ignored({"inputs": inputs, "mask": mask}, "only for a PyTorch module")
    from npusim.gnn_models.judging import judge

    folder = None if data is None else Path(data)
    if batch is not None and batch < 1:
        raise ConfigError(f"`{batch}`", file="--batch", allowed="at least 1 training node a step")
    from npusim.gnn_models.training import Recipe

    recipe = Recipe(batch=batch)
    return judge(names, stacks, folder, chosen, own_settings, retrain, recipe, telling(progress))


def parse_seeds(seeds: str | Sequence[int]) -> list[int]:
    """Return the seeds of a list, or those that ``0-2`` or ``0,3,7`` names.

    Raises
    ------
    ConfigError
        Where a part is no whole number and no range.

    Examples
    --------
    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    if not isinstance(seeds, str):
        return [int(seed) for seed in seeds]
    numbers: dict[int, None] = {}
    for part in seeds.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) < _MOST_SEEDS):
            allowed = "whole numbers and ranges, such as 0-2 or 0,3,7"
            raise ConfigError(f"`{seeds}`", file="--seeds", allowed=allowed)
        numbers |= dict.fromkeys(range(int(first), int(last) + 1))
    return list(numbers)


def trace(first: str | Path, second: str | Path) -> TraceDiff:
    """Align two traces by layer and show where they part, the largest differences first.

    Parameters
    ----------
    first : str or Path
        A profiling.json of Intel's NPU profiler, or a trace.
    second : str or Path
        A trace of npusim, or a second profiling.json.

    Command lines
    -------------
        npusim estimate gcn-cora --engine event --trace simulated.json
        npusim trace diff profiling.json simulated.json
        npusim trace diff before.json after.json -o both.html
    """
    from npusim.measuring.traces import diff_traces

    return diff_traces(Path(first), Path(second))


def export(
    network: str | Path,
    output: str | Path,
    *,
    techniques: str = "none",
    settings: Settings = (),
    data: str | Path | None = None,
    weights: str | Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Export | Agreement | Path:
    """Save a network's real model as OpenVINO IR: a trained GNN, your module, a language model in parts.

    Needs the extra `gnn`. `npusim estimate` reads the files, and a laptop's NPU runs them.

    Parameters
    ----------
    network : str or Path
        Name or YAML file of a GNN or a language model, or a module as `model.py:net`, with its own weights.
    output : str or Path
        The .xml file to write, with the .bin file beside it; of a language model the folder.
    techniques : str
        Technique stack of a GNN or module.
    settings : settings
        Of the workload; paths begin with `workload`.
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    weights : str or Path, optional
        Weights of a language model: a file of torch.save, named as Hugging Face does; none: random.
    tell : callable
        Called with a line for each file of a language model.

    Returns
    -------
    Export, Agreement or Path
        What was trained and saved; of a module how the file's answers agree with it; of a language model
        the folder.

    Command lines
    -------------
        npusim export gcn-cora --data planetoid -o gcn.xml
        npusim export gat-cora --data planetoid -t stagr+effop -o gat.xml
        npusim export model.py:net -t stagr -o net.xml
        npusim export llama-tiny -o tiny
        npusim export llama3.2-1b --weights model_weights.pth --set workload.weights=int8 -o llama
    """
    own_settings = tuple(of_workload(settings, ": a model file knows no machine"))

    from npusim.workloads import KINDS, load_spec

    name, target = str(network), Path(output).expanduser()
    from npusim.frontends.pyg import MODULE

    if MODULE.fullmatch(name):
        refuse_ignored({"data": data, "weights": weights}, "none for a module")
        return _exported(Scenario(name, techniques=techniques, settings=own_settings), target)
    spec = None if name.endswith((".xml", ".onnx")) else load_spec(name, own_settings)
    write = None if spec is None else KINDS[spec.kind].export
    if write is not None:
        of_gnn = {"techniques": techniques, "data": data}
        refuse_ignored(of_gnn, "none for a language model", {"techniques": "none"})
        write(spec, target, None if weights is None else Path(weights), tell)
        return target
    refuse_ignored({"weights": weights}, "only for a workload of kind llm")
    from npusim.gnn_models.export import export_model

    return export_model(name, techniques, None if data is None else Path(data), target, own_settings)


def _exported(scenario: Scenario, target: Path) -> Agreement:
    """Write a module under a stack, and return how the file's answers agree with the module's."""
    from npusim.frontends.openvino_write import refuse_target
    from npusim.studies.agreement import NumericalRewriting

    refuse_target(target)
    stack = scenario.graph.techniques
    numbers = NumericalRewriting.of(scenario, None, required=True)
    assert numbers is not None, "it is required"
    agreement = numbers.judge(stack)
    numbers.refuse_wrong(agreement)
    numbers.save(stack, target)
    return agreement


def soc(files: Sequence[str | Path]) -> str:
    """Return the data sheet of a machine that another tool describes.

    Reads Timeloop 0.4 and AccelForge architectures, ZigZag hardware, SCALE-Sim configurations and MAESTRO
    hardware; the content decides. The sheet begins with what it could not say (docs/importing.md).

    Parameters
    ----------
    files : sequence of str or Path
        The machine; after it, for ZigZag and MAESTRO, a mapping that says what is unrolled.

    Raises
    ------
    NpusimError
        Where a file cannot be read, has none of these formats, or describes an impossible machine.

    Command lines
    -------------
        npusim soc import tpu_like.yaml mapping.yaml -o machine.yaml
        npusim soc import scale.cfg -o machine.yaml
    """
    from npusim.frontends.peer_files import read_peer
    from npusim.frontends.peer_machines import peer_machine, sheet_text

    if not 1 <= len(files) <= 2:
        raise ConfigError(f"{len(files)} files", file="FILE", allowed="a machine, and a mapping after it")
    return sheet_text(peer_machine(*map(read_peer, files)))
