"""The registry of techniques, in the order in which a stack applies them."""

from __future__ import annotations

from npusim.errors import UnknownNameError
from npusim.techniques.cacheg import CACHEG
from npusim.techniques.effop import EFFOP
from npusim.techniques.grad import GRAD
from npusim.techniques.graphsplit import GRAPHSPLIT
from npusim.techniques.grasp import GRASP
from npusim.techniques.grax1 import GRAX1
from npusim.techniques.grax2 import GRAX2
from npusim.techniques.grax3 import GRAX3
from npusim.techniques.nodepad import NODEPAD
from npusim.techniques.preg import PREG
from npusim.techniques.quantgr import QUANTGR
from npusim.techniques.stagr import STAGR
from npusim.techniques.symg import SYMG
from npusim.techniques.technique import Technique

__all__ = ["ORDER", "TECHNIQUES", "get", "technique_names"]

TECHNIQUES: dict[str, Technique] = {
    technique.name: technique
    for technique in (
        GRAPHSPLIT,
        PREG,
        STAGR,
        GRAD,
        NODEPAD,
        EFFOP,
        GRAX1,
        GRAX2,
        GRAX3,
        QUANTGR,
        GRASP,
        SYMG,
        CACHEG,
    )
}
"""Every technique by name.

The order is the order of application, and it follows from what each needs to see: GraphSplit prefers a device
for operators that StaGr may then remove; PreG simplifies what StaGr and GrAd precompute; NodePad
resizes that; EffOp, GrAx1, GrAx2 and GrAx3 work on the masks that are there by then; QuantGr sees the final
operators; GraSp, SymG and CacheG see the final formats. SymG comes after GraSp, so that where both are wanted
the norm matrix is a triangle and everything else is compressed.
"""

ORDER: tuple[str, ...] = tuple(TECHNIQUES)


def technique_names() -> tuple[str, ...]:
    """Names of all techniques, in the order of application."""
    return ORDER


def get(name: str) -> Technique:
    """Return a technique by name, or raise an `UnknownNameError` that names the nearest one."""
    technique = TECHNIQUES.get(name) or TECHNIQUES.get(name.lower())
    if technique is None:
        raise UnknownNameError("technique", name, ORDER)
    return technique
