"""The command line: ``npusim COMMAND ...``; nothing is computed here.

A command is a declaration: the call of `npusim.api` that it runs, and how the arguments are written
(`npusim.cli.options`). `npusim.cli.program` lists the commands, runs one and turns errors into exit statuses.
"""

import gc
import os
import re
import signal
import sys
from contextlib import suppress

from npusim.errors import ConfigError, NpusimError, printable

__all__ = ["main"]

_VARIABLES = {
    "NPUSIM_KERNELS": ("auto|compiled|plain|checked", "auto, compiled, plain, checked, or unset"),
    "NUMBA_DISABLE_JIT": ("0?", "0, or unset: npusim runs compiled code"),
    "NUMBA_NUM_THREADS": ("[1-9][0-9]{0,2}", "a whole number from 1 to 999, or unset"),
    "NUMBA_THREADING_LAYER": (
        "default|safe|threadsafe|forksafe|tbb|omp|workqueue",
        "omp, tbb, workqueue, or unset",
    ),
}
"""What may stand in the variables that numba would end with a traceback for."""
_LEAST = {
    "RLIMIT_AS": (2 << 30, "ulimit -v"),
    "RLIMIT_DATA": (1 << 30, "ulimit -d"),
    "RLIMIT_STACK": (256 << 10, "ulimit -s"),
}
"""Bytes below which libraries end the process without a message: address space, data, stack."""


def main() -> None:
    """Run the command line and end the process with its exit status."""
    # What a command builds it mostly keeps: looking for garbage often is a tenth of a short one's time.
    gc.set_threshold(200_000, 20, 20)
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as npusim/__init__.py leaves it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        refuse_odd_environment()

        from npusim.cli.program import run

        status = run(sys.argv[1:])
    except NpusimError as error:
        print("error:", printable(str(error)), file=sys.stderr)
        status = error.exit_status
    except KeyboardInterrupt:  # while the program was still loading
        status = 130
    if status == 130:  # Python may end itself by the signal where code that it made was interrupted
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)
    if "duckdb" not in sys.modules:  # which complains at the end about what is not freed one by one
        gc.freeze()  # the end of the process frees everything
    sys.exit(status)


def refuse_odd_environment() -> None:
    """Refuse limits and variables under which compiled code cannot be loaded; save address space.

    Raises
    ------
    ConfigError
        Names the variable, or the limit and how it is set.
    """
    for name, (pattern, allowed) in _VARIABLES.items():
        value = os.environ.get(name, "")
        if value and not re.fullmatch(pattern, value):
            raise ConfigError(f"`{value}`", file=name, allowed=allowed)
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for name, (least, command) in _LEAST.items():
        limit = resource.getrlimit(getattr(resource, name))[0]
        is_limited = limit != resource.RLIM_INFINITY
        if is_limited and name != "RLIMIT_STACK":  # Arrow's own memory pool would reserve a gigabyte
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        if is_limited and limit < least:
            raise ConfigError(f"{limit >> 10} KiB", file=command, allowed=f"at least {least >> 10} KiB")
