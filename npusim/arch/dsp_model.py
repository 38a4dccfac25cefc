"""The kernels a DSP runs, by generation: how many cycles each operator takes.

Like the recipe books of one kitchen: the same dish from the old book takes an hour, from the new one ten minutes,
on the same stove. Sources disagree about which book the compiler uses, so all are kept by name.
"""

from npusim.config import Section
from npusim.units import Cycles, CyclesPerElement

__all__ = ["DspGeneration", "DspKernel"]


class DspKernel(Section):
    """One kernel: fixed + rows x per_row + elements x per_element, on one DSP in its clock."""

    fixed: Cycles
    """Cycles to start the kernel."""
    per_element: CyclesPerElement
    """Cycles of one element of the output."""
    per_row: Cycles
    """Further cycles of one row, for kernels that work along an axis (Softmax, reductions)."""
    vector: bool
    """Whether the kernel uses all lanes, so that its cycles shrink as lanes are added."""


class DspGeneration(Section):
    """A set of kernels that belong together."""

    title: str
    """What the set is and where it comes from."""
    kernels: dict[str, DspKernel]
    """Kernels by name, as the catalogue of operators calls them."""
    other: DspKernel
    """What a kernel without an entry is taken to cost."""
