"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.techniques.aggregation import Rewriting as Rewriting
from npusim.techniques.aggregation import rewritings as rewritings
from npusim.techniques.stack import BASE as BASE
from npusim.techniques.stack import NONE as NONE
from npusim.techniques.stack import TECHNIQUES as TECHNIQUES
from npusim.techniques.stack import EdgeData as EdgeData
from npusim.techniques.stack import NoParameters as NoParameters
from npusim.techniques.stack import Parameters as Parameters
from npusim.techniques.stack import Stack as Stack
from npusim.techniques.stack import StackEntry as StackEntry
from npusim.techniques.stack import Stage as Stage
from npusim.techniques.stack import Technique as Technique
from npusim.techniques.stack import apply as apply
from npusim.techniques.stack import completed as completed
from npusim.techniques.stack import get as get
from npusim.techniques.stack import legal as legal
from npusim.techniques.stack import parse as parse
from npusim.techniques.stack import stacks as stacks
from npusim.techniques.stack import technique_names as technique_names
from npusim.techniques.stack import technique_with as technique_with
from npusim.techniques.stack import variants as variants
