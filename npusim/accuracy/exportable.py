"""Which stacks a model file can hold, and why the others cannot be exported.

A file is written only where it would agree with the graph that npusim costs, operator for operator, or where
rounding is all that was added to it.
"""

from __future__ import annotations

from npusim.errors import IllegalTechniqueError
from npusim.techniques import Stack
from npusim.workloads import GnnSpec

__all__ = ["refuse_unexportable"]


def refuse_unexportable(spec: GnnSpec, stack: Stack) -> None:
    """Raise an `IllegalTechniqueError` that says why, where a stack on a workload has no model file.

    GraphSplit, GraSp, SymG and CacheG say where operators run and how tensors are stored, which no model file
    can hold: the file is that of the stack without them.
    """
    names = set(stack.names)
    frozen = next((name for name in ("stagr", "grad") if name in names), None)
    scattering = next((name for name in ("preg", "effop") if name in names), None)
    if spec.model == "gat" and spec.form == "edges" and frozen is not None:
        raise IllegalTechniqueError(
            frozen,
            "of scores along edges it makes all pairs with the operators that were there; a model file is "
            "written with products in their place",
            "export the form that has all pairs: --set workload.form=dense",
        )
    if spec.model == "sage-max" and spec.form == "edges" and frozen is not None:
        raise IllegalTechniqueError(
            frozen,
            "sage-max along edges keeps its scatter, whose indices a model file holds in another shape",
            "export the form with neighbours side by side: --set workload.form=gathered",
        )
    if spec.form == "edges" and spec.model in ("gcn", "sage-mean") and scattering and frozen is None:
        raise IllegalTechniqueError(
            scattering,
            "it scatters weights to pairs of node numbers, which PyTorch cannot say; its file would differ "
            "from the graph that npusim costs",
            "use stagr or grad" + (", or --set workload.form=dense" if scattering == "preg" else ""),
        )
    if spec.model == "sage-mean" and scattering == "effop" and frozen is None and "preg" not in names:
        raise IllegalTechniqueError(
            "effop",
            "the graph that npusim costs reshapes the neighbours' mask to and fro, which a file leaves out",
            "use stagr or grad",
        )
