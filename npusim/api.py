"""The public calls of `import npusim`."""

from __future__ import annotations

from npusim.arch import Soc
from npusim.engines import Estimate
from npusim.engines.analytical import mapped_estimate
from npusim.graph import Graph
from npusim.mapping import map_graph
from npusim.scenario import resolve_run
from npusim.studies.uncertainty import with_interval

__all__ = ["estimate"]


def estimate(
    graph: Graph,
    soc: Soc,
    *,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | None = None,
    device: str = "auto",
    swap_operands: bool = False,
    interval: bool | None = None,
) -> Estimate:
    """Estimate what one inference of a graph costs on a SoC.

    Parameters
    ----------
    graph : Graph
        From `npusim.load_workload`, techniques applied with `npusim.apply`.
    soc : Soc
        From `npusim.load_soc`.
    hint, requests, tiles, device, swap_operands
        See `npusim.scenario.resolve_run`.
    interval : bool, optional
        Whether to find the 90 % interval of the latency; None: where the SoC was fitted to measurements.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> import npusim
    >>> graph = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
    >>> e = npusim.estimate(graph, npusim.load_soc("core-ultra-series2"))
    >>> e.operators[0].unit
    'npu.dpu'
    """
    mapped = map_graph(graph, soc, resolve_run(soc, hint, requests, tiles, device, swap_operands))
    found = mapped_estimate(mapped)
    wanted = soc.calibration is not None if interval is None else interval
    return with_interval(found, mapped) if wanted else found
