"""Key paths of a model's files: the types and values behind each path."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from npusim.units import CountKind, Informative, Kind


def field_key(name: str, info: FieldInfo) -> str:
    """Return the key that a file writes for a field."""
    return info.alias or name


def children(model: type[BaseModel]) -> dict[str, Any]:
    """Return the keys of a model with the type behind each, annotations included."""
    return {
        field_key(name, info): Annotated[info.annotation, *info.metadata]
        if info.metadata
        else info.annotation
        for name, info in model.model_fields.items()
    }


def kind_of(annotation: Any) -> Kind | CountKind | None:
    """Return the kind of quantity behind a type, or None where it is none."""
    for option in options_of(annotation):
        for extra in getattr(option, "__metadata__", ()):
            if isinstance(extra, Kind | CountKind):
                return extra
    return None


def informative_of(annotation: Any) -> str:
    """Return why no estimate reads a field, by its type; empty where one does."""
    if get_origin(annotation) is not Annotated:
        return ""
    marks = [extra.reason for extra in annotation.__metadata__ if isinstance(extra, Informative)]
    return marks[0] if marks else informative_of(annotation.__origin__)


def options_of(annotation: Any) -> Iterator[Any]:
    """Yield what a type may be, unions taken apart; an Annotated quantity stays whole."""
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


def _is_model(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, BaseModel)


def _step(options: list[Any], key: str | int) -> list[Any] | None:
    """Return what lies behind a key, or None where no option has it."""
    behind: list[Any] = []
    for option in options:
        arguments = get_args(option)
        if _is_model(option):
            inside = children(option).get(str(key))
            behind += [] if inside is None else options_of(inside)
        elif (
            get_origin(option) in (dict, Mapping) or getattr(get_origin(option), "__name__", "") == "Mapping"
        ):
            behind += options_of(arguments[1])
        elif get_origin(option) in (list, tuple, set, frozenset) and isinstance(key, int) and arguments:
            item = arguments[0] if arguments[-1] is Ellipsis or key >= len(arguments) else arguments[key]
            behind += options_of(item)
    return behind or None


def _tag_of(option: Any) -> set[str]:
    """Return the values that tell a model of a discriminated union: those of its Literal fields."""
    if not _is_model(option):
        return set()
    literals = [info.annotation for info in option.model_fields.values()]
    return {str(value) for literal in literals for value in get_args(literal)}


def key_path(model: Any, location: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], list[Any]]:
    """Translate pydantic's location of an error into the path of a key.

    Parameters
    ----------
    location : tuple
        Pydantic's `loc`, in which the member of a union that was tried stands as a further step.

    Returns
    -------
    tuple
        The path in the file, and the types that may stand behind it (empty where nothing may).
    """
    options, path = list(options_of(model)), []
    for part in location:
        chosen = [option for option in options if part in _tag_of(option)] if len(options) > 1 else []
        if chosen:
            options = chosen
            continue
        behind = _step(options, part)
        if behind is None and any(getattr(option, "__name__", None) == part for option in options):
            continue
        path.append(part)
        options = behind or []
    return tuple(path), options


def models_at(options: list[Any]) -> list[type[BaseModel]]:
    """Return those of the types that are models."""
    return [option for option in options if _is_model(option)]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each path of a model that can be set, with its present value; none that no estimate reads."""
    if getattr(value, "informative", ""):
        return
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            if any(isinstance(mark, Informative) for mark in info.metadata):
                continue
            yield from leaves(getattr(value, name), (*path, field_key(name, info)))
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from leaves(inside, (*path, str(key)))
    elif path:
        yield path, value
