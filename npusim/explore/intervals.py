"""The 90 % interval of the latency of each kept point.

An interval takes some 128 evaluations per point, so only points that are kept get one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npusim.arch import Soc, load_soc
from npusim.explore.axes import run_on
from npusim.explore.campaign import Campaign, campaign_of
from npusim.explore.networks import base_soc, graph_at, overrides_of
from npusim.explore.spaces import Space
from npusim.explore.store import POINT
from npusim.mapping import Mapped, map_graph
from npusim.studies.uncertainty import SAMPLES, draw

COLUMNS = ("latency_s_low", "latency_s_high")
"""Columns of the 90 % interval of the latency."""
MOST_POINTS = 1000
"""A point takes some 128 evaluations; more points than these get no intervals."""


def has_calibration(space: Space) -> bool:
    """Tell whether the machine of a space was fitted to measurements."""
    return base_soc(space).calibration is not None


def with_intervals(
    table: Any,
    space: Space,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Return a table of points with the 90 % interval of each latency.

    Returns
    -------
    pyarrow.Table
        With the columns `COLUMNS`, in s.
    """
    import pyarrow as pa

    campaign = campaign_of(space)
    bounds: list[tuple[float, float]] = []
    numbers = table[POINT].to_numpy()
    for done, number in enumerate(numbers, start=1):
        bounds.append(draw([_mapped(campaign, space, int(number))], samples, seed).latency_interval(0))
        if progress is not None:
            progress(done, len(numbers))
    for side, name in enumerate(COLUMNS):
        table = table.append_column(name, pa.array([pair[side] for pair in bounds], pa.float64()))
    return table


def _mapped(campaign: Campaign, space: Space, number: int) -> Mapped:
    """Return the network of a point, mapped to its machine."""
    chosen = campaign.settings_at(campaign.points.coordinates([number])[0])
    soc: Soc = load_soc(str(chosen.get("soc", space.soc)), overrides_of(space, chosen, of_workload=False))
    return map_graph(graph_at(space, chosen), soc, run_on(soc, space.run))
