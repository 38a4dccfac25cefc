"""The registry of techniques, in the order in which a stack applies them."""

from __future__ import annotations

from npusim.errors import NpusimError
from npusim.plugins import Registry
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

TECHNIQUES = Registry("npusim.techniques", "technique", Technique)
"""Every technique by name: npusim's own, and those that other packages register."""

for _technique in (
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
    SYMG,  # after GraSp: where both are wanted, the norm matrix is a triangle and all else is compressed
    CACHEG,
):
    TECHNIQUES.register(_technique)


def technique_names() -> tuple[str, ...]:
    """Names of all techniques, in the order of application: by stage, then in order of registration."""
    return tuple(sorted(TECHNIQUES, key=lambda name: TECHNIQUES[name].stage))


def position(name: str) -> int:
    """Return the place of a technique in the order of application."""
    return technique_names().index(name)


def get(name: str) -> Technique:
    """Return a technique by name, or raise an `UnknownNameError` that names the nearest one."""
    return TECHNIQUES.find(name if name in TECHNIQUES else name.lower())


def technique_with(**traits: object) -> Technique:
    """Return the first technique that has all of some traits.

    Parameters
    ----------
    **traits
        Fields of `Technique` with the values they must have.

    Raises
    ------
    NpusimError
        When none has.

    Examples
    --------
    >>> from npusim.ops import DType
    >>> technique_with(precision=DType.INT8).name
    'quantgr'
    """
    for name in technique_names():
        technique = TECHNIQUES[name]
        if all(getattr(technique, trait) == value for trait, value in traits.items()):
            return technique
    raise NpusimError("no technique has " + ", ".join(f"{key}={value}" for key, value in traits.items()))
