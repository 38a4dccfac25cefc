"""GNN techniques (GraNNite and others): rewrites from graph to graph, a file each.

A technique changes operators and annotates storage, residency and device preferences; it asks for no cost.

>>> from npusim.techniques import parse
>>> str(parse("quantgr+stagr"))
'stagr+quantgr'
"""

from npusim.techniques.named_stacks import BASE, completed, stacks, variants
from npusim.techniques.registry import TECHNIQUES, get, technique_names, technique_with
from npusim.techniques.rewriting import Rewriting, rewritings
from npusim.techniques.stack import NONE, Stack, StackEntry, apply, legal, parse
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
