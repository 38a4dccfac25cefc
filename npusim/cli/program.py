"""The list of commands, and the run of one command line.

A command is a `Command`, a dictionary of commands below one name, or a typer application. Its module is
imported when the command is called; heavy imports stand in the bodies of its functions, so that the list of
commands loads only typer and rich.

Errors become one message on standard error and an exit status: 0 done; 1 a check fell short; 2 bad input or
usage; 130 interrupted; 141 nobody reads the output any more, as with every tool in a pipe; 70 a bug in npusim
(no script can mistake it for a check that fell short).
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from npusim import __version__
from npusim.cli.options import Command, documented, epilog, group
from npusim.cli.output import (
    COMMAND_LINE,
    OUTPUTS,
    forget_odd_width,
    forget_output,
    reopen_closed,
    say,
    standard_output,
    tolerant,
)
from npusim.cost import COMPILING_S, tell_once
from npusim.errors import ConfigError, NpusimError, UnknownNameError, is_text, nearest, shown
from npusim.plugins import NO_PLUGINS, PluginError, PluginWarning, announced, load, named

_PANELS = {
    "Ask": ("ask", "estimate compare whatif advise map mix stream show"),
    "Explore": ("explore", "sweep pareto query search"),
    "Measure and trust": ("trust", "measure calibrate validate accuracy trace export soc"),
    "Papers": ("", ""),
    "Learn": ("explore", "learn list schema report"),
}
"""Module and commands of the core, by panel; packages announce the commands of papers."""
_MODULE_OF = {name: module for module, names in _PANELS.values() for name in names.split()}
BAD_INPUT, INTERRUPTED, PIPE_CLOSED, BUG = 2, 130, 141, 70
_HOME = re.compile(r"^(--[a-z-]+=|)~/")
_LONGEST_LINE = 10_000
"""Characters of a message's line that are shown."""
_EXHAUSTED = re.compile("Cannot allocate memory|can't start new thread|launch worker thread|failed to map")
"""What libraries say that a limit of the system keeps from memory or threads."""
_EXTRAS = {
    "cluster": ("dask", "distributed"),
    "gnn": ("PIL", "nncf", "sklearn", "torch", "torch_geometric"),
    "learn": ("marimo", "markdown"),
    "openvino": ("openvino",),
    "search": ("pymoo",),
}
"""Optional libraries that each extra of the package brings."""


def command_names() -> list[str]:
    """Return the names of all commands, in the order in which `npusim --help` shows them."""
    added = [name for name in announced("npusim.commands") if name not in _MODULE_OF]
    panels = _PANELS | {"Papers": ("", " ".join(added))}
    return [name for _, names in panels.values() for name in names.split()]


def command_app(name: str, *, is_listed: bool = False) -> typer.Typer:
    """Return the typer application of a command; an `UnknownNameError` names the nearest command.

    One that `is_listed` has its help, but no options: declaring those of all commands takes long.
    """
    if name in _MODULE_OF:
        declared: Any = resolve_name(f"npusim.cli.{_MODULE_OF[name]}:{name.upper()}")
        return _application(name, declared, is_listed)
    added = announced("npusim.commands")
    if name not in added:
        raise UnknownNameError("command", name, command_names())
    declared = load(added[name], "command")
    with named(added[name], "command"):
        return _application(name, declared, is_listed)


def _application(name: str, declared: Any, is_listed: bool) -> typer.Typer:
    if isinstance(declared, typer.Typer):
        return declared
    if not is_listed:
        return declared.app(name) if isinstance(declared, Command) else group(*declared)
    app = typer.Typer(add_completion=False)
    about = documented(declared.call).about if isinstance(declared, Command) else declared[0]
    app.command(help=about)(lambda: None)
    return app


