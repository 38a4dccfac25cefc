"""Runs one command line: errors become one message on standard error and an exit status.

Exit statuses: 0 done; 1 a check fell short; 2 bad input or usage; 130 interrupted; 141 nobody reads the
output any more, as with every tool in a pipe; 70 a bug in npusim (no script can mistake it for a check that
fell short).
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

import typer
from typer.main import get_command

from npusim.cli.output import (
    COMMAND_LINE,
    forget_odd_width,
    forget_output,
    reopen_closed,
    standard_output,
    tolerant,
)
from npusim.cli.program import program
from npusim.cost import COMPILING_S, tell_once
from npusim.errors import NpusimError, nearest, printable, shown

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
