"""GraNNite's techniques and the rest: rewrites from graph to graph, one file each, one registry, one grammar.

They are the recipes' variations: the same dish with another knife, another pot, another order of steps. What
a variation costs is not asked here; a technique changes operators and notes wishes (storage, residency,
device), and the floors below decide.

>>> from npusim.techniques import parse
>>> str(parse("quantgr+stagr"))
'stagr+quantgr'
"""

from npusim.techniques.grammar import NONE, Stack, Step, parse
from npusim.techniques.registry import TECHNIQUES, get, technique_names
from npusim.techniques.stack import apply, legal
from npusim.techniques.stacks import completed, stacks, variants
from npusim.techniques.technique import Parameters, Technique

__all__ = [
    "NONE",
    "TECHNIQUES",
    "Parameters",
    "Stack",
    "Step",
    "Technique",
    "apply",
    "completed",
    "get",
    "legal",
    "parse",
    "stacks",
    "technique_names",
    "variants",
]
