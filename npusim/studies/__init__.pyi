"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.studies.advice import Advice as Advice
from npusim.studies.comparison import Variant as Variant
from npusim.studies.comparison import WhatIf as WhatIf
from npusim.studies.stream.updates import Update as Update
