"""From a JSON file to plain data or a typed model, or a refusal that names line and column."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from npusim.config.loading import validate_data
from npusim.config.reading import CONTROL, DEEPEST, ParsedFile, compose
from npusim.config.texts import read_text
from npusim.errors import ConfigError, NpusimError, shown

ModelT = TypeVar("ModelT", bound=BaseModel)

_MOST_DIGITS = 30
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u00([01][0-9a-f]|7f|[89][0-9a-f])|[bf])", re.IGNORECASE)
"""A control character as JSON writes it; tab, line feed and return are text."""
_HARMLESS = frozenset({"09", "0a", "0d", "85"})
_LONGEST_EXPLAINED = 1 << 20
"""Characters of a file whose messages tell the line of a key, for which it is read again as YAML."""


def read_json(path: Path) -> ParsedFile:
    """Return the data of a JSON file.

    Raises
    ------
    FileError
        Where it cannot be read.
    ConfigError
        Where it is empty, no JSON, ends too early or holds a key twice; it names line and column.
    """
    return parse_json(read_text(path), str(path))


def parse_json(text: str, name: str) -> ParsedFile:
    """Return the data of a JSON text; `name` is what messages call it. Errors as for `read_json`."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) != len(pairs):
            twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise ConfigError(f"the key {shown(twice)} a second time", file=name, allowed="each key once")
        return data

    def whole(digits: str) -> int:
        if len(digits) > _MOST_DIGITS:
            raise refused(f"a number of {len(digits)} digits", f"at most {_MOST_DIGITS}", text.find(digits))
        return int(digits)

    def refused(what: str, allowed: str, place: int) -> ConfigError:
        return ConfigError(what, file=name, line=1 + text.count("\n", 0, max(place, 0)), allowed=allowed)

    if not text.strip():
        raise ConfigError("an empty file", file=name, line=1, allowed="JSON")
    for found in (*CONTROL.finditer(text), *_ESCAPE.finditer(text)):
        if not found.re.groups or (found[1] or "").lower() not in _HARMLESS:
            what = f"the control character {shown(found[0])}"
            raise refused(what, "text that can be printed", found.start())
    try:
        return ParsedFile(name, json.loads(text, object_pairs_hook=once, parse_int=whole))
    except json.JSONDecodeError as error:
        early = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        problem = "JSON that ends too early" if early else "broken JSON"
        remedy = "a whole file, brackets and quotes closed" if early else "JSON, brackets and quotes closed"
        told = f"{problem} ({error.msg}, at column {error.colno})"
        raise ConfigError(told, file=name, line=error.lineno, allowed=remedy) from None
    except RecursionError:
        raise refused("nesting that is too deep", f"at most {DEEPEST} levels", 0) from None


def as_model(document: ParsedFile, model: type[ModelT]) -> ModelT:
    """Return the data of a JSON file as a model.

    Raises
    ------
    ConfigError
        Where the data do not fit; it names the line, the key, the value and what is allowed.
    """
    try:
        return validate_data(document, model)
    except ConfigError:
        # Where a key stands is looked up only for a message: JSON is YAML, whose reader remembers lines.
        with suppress(NpusimError):
            text = read_text(Path(document.name), most=_LONGEST_EXPLAINED)
            document = ParsedFile(document.name, document.data, compose(text, document.name).lines)
        return validate_data(document, model)
