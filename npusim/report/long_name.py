"""A long name in a narrow column: broken where its parts meet, and elsewhere only in need.

Like a train too long for the platform: it is parted at a coupling.
"""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.style import Style
from rich.text import Text

__all__ = ["LongName"]


class LongName:
    """A name such as ``stagr+quantgr`` or ``layer0/aggregate/matmul`` that takes as many lines as it needs.

    Parameters
    ----------
    name : str
        On one line.
    joints : str
        Characters before which it may be broken.
    style : str
        How it is printed.
    """

    def __init__(self, name: str, joints: str, style: str | Style = "") -> None:
        self.name, self.style = name, style
        at = re.escape(joints)
        self._parts = re.findall(f"[{at}]*[^{at}]+[{at}]*$|[{at}]*[^{at}]+", name) or [name]

    def lines(self, width: int) -> list[str]:
        """Return the name in lines of at most `width` characters; a longer part stays whole."""
        lines: list[str] = []
        for part in self._parts:
            if lines and len(lines[-1]) + len(part) <= width:
                lines[-1] += part
            else:
                lines.append(part)
        return lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in self.lines(options.max_width):
            yield Text(line, style=self.style, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for the whole name, and at least for its longest part."""
        return Measurement(max(map(len, self._parts)), len(self.name)).with_maximum(options.max_width)
