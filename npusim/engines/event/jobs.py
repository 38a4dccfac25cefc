"""An operator with its chosen tiling as a job for the NPU: units, steps, bytes, rates and latencies.

All times are those of `npusim.cost`: nothing is costed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import Any

from npusim.cost import (
    CMX2CMX,
    CMX2DDR,
    DDR2CMX,
    DpuOperation,
    Order,
    Split,
    Unit,
    dma_bytes_per_s,
    dma_latency_s,
    halo_factor,
    sram_copy_s,
)
from npusim.engines.event.emission import DmaTimes, Job
from npusim.engines.event.steps import is_fetched_once, product_steps, stream_steps, triangle_steps
from npusim.engines.timeline import ExecutionUnit, TaskKind

_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)


class NpuUnits:
    """Numbers of the units of an NPU, as its first context has them, and the times of its DMA.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    first : int
        Number of its first unit.
    """

    def __init__(self, arch: Any, first: int = 0) -> None:
        self._arch, self._first = arch, first
        self.engines = list(range(first, first + int(arch["dma_engines"])))
        self.tiles = int(arch["tiles"])
        self.contexts = int(arch["contexts"])
        self.dsps = int(arch["dsps_per_tile"])

    @cached_property
    def dma(self) -> DmaTimes:
        """Rates and latencies of the DMA engines."""
        arch, engines, page = self._arch, float(len(self.engines)), float(self._arch["dma_page_bytes"])
        return DmaTimes(
            read_s_per_byte=1.0 / dma_bytes_per_s(arch, DDR2CMX, engines),
            write_s_per_byte=1.0 / dma_bytes_per_s(arch, CMX2DDR, engines),
            page_bytes=page,
            read_latency_s=dma_latency_s(arch, DDR2CMX, page),
            far_read_latency_s=dma_latency_s(arch, DDR2CMX, page + 1.0),
            write_latency_s=dma_latency_s(arch, CMX2DDR, page),
            copy_latency_s=dma_latency_s(arch, CMX2CMX, page),
        )

    def dpus(self, tiles: int) -> list[int]:
        """Units of the MAC grids of the first `tiles` tiles."""
        start = self._first + len(self.engines)
        return list(range(start, start + tiles))

    def dsp_units(self) -> list[int]:
        """Units of the DSPs of all tiles of the context."""
        start = self._first + len(self.engines) + self.tiles * self.contexts
        return list(range(start, start + self.tiles * self.dsps))

    def units(self, name: str) -> list[ExecutionUnit]:
        """Return all units in order: those that contexts share, then context by context.

        Parameters
        ----------
        name : str
            Name of the device.
        """
        tiles = [(t, t // self.tiles) for t in range(self.tiles * self.contexts)]
        dma = [ExecutionUnit(f"{name}.dma{i}", f"{name}.dma") for i in range(len(self.engines))]
        dpu = [ExecutionUnit(f"{name}.tile{t}.dpu", f"{name}.dpu", c) for t, c in tiles]
        dsps = ((t, c, k) for t, c in tiles for k in range(self.dsps))
        dsp = [ExecutionUnit(f"{name}.tile{t}.dsp{k}", f"{name}.dsp", c) for t, c, k in dsps]
        return [*dma, *dpu, *dsp]


def job_of(
    arch: Any, op: Any, result: Any, number: int, units: NpuUnits, pieces: int = 0, most: int = 0
) -> Job:
    """Return the job of an operator on the NPU, without names, dependencies and MACs.

    Parameters
    ----------
    pieces : int
        Pieces to cut it into at least; 0: as the SoC's compiler does.
    most : int
        Turns of a loop of its tiling to write, where it has many more; 0: all.
    """
    pieces = max(pieces, int(arch["stream_pieces"]))
    product = op["unit"] == Unit.DPU and op["dpu_operation"] in _PRODUCTS
    job = (
        _product(arch, op, result, number, units, (pieces, most))
        if product
        else _stream(arch, op, result, number, units, (pieces, most))
    )
    job.repeats = float(op["repeats"])
    _serve(job, op, result)
    job.a_s_per_byte = _activation_s_per_byte(job, float(result["dma_s"]) / job.repeats)
    return job


def _serve(job: Job, op: Any, result: Any) -> None:
    """Let memory levels serve their part of what a job moves: at a rate between theirs and DRAM's."""
    if not result["level_bytes"]:
        return
    job.shared_served = float(result["shared_bytes"] / result["level_bytes"])
    moved = float(result["dram_bytes"] + result["level_bytes"]) / job.repeats
    read = moved - float(op["c_dram_bytes"])
    job.read_served = 1.0 - float(result["dram_read_bytes"]) / job.repeats / read if read > 0.0 else 0.0
    written = float(op["c_dram_bytes"])
    near = float(result["level_bytes"]) / job.repeats - job.read_served * read
    job.write_served = min(1.0, max(0.0, near / written)) if written > 0.0 else 0.0
    dram_s = read * job.dma.read_s_per_byte + written * job.dma.write_s_per_byte
    took_s = float(result["dma_s"]) / job.repeats - job.copy_s
    ratio = min(1.0, max(0.0, took_s) / dram_s) if dram_s > 0.0 else 1.0
    job.dma = replace(
        job.dma,
        read_s_per_byte=job.dma.read_s_per_byte * ratio,
        write_s_per_byte=job.dma.write_s_per_byte * ratio,
    )


