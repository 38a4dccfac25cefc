"""Options and arguments that several commands share: same name, same words, same completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.errors import UnknownNameError
from npusim.locate import DEFAULT_SOC

__all__ = [
    "DEFAULT_SOC",
    "Cores",
    "Device",
    "Directory",
    "Format",
    "Hint",
    "Minimise",
    "Output",
    "Quiet",
    "Requests",
    "Resume",
    "Settings",
    "Shapes",
    "SocName",
    "SpaceName",
    "TechniqueStack",
    "Tiles",
    "WorkloadName",
    "choice_argument",
    "choice_option",
    "complete_soc",
    "complete_stack",
    "complete_stacks",
    "complete_workload",
]


def choice_option(name: str, choices: Sequence[str], help: str, **settings: Any) -> Any:
    """Return the typer option that takes one of `choices`.

    Parameters
    ----------
    name : str
        The option, with its dashes.
    choices : sequence of str
        What may stand behind it.
    help : str
        What it is for.
    **settings
        Further settings of `typer.Option`.
    """
    return typer.Option(
        name, metavar="|".join(choices), help=help, **_settings(f"value of {name}", choices), **settings
    )


def choice_argument(name: str, kind: str, choices: Sequence[str], help: str) -> Any:
    """Return the typer argument that takes one of `choices`.

    Parameters
    ----------
    name : str
        What the help calls it, in capitals.
    kind : str
        What it names, as in "unknown schema".
    choices, help
        As for `choice_option`.
    """
    return typer.Argument(metavar=name, help=help, **_settings(kind, choices))


def _settings(kind: str, choices: Sequence[str]) -> dict[str, Any]:
    return {"callback": _checked(kind, choices), "autocompletion": lambda: list(choices)}


def _checked(kind: str, choices: Sequence[str]) -> Callable[[str | None], str | None]:
    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise UnknownNameError(kind, value, choices)
        return value

    return check


MODEL_FILES = (".yaml", ".yml", ".xml", ".onnx")


def complete_soc(incomplete: str) -> list[str]:
    """Return shipped SoCs and YAML files that begin as written."""
    from npusim.arch import soc_names

    return [*_matching(soc_names(), incomplete), *_files(incomplete, (".yaml", ".yml"))]


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
    return completed if before else [*_matching(stacks(), incomplete), *completed]


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


_RUN, _OUTPUT = "How it runs", "Output"

WorkloadName = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A name from `npusim list workloads`, a workload YAML, an OpenVINO .xml or an .onnx file.",
        autocompletion=complete_workload,
        show_default=False,
    ),
]
SocName = Annotated[
    str,
    typer.Option(
        "--soc",
        metavar="NAME|FILE",
        help="Machine: a name from `npusim list socs` or a SoC YAML.",
        autocompletion=complete_soc,
    ),
]
TechniqueStack = Annotated[
    str,
    typer.Option(
        "--techniques",
        "-t",
        metavar="STACK",
        help="Techniques joined by +, such as stagr+quantgr or nodepad:capacity=3000+grad.",
        autocompletion=complete_stack,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value of the SoC (npu.sram.per_tile=2MiB) or of the workload (workload.hidden=128). "
        "Repeatable.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=[N,...]",
        help="Fixed shape of an input that a model file leaves open. Repeatable.",
    ),
]
Hint = Annotated[
    str,
    choice_option(
        "--hint",
        ("latency", "throughput"),
        "One inference at a time, or several in flight.",
        rich_help_panel=_RUN,
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        min=1,
        metavar="R",
        help="Inferences in flight. [dim]\\[default: the SoC's for the hint][/dim]",
        rich_help_panel=_RUN,
    ),
]
Tiles = Annotated[
    int | None,
    typer.Option(
        "--tiles",
        min=1,
        metavar="T",
        help="NPU tiles an inference is compiled for. [dim]\\[default: the SoC's for the hint][/dim]",
        rich_help_panel=_RUN,
    ),
]
Device = Annotated[
    str,
    choice_option(
        "--device",
        ("auto", "npu", "cpu", "gpu"),
        "Device that runs the operators; auto takes the NPU for what it can do.",
        rich_help_panel=_RUN,
    ),
]
Format = Annotated[
    str | None,
    choice_option(
        "--format",
        ("table", "json"),
        "Table to read, or one JSON document. [dim]\\[default: table; json where -o ends in .json][/dim]",
        rich_help_panel=_OUTPUT,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file instead of the terminal.",
        rich_help_panel=_OUTPUT,
    ),
]
SpaceName = Annotated[
    str,
    typer.Argument(
        metavar="SPACE",
        help="A design space: a shipped name such as gcn-cora, or a YAML file (`npusim schema space`).",
        autocompletion=complete_space,
        show_default=False,
    ),
]
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory that `npusim sweep` wrote.", show_default=False)
]
Minimise = Annotated[
    str | None,
    typer.Option(
        "--minimise",
        metavar="METRICS",
        help="Metrics parted by commas, such as latency_s,energy_j,area_mm2. "
        "[dim]\\[default: what the space says][/dim]",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what an earlier run left in the directory.")
]
Cores = Annotated[
    int | None, typer.Option("--cores", min=1, metavar="N", help="Cores to use. [dim]\\[default: all][/dim]")
]
