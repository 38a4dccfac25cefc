"""The analytical engine: maps a graph and adds the costs up.

An accountant's answer: exact sums of closed formulas, in microseconds, without watching a single tile move.
"""

from __future__ import annotations

from typing import Any, get_args

from npusim.arch import Soc
from npusim.cost.decisions import Group
from npusim.cost.tables import Bound, Unit
from npusim.engines.estimate import Estimate, OperatorCost, UnitUse
from npusim.engines.provenance import provenance_of
from npusim.engines.uncertainty import SAMPLES, draw, method_of
from npusim.errors import NpusimError, UnknownNameError
from npusim.graph import Graph
from npusim.mapping import Mapped, Run, map_graph
from npusim.mapping.placement import DeviceChoice
from npusim.ops import Family
from npusim.techniques import parse

__all__ = ["estimate", "mapped_estimate", "run_of", "with_interval"]

_UNIT_NAMES = {
    Unit.VIEW: "none",
    Unit.DPU: "npu.dpu",
    Unit.DSP: "npu.dsp",
    Unit.DMA: "npu.dma",
    Unit.CPU: "cpu",
    Unit.GPU: "gpu",
}
_NPU_UNITS = (Unit.DPU, Unit.DSP, Unit.DMA)
_NPU_ALONE = ("symg", "cacheg")
"""Techniques that change nothing but what an NPU keeps and moves."""
_HINTS = ("latency", "throughput")


def run_of(
    soc: Soc,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | None = None,
    device: str = "auto",
    swap_operands: bool = False,
) -> Run:
    """Make a performance hint definite on a SoC.

    Parameters
    ----------
    soc : Soc
    hint : {"latency", "throughput"}
        One inference at a time on the SoC's tiles for latency, or several in flight on its tiles for
        throughput.
    requests : int, optional
        Inferences in flight; None: the SoC's default for the hint, without an NPU one, and one a core for
        throughput.
    tiles : int, optional
        Tiles an inference is compiled for; None: the SoC's default for the hint, without an NPU none.
    device : {"auto", "npu", "cpu", "gpu"}
    swap_operands : bool

    Raises
    ------
    UnknownNameError
        For another hint or device.
    NpusimError
        For a device that the SoC lacks, a number of tiles that the NPU has not, or fewer than one request.
    """
    if hint not in _HINTS:
        raise UnknownNameError("performance hint", hint, _HINTS)
    if device not in get_args(DeviceChoice):
        raise UnknownNameError("device", device, get_args(DeviceChoice))
    if requests is not None and requests < 1:
        raise NpusimError(f"--requests: found {requests}; allowed: a whole number of at least 1")
    if device != "auto" and not soc.has(device):
        raise NpusimError(f"--device: {soc.name} has no {device.upper()}; allowed: {_devices(soc)}")
    if not soc.has("npu"):
        if tiles:
            raise NpusimError(f"--tiles: found {tiles}, but {soc.name} has no NPU; leave it out")
        streams = 1 if hint == "latency" else _streams(soc, device)
        return Run(hint, requests or streams, 0, device)  # type: ignore[arg-type]  # checked above
    physical = int(soc.npu.tiles)
    if tiles is not None and not 1 <= tiles <= physical:
        raise NpusimError(f"--tiles: found {tiles}; allowed: 1 to {physical}, the tiles of {soc.name}'s NPU")
    in_flight = requests if requests is not None else int(getattr(soc.npu.inflight_requests, hint))
    used = tiles if tiles is not None else min(physical, int(getattr(soc.npu.tiles_for, hint)))
    return Run(hint, in_flight, used, device, swap_operands)  # type: ignore[arg-type]  # checked above


def _devices(soc: Soc) -> str:
    return ", ".join(["auto", *(kind for kind in ("npu", "cpu", "gpu") if soc.has(kind))])


