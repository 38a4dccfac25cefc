"""How much of a network is placed as one: an operator, a layer, or a block.

A coarser problem adds up the nodes of a finer one. What passes between two of its units costs what it costs
in the finer one, what stays within a unit nothing: so a placement of units costs what it costs node by node,
and a finer granularity is never worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal, get_args

import numpy as np

from npusim.graph import Graph
from npusim.mapping.graphsplit.problem import NOTHING, Link, Load, Problem

Granularity = Literal["operator", "layer", "block"]
"""What is placed as one: operators that run as one, those of one module, or those of one block."""

GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
"""From fine to coarse."""


def units_of(graph: Graph, problem: Problem, granularity: Granularity) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of each unit, in order of execution.

    Operators of a layer or block that do not follow each other are several units: each placement of units is
    one of nodes in the same order of execution.
    """
    if granularity == "operator":
        return tuple((i,) for i in range(len(problem.names)))

    def label(node: int) -> tuple[str, ...]:
        name = problem.names[node]
        block = graph.regions[name].block
        return (block,) if granularity == "block" else (block, graph.operators[name].region)

    return tuple(tuple(nodes) for _, nodes in groupby(range(len(problem.names)), key=label))


def merged(problem: Problem, units: Sequence[Sequence[int]]) -> Problem:
    """Return the problem of placing units instead of nodes.

    Parameters
    ----------
    units : sequence of sequence of int
        Nodes that follow each other; every node is in one.
    """
    if all(len(nodes) == 1 for nodes in units):
        return problem
    unit = np.repeat(np.arange(len(units)), [len(nodes) for nodes in units]).tolist()
    first = [nodes[0] for nodes in units]

    def total(table: Any) -> Any:
        return np.add.reduceat(table, first, axis=0)

    links = (_merged_link(link, unit) for link in problem.links)
    handed = ((unit[m], _others(readers, m, unit), size) for m, readers, size in problem.handed)
    return replace(
        problem,
        names=tuple(problem.names[i] for i in first),
        allowed=np.logical_and.reduceat(problem.allowed, first, axis=0),
        time_s=total(problem.time_s),
        dram_bytes=total(problem.dram_bytes),
        energy_j=total(problem.energy_j),
        dma_s=total(problem.dma_s),
        links=tuple(link for link in links if link is not None),
        handed=tuple(one for one in handed if one[1]),
        members=tuple(tuple(n for m in problem.members[u[0] : u[-1] + 1] for n in m) for u in units),
    )


def spread(units: Sequence[Sequence[int]], placement: Sequence[int]) -> tuple[int, ...]:
    """Return the device of each node, given that of each unit."""
    return tuple(device for nodes, device in zip(units, placement, strict=True) for _ in nodes)


def _others(readers: Sequence[int], maker: int, unit: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({unit[reader] for reader in readers} - {unit[maker]}))


def _merged_link(link: Link, unit: Sequence[int]) -> Link | None:
    """Return a link between units; None where it stays within one."""
    readers = _others(link.readers, link.maker, unit)
    if not readers:
        return None
    loads = {unit[link.maker]: link.write}
    for reader, load in zip(link.readers, link.reads, strict=True):
        known = loads.get(unit[reader], NOTHING)
        loads[unit[reader]] = Load(*(a + b for a, b in zip(known, load, strict=True)))
    maker = unit[link.maker]
    reads = tuple(loads[reader] for reader in readers)
    return replace(link, maker=maker, readers=readers, write=loads[maker], reads=reads)
