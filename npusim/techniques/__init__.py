"""GNN techniques (GraNNite and others): rewrites from graph to graph, one file per idea.

A technique changes operators and annotates storage, residency and device preferences; it asks for no cost.

>>> from npusim.techniques import parse
>>> str(parse("quantgr+stagr"))
'stagr+quantgr'
"""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
