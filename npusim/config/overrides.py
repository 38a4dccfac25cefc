"""Settings on top of a file: `--set`, mappings from Python, values of design spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from npusim.config.paths import children, field_key, informative_of, kind_of, leaves, models_at, options_of
from npusim.config.reading import Key, compose
from npusim.config.section import Section
from npusim.errors import ConfigError, nearest, shown
from npusim.units import Count, Quantity

_LONGEST, _DEEPEST = 100, 50
"""Characters of a setting that a message repeats, and parts of its path."""
SET_BY_YOU = "set by you"
"""Source of a quantity that a setting changed."""


SET_BY_STUDY = "set by the study"
"""Source of a quantity that an axis, the settings of a design space, or a what-if changed."""


@dataclass(frozen=True)
class Override:
    """One setting."""

    path: tuple[str, ...]
    """Path of the key, as users write it."""
    value: Any
    """The new value, as a file would hold it: a scalar, a list or a mapping."""
    origin: str
    """Who set it; stands in the file's place in an error."""
    source: str = SET_BY_YOU
    """Source that a quantity set this way gets."""

    def at(self, path: tuple[str, ...], value: Any) -> Override:
        """Return the same setting at another path and with another value, as macros and short names need."""
        return replace(self, path=path, value=value)


Settings = Iterable[str | Override] | Mapping[str, Any]
"""Overrides as callers give them: ``"path=value"`` texts, `Override`s, or a mapping of path to value."""


def parse_override(text: str) -> Override:
    """Return the setting that a text such as ``npu.sram.per_tile=2MiB`` makes.

    Raises
    ------
    ConfigError
        Where there is no ``=``, an empty path or value, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    origin = f"--set {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or not all(parts) or not value.strip() or len(parts) > _DEEPEST:
        raise ConfigError(shown(text), file=origin, allowed="PATH=VALUE, such as npu.sram.per_tile=2MiB")
    return Override(parts, compose(value, origin).data, origin)


def as_overrides(settings: Settings) -> list[Override]:
    """Return settings in any of their forms as a list of overrides."""
    if isinstance(settings, str):
        return [parse_override(settings)]
    if isinstance(settings, Mapping):
        return [
            Override(tuple(path.split(".")), _plain(value), f"--set {path}={_text(value)}")
            for path, value in settings.items()
        ]
    return [parse_override(one) if isinstance(one, str) else one for one in settings]


def _plain(value: Any) -> Any:
    return value.as_written() if isinstance(value, Quantity | Count) else value


def _text(value: Any) -> str:
    return value.text if isinstance(value, Quantity | Count) else str(value)


def valid_paths(model: BaseModel) -> dict[str, Any]:
    """Return every path of a model that can be set, as users write it, with its present value."""
    shorten = getattr(type(model), "short_path", lambda path: path)
    return {".".join(shorten(path)): value for path, value in leaves(model)}


def apply_overrides(data: Any, overrides: Iterable[Override], base: BaseModel) -> dict[Key, Override]:
    """Write overrides into a file's data.

    Parameters
    ----------
    base : pydantic model
        The file's data alone, validated: its types and names say which paths there are.

    Returns
    -------
    dict
        Which override set which path of the file.

    Raises
    ------
    ConfigError
        Where a path names nothing in the model; tells the nearest that does.
    """
    written: dict[Key, Override] = {}
    overrides = list(overrides)
    if isinstance(base, Section):
        overrides, base = base.prepare(data, overrides, base)
    for given in overrides:
        for override in base.expand_override(given, base, data) if isinstance(base, Section) else [given]:
            annotation, reason = _type_at(base, override.path)
            if annotation is None:
                raise _unknown_path(given, override.path, base)
            if reason and override.value is given.value:
                raise ConfigError(
                    f"`{'.'.join(given.path)}`, which is informative ({reason})",
                    file=given.origin,
                    allowed="numbers that an estimate reads",
                )
            _write(data, override, annotation)
            written[override.path] = override
    return written


def _type_at(base: Any, path: tuple[str, ...]) -> tuple[Any, str]:
    """Return the type of what a path names, None where it names nothing, and why no estimate reads it."""
    value: Any = base
    annotation: Any = type(base)
    reason = ""
    for key in path:
        if isinstance(value, Section) and value.informative:
            reason = value.informative
        if isinstance(value, BaseModel):
            annotation = children(type(value)).get(key)
            if annotation is None:
                return None, ""
            names = {field_key(name, info): name for name, info in type(value).model_fields.items()}
            value = getattr(value, names[key])
        elif isinstance(value, Mapping):
            arguments = next(
                (get_args(option) for option in options_of(annotation) if get_args(option)), None
            )
            # A free name (a device) must exist; a name of a closed list (a dtype) may be new.
            if arguments is None or (key not in value and get_origin(arguments[0]) is not Literal):
                return None, ""
            value, annotation = value.get(key), arguments[1]
        elif value is None and models_at(list(options_of(annotation))):
            annotation = children(models_at(list(options_of(annotation)))[0]).get(key)
            if annotation is None:
                return None, ""
        else:
            return None, ""
    return annotation, reason or informative_of(annotation)


def _unknown_path(given: Override, path: tuple[str, ...], base: BaseModel) -> ConfigError:
    known = list(valid_paths(base))
    written = ".".join(given.path)
    start = ""
    for end in range(len(given.path), 0, -1):
        prefix = ".".join(given.path[:end]) + "."
        if any(name.startswith(prefix) for name in known):
            start = prefix
            break
    following = list(
        dict.fromkeys(name[len(start) :].split(".")[0] for name in known if name.startswith(start))
    )
    return ConfigError(
        f"the unknown path `{written}`",
        file=given.origin,
        allowed=f"after `{start}` one of {', '.join(following)}"
        if start
        else f"one of {', '.join(following)}",
        suggestion=nearest(written, known) if "." in written else _path_ending(written, known),
    )


def _path_ending(name: str, known: list[str]) -> str | None:
    """Return the first path of which a single word means the beginning or the end."""
    ends = {path.rpartition(".")[2]: path for path in reversed(known)}
    meant = nearest(name, [*ends, *(path.partition(".")[0] for path in known)])
    return ends.get(meant, meant) if meant else None


def _write(data: Any, override: Override, annotation: Any) -> None:
    here = data
    for key in override.path[:-1]:
        if not isinstance(here.get(key), dict):
            here[key] = {}
        here = here[key]
    last = override.path[-1]
    value = override.value
    # Null leaves an optional quantity out; where it is not optional, validation says so.
    if value is not None and kind_of(annotation) is not None:
        told = dict(value) if isinstance(value, Mapping) else {"value": value}
        was = here.get(last)
        was = was.get("value") if isinstance(was, Mapping) else was
        note = {} if was is None else {"note": f"instead of {was}"}
        value = {"source": override.source} | note | told
    here[last] = value
