"""Typed YAML: a file is read and checked against a pydantic model, or refused with the very line.

Any pydantic model can be loaded; a `Section` is the kind npusim writes itself.
"""

from npusim.config.describing import field_descriptions, schema_of
from npusim.config.loading import dump_model, load_model, override_model, validate_data
from npusim.config.overrides import SET_BY_STUDY, SET_BY_YOU, Override, Settings, parse_override, valid_paths
from npusim.config.section import Section, one_line

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