def _streams(soc: Soc, device: str) -> int:
    """Inferences that keep all cores busy."""
    kind = soc.main_kind if device == "auto" else device
    return int(soc.gpu.cores if kind == "gpu" else soc.cpu.cores)


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
        See `run_of`.
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
    mapped = map_graph(graph, soc, run_of(soc, hint, requests, tiles, device, swap_operands))
    found = mapped_estimate(mapped)
    wanted = soc.calibration is not None if interval is None else interval
    return with_interval(found, mapped) if wanted else found


def with_interval(found: Estimate, mapped: Mapped, samples: int = SAMPLES, seed: int = 0) -> Estimate:
    """Return an estimate with the 90 % interval of its latency; see `npusim.engines.uncertainty`."""
    bounds = draw([mapped], samples, seed).latency_interval(0)
    notes = [*found.provenance["notes"], method_of(mapped.soc, samples, seed)]
    return found.model_copy(
        update={"latency_interval_s": bounds, "provenance": {**found.provenance, "notes": notes}}
    )


def mapped_estimate(mapped: Mapped) -> Estimate:
    """Return the estimate of a mapped graph."""
    graph, run, total = mapped.graph, mapped.run, mapped.total
    interval_s = 1.0 / float(total["throughput_per_s"])
    return Estimate(
        workload=graph.name,
        soc=mapped.soc.name,
        techniques=graph.techniques,
        engine="analytical",
        hint=run.hint,
        requests=run.requests,
        tiles=run.tiles,
        latency_s=float(total["latency_s"]),
        latency_interval_s=None,
        throughput_per_s=float(total["throughput_per_s"]),
        energy_j=float(total["energy_j"]),
        area_mm2=float(total["area_mm2"]),
        dram_bytes=float(total["dram_bytes"]),
        sram_peak_bytes=float(total["sram_peak_bytes"]),
        macs=graph.macs,
        units={
            name: UnitUse(busy_s=float(total[key]), utilisation=float(total[key]) / interval_s)
            for name, key in (
                ("npu.dpu", "dpu_s"),
                ("npu.dsp", "dsp_s"),
                ("npu.dma", "dma_s"),
                ("cpu", "cpu_s"),
                ("gpu", "gpu_s"),
            )
            if mapped.soc.has(name.partition(".")[0])
        },
        operators=[_operator(mapped, i, group) for i, group in enumerate(mapped.decisions.groups)],
        warnings=_warnings(mapped),
        provenance=provenance_of(mapped),
    )


def _operator(mapped: Mapped, index: int, group: Group) -> OperatorCost:
    result: Any = mapped.results[index]
    op = mapped.graph.operators[group.main]
    return OperatorCost(
        name=op.name,
        type=op.type,
        fused=list(group.fused),
        unit=_UNIT_NAMES[Unit(group.unit)],
        latency_s=float(result["latency_s"]),
        energy_j=float(result["energy_j"]),
        macs=mapped.graph.work(op).macs,
        dram_bytes=float(result["dram_bytes"]),
        bound=Bound(int(result["bound"])).name.lower(),
    )


def _warnings(mapped: Mapped) -> list[str]:
    unknown = sorted({op.type for op in mapped.graph if op.family is Family.UNKNOWN})
    found = list(mapped.lowered.warnings)
    idle = [name for name in parse(mapped.graph.techniques).names if name in _NPU_ALONE]
    on_npu = any(g.unit in _NPU_UNITS for g in mapped.decisions.groups)
    if "grasp" in parse(mapped.graph.techniques).names and not on_npu:
        found.append(
            "grasp: products are costed along the non-zeros, as libraries for sparse matrices work; OpenVINO "
            "multiplies them dense"
        )
    if idle and not on_npu:
        found.append(
            f"{', '.join(idle)}: made for the memory of an NPU; none is used here, so nothing is gained"
        )
    if unknown:
        found.insert(
            0, f"operators npusim does not know are costed by the bytes they move: {', '.join(unknown)}"
        )
    return found
