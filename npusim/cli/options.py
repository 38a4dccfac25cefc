"""Options and arguments that several commands share: same name, same words, same completion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.errors import ConfigError, UnknownNameError, shown
from npusim.locate import DEFAULT_SOC as DEFAULT_SOC

MOST = 2**32 - 1
"""Bound of every number that has a lower one and states no upper one of its own."""


def option(
    flags: str,
    help: str,
    *,
    choices: Sequence[str] = (),
    default: str = "",
    panel: str | None = None,
    **settings: Any,
) -> Any:
    """Return a typer option.

    Parameters
    ----------
    flags : str
        Its names, and what stands behind them: ``--output -o FILE``.
    help : str
        What it is for.
    choices : sequence of str
        The only values it takes; any where empty.
    default : str
        What holds without it, where that is no value that typer shows.
    panel : str, optional
        The part of the help in which it stands.
    **settings
        Further settings of `typer.Option`.
    """
    names = [word for word in flags.split() if word.startswith("-")]
    metavar = " ".join(flags.split()[len(names) :]) or "|".join(choices) or None
    if default:
        help += f" [dim]\\[default: {default}][/dim]"
    if choices:
        settings |= _one_of(f"value of {names[0]}", choices)
    if "min" in settings:
        settings = {"max": MOST} | settings
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **settings)


def argument(metavar: str, help: str, *, kind: str = "", choices: Sequence[str] = (), **settings: Any) -> Any:
    """Return a typer argument that the help calls `metavar`.

    Parameters
    ----------
    kind : str
        What one of `choices` is, as in "unknown schema".
    metavar, help, choices, **settings
        As for `option`.
    """
    if choices:
        settings |= _one_of(kind, choices)
    return typer.Argument(metavar=metavar, help=help, show_default=False, **settings)


def _one_of(kind: str, choices: Sequence[str]) -> dict[str, Any]:
    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise UnknownNameError(kind, value, choices)
        return value

    return {"callback": check, "autocompletion": lambda: list(choices)}


MODEL_FILES = (".yaml", ".yml", ".xml", ".onnx")


def complete_soc(incomplete: str) -> list[str]:
    """Return shipped SoCs and YAML files that begin as written."""
    from npusim.arch import soc_names

    return [*_matching(soc_names(), incomplete), *_files(incomplete, (".yaml", ".yml"))]


def complete_gnn(incomplete: str) -> list[str]:
    """Return shipped GNNs and YAML files that begin as written."""
    from npusim.workloads import workload_names

    return [*_matching(workload_names("gnn"), incomplete), *_files(incomplete, (".yaml", ".yml"))]


def complete_workload(incomplete: str) -> list[str]:
    """Return shipped workloads, workload files and model files that begin as written."""
    from npusim.workloads import workload_names

    return [*_matching(workload_names(), incomplete), *_files(incomplete, MODEL_FILES)]


def complete_stack(incomplete: str) -> list[tuple[str, str]]:
    """Return the stack as written, its last technique completed, each with what that technique does."""
    from npusim.techniques import get, technique_names

    *before, last = incomplete.split("+")
    head = "".join(f"{technique}+" for technique in before)
    named = {technique.partition(":")[0] for technique in before}
    open_names = [name for name in technique_names() if name not in named]
    return [(head + name, get(name).summary) for name in _matching(open_names, last)]


def complete_stacks(incomplete: str) -> list[str]:
    """Return named lists that begin as written, or stacks as written with the last one completed."""
    from npusim.techniques import stacks

    *before, last = incomplete.split(",")
    head = "".join(f"{stack}," for stack in before)
    completed = [head + stack for stack, _ in complete_stack(last)]
    return completed if before else [*_matching(("default", *stacks()), incomplete), *completed]


def complete_space(incomplete: str) -> list[str]:
    """Return shipped design spaces that begin as written."""
    from npusim.explore import space_names

    return _matching(space_names(), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return files of those kinds, and folders, that begin as written; none before the first letter."""
    if not incomplete:
        return []
    folder = Path(incomplete if incomplete.endswith("/") else str(Path(incomplete).parent))
    try:
        entries = sorted(folder.expanduser().iterdir())
    except OSError:
        return []
    prefix = incomplete[: incomplete.rfind("/") + 1]
    found = [
        prefix + entry.name + ("/" if entry.is_dir() else "")
        for entry in entries
        if (entry.is_dir() or entry.suffix in suffixes) and not entry.name.startswith(".")
    ]
    return _matching(found, incomplete)


RUN, OUTPUT = "How it runs", "Output"

