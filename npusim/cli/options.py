"""Commands as declarations: which call of `npusim.api` runs, and how its arguments are written.

A command line option is a parameter of the call. Its name, default, type, bounds and help text come from
the signature and the numpydoc docstring of the call, so each stands once; a `Row` adds flags, completion and
panel. What the command line alone has stands in the docstring of the function that runs the command. The
options that say what is asked (network, SoC, techniques, settings, how it runs) are the fields of `Scenario`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from npusim.cli.output import HTML_ENDINGS, Destination, Progress, Stopper, file_target, write_page
from npusim.errors import ConfigError, UnknownNameError, shown
from npusim.locate import DEFAULT_SOC

if TYPE_CHECKING:
    from npusim.scenario import Scenario

MOST = 2**32 - 1
"""Bound of every number that has a lower one and states no upper one of its own."""
RUN, OUTPUT = "How it runs", "Output"
MODEL_FILES = (".yaml", ".yml", ".xml", ".onnx", ".csv", ".m")
_EMPTY = inspect.Parameter.empty
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_CHOICE = re.compile(r'"([^"]*)"')
_ABSENT = re.compile(r"(?:^|\s+)None: (.+?)\.?$")
"""The last sentence of a parameter's text, which says what holds without it."""
_BOUNDS = re.compile(r"(?:of at least|from) ([\d.]+)(?: to ([\d.,]*\d))?")
"""Bounds in a parameter's type, as in ``int from 1 to 1,024`` or ``int of at least 1``."""
_KINDS: dict[str, Any] = {"int": int, "float": float, "bool": bool, "Path": Path}
_SWAPS: dict[str, Any] = {"all": True, "search": "search"}
_SIZE = re.compile(r"[0-9]{1,12}")


class Described(NamedTuple):
    """What signature and docstring of a call say of a parameter."""

    type: str = ""
    help: str = ""
    default: Any = _EMPTY

    @property
    def kind(self) -> Any:
        """Type of the value of an option: text, unless the documented type is a number, a flag or a path."""
        word = re.split(r"\W", self.type)[0]
        return str if " or str" in self.type or isinstance(self.default, str) else _KINDS.get(word, str)

    @property
    def bounds(self) -> dict[str, float]:
        """Bounds of the value by typer's names."""
        found = _BOUNDS.search(self.type)
        if found is None:
            return {}
        number = float if self.kind is float else int
        return {"min": number(found[1]), "max": number(found[2].replace(",", "")) if found[2] else MOST}


class Documentation(NamedTuple):
    """What a function or class says of itself."""

    about: str = ""
    """Its docstring down to the first section."""
    parameters: Mapping[str, Described] = {}
    command_lines: Sequence[str] = ()
    """Lines of the section `Command lines`: examples for the help of a command."""


Row = Callable[[str, Described], inspect.Parameter]
"""Returns what typer makes an option or an argument of, from the parameter's name and description."""


