"""Cost equations of other packages, which a data sheet names for types of operators (`npu.equations`).

An equation is a function of an operator, its graph and the data sheet of the NPU. It returns the cycles that
one unit needs for the whole operator: the MAC grid of one tile, or one DSP. Tiles and DSPs divide them.
"""

import math

from npusim.arch import Npu
from npusim.errors import ConfigError, UnknownNameError
from npusim.graph import Graph
from npusim.ops import Operator
from npusim.plugins import announced, named

_GROUP = "npusim.equations"


def own_cycles(graph: Graph, op: Operator, npu: Npu) -> float | None:
    """Return the cycles of one unit by the equation that the sheet names; None where it names none.

    Raises
    ------
    UnknownNameError
        Where no installed package has an equation of that name.
    PluginError
        Where the equation fails, or returns no positive number of cycles.
    """
    name = npu.equations.get(op.type.lower())
    if name is None:
        return None
    entries = announced(_GROUP)
    if name not in entries:
        raise UnknownNameError("cost equation", name, tuple(entries))
    with named(entries[name], "cost equation"):
        cycles = float(entries[name].load()(op, graph, npu))
        if not 0.0 < cycles < math.inf:
            raise ConfigError(f"`{cycles:g}` cycles of {op.name}", allowed="a positive, finite number")
    return cycles
