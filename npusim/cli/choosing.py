"""Options and arguments that take one of a few words.

Like the order form with boxes to tick: whoever writes beside the boxes is shown the box that was probably
meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

from npusim.errors import UnknownNameError

__all__ = ["choice_argument", "choice_option"]


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