def option(
    flags: str = "",
    kind: Any = None,
    *,
    is_argument: bool = False,
    many: bool = False,
    help: str | None = None,
    default: Any = _EMPTY,
    choices: Sequence[str] = (),
    noun: str = "",
    panel: str | None = None,
    **settings: Any,
) -> Row:
    """Return how one parameter of a call is written on the command line, as an option.

    Parameters
    ----------
    flags : str
        Names and metavar, such as ``--output -o FILE``; a metavar alone stands for ``--parameter METAVAR``.
    kind : type, optional
        Type of the value; None: what the docstring says, or the type of the default.
    is_argument : bool
        Whether it is an argument instead.
    many : bool
        Whether it may be repeated; so it is where its text says so, too.
    help : str, optional
        None: what the docstring of the call says.
    default : object
        Without it, the default of the call; an ellipsis: the value must be given.
    choices : sequence of str
        Empty: those in the docstring's type, as in ``{"latency", "energy"}``.
    noun : str
        What a choice of an argument is called in messages.
    **settings
        Further settings of `typer.Option` or `typer.Argument`, such as bounds and completion.
    """

    def row(name: str, described: Described) -> inspect.Parameter:
        value = described.default if default is _EMPTY else default
        words = choices or (_CHOICE.findall(described.type) if described.type.startswith("{") else ())
        of: Any = kind or described.kind
        if of is str and value not in (None, (), _EMPTY, ...):
            of = type(value)
        if value is _EMPTY and not is_argument and described.type.endswith(("bool", "optional")):
            value = False if of is bool else None
        text = described.help if help is None else help
        repeats = many or "Repeatable" in text
        absent = _ABSENT.search(text)
        text = (text[: absent.start()] if absent else text).replace("[", "\\[")
        text += f" [dim]\\[default: {absent[1]}][/dim]" if absent else ""
        further = described.bounds | settings
        if "min" in further:
            further = {"max": MOST} | further
        metavar = " ".join(word for word in flags.split() if word[0] != "-") or "|".join(words) or None
        names = [word for word in flags.split() if word[0] == "-"] or [f"--{name.replace('_', '-')}"]
        if of is bool and value is None:
            names = [f"{names[0]}/--no-{names[0].removeprefix('--')}"]
        if words:
            further |= _one_of(noun or f"value of {names[0]}", words)
        if is_argument:
            information: Any = typer.Argument(metavar=metavar, help=text, show_default=False, **further)
        else:
            information = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **further)
        if repeats:
            of, value = list[of], value or None
        of = of | None if value is None else of
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_EMPTY if value is ... else value,
            annotation=Annotated[of, information],
        )

    return row


def by_name(names: str, panel: str | None = None, **settings: Any) -> dict[str, Row]:
    """Return options that the docstring says all of, by parameter: ``name`` or ``name=METAVAR``."""
    pairs = (word.partition("=") for word in names.split())
    return {name: option(metavar, panel=panel, **settings) for name, _, metavar in pairs}


def argument(metavar: str, kind: Any = None, **settings: Any) -> Row:
    """Return the row of an argument that the help calls `metavar`."""
    return option(metavar, kind, is_argument=True, **settings)


def _one_of(kind: str, choices: Sequence[str]) -> dict[str, Any]:
    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise UnknownNameError(kind, value, choices)
        return value

    return {"callback": check, "autocompletion": lambda: [*choices]}


