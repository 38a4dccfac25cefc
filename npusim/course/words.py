"""Words around the lessons: `words.json`, or the file that NPUSIM_WORDS names, in another language."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

from npusim.errors import FileError

OWN = Path(__file__).with_suffix(".json")
VARIABLE = "NPUSIM_WORDS"


@cache
def words() -> dict[str, str]:
    """Return each text by its name; {names} in it stand for values.

    Raises
    ------
    FileError
        The file of another language is no JSON object, or lacks a text.
    """
    own: dict[str, str] = json.loads(OWN.read_text("utf-8"))
    other = os.environ.get(VARIABLE)
    if not other:
        return own
    try:
        texts = json.loads(Path(other).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(other, str(error), f"name a JSON file in {VARIABLE}") from None
    missing = [name for name in own if not isinstance(texts, dict) or not isinstance(texts.get(name), str)]
    if missing:
        raise FileError(other, f"lacks {', '.join(missing)}", f"copy {OWN.name} and translate each text")
    return {name: texts[name] for name in own}


def word(name: str, **values: object) -> str:
    """Return a text with its values."""
    return words()[name].format(**values)
