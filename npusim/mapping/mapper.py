"""The way into mapping: placement, then fusion and residency of a graph on a SoC.

`map_graph` decides which device runs what. A user's mapping may say it. Where GraphSplit wishes operators on
the CPU, `graphsplit` finds the cheapest placement. Otherwise each operator runs where it wishes. `map_placed`
then decides fusion and residency of the placed graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.arch import Soc
from npusim.graph import Editor, Graph
from npusim.mapping.graphsplit.device_costs import placement_problem
from npusim.mapping.graphsplit.splitting import Terms, best_placement, placed
from npusim.mapping.mapped import Mapped, Run, map_placed
from npusim.mapping.placing import unpacked, wished

if TYPE_CHECKING:
    from npusim.mapping.nests import OwnMapping


def map_graph(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Decide placement, fusion and residency of a graph on a SoC for the least latency.

    Parameters
    ----------
    graph : Graph
        Techniques applied. Operators that GraphSplit wishes on the CPU go there where that is cheaper; other
        wishes are obeyed.

    Raises
    ------
    InfeasibleError
        Where some operator fits into SRAM under no plan; it is named.
    """
    graph = unpacked(graph, soc, run.device)
    if run.own_mapping is not None and (own_graph := _placed_by(run.own_mapping, graph)) is not None:
        return map_placed(own_graph, soc, run)
    if run.device == "auto" and soc.main_device in soc.array_devices and soc.has("cpu") and wished(graph):
        return _split(graph, soc, run)
    return map_placed(graph, soc, run)


def _placed_by(own: OwnMapping, graph: Graph) -> Graph | None:
    """Return a graph whose preprocessing runs where a mapping says; None where it leaves that open."""
    editor = Editor.of(graph)
    for name in wished(graph):
        device = own.device_of(name)
        if device is None:
            return None
        editor.change_operator(name, device=device)
    return editor.finish()


def _split(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Map a graph whose preprocessing may run on the CPU, wherever it is faster.

    The best placements and the NPU alone are mapped in full; the fastest wins.
    """
    movable, main = frozenset(wished(graph)), soc.main_device
    choice = (main, soc.named("cpu") or main)
    editor = Editor.of(graph)
    for name in movable:
        editor.change_operator(name, device=main)
    unsplit = map_placed(editor.finish(), soc, run)
    stay = {op.name: soc.named(op.device or main) or main for op in graph if op.name not in movable}
    devices = tuple(dict.fromkeys((*choice, *stay.values())))
    kept = unsplit.decisions.residency if set(stay.values()) == {main} else None
    problem = placement_problem(graph, soc, run, devices, stay, kept)
    for i, name in enumerate(problem.names):
        if name in movable:
            problem.allowed[i] = [device in choice for device in devices]
    best = best_placement(problem, Terms.of(soc, run, "latency", devices))
    placements = (best.placement, *best.others[:1])
    mapped = [map_placed(placed(graph, problem, placement), soc, run) for placement in placements]
    return min(
        (unsplit, *mapped), key=lambda m: (-float(m.total["throughput_per_s"]), float(m.total["energy_j"]))
    )
