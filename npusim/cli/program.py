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
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from npusim import __version__
from npusim.cli.options import Command, group, loaded
from npusim.cli.output import (
    COMMAND_LINE,
    forget_odd_width,
    forget_output,
    reopen_closed,
    standard_output,
    tolerant,
)
from npusim.cost import COMPILING_S, tell_once
from npusim.errors import ConfigError, NpusimError, UnknownNameError, nearest, printable, shown
from npusim.plugins import announced

_PANELS = {
    "Ask": {
        "estimate": "npusim.cli.ask:ESTIMATE",
        "compare": "npusim.cli.ask:COMPARE",
        "whatif": "npusim.cli.ask:WHATIF",
        "advise": "npusim.cli.ask:ADVISE",
        "map": "npusim.cli.ask:MAP",
        "stream": "npusim.cli.ask:STREAM",
        "show": "npusim.cli.ask:SHOW",
    },
    "Explore": {
        "sweep": "npusim.cli.explore:SWEEP",
        "pareto": "npusim.cli.explore:PARETO",
        "query": "npusim.cli.explore:QUERY",
        "search": "npusim.cli.explore:SEARCH",
    },
    "Measure and trust": {
        "measure": "npusim.cli.trust:MEASURE",
        "calibrate": "npusim.cli.trust:CALIBRATE",
        "validate": "npusim.cli.trust:VALIDATE",
        "accuracy": "npusim.cli.trust:ACCURACY",
        "trace": "npusim.cli.trust:TRACE",
        "export": "npusim.cli.trust:EXPORT",
    },
    "Papers": {},
    "Learn": {
        "learn": "npusim.cli.browse:LEARN",
        "list": "npusim.cli.browse:LIST",
        "schema": "npusim.cli.browse:SCHEMA",
        "report": "npusim.cli.browse:REPORT",
    },
}
"""Module and declaration of each command of the core, by panel; packages announce those of papers."""
_COMMANDS = {name: place for panel in _PANELS.values() for name, place in panel.items()}
BAD_INPUT, INTERRUPTED, PIPE_CLOSED, BUG = 2, 130, 141, 70
_LONGEST_LINE = 10_000
"""Characters of a message's line that are shown."""
_EXTRA_OF = {
    "dask": "cluster",
    "distributed": "cluster",
    "anywidget": "learn",
    "marimo": "learn",
    "moocore": "search",
    "nncf": "gnn",
    "openvino": "openvino",
    "PIL": "gnn",
    "pymoo": "search",
    "sklearn": "gnn",
    "torch": "gnn",
    "torch_geometric": "gnn",
}
"""Which extra of the package brings an optional library."""


def command_names() -> list[str]:
    """Return the names of all commands, in the order in which `npusim --help` shows them."""
    added = [name for name in announced("npusim.commands") if name not in _COMMANDS]
    return [name for panel, names in _PANELS.items() for name in (added if panel == "Papers" else names)]


def command_app(name: str) -> typer.Typer:
    """Return the typer application of a command; an `UnknownNameError` names the nearest command."""
    if name in _COMMANDS:
        declared = loaded(_COMMANDS[name])
    else:
        added = announced("npusim.commands")
        if name not in added:
            raise UnknownNameError("command", name, command_names())
        declared = added[name].load()
    if isinstance(declared, Command):
        return declared.app(name)
    return declared if isinstance(declared, typer.Typer) else group(*declared)


class LazyGroup(TyperGroup):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names of all commands."""
        return command_names()

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def,override]
        """Return a command; refuse an unknown name with the nearest that there is."""
        command: Any = get_command(command_app(cmd_name))
        command.name = cmd_name
        panels = [panel for panel, names in _PANELS.items() if cmd_name in names]
        command.rich_help_panel = panels[0] if panels else "Papers"
        _refuse_repetitions(command)
        return command


def _refuse_repetitions(command: Any) -> None:
    """Let a command, and those below it, refuse an option that is given twice but takes one value."""
    for below in getattr(command, "commands", {}).values():
        _refuse_repetitions(below)
    make_parser = command.make_parser

    def make_strict_parser(ctx: typer.Context) -> Any:
        parser = make_parser(ctx)
        parse_args = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, rest, order = parse_args(args=args)
            for one in order:
                single = one.param_type_name == "option" and not one.multiple and not one.is_flag
                if single and order.count(one) > 1:
                    name = max(one.opts, key=len)
                    raise ConfigError("a second value", file=name, allowed="one: it is not repeatable")
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
        typer.echo(f"npusim {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """What would this network cost on that NPU, and what if?"""


def run(arguments: Sequence[str]) -> int:
    """Run the command line that follows ``npusim`` and return the exit status."""
    COMMAND_LINE.set(shlex.join(["npusim", *arguments]))
    reopen_closed()
    tolerant(sys.stdout, sys.stderr)
    forget_odd_width()
    tell_once(_say_that_it_compiles)
    with warnings.catch_warnings():
        # What a library warns of is for who writes npusim; `python -W default -m npusim` shows it.
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        return _run_guarded(arguments)


def _say_that_it_compiles() -> None:
    """Say why nothing happens for a while."""
    about = f"compiling the cost kernels, once on this machine: {COMPILING_S} of a free core ..."
    with suppress(OSError):
        print(about, file=sys.stderr, flush=True)


def _run_guarded(arguments: Sequence[str]) -> int:
    """Run and turn every way to end into a status."""
    try:
        status = _run(arguments)
        with standard_output():
            return status
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
        return _status_of(stop)
    except OSError as error:
        if error.filename is not None:
            return _complain(f"{shown(str(error.filename))}: {error.strerror}", BAD_INPUT)
        if error.errno != errno.ENOSPC:
            return _complain_of_bug()
        forget_output()
        return _complain(f"cannot write: {error.strerror}", BAD_INPUT)
    except ModuleNotFoundError as error:
        return _complain_of_import(error)
    except MemoryError:
        return _complain("not enough memory for this; ask for less, or give it more", BAD_INPUT)
    except Exception:
        return _complain_of_bug()


def _run(arguments: Sequence[str]) -> int:
    if not arguments:
        _invoke(["--help"])
        return BAD_INPUT
    return _invoke(arguments)


def _invoke(arguments: Sequence[str]) -> int:
    status = get_command(program()).main(args=list(arguments), prog_name="npusim", standalone_mode=False)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


def _status_of(stop: SystemExit) -> int:
    """Return the status of an exit inside typer or rich, which do so when a pipe closes."""
    if isinstance(stop.__context__, BrokenPipeError):
        forget_output()
        return PIPE_CLOSED
    return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1


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
    if library not in _EXTRA_OF:
        return _complain_of_bug()
    extra = f'pip install "npusim[{_EXTRA_OF[library]}]"'
    return _complain(f"this needs {library}, which is not installed; install it: {extra}", BAD_INPUT)


def _complain_of_bug() -> int:
    traceback.print_exc()
    return _complain("this is a bug in npusim; please report it with the text above", BUG)


def _complain(message: str, status: int) -> int:
    """Print a message on standard error and return the status."""
    message = "\n".join(line[:_LONGEST_LINE] for line in printable(message).split("\n"))
    start = "\033[1;31merror:\033[0m" if _coloured() else "error:"
    with suppress(OSError):  # where nobody listens the status still tells
        print(start, message, file=sys.stderr, flush=True)
    return status


def _coloured() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return sys.stderr.isatty() and not plain
