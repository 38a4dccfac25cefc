"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.measuring.document import Benchmark as Benchmark
from npusim.measuring.document import Counter as Counter
from npusim.measuring.document import Device as Device
from npusim.measuring.document import Given as Given
from npusim.measuring.document import Measurement as Measurement
from npusim.measuring.document import ModelFile as ModelFile
from npusim.measuring.document import Network as Network
from npusim.measuring.document import Row as Row
from npusim.measuring.document import Spread as Spread
from npusim.measuring.document import Workload as Workload
from npusim.measuring.document import merge as merge
from npusim.measuring.document import read_measurement as read_measurement
from npusim.measuring.models import graph_of as graph_of
from npusim.measuring.running import measure as measure
from npusim.measuring.suites import Item as Item
from npusim.measuring.suites import load_suite as load_suite
