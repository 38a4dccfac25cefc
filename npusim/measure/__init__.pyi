"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.measure.document import Benchmark as Benchmark
from npusim.measure.document import Counter as Counter
from npusim.measure.document import Device as Device
from npusim.measure.document import Given as Given
from npusim.measure.document import Measurement as Measurement
from npusim.measure.document import ModelFile as ModelFile
from npusim.measure.document import Network as Network
from npusim.measure.document import Row as Row
from npusim.measure.document import Spread as Spread
from npusim.measure.document import Workload as Workload
from npusim.measure.document import merge as merge
from npusim.measure.document import read_measurement as read_measurement
from npusim.measure.models import graph_of as graph_of
from npusim.measure.running import measure as measure
from npusim.measure.suites import Item as Item
from npusim.measure.suites import load_suite as load_suite
