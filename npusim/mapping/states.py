"""What a device does where a network reads or writes a state: nothing, a copy, or a change of format."""

from __future__ import annotations

from enum import Enum, auto

from npusim.arch import Soc
from npusim.cost import STATE_TYPES
from npusim.graph import Graph
from npusim.ops import Operator, TensorKind


class StateWork(Enum):
    """What reading or writing a state takes."""

    NONE = auto()
    """The state's own memory is used."""
    COPY = auto()
    CONVERSION = auto()
    """The memory of the state has another format than the device computes in."""


def state_work(op: Operator, graph: Graph, soc: Soc, device: str) -> StateWork:
    """Return what an operator that hands tensors on takes; `NONE` for all but ReadValue and Assign.

    Parameters
    ----------
    device : str
        Device of the SoC that runs it.
    """
    if op.type not in STATE_TYPES:
        return StateWork.NONE
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if op.type == "ReadValue" and source.kind is not TensorKind.STATE:
        return StateWork.NONE
    handling = soc.devices[device].states
    if handling.converted and source.dtype is not result.dtype:
        return StateWork.CONVERSION
    copied = handling.copied_on_read if op.type == "ReadValue" else handling.copied_on_write
    return StateWork.COPY if copied else StateWork.NONE
