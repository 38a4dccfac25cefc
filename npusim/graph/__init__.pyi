"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.graph.difference import GraphDifference as GraphDifference
from npusim.graph.difference import graph_difference as graph_difference
from npusim.graph.difference import to_dot as to_dot
from npusim.graph.editor import Editor as Editor
from npusim.graph.graph import Graph as Graph
from npusim.graph.graph import GraphMeta as GraphMeta
from npusim.graph.graph import GraphStructure as GraphStructure
from npusim.graph.regions import Phase as Phase
from npusim.graph.regions import Region as Region
