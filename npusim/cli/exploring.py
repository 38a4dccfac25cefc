"""What the commands that explore share: the space they name, progress on standard error, stopping in order.

Like the control panel of a long-running machine: a gauge, and a stop button that lets the piece in work be
finished.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

__all__ = ["Cores", "Directory", "Minimise", "Quiet", "Resume", "SpaceName", "Stopper", "gauge", "use_cores"]


def complete_space(incomplete: str) -> list[str]:
    """Return shipped design spaces that begin as written."""
    from npusim.explore import space_names

    return [name for name in space_names() if name.startswith(incomplete)]


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


def use_cores(cores: int | None) -> None:
    """Let compiled loops use so many cores, as far as there are."""
    if cores is not None:
        import numba

        numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))


class Stopper:
    """Turns the first Ctrl-C into a wish to stop; the second ends at once.

    Parameters
    ----------
    reply : str
        What is said to the first.
    """

    def __init__(self, reply: str = "finishing the chunk") -> None:
        self.wanted, self.reply = False, reply

    def __call__(self) -> bool:
        """Whether somebody wants to stop."""
        return self.wanted

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to Ctrl-C and to a polite kill while the body runs."""

        def hear(number: int, frame: FrameType | None) -> None:
            if self.wanted:
                raise KeyboardInterrupt
            self.wanted = True
            print(f"{self.reply}; once more ends at once", file=sys.stderr, flush=True)

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class gauge:  # used as a function: `with gauge(...) as progress:`
    """Progress on standard error with rate and time left; a line now and then where it is no terminal.

    Parameters
    ----------
    what : str
        What is counted.
    quiet : bool
        Show nothing.
    """

    def __init__(self, what: str, quiet: bool) -> None:
        self.what, self.quiet = what, quiet
        self._bar: Any = None
        self._began = time.monotonic()
        self._first: int | None = None
        self._said = 0.0

    def __enter__(self) -> gauge:
        """Show the gauge."""
        if not self.quiet and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=None, rate="")
        return self

    def __exit__(self, *error: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show how many are done of how many."""
        seconds = time.monotonic() - self._began
        self._first = self._first if self._first is not None else 0
        rate = (done - self._first) / seconds if seconds > 0 else 0.0
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, rate=f"{rate:,.0f}/s")
        elif not self.quiet and (seconds - self._said > 5.0 or done >= total):
            self._said = seconds
            left = (total - done) / rate if rate > 0 else 0.0
            print(
                f"{done:,} of {total:,} {self.what}, {rate:,.0f}/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
