"""What every cut of a network in two costs: sums up to each place of the order of execution."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.mapping.graphsplit.problem import Problem


def cut_loads(problem: Problem, first: int, rest: int) -> Any:
    """Add up a network that one device begins and another ends, for each place where they may part.

    Returns
    -------
    array of float64, shape (groups - 1, 2 * devices + 3)
        What `Problem.loads` returns of the placement with groups 0 to i on `first` and the others on `rest`.
    """
    k, n = len(problem.devices), len(problem.names)
    found = np.zeros((max(0, n - 1), 2 * k + 3))
    for table, start in ((problem.dram_bytes, k + 1), (problem.energy_j, k + 2)):
        found[:, start] += np.cumsum(table[:, first])[: n - 1]
        found[:, start] += np.cumsum(table[::-1, rest])[::-1][1:]
    for table, start in ((problem.time_s, 0), (problem.dma_s, k + 3)):  # of each device
        found[:, start + first] += np.cumsum(table[:, first])[: n - 1]
        found[:, start + rest] += np.cumsum(table[::-1, rest])[::-1][1:]
    found[:, k] = problem.launch_s[first] + problem.launch_s[rest]
    for home in (first, rest):
        handed = _handed_loads(problem, home, is_first=home == first)
        for column, place in enumerate((home, k + 1, k + 2, k + 3 + home)):
            found[:, place] += handed[:, column]
    return found


def _handed_loads(problem: Problem, home: int, is_first: bool) -> Any:
    """Return what users at home pay for links that a cut parts, shape (groups - 1, 4).

    A link of which no user is at home costs nothing, nor does one of which all are.
    """
    n = len(problem.names)
    steps = np.zeros((n + 1, 4))
    """Changes from each place to the next; home ends there, or begins behind it."""
    for link in problem.links:
        if link.home != home:
            continue
        users = (link.maker, *link.readers)
        loads = np.array([(u.time_s, u.dram_bytes, u.energy_j, u.dma_s) for u in (link.write, *link.reads)])
        begin, end = users[0], users[-1]
        if is_first:  # users up to the cut are at home, until the last of them is
            np.add.at(steps, list(users), loads)
            steps[end] -= loads.sum(axis=0)
        else:  # users behind the cut are at home, from the first of them on
            steps[begin] += loads.sum(axis=0)
            np.subtract.at(steps, list(users), loads)
    sums = np.cumsum(steps, axis=0)[: max(0, n - 1)]
    # What was added and taken away again leaves nothing but rounding.
    return np.where(sums > 1e-12 * np.abs(steps).sum(axis=0), sums, 0.0)


def cut_transfer_bytes(problem: Problem) -> Any:
    """Return the bytes that cross each cut, shape (groups - 1,)."""
    steps = np.zeros(len(problem.names) + 1)
    for maker, readers, size in problem.handed:
        last = max(readers, default=maker)
        steps[maker] += size
        steps[last] -= size
    return np.cumsum(steps)[: max(0, len(problem.names) - 1)]
