"""Typed YAML: a file is checked against a pydantic model, or refused with file, line and key.

Any pydantic model can be loaded; npusim's own are `Section`s.
"""

from npusim.config.loading import (
    dump_model,
    field_descriptions,
    load_model,
    override_model,
    schema_of,
    validate_data,
)
from npusim.config.overrides import (
    SET_BY_STUDY,
    SET_BY_YOU,
    Override,
    Section,
    Settings,
    one_line,
    parse_override,
    valid_paths,
)

__all__ = [
    "SET_BY_STUDY",
    "SET_BY_YOU",
    "Override",
    "Section",
    "Settings",
    "dump_model",
    "field_descriptions",
    "load_model",
    "one_line",
    "override_model",
    "parse_override",
    "schema_of",
    "valid_paths",
    "validate_data",
]
