"""From a file to a typed model and back, errors that name line and key, and JSON schemas.

A misspelt key is two of pydantic's failures, one key too many and one missing; the message names it once.
"""

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from npusim.config.overrides import (
    Override,
    Settings,
    apply_overrides,
    as_overrides,
    children,
    field_key,
    key_path,
    kind_of,
    models_at,
    options_of,
)
from npusim.config.reading import Key, ParsedFile, compose, plain_scalar, read_yaml
from npusim.errors import ConfigError, NpusimError, nearest, shown
from npusim.files import read_text

ModelT = TypeVar("ModelT", bound=BaseModel)

_SHOWN = 10  # errors that a message lists at most
_LONGEST_EXPLAINED = 1 << 20  # bytes of a JSON file that is read again as YAML for its lines
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


def load_model(path: str | Path, model: type[ModelT], overrides: Settings = ()) -> ModelT:
    """Read a YAML file as a pydantic model, with settings on top.

    A `FileError` says that the file cannot be read, a `ConfigError` that its content or a setting does not
    fit.
    """
    return validate_data(read_yaml(Path(path)), model, overrides)


def validate_data(
    document: ParsedFile | Mapping[str, Any], model: type[ModelT], overrides: Settings = ()
) -> ModelT:
    """Return data as a model; parameters and errors as for `load_model`."""
    if not isinstance(document, ParsedFile):
        document = ParsedFile(model.__name__, document)
    base = _validate(document.data, model, document, {})
    settings = as_overrides(overrides)
    if not settings:
        return base
    data = copy.deepcopy(document.data)
    written = apply_overrides(data, settings, base)
    return _validate(data, model, document, written)


def override_model(model: ModelT, overrides: Settings) -> ModelT:
    """Return a model with settings on top; errors as for `load_model`."""
    data = model.model_dump(mode="json", by_alias=True)
    written = apply_overrides(data, as_overrides(overrides), model)
    return _validate(data, type(model), ParsedFile(type(model).__name__, data), written)


def as_model(document: ParsedFile, model: type[ModelT]) -> ModelT:
    """Return the data of a JSON file as a model; errors name line, key, value and what is allowed."""
    try:
        return validate_data(document, model)
    except ConfigError:
        # JSON is YAML: only an error needs the lines, so only then the slower reader runs.
        with suppress(NpusimError):
            text = read_text(Path(document.name), most=_LONGEST_EXPLAINED)
            document = ParsedFile(document.name, document.data, compose(text, document.name).lines)
        return validate_data(document, model)


def _validate(
    data: Any, model: type[ModelT], document: ParsedFile, written: Mapping[Key, Override]
) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explained(error, model, document, written) from None


def dump_model(model: BaseModel) -> str:
    """Return a model as YAML that `load_model` reads as an equal model, with its sources."""
    return dump_data(model.model_dump(mode="json", by_alias=True))


def dump_data(data: Any, *, flat: bool = False) -> str:
    """Return plain data as YAML; `flat` writes innermost mappings and lists on one line."""
    flow = None if flat else False
    style: dict[str, Any] = {"Dumper": _Dumper, "sort_keys": False, "allow_unicode": True}
    return str(yaml.dump(data, default_flow_style=flow, width=110, **style))


