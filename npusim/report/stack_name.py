"""The name of a technique stack in a narrow column: broken between techniques and before settings only.

Like a train too long for the platform: it is parted at a coupling.
"""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.style import Style
from rich.text import Text

__all__ = ["StackName"]


class StackName:
    """A stack such as ``stagr+quantgr+grasp`` that takes as many lines as its column asks for.

    Parameters
    ----------
    stack : str
        Canonical text of the stack.
    style : str
        How it is printed.
    """

    def __init__(self, stack: str, style: str | Style = "") -> None:
        self.stack, self.style = stack, style

    def lines(self, width: int) -> list[str]:
        """Return the name in lines of at most `width` characters; a longer word stays whole."""
        lines: list[str] = []
        for piece in re.findall(r"[+:]?[^+:]+", self.stack):
            if lines and len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
        return lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield Text("\n".join(self.lines(options.max_width)), style=self.style, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for the whole name, and at least for its longest word."""
        longest = max(len(piece) for piece in self.lines(1))
        return Measurement(longest, len(self.stack)).with_maximum(options.max_width)
