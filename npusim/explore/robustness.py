"""Kept points on drawn machines: intervals of their metrics, and how often a point stays on the front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from npusim.arch import load_soc
from npusim.explore.axes import run_on
from npusim.explore.campaign import campaign_of, graph_at, overrides_of
from npusim.explore.spaces import Space, parse_keep
from npusim.explore.store import POINT
from npusim.mapping import map_graph
from npusim.metrics import METRICS, SAMPLES, objectives
from npusim.studies.pareto import front
from npusim.studies.uncertainty import draw

ON_FRONT = "on_front"
"""Column: share of the drawn machines on which a point is on the front of the kept points."""
BOUND_COLUMNS = ("{}_low", "{}_high")
"""Columns with the ends of the 90 % interval of a metric."""


def with_intervals(table: Any, space: Space, tick: Callable[[int, int], None]) -> Any:
    """Return an Arrow table of kept points with 90 % intervals, and the share of draws on the front.

    Each metric that the space minimises or maximises, and the latency, get two more columns. Numbers that
    points share are drawn alike for all points, so their errors cancel where points are compared. `tick` is
    called after each point with the points that are done and all.
    """
    campaign = campaign_of(space)
    names = list(dict.fromkeys(["latency_s", *space.objectives]))
    drawn = np.empty((len(names), table.num_rows, SAMPLES))
    for p, number in enumerate(table[POINT].to_numpy()):
        chosen = campaign.settings_at(campaign.points.coordinates([int(number)])[0])
        soc = load_soc(str(chosen.get("soc", space.soc)), overrides_of(space, chosen, of_workload=False))
        totals = draw([map_graph(graph_at(space, chosen), soc, run_on(soc, space.run))]).totals[0]
        drawn[:, p] = [METRICS[name].values(totals) for name in names]
        tick(p + 1, table.num_rows)
    for name, values in zip(names, drawn, strict=True):
        for column, ends in zip(BOUND_COLUMNS, np.percentile(values, [5.0, 95.0], axis=1), strict=True):
            table = table.append_column(column.format(name), pa.array(ends, pa.float64()))
    if parse_keep(space.keep)[0] == "pareto":
        shares = share_on_front(dict(zip(names, drawn, strict=True)), space)
        table = table.append_column(ON_FRONT, pa.array(shares, pa.float64()))
    return table


def share_on_front(drawn: dict[str, Any], space: Space) -> Any:
    """Return for each point the share of samples in which no other point dominates it.

    Parameters
    ----------
    drawn : dict of str to array of float, shape (points, samples)
        Metrics on the drawn machines.
    """
    count = np.zeros(len(drawn["latency_s"]))
    for s in range(SAMPLES):
        count[
            front(objectives({name: values[:, s] for name, values in drawn.items()}, space.objectives))
        ] += 1
    return count / SAMPLES
