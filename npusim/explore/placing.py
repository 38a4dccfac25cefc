"""Networks whose placement over devices depends on how fast the devices are: each point is mapped alone.

Like a removal for which the route is planned anew for every van: right for each, and slow. A stack with
graphsplit leaves open what runs on the CPU; how that is decided depends on clocks and bandwidths, so nothing
can be shared between points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from npusim.arch import with_overrides
from npusim.config import Override
from npusim.errors import InfeasibleError
from npusim.explore.axes import Axis, run_on
from npusim.explore.spaces import RunSpec
from npusim.explore.variants import Variant
from npusim.mapping import map_graph

__all__ = ["place_each"]


def place_each(variant: Variant, axes: Iterable[Axis], points: Any, run: RunSpec, totals: Any) -> None:
    """Map a network at each of some points.

    Parameters
    ----------
    variant : Variant
        With `open_graph`.
    axes : iterable of Axis
        All axes; the machine's are set at each point.
    points : array of float, shape (points, axes)
        Coordinates.
    run : RunSpec
    totals : array of TOTAL_DTYPE, shape (points,)
        Written.
    """
    machine = [(i, axis) for i, axis in enumerate(axes) if not axis.is_variant]
    for p, point in enumerate(points):
        settings = {axis.path: axis.text_at(point[i]) for i, axis in machine}
        totals[p] = _total(variant, settings, run, totals[p])


def _total(variant: Variant, settings: Mapping[str, Any], run: RunSpec, empty: Any) -> Any:
    assert variant.soc is not None and variant.open_graph is not None
    overrides = [
        Override(tuple(path.split(".")), value, f"axes.{path}: {value}", source="design space")
        for path, value in settings.items()
    ]
    soc = with_overrides(variant.soc, overrides)
    try:
        return map_graph(variant.open_graph, soc, run_on(soc, run)).total
    except InfeasibleError:
        empty["latency_s"] = empty["energy_j"] = float("inf")
        return empty