WorkloadName = Annotated[
    str,
    argument(
        "WORKLOAD",
        "A name from `npusim list workloads`, a workload YAML, an OpenVINO .xml or an .onnx file.",
        autocompletion=complete_workload,
    ),
]
GnnName = Annotated[
    str,
    argument(
        "WORKLOAD",
        "A GNN: a name from `npusim list workloads`, or a workload YAML of kind gnn.",
        autocompletion=complete_gnn,
    ),
]
SocName = Annotated[
    str,
    option(
        "--soc NAME|FILE",
        "Machine: a name from `npusim list socs` or a SoC YAML.",
        autocompletion=complete_soc,
    ),
]
TechniqueStack = Annotated[
    str,
    option(
        "--techniques -t STACK",
        "Techniques joined by +, such as stagr+quantgr or nodepad:capacity=3000+grad.",
        autocompletion=complete_stack,
    ),
]


def each_path_once(settings: list[str] | None) -> list[str] | None:
    """Return the settings of a command line; refuse two of one path."""
    paths = [text.partition("=")[0].strip() for text in settings or ()]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(f"the path {shown(path)} a second time", file="--set", allowed="each path once")
    return settings


Settings = Annotated[
    list[str] | None,
    option(
        "--set PATH=VALUE",
        "Change a value of the SoC (npu.sram.per_tile=2MiB) or of the workload (workload.hidden=128). "
        "Repeatable.",
        callback=each_path_once,
    ),
]
Shapes = Annotated[
    list[str] | None,
    option("--shape INPUT=[N,...]", "Fixed shape of an input that a model file leaves open. Repeatable."),
]
_HINTS, _FORMS = ("latency", "throughput"), ("table", "json")
Hint = Annotated[
    str, option("--hint", "One inference at a time, or several in flight.", choices=_HINTS, panel=RUN)
]
Requests = Annotated[
    int | None,
    option(
        "--requests R",
        "Inferences in flight.",
        default="the SoC's for the hint",
        panel=RUN,
        min=1,
        max=100_000,
    ),
]
Tiles = Annotated[
    int | None,
    option(
        "--tiles T",
        "NPU tiles an inference is compiled for.",
        default="the SoC's for the hint",
        panel=RUN,
        min=1,
    ),
]
Device = Annotated[
    str,
    option(
        "--device NAME",
        "Device that runs the operators, by its name on the machine, or npu, cpu, gpu; auto takes the NPU "
        "for what it can do.",
        autocompletion=lambda: ["auto", "npu", "cpu", "gpu"],
        panel=RUN,
    ),
]
SwapOperands = Annotated[
    str,
    option(
        "--swap-operands",
        "Products whose right operand is laid on the pixels, the left one as weight: none, all, or those "
        "that a search finds faster so.",
        choices=("none", "all", "search"),
        panel=RUN,
    ),
]
Engine = Annotated[
    str,
    option(
        "--engine",
        "Add costs up, or act every tile and transfer out and see what they wait for.",
        choices=("analytical", "event"),
        panel=RUN,
    ),
]
Format = Annotated[
    str | None,
    option(
        "--format",
        "Table to read, or one JSON document.",
        choices=_FORMS,
        default="table; json where -o ends in .json",
        panel=OUTPUT,
    ),
]
Output = Annotated[
    Path | None,
    option(
        "--output -o FILE",
        "Write to a file instead of the terminal; .html makes a page with pictures.",
        panel=OUTPUT,
    ),
]
Data = Annotated[
    Path | None,
    option(
        "--data DIR",
        "Folder with the raw data sets, as cora/raw/ind.cora.x and so on.",
        default="the environment variable NPUSIM_DATA",
        show_default=False,
    ),
]
SpaceName = Annotated[
    str,
    argument(
        "SPACE",
        "A design space: a shipped name such as gcn-cora, or a YAML file (`npusim schema space`).",
        autocompletion=complete_space,
    ),
]
Directory = Annotated[Path, argument("DIR", "Directory that `npusim sweep` wrote.")]
Minimise = Annotated[
    str | None,
    option(
        "--minimise METRICS",
        "Metrics parted by commas, such as latency_s,energy_j,area_mm2.",
        default="what the space says",
    ),
]
Maximise = Annotated[
    str | None,
    option(
        "--maximise METRICS",
        "Metrics of which more is better, such as throughput_per_s.",
        default="what the space says",
    ),
]
Quiet = Annotated[bool, option("--quiet -q", "No progress on standard error.")]
Resume = Annotated[bool, option("--resume", "Go on with what an earlier run left in the directory.")]
Cores = Annotated[int | None, option("--cores N", "Cores to use.", default="all", min=1)]
