"""A cost equation of one's own: Softmax on a DSP that normalises online, in two passes over each row.

The first pass keeps the running maximum and the running sum of a row (Milakov and Gimelshein, 2018), the
second divides. A data sheet chooses it by its name: `--set "npu.equations={softmax: online-softmax}"`.
"""

from math import ceil

from npusim import Graph
from npusim.arch import Npu
from npusim.ops import Operator

CALL_CYCLES = 1_000.0
"""Cycles of a call: arguments, loops set up."""
PASSES = 2
"""Passes over a row."""
EXPONENTIAL_CYCLES = 4.0
"""Cycles of an exponential of a vector, in each pass."""
ROW_CYCLES = 12.0
"""Cycles at the end of a row: the reduction over the lanes, and the reciprocal of the sum."""


def online_softmax(operator: Operator, graph: Graph, npu: Npu) -> float:
    """Return the cycles that one DSP needs for a whole Softmax; npusim divides them among the DSPs.

    Parameters
    ----------
    operator : npusim.ops.Operator
        The operator, whose type the data sheet names.
    graph : npusim.Graph
        Its network, after techniques: tensors, shapes, formats.
    npu : npusim.arch.Npu
        Data sheet of the device that runs it.

    Returns
    -------
    float
        Cycles of the DSPs' clock.
    """
    work = graph.work(operator)
    vectors = work.rows * ceil(work.elements / work.rows / float(npu.dsp.lanes.fp16))
    return CALL_CYCLES + PASSES * vectors * (1.0 + EXPONENTIAL_CYCLES) + work.rows * ROW_CYCLES
