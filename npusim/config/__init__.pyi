"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.config.loading import dump_data as dump_data
from npusim.config.loading import dump_model as dump_model
from npusim.config.loading import field_descriptions as field_descriptions
from npusim.config.loading import load_model as load_model
from npusim.config.loading import override_model as override_model
from npusim.config.loading import schema_of as schema_of
from npusim.config.loading import validate_data as validate_data
from npusim.config.overrides import SET_BY_STUDY as SET_BY_STUDY
from npusim.config.overrides import SET_BY_YOU as SET_BY_YOU
from npusim.config.overrides import Override as Override
from npusim.config.overrides import Section as Section
from npusim.config.overrides import Settings as Settings
from npusim.config.overrides import full_factorial as full_factorial
from npusim.config.overrides import one_line as one_line
from npusim.config.overrides import parse_override as parse_override
from npusim.config.overrides import valid_paths as valid_paths
