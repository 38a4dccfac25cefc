"""The JSON schema of a model's files: what each key means, its unit and its bounds.

The text under a field in the code is its description. pydantic can collect those texts as well, but does
so for every class at import, which costs 30 ms of every command; here they are read when a schema is
asked for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel

from npusim.config.paths import children, field_key, models_at, options_of


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model's files.

    Returns
    -------
    dict
        JSON schema, draft 2020-12; quantities carry `x-unit` and their bounds.
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
    """Return the text under each field of a model, inherited fields included, by the key a file writes.

    Returns
    -------
    dict
        Key to description; a field without a text is left out.
    """
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
    except (OSError, TypeError, SyntaxError):  # a model made on the fly has no source
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
    found: dict[type[BaseModel], None] = {}
    waiting: list[Any] = [model]
    while waiting:
        for option in options_of(waiting.pop()):
            waiting += [argument for argument in get_args(option) if not isinstance(argument, str)]
            for part in models_at([option]):
                if part not in found:
                    found[part] = None
                    waiting += children(part).values()
    return list(found)