def _activation_s_per_byte(job: Job, dma_s: float) -> float:
    """Spread an operator's DMA time over its bytes; what cut rows cost on top falls to the activations."""
    read_s, write_s = job.dma.read_s_per_byte, job.dma.write_s_per_byte
    a_bytes = job.a_bytes * _passes(s.a * s.times for s in job.steps)
    others = job.b_bytes * _passes(s.b * s.times for s in job.steps) + job.once_bytes
    smooth_s = (a_bytes + others) * read_s + job.out_bytes * write_s + job.copy_s
    gaps_s = max(0.0, dma_s - smooth_s)
    return read_s + (gaps_s / a_bytes if a_bytes else 0.0)


def _passes(shares: Iterable[float]) -> int:
    """Return how many passes the shares of all steps add up to."""
    return round(sum(shares))


def _product(arch: Any, op: Any, result: Any, number: int, units: NpuUnits, cut: tuple[int, int]) -> Job:
    used = int(result["tiles"])
    once = is_fetched_once(op, result)
    tiling = triangle_steps(result, cut[1]) if once else product_steps(op, result, *cut)
    steps = tiling.steps
    split = int(result["split"])
    copied_a = used if split == Split.COLUMNS else 1
    copied_b = used if split == Split.ROWS else 1
    halo = halo_factor(op, float(result["row_blocks"]), float(result["strips"]))
    a_bytes = float(op["a_triangle_bytes"] if once else op["a_dram_bytes"] * halo)
    b_bytes, out_bytes = float(op["b_dram_bytes"]), float(op["c_dram_bytes"])
    small = float(op["extra_dram_bytes"]) <= arch["dma_page_bytes"] or once
    streamed = 0.0 if small else float(op["extra_dram_bytes"])
    # A second tensor (a residual) comes piece by piece with the activations, but once only.
    a_passes = max(1, _passes(s.a * s.times for s in steps))
    a_bytes += streamed / a_passes
    work_s = float(result["dpu_s"])
    keeps_sums = once or (result["order"] == Order.OUTPUTS_HELD and result["channel_chunks"] > 1)
    sums = (
        float(op["batch"] * op["out_w"] * op["out_h"] * op["out_c"] * arch["dpu_sum_bytes"])
        if keeps_sums
        else 0.0
    )
    job = Job(
        number, TaskKind.DPU, units.dpus(used), units.engines, units.dma, work_s, steps, tiling.loops,
        a_bytes=a_bytes, a_sram=a_bytes * copied_a, b_bytes=b_bytes, b_sram=b_bytes * copied_b,
        once_bytes=float(op["extra_dram_bytes"]) - streamed, out_bytes=out_bytes,
        out_sram=0.0 if op["c_resident"] else out_bytes, sums_sram=sums,
    )  # fmt: skip
    if once:
        _add_up_sums(arch, op, result, job)
    return job


def _add_up_sums(arch: Any, op: Any, result: Any, job: Job) -> None:
    """A triangle dealt out over tiles: every tile has sums of all rows, added up at the end of each pass."""
    if result["split"] != Split.ROWS:
        return
    used = float(result["tiles"])
    sums = job.sums_sram
    job.sums_sram = sums * used
    job.copy_bytes = (used - 1.0) * sums
    job.copy_s = sram_copy_s(arch, job.copy_bytes)


def _stream(arch: Any, op: Any, result: Any, number: int, units: NpuUnits, cut: tuple[int, int]) -> Job:
    pieces, most = cut
    read = float(op["a_dram_bytes"] + op["b_dram_bytes"] + op["extra_dram_bytes"])
    written = float(op["c_dram_bytes"])
    tiles = float(arch["tiles"])
    free = tiles * (arch["sram_tile_bytes"] - op["live_copied_bytes"]) - op["live_spread_bytes"]
    count = pieces if op["fused_chain"] else 1
    if read + written > 0.0:
        # Two pieces coming in and two going out fit side by side.
        count = max(pieces, ceil(2.0 * (read + written) / free))
    kind, busy, work_s = TaskKind.SYNC, [], 0.0
    if op["unit"] == Unit.DPU:
        kind, busy, work_s = TaskKind.DPU, units.dpus(units.tiles), float(result["dpu_s"])
    elif op["unit"] == Unit.DSP:
        count_of_dsps = 1 if op["dsp"]["serial"] else None
        kind, busy, work_s = TaskKind.DSP, units.dsp_units()[:count_of_dsps], float(result["dsp_s"])
    tiling = stream_steps(count, most)
    job = Job(
        number, kind, busy, units.engines, units.dma, work_s, tiling.steps, tiling.loops,
        a_bytes=read, a_sram=read, out_bytes=written, out_sram=0.0 if op["c_resident"] else written,
    )  # fmt: skip
    job.dispatch_s = float(op["dispatches"] * arch["dispatch_s"])
    job.stopped = [*units.dpus(units.tiles), *units.dsp_units()]
    if kind is TaskKind.SYNC and op["copy_bytes"] > 0.0:
        # What comes from DRAM or goes there is laid out on its way; only the rest is copied.
        job.copy_bytes = max(0.0, float(op["copy_bytes"]) - max(read, written))
        job.copy_s = sram_copy_s(arch, job.copy_bytes)
    return job
