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
from npusim.cli.options import Command, documented, group
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
    added = announced("npusim.commands")
    if name in _MODULE_OF:
        declared = resolve_name(f"npusim.cli.{_MODULE_OF[name]}:{name.upper()}")
        return _application(name, declared, is_listed)
    if name not in added:
        raise UnknownNameError("command", name, command_names())
    declared = load(added[name], "command")
    with named(added[name], "command"):
        return _application(name, declared, is_listed)


def _application(name: str, declared: Any, is_listed: bool) -> typer.Typer:
    if isinstance(declared, typer.Typer):
        return declared
    if is_listed:
        about = documented(declared.call).about if isinstance(declared, Command) else declared[0]
        app = typer.Typer(add_completion=False)
        app.command(help=about)(lambda: None)
        return app
    return declared.app(name) if isinstance(declared, Command) else group(*declared)


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
        _refuse_odd_options(command)
        if cmd_name not in _MODULE_OF:
            _escape_wrong_markup(command)
        return command


def _escape_wrong_markup(command: Any) -> None:
    """Let help texts of another package be text where they are no markup that rich can read."""
    from rich.errors import MarkupError
    from rich.markup import escape, render

    for below in getattr(command, "commands", {}).values():
        _escape_wrong_markup(below)
    for part in (command, *command.params):
        for name in ("help", "short_help", "epilog"):
            text = str(getattr(part, name, None) or "")
            try:
                render(text)
            except MarkupError:
                setattr(part, name, escape(text))


def _refuse_odd_options(command: Any) -> None:
    """Let a command, and those below it, refuse an empty option, and a second value where one is taken."""
    for below in getattr(command, "commands", {}).values():
        _refuse_odd_options(below)
    make_parser = command.make_parser

    def make_strict_parser(ctx: typer.Context) -> Any:
        parser = make_parser(ctx)
        parse_args = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, rest, order = parse_args(args=args)
            for one in order:
                takes_value = one.param_type_name == "option" and not one.is_flag
                name = max(one.opts, key=len)
                if takes_value and not one.multiple and order.count(one) > 1:
                    raise ConfigError("a second value", file=name, allowed="one: it is not repeatable")
                value = values.get(one.name)
                for text in (value if isinstance(value, list | tuple) else [value]) if takes_value else ():
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
    app = typer.Typer(
        name="npusim",
        cls=LazyGroup,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog=(
            "\n[dim]Examples[/dim]\n"
            "  npusim whatif gcn-cora\n"
            "  npusim estimate gcn-cora --techniques stagr+quantgr\n"
            "  npusim COMMAND --help"
        ),
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
            return _complain("interrupted", INTERRUPTED)
        with standard_output():
            return BAD_INPUT if not arguments else status if isinstance(status, int) else 0
    except NpusimError as error:
        return _complain(str(error), error.exit_status)
    except typer.TyperException as error:
        return _complain(_usage_message(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        forget_output()
        return PIPE_CLOSED
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer and rich exit so when a pipe closes
            forget_output()
            return PIPE_CLOSED
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except OSError as error:
        if error.filename is not None:
            return _complain(f"{shown(str(error.filename))}: {error.strerror}", BAD_INPUT)
        if error.errno != errno.ENOSPC:
            return _complain_of_failure(error)
        forget_output()
        return _complain(f"cannot write: {error.strerror}", BAD_INPUT)
    except ModuleNotFoundError as error:
        return _complain_of_import(error)
    except Exception as error:
        return _complain_of_failure(error)


def _usage_message(error: typer.TyperException) -> str:
    """Return what is wrong with the command line, what was meant, and where to read more."""
    message = error.format_message().rstrip(". ")
    option, meant = getattr(error, "option_name", None), None
    context = getattr(error, "ctx", None)
    if option is not None and context is not None:
        message = f"{context.command_path} has no option `{option}`"
        known = [name for parameter in context.command.params for name in parameter.opts if name[:1] == "-"]
        meant = nearest(option, known)
    if meant:
        message += f"; did you mean `{meant}`?"
    return message + (f"\nSee `{context.command_path} --help`." if context is not None else "")


def _complain_of_import(error: ModuleNotFoundError) -> int:
    """Say how to install what an optional part of npusim needs; anything else that is missing is a bug."""
    library = (error.name or "").partition(".")[0]
    for extra, libraries in _EXTRAS.items():
        if library in libraries:
            remedy = f'install it: pip install "npusim[{extra}]"'
            return _complain(f"this needs {library}, which is not installed; {remedy}", BAD_INPUT)
    return _complain_of_bug()


def _complain_of_failure(error: Exception) -> int:
    """Tell a want of memory from a bug."""
    if isinstance(error, MemoryError) or _EXHAUSTED.search(str(error)):
        return _complain("not enough memory for this; ask for less, or give it more", BAD_INPUT)
    return _complain_of_bug()


def _complain_of_bug() -> int:
    if not _INTERRUPTION.came:
        traceback.print_exc()
    return _complain("this is a bug in npusim; please report it with the text above", BUG)


def _complain(message: str, status: int) -> int:
    """Print a message on standard error and return the status."""
    if _INTERRUPTION.came:  # whatever else failed by it
        message, status = "interrupted", INTERRUPTED
    message = "\n".join(line[:_LONGEST_LINE] for line in message.split("\n"))
    start = "\033[1;31merror:\033[0m" if _coloured() else "error:"
    say(message, on_error=True, start=start)
    return status


def _coloured() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return sys.stderr.isatty() and not plain