@dataclass(frozen=True)
class Command:
    """A command: a call, how its parameters are written, and where its result goes."""

    call: str  # the function that runs, as `module:name`
    rows: Mapping[str, Row]  # options and arguments by the name of the parameter, in the order of the help
    fields: Sequence[str] = ()  # options that are fields of `Scenario`, which the call takes first
    described: str = ""  # a call whose docstring describes what `call` leaves out, as `module:name`
    network: Row | None = None  # argument for the network; None: `fields` are arguments of the call
    positional: str = ""  # argument whose values are the positional arguments of the call
    page: str = ""  # function that returns the terminal's page, as `module:name`; empty: the document's own
    page_argument: str = ""  # option whose value the page takes as its second argument
    counted: str | None = None  # what the progress of the call counts; None: it reports none
    stops: str = ""  # what is said to the first Ctrl-C; empty: it ends the process at once
    rated: bool = False  # whether progress shows a rate
    adapt: Callable[[dict[str, Any]], object] = lambda values: None
    """Changes the values of options into arguments of the call, in place."""
    run: Callable[[dict[str, Any]], None] | None = None
    """Does all of it, from the values of the options; None: call, then write the result."""

    def typer_command(self) -> tuple[Callable[..., None], str, str]:
        """Return the function that typer runs, its help and its epilog."""
        documentation = documented(self.call)
        described = dict(documented("npusim.scenario:Scenario").parameters) if self.fields else {}
        fields = {name: described[name] for name in self.fields}
        other = documented(self.described) if self.described else Documentation()
        for said in (other, documentation, _said(self.run), _said(self.adapt)):
            described |= said.parameters
        described |= fields
        network = {} if self.network is None else {"network": self.network}
        rows = network | {name: SCENARIO[name] for name in self.fields} | dict(self.rows)
        parameters = [row(name, described.get(name, Described())) for name, row in rows.items()]

        def invoke(**values: Any) -> None:
            (self.run or self._run)(values)

        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return invoke, documentation.about, epilog(documentation.command_lines)

    def app(self, name: str) -> typer.Typer:
        """Return the typer application of this command alone."""
        return group("", {name: self}, is_single=True)

    def arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the call: values of options, and the fields of a scenario as one."""
        if self.network is not None:
            values["network"] = scenario_from(values, self.fields)
        else:
            values |= scenario_changes(values, self.fields)
        self.adapt(values)
        return values

    def _run(self, values: dict[str, Any]) -> None:
        """Call, and write the result where the options say."""
        destination = Destination(values.pop("output", None), values.pop("form", None))
        page_file = file_target(values.pop("html", None), "--html", HTML_ENDINGS)
        quiet = values.pop("quiet", False)
        use_cores(values.pop("cores", None))
        arguments = self.arguments(values)
        more = [values[self.page_argument]] if self.page_argument else []
        positional = arguments.pop(self.positional) if self.positional else ()
        with self.watched(quiet) as watching:
            document = resolve_name(self.call)(*positional, **arguments, **watching)
        destination.write(document, (lambda: resolve_name(self.page)(document, *more)) if self.page else None)
        write_page(page_file, document)

    @contextmanager
    def watched(self, quiet: bool = False) -> Iterator[dict[str, Any]]:
        """Lend `progress` and `stop` to the call, where it takes them."""
        if self.counted is None:
            yield {}
            return
        with Progress(self.counted, quiet, rate=self.rated) as progress:
            if not self.stops:
                yield {"progress": progress}
                return
            stop = Stopper(self.stops)
            with stop.listening():
                yield {"progress": progress, "stop": stop}


def group(
    help_text: str, commands: Mapping[str, Command], examples: str = "", *, is_single: bool = False
) -> typer.Typer:
    """Return the typer application of several commands below one name."""
    app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=not is_single)
    for name, command in commands.items():
        function, about, ending = command.typer_command()
        app.command(name=name, help=about, epilog=ending)(function)
    if not is_single:
        lines = examples.strip().splitlines()
        app.callback(help=help_text, epilog=epilog(lines) if lines else ending)(lambda: None)
    return app


def epilog(lines: Sequence[str]) -> str:
    """Return the end of a help text: examples of command lines."""
    shown_lines = "".join(f"  {line}\n" for line in lines).replace("=[", "=\\[")
    return f"\n[dim]Examples[/dim]\n{shown_lines}" if lines else ""


@cache
def documented(call: str) -> Documentation:
    """Return what a function or class says of itself, and of each of its parameters.

    The source text is read, not imported: what a call needs takes long to import, and the help does not wait.
    """
    module, _, name = call.partition(":")
    # Only the function, down to its docstring, or the class is parsed.
    wanted = rf'^def {name}\b.*?""".*?"""|^class {name}\b.*?(?=^[^\s)]|\Z)'
    found = re.search(wanted, _source(module), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ConfigError(f"`{call}`", allowed="a function or class with source text")
    definition: Any = ast.parse(found[0]).body[0]
    return _sections(ast.get_docstring(definition) or "", dict(_defaults(definition)))


def _said(function: Callable[..., Any] | None) -> Documentation:
    return _sections(inspect.getdoc(function) or "", {})


def _sections(text: str, defaults: Mapping[str, Any]) -> Documentation:
    """Return the parts of a numpydoc docstring."""
    about, *titled = _SECTION.split(text)
    sections = dict(zip(titled[::2], titled[1::2], strict=True))
    parameters = {}
    for entry in re.split(r"\n(?=\S)", sections.get("Parameters", "").strip("\n")):
        head, _, body = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        for name in map(str.strip, names.split(",")):
            parameters[name] = Described(kind, " ".join(body.split()), defaults.get(name, _EMPTY))
    command_lines = [line.strip() for line in sections.get("Command lines", "").strip().splitlines()]
    return Documentation(about.strip(), parameters, command_lines)


@cache
def _source(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"`{module}`", allowed="a module with source text")
    return Path(spec.origin).read_text(encoding="utf-8")


def _defaults(definition: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and default of the parameters of a function, or of the fields of a dataclass."""
    if isinstance(definition, ast.ClassDef):
        fields = [node for node in definition.body if isinstance(node, ast.AnnAssign)]
        pairs = [(getattr(node.target, "id", ""), node.value) for node in fields]
    else:
        own = definition.args
        named = [one.arg for one in own.args][len(own.args) - len(own.defaults) :]
        named += [one.arg for one in own.kwonlyargs]
        pairs = [*zip(named, (*own.defaults, *own.kw_defaults), strict=True)]
    for name, value in pairs:
        if isinstance(value, ast.Constant | ast.Tuple | ast.UnaryOp):
            yield name, ast.literal_eval(value)


