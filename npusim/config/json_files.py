"""From a JSON file to plain data or a typed model, or a refusal that names line and column."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from npusim.config.loading import validate_data
from npusim.config.reading import ParsedFile, compose
from npusim.config.texts import read_text
from npusim.errors import ConfigError, NpusimError

ModelT = TypeVar("ModelT", bound=BaseModel)


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
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConfigError(f"the key `{twice}` a second time", file=name, allowed="each key once")
        return data

    if not text.strip():
        raise ConfigError("an empty file", file=name, line=1, allowed="JSON")
    try:
        return ParsedFile(name, json.loads(text, object_pairs_hook=once))
    except json.JSONDecodeError as error:
        early = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        problem = "JSON that ends too early" if early else "broken JSON"
        remedy = "a whole file, brackets and quotes closed" if early else "JSON, brackets and quotes closed"
        found = f"{problem} ({error.msg}, at column {error.colno})"
        raise ConfigError(found, file=name, line=error.lineno, allowed=remedy) from None
    except RecursionError:
        raise ConfigError("nesting that is too deep", file=name) from None
    except ValueError as error:
        raise ConfigError(f"broken JSON ({error})", file=name) from None


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
        with suppress(NpusimError, OSError, UnicodeDecodeError):
            text = Path(document.name).read_bytes().decode("utf-8-sig")
            document = ParsedFile(document.name, document.data, compose(text, document.name).lines)
        return validate_data(document, model)
