"""Progress on standard error, and the first Ctrl-C as a wish to stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_EVERY_S = 5.0
"""Where standard error is no terminal, a line this often (s)."""


class Progress:
    """How far some work is: a bar on a terminal, else a line every few seconds.

    Parameters
    ----------
    counted : str
        What is counted, such as points.
    quiet : bool
        Show nothing.
    lines : bool
        Print lines where standard error is no terminal.
    rate : bool
        Show how many a second.
    """

    def __init__(
        self, counted: str = "", quiet: bool = False, *, lines: bool = True, rate: bool = False
    ) -> None:
        self.counted, self.rate = counted, rate
        self._lines = lines and not quiet
        self._bar: Any = _bar() if sys.stderr.isatty() and not quiet else None
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Progress:
        """Show it."""
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, count="")
        return self

    def __exit__(self, *error: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: float, total: float, what: str = "") -> None:
        """Show how much is done of how much, and what is being done."""
        count = f"{done:.0%}" if total == 1.0 else f"{int(done):,} of {total:,} {self.counted}".rstrip()
        now = time.monotonic()
        if self.rate:
            count += f", {done / max(now - self._began, 1e-9):,.0f}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=what, count=count)
        elif self._lines and now - self._said > _EVERY_S:
            self._said = now
            left = f", {(now - self._began) * (total / done - 1.0):.0f} s left" if done else ""
            print(f"{count}{left}{f': {what}' if what else ''}", file=sys.stderr, flush=True)

    def share(self, what: str, share: float) -> None:
        """Show what is being done, and which share of everything is done."""
        self(share, 1.0, what)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", style="dim"),
        console=Console(stderr=True),
        transient=True,
    )


class Stopper:
    """Turns the first Ctrl-C into a wish to stop; the second ends at once.

    Parameters
    ----------
    reply : str
        What is said to the first.
    """

    def __init__(self, reply: str) -> None:
        self.wanted, self.reply = False, reply

    def __call__(self) -> bool:
        """Whether somebody wants to stop."""
        return self.wanted

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to Ctrl-C and to a request to terminate while the body runs."""

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