def scenario_from(values: dict[str, Any], fields: Sequence[str]) -> Scenario:
    """Take network and fields out of the values of options, and return them as a scenario."""
    from npusim.scenario import Scenario

    return Scenario(values.pop("network"), **scenario_changes(values, fields))


def scenario_changes(values: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Take fields of a scenario out of the values of options, and return those that say something."""
    described = documented("npusim.scenario:Scenario").parameters
    unset: tuple[Any, ...] = (None, (), [], {}, "none", DEFAULT_SOC)
    chosen = {name: values.pop(name) for name in fields}
    changes = {
        name: value
        for name, value in chosen.items()
        if value != described[name].default and value not in unset
    }
    if "shapes" in changes:
        changes["shapes"] = parse_shapes(changes["shapes"])
    if "swap_operands" in changes:
        changes["swap_operands"] = _SWAPS[changes["swap_operands"]]
    return changes


def each_once(pairs: Iterable[tuple[str, Any]], option: str, noun: str) -> dict[str, Any]:
    """Return the values of an option by name; a `ConfigError` refuses a name a second time."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            allowed = f"each {noun} once"
            raise ConfigError(f"the {noun} {shown(name)} a second time", file=option, allowed=allowed)
        values[name] = value
    return values


def parse_shapes(shapes: Sequence[str]) -> dict[str, list[int]]:
    """Return the shape of each input: ``x=[2708,1433]``; brackets and blanks are optional.

    Raises
    ------
    ConfigError
        Where a text is no ``INPUT=[N,...]`` with whole numbers of at least 1, or names an input twice.
    """

    def parsed(text: str) -> tuple[str, list[int]]:
        # The last `=`: names of inputs may hold one, shapes cannot.
        name, _, shape = (part.strip() for part in text.rpartition("="))
        sizes = [size.strip() for size in shape.strip("[]").split(",")]
        if not name or not all(_SIZE.fullmatch(size) and int(size) > 0 for size in sizes):
            allowed = "INPUT=[N,...] with whole numbers of at least 1, such as 'x=[2708,1433]'"
            raise ConfigError(f"`{text}`", file="--shape", allowed=allowed)
        return name, [int(size) for size in sizes]

    return each_once(map(parsed, shapes), "--shape", "input")


def use_cores(cores: int | None) -> None:
    """Let compiled loops use at most so many cores."""
    if cores is not None:
        import numba

        from npusim.cost import start_threads

        start_threads()
        numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))


