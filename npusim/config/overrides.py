"""Typed sections of files, the key paths in them, and settings on top of a file.

Settings come from `--set`, from mappings in Python and from the values of design spaces.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from npusim.config.reading import Key, compose
from npusim.errors import ConfigError, nearest, shown
from npusim.units import Count, CountKind, Informative, Kind, Quantity, format_quantity

_LONGEST, _DEEPEST = 100, 50  # characters of a setting that a message repeats, and parts of its path
_LONGEST_NAME = 1000
_Value = TypeVar("_Value")
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
    """Where it was set; an error names it in place of the file."""
    source: str = SET_BY_YOU
    """Source that a quantity gets."""
    in_si: bool = False
    """Whether a bare number is in the SI unit of its path, as in Python; otherwise it needs a unit."""

    def at(self, path: tuple[str, ...], value: Any) -> Override:
        """Return the same setting with another path and value, as macros and short names need."""
        return replace(self, path=path, value=value)


Settings = Iterable[str | Override] | Mapping[str, Any]
"""Overrides as callers give them: ``"path=value"`` texts, `Override`s, or a mapping of path to value."""


class Section(BaseModel):
    """A frozen model that refuses unknown keys; the text under a field is its description."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True
    )

    informative: ClassVar[str] = ""
    """Why no estimate reads any number of the section; empty where estimates do."""

    @classmethod
    def prepare(cls, data: Any, overrides: list[Override], base: Any) -> tuple[list[Override], Any]:
        """Return overrides in the order in which they apply, and the model whose paths they may name.

        Parameters
        ----------
        data : mapping
            Data of the file; a model may add what the overrides change but the file leaves out.
        """
        return overrides, base

    @classmethod
    def expand_override(cls, override: Override, base: Any, data: Any) -> Sequence[Override]:
        """Return the settings that one override stands for; `data` holds the overrides before it."""
        return [override]

    @classmethod
    def short_path(cls, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path of the file as users may write it."""
        return path


def one_line(text: str) -> str:
    """Return a name; raise a ValueError, inside a validator, if it does not fit on one line."""
    if not text.isprintable() or len(text) > _LONGEST_NAME:
        raise ValueError(
            f"found {shown(text)}; allowed: a name on one line, at most {_LONGEST_NAME} characters"
        )
    return text


def parse_override(text: str) -> Override:
    """Return the setting of a text such as ``npu.sram.per_tile=2MiB``.

    Raises
    ------
    ConfigError
        If there is no ``=``, path or value is empty, or the value is not YAML.
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
    if not isinstance(settings, Mapping):
        return [parse_override(item) if isinstance(item, str) else item for item in settings]
    overrides = []
    for path, value in settings.items():
        text = value.text if isinstance(value, Quantity | Count) else str(value)
        plain = value.as_written() if isinstance(value, Quantity | Count) else value
        overrides.append(Override(tuple(path.split(".")), plain, f"--set {path}={text}", in_si=True))
    return overrides


def full_factorial(settings: Mapping[str, Sequence[_Value]]) -> list[dict[str, _Value]]:
    """Return the full-factorial design of some settings: every combination, the last setting fastest.

    Examples
    --------
    >>> full_factorial({"npu.tiles": ["1", "2"], "soc": ["a"]})
    [{'npu.tiles': '1', 'soc': 'a'}, {'npu.tiles': '2', 'soc': 'a'}]
    """
    return [dict(zip(settings, values, strict=True)) for values in product(*settings.values())]


def valid_paths(model: BaseModel) -> dict[str, Any]:
    """Return every path of a model that can be set, as users write it, with its present value."""
    shorten = getattr(type(model), "short_path", lambda path: path)
    return {".".join(shorten(path)): value for path, value in _leaves(model)}


def apply_overrides(data: Any, overrides: Iterable[Override], base: BaseModel) -> dict[Key, Override]:
    """Write overrides into the data of a file; return the override that set each path.

    `base` is the file's data alone, validated; it holds the paths that can be set. A `ConfigError` for
    another path names the nearest one.
    """
    written: dict[Key, Override] = {}
    overrides = list(overrides)
    if isinstance(base, Section):
        overrides, base = base.prepare(data, overrides, base)
    for setting in overrides:
        expanded = base.expand_override(setting, base, data) if isinstance(base, Section) else [setting]
        for override in expanded:
            annotation, reason = _type_at(base, override.path)
            if annotation is None:
                raise _unknown_path(setting, base)
            if reason and override.value is setting.value:
                problem = f"`{'.'.join(setting.path)}`, which is informative ({reason})"
                raise ConfigError(problem, file=setting.origin, allowed="numbers that an estimate reads")
            _write(data, override, annotation)
            written[override.path] = override
    return written


def _type_at(base: Any, path: tuple[str, ...]) -> tuple[Any, str]:
    """Return the type at a path, None if there is no such path, and why no estimate reads it."""
    value: Any = base
    annotation: Any = type(base)
    reason = ""
    for key in path:
        if isinstance(value, Section) and value.informative:
            reason = value.informative
        models = models_at(list(options_of(annotation)))
        if isinstance(value, BaseModel):
            annotation = children(type(value)).get(key)
            names = {field_key(name, info): name for name, info in type(value).model_fields.items()}
            value = getattr(value, names[key]) if annotation is not None else None
        elif isinstance(value, Mapping):
            arguments = next(filter(None, map(get_args, options_of(annotation))), (None, None))
            # A free name (a device) must exist; a name of a closed list (a dtype) may be new.
            known = key in value or get_origin(arguments[0]) is Literal
            value, annotation = value.get(key), arguments[1] if known else None
        else:
            annotation = children(models[0]).get(key) if value is None and models else None
        if annotation is None:
            return None, ""
        reason = reason or informative_of(annotation)
    return annotation, reason


def _unknown_path(setting: Override, base: BaseModel) -> ConfigError:
    known = list(valid_paths(base))
    written = ".".join(setting.path)
    prefixes = [".".join(setting.path[:end]) + "." for end in range(len(setting.path), 0, -1)]
    start = next((p for p in prefixes if any(name.startswith(p) for name in known)), "")
    following = dict.fromkeys(name[len(start) :].split(".")[0] for name in known if name.startswith(start))
    if "." in written:
        meant = nearest(written, known)
    else:  # a single word means the end of a path, or its beginning
        ends = {path.rpartition(".")[2]: path for path in reversed(known)}
        word = nearest(written, [*ends, *(path.partition(".")[0] for path in known)])
        meant = ends.get(word, word) if word else None
    allowed = f"{f'after `{start}` ' if start else ''}one of {', '.join(following)}"
    return ConfigError(
        f"the unknown path `{written}`", file=setting.origin, allowed=allowed, suggestion=meant
    )


def _write(data: Any, override: Override, annotation: Any) -> None:
    here, value = data, override.value
    for key in override.path[:-1]:
        if not isinstance(here.get(key), dict):
            here[key] = {}
        here = here[key]
    last, kind = override.path[-1], kind_of(annotation)
    # Null leaves an optional quantity out; where it is not optional, validation says so.
    if value is not None and kind is not None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if override.in_si and is_number and isinstance(kind, Kind) and kind.unit:
            value = format_quantity(value, kind.unit)
        before = here.get(last)
        before = before.get("value") if isinstance(before, Mapping) else before
        note = {} if before is None else {"note": f"instead of {before}"}
        stated = dict(value) if isinstance(value, Mapping) else {"value": value}
        value = {"source": override.source} | note | stated
    here[last] = value


def field_key(name: str, info: FieldInfo) -> str:
    """Return the key that a file writes for a field."""
    return info.alias or name


def children(model: type[BaseModel]) -> dict[str, Any]:
    """Return the keys of a model with their types, annotations included."""
    return {
        field_key(name, info): Annotated[info.annotation, *info.metadata]
        if info.metadata
        else info.annotation
        for name, info in model.model_fields.items()
    }


def kind_of(annotation: Any) -> Kind | CountKind | None:
    """Return the kind of quantity of a type; None if it is no quantity."""
    extras = (extra for option in options_of(annotation) for extra in getattr(option, "__metadata__", ()))
    return next((extra for extra in extras if isinstance(extra, Kind | CountKind)), None)


def informative_of(annotation: Any) -> str:
    """Return why no estimate reads a field, by its type; empty if estimates read it."""
    if get_origin(annotation) is not Annotated:
        return ""
    marks = [extra.reason for extra in annotation.__metadata__ if isinstance(extra, Informative)]
    return marks[0] if marks else informative_of(annotation.__origin__)


def options_of(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a type, unions taken apart; an Annotated quantity stays whole."""
    if get_origin(annotation) is Annotated:
        if any(isinstance(extra, Kind | CountKind) for extra in annotation.__metadata__):
            yield annotation
        else:
            yield from options_of(annotation.__origin__)
    elif get_origin(annotation) in (Union, types.UnionType):
        for option in get_args(annotation):
            yield from options_of(option)
    else:
        yield annotation


def models_at(options: list[Any]) -> list[type[BaseModel]]:
    """Return the alternatives that are models."""
    return [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]


def key_path(model: Any, location: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], list[Any]]:
    """Return the path of a key, and the types allowed there, for pydantic's location of an error.

    In pydantic's `loc` the member of a union that was tried is a further step.
    """
    options, path = list(options_of(model)), []
    for part in location:
        chosen = [option for option in options if part in _tags_of(option)] if len(options) > 1 else []
        if chosen:
            options = chosen
            continue
        inner = _step(options, part)
        if not inner and any(getattr(option, "__name__", None) == part for option in options):
            continue
        path.append(part)
        options = inner
    return tuple(path), options


def _step(options: list[Any], key: str | int) -> list[Any]:
    """Return the types under a key; empty if no alternative has it."""
    inner: list[Any] = []
    for option in options:
        arguments, origin = get_args(option), get_origin(option)
        if models_at([option]):
            field = children(option).get(str(key))
            inner += [] if field is None else options_of(field)
        elif origin is not None and getattr(origin, "__name__", "") in ("dict", "Mapping"):
            inner += options_of(arguments[1])
        elif origin in (list, tuple, set, frozenset) and isinstance(key, int) and arguments:
            item = arguments[0] if arguments[-1] is Ellipsis or key >= len(arguments) else arguments[key]
            inner += options_of(item)
    return inner


def _tags_of(option: Any) -> set[str]:
    """Return the Literal values that identify a model of a discriminated union."""
    literals = [info.annotation for model in models_at([option]) for info in model.model_fields.values()]
    return {str(value) for literal in literals for value in get_args(literal)}


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each path of a model that can be set, with its present value."""
    if getattr(value, "informative", ""):
        return
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            if not any(isinstance(mark, Informative) for mark in info.metadata):
                yield from _leaves(getattr(value, name), (*path, field_key(name, info)))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif path:
        yield path, value
