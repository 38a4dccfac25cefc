"""GNN techniques (GraNNite and others): rewrites from graph to graph, a file each.

A technique changes operators and annotates storage, residency and device preferences; it asks for no cost.

>>> from npusim.techniques import parse
>>> str(parse("quantgr+stagr"))
'stagr+quantgr'
"""

from npusim.techniques.aggregation import Rewriting, rewritings
from npusim.techniques.stack import (
    BASE,
    NONE,
    TECHNIQUES,
    Stack,
    StackEntry,
    apply,
    completed,
    get,
    legal,
    parse,
    stacks,
    technique_names,
    technique_with,
    variants,
)
from npusim.techniques.technique import EdgeData, NoParameters, Parameters, Stage, Technique

__all__ = [
    "BASE",
    "NONE",
    "TECHNIQUES",
    "EdgeData",
    "NoParameters",
    "Parameters",
    "Rewriting",
    "Stack",
    "StackEntry",
    "Stage",
    "Technique",
    "apply",
    "completed",
    "get",
    "legal",
    "parse",
    "rewritings",
    "stacks",
    "technique_names",
    "technique_with",
    "variants",
]
