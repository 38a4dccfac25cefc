"""From a YAML file to a typed model, and back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from npusim.config.explaining import explain
from npusim.config.overrides import Override, Settings, apply_overrides, as_overrides
from npusim.config.reading import Key, ParsedFile, plain_scalar, read_yaml

ModelT = TypeVar("ModelT", bound=BaseModel)


def load_model(path: str | Path, model: type[ModelT], overrides: Settings = ()) -> ModelT:
    """Read a YAML file as a model.

    Parameters
    ----------
    path : str or Path
        The file.
    model : type
        Any pydantic model.
    overrides : settings, optional
        What to set on top of the file: ``"path=value"`` texts, `Override`s or a mapping.

    Returns
    -------
    model
        The file's content with the overrides, validated.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where its content, or an override, does not fit the model.
    """
    return validate_data(read_yaml(Path(path)), model, overrides)


def validate_data(
    document: ParsedFile | Mapping[str, Any], model: type[ModelT], overrides: Settings = ()
) -> ModelT:
    """Validate data that is already read; parameters and errors as for `load_model`."""
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


def _validate(
    data: Any, model: type[ModelT], document: ParsedFile, written: Mapping[Key, Override]
) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error, model, document, written) from None


def dump_model(model: BaseModel) -> str:
    """Return a model as YAML that `load_model` reads as an equal model, with its sources."""
    data = model.model_dump(mode="json", by_alias=True)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Quotes the words that npusim's reader would take for something else than PyYAML does (``1e9``)."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out; anchors make a data sheet hard to read."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Line breaks of other alphabets (U+0085, U+2028) survive only where they are escaped.
    style = '"' if not text.isprintable() else None if isinstance(plain_scalar(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
