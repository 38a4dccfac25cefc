"""The list of commands, and the group that loads the one that is called.

A command is a module whose `app` holds one typer command. It is imported when the command is called, and its
heavy imports stand in the body of the function, so that the list of commands loads only typer and rich.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from npusim import __version__
from npusim.errors import ConfigError, UnknownNameError
from npusim.plugins import announced

COMMANDS = {
    "estimate": "npusim.cli.estimate",
    "compare": "npusim.cli.compare",
    "whatif": "npusim.cli.whatif",
    "advise": "npusim.cli.advise",
    "map": "npusim.cli.map",
    "stream": "npusim.cli.stream",
    "validate": "npusim.cli.validate",
    "accuracy": "npusim.cli.accuracy",
    "export": "npusim.cli.export",
    "report": "npusim.cli.report",
    "trace": "npusim.cli.trace",
    "sweep": "npusim.cli.sweep",
    "pareto": "npusim.cli.pareto",
    "query": "npusim.cli.query",
    "search": "npusim.cli.search",
    "measure": "npusim.cli.measure",
    "calibrate": "npusim.cli.calibrate",
    "list": "npusim.cli.listing",
    "learn": "npusim.cli.learn",
    "schema": "npusim.cli.schema",
}
"""Module of each command of the core; packages announce theirs as `npusim.commands`."""


def command_names() -> list[str]:
    """Return the names of all commands, in the order in which `npusim --help` shows them."""
    return [*COMMANDS, *(name for name in announced("npusim.commands") if name not in COMMANDS)]


def command_app(name: str) -> typer.Typer:
    """Return the typer application of a command; an `UnknownNameError` names the nearest command."""
    if name in COMMANDS:
        app: typer.Typer = import_module(COMMANDS[name]).app
        return app
    added = announced("npusim.commands")
    if name not in added:
        raise UnknownNameError("command", name, command_names())
    app = added[name].load()
    return app


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names of all commands."""
        return command_names()

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def,override]
        """Return a command; refuse an unknown name with the nearest that there is."""
        command = get_command(command_app(cmd_name))
        command.name = cmd_name
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
