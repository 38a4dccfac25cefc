"""Turns pydantic's list of failures into one message a person can act on.

A misspelt key appears in the list twice (one key too many, one missing); the message says it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from npusim.config.overrides import Override
from npusim.config.paths import children, key_path, kind_of, models_at
from npusim.config.reading import Key, ParsedFile
from npusim.errors import ConfigError, nearest, shown

_SHOWN = 10
"""Errors listed at most."""

_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
}


def explain(
    error: ValidationError, model: type[BaseModel], document: ParsedFile, written: Mapping[Key, Override]
) -> ConfigError:
    """Return the error that says what is wrong in a file and where.

    Returns
    -------
    ConfigError
        The first error in full, up to nine more in a line each.
    """
    raw = [
        one
        for one in error.errors(include_url=False)
        if one["type"] != "default_factory_not_called"  # follows from another error
    ]
    # Unknown keys come first: a misspelt key is the cause of the missing one.
    raw.sort(key=lambda one: one["type"] != "extra_forbidden")
    found: list[ConfigError] = []
    meant: set[str] = set()
    for one in raw:
        absent = [o["loc"][-1] for o in raw if o["type"] == "missing" and o["loc"][:-1] == one["loc"][:-1]]
        told = _explain_one({**one, "absent": absent}, model, document, written)
        parent = (told.key or "").rpartition(".")[0]
        if one["type"] == "extra_forbidden" and told.suggestion:
            meant.add(f"{parent}.{told.suggestion}")
        if one["type"] == "missing" and f"{parent}.{one['loc'][-1]}" in meant:
            continue
        if all(told.headline != other.headline for other in found):
            found.append(told)
    first, others = found[0], found[1:_SHOWN]
    return ConfigError(
        first.found,
        file=first.file,
        line=first.line,
        key=first.key,
        allowed=first.allowed,
        suggestion=first.suggestion,
        others=others,
        more=max(0, len(found) - _SHOWN),
    )


def _explain_one(
    one: dict[str, Any], model: type[BaseModel], document: ParsedFile, written: Mapping[Key, Override]
) -> ConfigError:
    location: tuple[str | int, ...] = one["loc"]
    is_key = bool(location) and location[-1] == "[key]"
    location = location[:-1] if is_key else location
    path, options = key_path(model, location)
    found, allowed, suggestion = _words(one, model, location, options, is_key)
    at = one.get("ctx", {}).get("at")
    if at:
        path = (*path, *(int(part) if part.isdecimal() else part for part in at.split(".")))
    setter = next((written[path[:end]] for end in range(len(path), -1, -1) if path[:end] in written), None)
    file, line = (setter.origin, None) if setter else document.place(path)
    return ConfigError(
        found,
        file=file,
        line=line,
        key=".".join(map(str, path)) or None,
        allowed=allowed,
        suggestion=suggestion,
    )


def _words(
    one: dict[str, Any],
    model: type[BaseModel],
    location: tuple[str | int, ...],
    options: list[Any],
    is_key: bool,
) -> tuple[str, str | None, str | None]:
    """Return what was found, what is allowed and what was meant."""
    kind, context, value = one["type"], one.get("ctx", {}), one.get("input")
    if kind == "npusim":
        return context["found"], context["allowed"] or None, context["suggestion"] or None
    if kind == "extra_forbidden":
        known = _keys(key_path(model, location[:-1])[1] if len(location) > 1 else [model])
        name = str(location[-1])
        # A key that is missing beside it is meant before one that is there already.
        meant = nearest(name, map(str, one.get("absent", ()))) or nearest(name, known)
        return f"the unknown key `{name}`", ", ".join(known), meant
    if kind == "missing":
        quantity = kind_of(options[0]) if options else None
        return f"no key `{location[-1]}`", quantity.allowed if quantity else f"`{location[-1]}: ...`", None
    if kind in ("literal_error", "enum"):
        known = _quoted(context["expected"])
        found = f"the unknown key `{location[-1]}`" if is_key else shown(value)
        return found, ", ".join(known), nearest(str(value), known)
    if kind == "union_tag_invalid":
        known = _quoted(context["expected_tags"])
        return (
            f"{context['discriminator']} {shown(context['tag'])}",
            ", ".join(known),
            nearest(context["tag"], known),
        )
    if kind == "union_tag_not_found":
        return f"no key {context['discriminator']}", "a mapping that names it", None
    if kind in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        allowed = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f"{context['actual_length']} entries", allowed, None
    if kind == "value_error":
        return str(context["error"]), None, None
    word = _WORDS.get(kind.partition("_")[0])
    known = _keys(options)
    if word == "a mapping" and known:
        word = f"a mapping of {', '.join(known)}"
    return shown(value), word or one["msg"].removeprefix("Input should be "), None


def _keys(options: list[Any]) -> list[str]:
    return [key for option in models_at(options) for key in children(option)]


def _quoted(text: str) -> list[str]:
    """Return the names in pydantic's list such as "'npu', 'cpu' or 'gpu'"."""
    return text.split("'")[1::2]
