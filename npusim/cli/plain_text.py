"""Lets every terminal show the output, even one that knows no `µ` and no block characters.

Like a typewriter without umlauts: it writes ae, and everybody can read the letter.
"""

from __future__ import annotations

import codecs
import io
from typing import TextIO

__all__ = ["tolerant"]

_STAND_INS = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "|"),
    **dict.fromkeys("─━╭╮╰╯", "-"),
    **dict.fromkeys("░▒", "."),
    "▓": "%",
    **dict.fromkeys("│┃", "|"),
    "µ": "u", "×": "x", "²": "2", "↓": "v", "↑": "^", "…": "~", "→": ">", "–": "-",
}  # fmt: skip
_HANDLER = "npusim.stand_in"


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks, one character by one, so that columns stay in line."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in text), error.end


def tolerant(*streams: TextIO) -> None:
    """Make text streams replace what their encoding lacks instead of failing."""
    codecs.register_error(_HANDLER, _stand_in)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