class LazyGroup(TyperGroup):
    """A group whose commands are imported on first use."""

    wanted = ""
    """The command that is run; empty while commands are listed."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Return the command that the first argument names."""
        self.wanted = args[0]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names of all commands."""
        return command_names()

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def,override]
        """Return a command; refuse an unknown name with the nearest that there is."""
        try:
            command: Any = get_command(command_app(cmd_name, is_listed=cmd_name != self.wanted))
        except PluginError as error:
            if self.wanted == cmd_name:
                raise
            warnings.warn(str(error), PluginWarning, stacklevel=1)
            return None  # the list of commands goes without it
        command.name = cmd_name
        panels = (panel for panel, (_, names) in _PANELS.items() if cmd_name in names.split())
        command.rich_help_panel = next(panels, "Papers")
        for one in (command, *getattr(command, "commands", {}).values()):
            _refuse_odd_options(one)
            if cmd_name not in _MODULE_OF:
                _escape_wrong_markup(one)
        return command


def _escape_wrong_markup(command: Any) -> None:
    """Let help texts of another package be text where they are no markup that rich can read."""
    from rich.errors import MarkupError
    from rich.markup import escape, render

    for part in (command, *command.params):
        for name in ("help", "short_help", "epilog"):
            text = str(getattr(part, name, None) or "")
            try:
                render(text)
            except MarkupError:
                setattr(part, name, escape(text))


def _refuse_odd_options(command: Any) -> None:
    """Let a command refuse an empty option, and a second value where one is taken."""
    make_parser = command.make_parser

    def make_strict_parser(ctx: typer.Context) -> Any:
        parser = make_parser(ctx)
        parse_args = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, rest, order = parse_args(args=args)
            for one in (one for one in order if one.param_type_name == "option" and not one.is_flag):
                name, value = max(one.opts, key=len), values.get(one.name)
                if not one.multiple and order.count(one) > 1:
                    raise ConfigError("a second value", file=name, allowed="one: it is not repeatable")
                for text in value if isinstance(value, list | tuple) else [value]:
                    if text == "":
                        raise ConfigError("an empty value", file=name, allowed="a value, or no such option")
                    if "FILE" in (one.metavar or "") and str(text).endswith("/"):
                        raise ConfigError(shown(text), file=name, allowed="a file, not a directory")
            return values, rest, order

        parser.parse_args = parse_once
        return parser

    command.make_parser = make_strict_parser


def program() -> typer.Typer:
    """Return the whole program."""
    examples = "whatif gcn-cora", "estimate gcn-cora --techniques stagr+quantgr", "COMMAND --help"
    app = typer.Typer(
        name="npusim",
        cls=LazyGroup,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog=epilog([f"npusim {words}" for words in examples]),
    )
    app.callback()(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"npusim {__version__}")
        raise typer.Exit


def _leave_plugins_out(wanted: bool) -> None:
    if wanted:
        os.environ[NO_PLUGINS] = "1"  # child processes leave them out, too


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    no_plugins: Annotated[
        bool,
        typer.Option(
            "--no-plugins",
            help="Leave out what other packages add (also: NPUSIM_NO_PLUGINS=1).",
            callback=_leave_plugins_out,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """What would this network cost on that NPU, and what if?"""


def run(arguments: Sequence[str]) -> int:
    """Run the command line that follows ``npusim`` and return the exit status.

    A `~` that the shell left, as in quotes or after an equals sign, is the home directory.
    """
    arguments = [_HOME.sub(lambda found: found[1] + os.path.expanduser("~/"), word) for word in arguments]
    COMMAND_LINE.set(shlex.join(["npusim", *arguments]))
    OUTPUTS.set(())
    reopen_closed()
    tolerant(sys.stdout, sys.stderr)
    forget_odd_width()
    tell_once(_say_that_it_compiles)
    with warnings.catch_warnings(), _INTERRUPTION.heard():
        # What a library warns of is for who writes npusim; `python -W default -m npusim` shows it.
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", PluginWarning)
            warnings.showwarning = _say_warning  # type: ignore[assignment]
        return _run_guarded(arguments)


class _Interruption:
    """Remembers Ctrl-C: some libraries turn the exception into one of their own, or drop it."""

    came = False
    """Whether Ctrl-C was pressed."""

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen while the body runs, unless somebody else does."""
        self.came = False
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def hear(number: int, frame: FrameType | None) -> None:
            self.came = True
            raise KeyboardInterrupt

        def ignore(unraisable: Any) -> None:
            if unraisable.exc_type is not KeyboardInterrupt:
                before(unraisable)

        before = sys.unraisablehook
        signal.signal(signal.SIGINT, hear)
        sys.unraisablehook = ignore
        try:
            yield
        finally:
            sys.unraisablehook = before
            signal.signal(signal.SIGINT, signal.default_int_handler)


_INTERRUPTION = _Interruption()


def _say_warning(message: Warning | str, *place: Any) -> None:
    say(str(message), on_error=True, start="warning:")


def _say_that_it_compiles() -> None:
    """Say why nothing happens for a while."""
    about = f"compiling the cost kernels, once on this machine: {COMPILING_S} of a free core ..."
    say(about, on_error=True)


def _run_guarded(arguments: Sequence[str]) -> int:
    """Run and turn every way to end into a status."""
    try:
        for word in arguments:
            if not is_text(word):
                raise ConfigError(shown(word), file="npusim", allowed="words and names of files in UTF-8")
        command = get_command(program())
        words = [*arguments] or ["--help"]
        status = command.main(args=words, prog_name="npusim", standalone_mode=False)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        with standard_output():
            return BAD_INPUT if not arguments else status if isinstance(status, int) else 0
    except (BrokenPipeError, SystemExit) as error:
        # typer and rich exit with a status of their own when a pipe closes
        if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
            forget_output()
            return PIPE_CLOSED
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException as error:
        message, status = _explained(error)
        if _INTERRUPTION.came:  # whatever else failed by it
            message, status = "interrupted", INTERRUPTED
        if status == BUG:
            traceback.print_exception(error)
    message = "\n".join(line[:_LONGEST_LINE] for line in message.split("\n"))
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    is_coloured = sys.stderr.isatty() and not plain
    say(message, on_error=True, start="\033[1;31merror:\033[0m" if is_coloured else "error:")
    return status


def _explained(error: BaseException) -> tuple[str, int]:
    """Return what went wrong, and the exit status."""
    if isinstance(error, NpusimError):
        return str(error), error.exit_status
    if isinstance(error, typer.TyperException):
        return _usage_message(error), error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{shown(str(error.filename))}: {error.strerror}", BAD_INPUT
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        forget_output()
        return f"cannot write: {error.strerror}", BAD_INPUT
    library = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    for extra in (extra for extra, libraries in _EXTRAS.items() if library in libraries):
        remedy = f'install it: pip install "npusim[{extra}]"'
        return f"this needs {library}, which is not installed; {remedy}", BAD_INPUT
    if isinstance(error, MemoryError) or _EXHAUSTED.search(str(error)):
        return "not enough memory for this; ask for less, or give it more", BAD_INPUT
    return "this is a bug in npusim; please report it with the text above", BUG


def _usage_message(error: typer.TyperException) -> str:
    """Return what is wrong with the command line, what was meant, and where to read more."""
    message = error.format_message().rstrip(". ")
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if context is None:
        return message
    if option is not None:
        message = f"{context.command_path} has no option `{option}`"
        known = [name for parameter in context.command.params for name in parameter.opts if name[:1] == "-"]
        meant = nearest(option, known)
        message += f"; did you mean `{meant}`?" if meant else ""
    return f"{message}\nSee `{context.command_path} --help`."