def each_path_once(settings: list[str] | None) -> list[str] | None:
    """Return the settings of a command line; refuse two of one path."""
    each_once(((text.partition("=")[0].strip(), text) for text in settings or ()), "--set", "path")
    return settings


def completion(names: str, *arguments: str, files: Sequence[str] = ()) -> Callable[[str], list[str]]:
    """Return what completes the names that a function `module:name` returns, and files of some endings."""

    def complete(incomplete: str) -> list[str]:
        return [*_matching(resolve_name(names)(*arguments), incomplete), *_files(incomplete, files)]

    return complete


complete_soc = completion("npusim.arch:soc_names", files=(".yaml", ".yml"))
complete_gnn = completion("npusim.workloads:workload_names", "gnn", files=(".yaml", ".yml"))
complete_workload = completion("npusim.workloads:workload_names", files=MODEL_FILES)


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


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, suffixes: Sequence[str]) -> list[str]:
    """Return files with these endings, and folders, that begin as written; none before the first letter."""
    if not incomplete or not suffixes:
        return []
    head, slash, start = incomplete.rpartition("/")
    try:
        entries = sorted(Path(head + slash or ".").expanduser().iterdir())
    except OSError:
        return []
    return [
        head + slash + entry.name + ("/" if entry.is_dir() else "")
        for entry in entries
        if (entry.is_dir() or entry.suffix in suffixes) and entry.name.startswith(start)
        if not entry.name.startswith(".")
    ]


WORKLOAD = argument(
    "WORKLOAD",
    help="A name from `npusim list workloads`, a workload YAML, an OpenVINO .xml or an .onnx file, a module "
    "(model.py:net), or layers of SCALE-Sim, ZigZag, Timeloop or MAESTRO.",
    autocompletion=complete_workload,
)
GNN = argument(
    "WORKLOAD",
    help="A GNN: a name from `npusim list workloads`, a workload YAML of kind gnn, or a module "
    "(model.py:net).",
    autocompletion=complete_gnn,
)
SETTINGS = option("--set PATH=VALUE", many=True, callback=each_path_once)
SCENARIO = {
    "soc": option("NAME|FILE", default=DEFAULT_SOC, autocompletion=complete_soc),
    "techniques": option("--techniques -t STACK", autocompletion=complete_stack),
    "settings": SETTINGS,
    "shapes": option("--shape INPUT=[N,...]"),
    "hint": option(panel=RUN),
    "requests": option(panel=RUN, min=1, max=100_000),
    "tiles": option(panel=RUN, min=1),
    "device": option("NAME", panel=RUN, autocompletion=lambda: ["auto", "npu", "cpu", "gpu"]),
    "swap_operands": option("", str, panel=RUN, default="none", choices=("none", "all", "search")),
    "first": option("--first", panel=RUN),
    "mapping_objective": option(panel=RUN, default=None),
    "mapping": option("FILE", panel=RUN),
}
"""Options that are fields of `Scenario`."""
HOW = tuple(SCENARIO)
ENGINE = by_name("engine", RUN)
DATA = by_name("data=DIR", kind=Path)


def form(help: str) -> dict[str, Row]:
    """Return the row of ``--format``."""
    return {"form": option("--format", help=help, default=None, choices=("table", "json"), panel=OUTPUT)}


FORM = form("Table to read, or one JSON document. None: table; json where -o ends in .json")
OUTPUT_FILE = option("--output -o FILE", Path, default=None, panel=OUTPUT)
_ANYWHERE = "Write to a file instead of the terminal; .html makes a page with pictures."
WRITTEN = FORM | {"output": option("--output -o FILE", Path, help=_ANYWHERE, default=None, panel=OUTPUT)}
"""Where every result can go."""
QUIET = {"quiet": option("--quiet -q", bool, help="No progress on standard error.", default=False)}
CORES = by_name("cores", kind=int, help="Cores to use. None: all", default=None, min=1)