class _Dumper(yaml.SafeDumper):
    """Quotes words that npusim's reader and PyYAML read differently (``1e9``)."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out; anchors make a data sheet hard to read."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Line breaks of other alphabets (U+0085, U+2028) survive only where they are escaped.
    style = '"' if not text.isprintable() else None if isinstance(plain_scalar(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _explained(
    error: ValidationError, model: type[BaseModel], document: ParsedFile, written: Mapping[Key, Override]
) -> ConfigError:
    """Return the error that says what is wrong and where: the first failure, and up to nine more."""
    failures = [
        failure
        for failure in error.errors(include_url=False)
        if failure["type"] != "default_factory_not_called"  # follows from another failure
    ]
    # A file of another kind has one fault, whatever its keys.
    of_schema = [failure for failure in failures if _is_of_another_kind(failure)]
    failures = of_schema[:1] or failures
    # Unknown keys come first: a misspelt key is the cause of the missing one.
    failures.sort(key=lambda failure: failure["type"] != "extra_forbidden")
    errors: list[ConfigError] = []
    meant: set[str] = set()
    for failure in failures:
        at = failure["loc"][:-1]
        absent = [str(f["loc"][-1]) for f in failures if f["type"] == "missing" and f["loc"][:-1] == at]
        explained = _explain(failure, absent, model, document, written)
        parent = (explained.key or "").rpartition(".")[0]
        if failure["type"] == "extra_forbidden" and explained.suggestion:
            meant.add(f"{parent}.{explained.suggestion}")
        if failure["type"] == "missing" and f"{parent}.{failure['loc'][-1]}" in meant:
            continue
        if all(explained.headline != other.headline for other in errors):
            errors.append(explained)
    return errors[0].with_(others=errors[1:_SHOWN], more=max(0, len(errors) - _SHOWN))


def _is_of_another_kind(failure: Any) -> bool:
    return failure["loc"] == ("schema",) and str(failure["input"]).startswith("npusim.")


def _explain(
    failure: Any,
    absent: list[str],
    model: type[BaseModel],
    document: ParsedFile,
    written: Mapping[Key, Override],
) -> ConfigError:
    """Return the error of one failure; `absent` are keys that are missing in the same mapping."""
    location: tuple[str | int, ...] = failure["loc"]
    is_key = bool(location) and location[-1] == "[key]"
    location = location[:-1] if is_key else location
    path, options = key_path(model, location)
    if failure["type"] == "extra_forbidden":
        known = _keys(key_path(model, location[:-1])[1] if len(location) > 1 else [model])
        name = str(location[-1])
        suggestion = nearest(name, absent) or nearest(name, known)  # an absent key is likelier
        found, allowed = f"the unknown key `{name}`", ", ".join(known) or None
    else:
        found, allowed, suggestion = _words(failure, location, options, is_key)
    if _is_of_another_kind(failure):
        found, suggestion = shown(failure["input"]), None
    at = failure.get("ctx", {}).get("at")
    if at:
        path = (*path, *(int(part) if part.isdecimal() else part for part in at.split(".")))
    setter = next((written[path[:end]] for end in range(len(path), -1, -1) if path[:end] in written), None)
    file, line = (setter.origin, None) if setter else document.place(path)
    key = ".".join(map(str, path)) or None
    return ConfigError(found, file=file, line=line, key=key, allowed=allowed, suggestion=suggestion)


def _words(
    failure: Any, location: tuple[str | int, ...], options: list[Any], is_key: bool
) -> tuple[str, str | None, str | None]:
    """Return what was found, what is allowed and what was meant."""
    kind, context, value = failure["type"], failure.get("ctx", {}), failure.get("input")
    if kind == "npusim":
        return context["found"], context["allowed"] or None, context["suggestion"] or None
    if kind == "missing":
        quantity = kind_of(options[0]) if options else None
        return f"no key `{location[-1]}`", quantity.allowed if quantity else f"`{location[-1]}: ...`", None
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        known = context["expected_tags" if kind == "union_tag_invalid" else "expected"].split("'")[1::2]
        if kind == "union_tag_invalid":
            found, value = f"{context['discriminator']} {shown(context['tag'])}", context["tag"]
        else:
            found = f"the unknown key `{location[-1]}`" if is_key else shown(value)
        return found, ", ".join(known), nearest(str(value), known)
    if kind == "union_tag_not_found":
        return f"no key {context['discriminator']}", "a mapping that names it", None
    if kind in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        allowed = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f"{context['actual_length']} entries", allowed, None
    if kind == "value_error":
        return str(context["error"]), None, None
    word = _WORDS.get(kind.partition("_")[0])
    keys = _keys(options)
    if word == "a mapping" and keys:
        word = f"a mapping of {', '.join(keys)}"
    return shown(value), word or failure["msg"].removeprefix("Input should be "), None


def _keys(options: list[Any]) -> list[str]:
    return [key for option in models_at(options) for key in children(option)]


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model's files, draft 2020-12.

    The text under a field is its description; quantities carry `x-unit` and their bounds. Pydantic can read
    those texts too, but for every class at import, which costs 30 ms of every command.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = schema.get("$defs", {})
    for part in _models_within(model):
        described = schema if part is model else definitions.get(part.__name__, {})
        properties = described.get("properties", {})
        for key, text in field_descriptions(part).items():
            if key in properties and "description" not in properties[key]:
                properties[key]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field of a model, inherited fields included, by the key a file writes."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts |= dict(texts_under_fields(base))
    texts |= {name: info.description for name, info in model.model_fields.items() if info.description}
    return {field_key(name, info): texts[name] for name, info in model.model_fields.items() if name in texts}


def texts_under_fields(model: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield each annotated field of a class that has a text below it, and that text."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    except (OSError, TypeError, SyntaxError):  # a model created at run time has no source
        return
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, inspect.cleandoc(text.value.value)


def _models_within(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and every model that its fields can hold."""
    models: dict[type[BaseModel], None] = {}
    waiting: list[Any] = [model]
    while waiting:
        for option in options_of(waiting.pop()):
            waiting += [argument for argument in get_args(option) if not isinstance(argument, str)]
            for part in models_at([option]):
                if part not in models:
                    models[part] = None
                    waiting += children(part).values()
    return list(models)
