"""An operator with its tiling as a job for an array device: units, steps, bytes, rates, latencies.

A *step* fetches, computes and writes back one part of the work. The numbers of tiles and all times are those
of `npusim.cost`; the parts of all steps add up to the operator exactly. A loop with many equal turns is
written in part where steps are folded (`npusim.engines.event.steady_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, prod
from typing import Any, NamedTuple

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
from npusim.engines.event.program import PERIODS, Loop, refuse_many
from npusim.engines.timeline import ExecutionUnit, TaskKind

_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)


@dataclass(slots=True)
class TilingStep:
    """A part of an operator's work; amounts are shares of the operator's totals, 0 to 1."""

    work: float
    """Share of the work."""
    a: float = 0.0
    """Share of one pass over the activations that it fetches."""
    b: float = 0.0
    """Share of one pass over the weights that it fetches."""
    out: float = 0.0
    """Share of the output that leaves after it."""
    a_until: int = 0
    """Steps from here to the last that uses the activations it fetches (0: this step)."""
    b_until: int = 0
    sums: float = 0.0
    """Share of the partial sums that it sets up."""
    sums_until: int = 0
    """Steps from here to the last that adds to them."""
    last_of_pass: bool = False
    """Whether tiles add up each other's partial sums after it."""
    repeats: int = 1
    """Equal steps that it stands for, itself included."""


@dataclass(slots=True)
class Steps:
    """Steps in the order in which they are written."""

    most_turns: int = 0
    """Turns to write of a loop that has many more; 0: all."""
    steps: list[TilingStep] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    """Loops that are written in part, inner ones first."""

    def written(self, turns: int) -> int:
        """Return how many turns of a loop are written."""
        spare = turns - self.most_turns
        return self.most_turns + spare % PERIODS[-1] if self.most_turns and spare >= PERIODS[-1] else turns

    def turns(self, turns: int) -> Iterator[int]:
        """Yield the number of each turn that is written; steps added until the next are its own."""
        count, starts, inner = self.written(turns), [], len(self.loops)
        for turn in range(count):
            starts.append(len(self.steps))
            yield turn
        starts.append(len(self.steps))
        if count < turns:
            for step in self.steps[starts[count // 2] : starts[count // 2 + 1]]:
                step.repeats *= 1 + turns - count
            level = 1 + max((loop.level for loop in self.loops[inner:]), default=-1)
            self.loops.append(Loop(turns, level, starts))


def apportion(total: float, shares: list[float]) -> list[float]:
    """Return parts of a total near the given shares that add up exactly; whole numbers stay whole.

    Examples
    --------
    >>> apportion(10.0, [0.33, 0.33, 0.34])
    [3.0, 4.0, 3.0]
    """
    parts, allotted, upto = [], 0.0, 0.0
    scale = sum(shares)
    last = max((i for i, share in enumerate(shares) if share > 0.0), default=-1)
    for i, share in enumerate(shares):
        upto += share
        target = total if i == last else min(total, round(total * upto / scale)) if scale else 0.0
        part = target - allotted if share > 0.0 else 0.0
        parts.append(part)
        allotted += part
    return parts


def blocks(total: int, count: int) -> list[int]:
    """Return the sizes of at most `count` equal blocks of `total` stencils, the last one smaller.

    Examples
    --------
    >>> blocks(10, 4)
    [3, 3, 3, 1]
    """
    size = ceil(total / count)
    return [min(size, total - at) for at in range(0, total, size)]


class _Rows(NamedTuple):
    """Blocks of rows in each strip: equal ones, then perhaps a smaller one."""

    equal: int
    """Number of equal blocks."""
    pieces: list[float]
    """Share of each piece of an equal block."""
    rest: list[float]
    """Share of each piece of the smaller block; empty without one."""
    strips: int

    def count(self, steps: Steps) -> int:
        """Return the number of pieces in all blocks that are written."""
        in_strip = steps.written(self.equal) * len(self.pieces) + len(self.rest)
        return steps.written(self.strips) * in_strip

    def blocks(self, steps: Steps) -> Iterator[list[float]]:
        """Yield the pieces of each block that is written."""
        for _ in steps.turns(self.strips):
            for _ in steps.turns(self.equal):
                yield self.pieces
            if self.rest:
                yield self.rest


def _product_steps(op: Any, result: Any, pieces: int, most_turns: int) -> Steps:
    """Return the steps of a matrix product or convolution: at least `pieces`, to overlap DMA and work."""
    batch = int(op["batch"])
    row_blocks, column_blocks = int(result["row_blocks"]), int(result["column_blocks"])
    chunks, strips, total = (int(result[name]) for name in ("channel_chunks", "strips", "row_pieces"))
    steps = Steps(most_turns)
    counts = [steps.written(n) for n in (batch, strips, row_blocks, column_blocks, chunks)]
    refuse_many(prod(counts), 1)
    wanted = ceil(pieces / (batch * strips * row_blocks * column_blocks * chunks))
    sizes = blocks(total, row_blocks)
    cut = [
        [n / (total * strips) for n in blocks(block, min(block, wanted))] for block in (sizes[0], sizes[-1])
    ]
    equal = len(sizes) - (sizes[-1] < sizes[0])
    rows = _Rows(equal, cut[0], cut[1] if equal < len(sizes) else [], strips)
    order = Order(int(result["order"]))
    for _ in steps.turns(batch):
        if order is Order.WEIGHTS_HELD:
            _weights_held(steps, rows, column_blocks)
        elif order is Order.ACTIVATIONS_HELD:
            _activations_held(steps, rows, column_blocks)
        else:
            _outputs_held(steps, rows, column_blocks, chunks)
    for step in steps.steps:
        step.work, step.a, step.b, step.out = (part / batch for part in (step.work, step.a, step.b, step.out))
        step.sums /= batch
    return steps


def _weights_held(steps: Steps, rows: _Rows, columns: int) -> None:
    each, last = 1.0 / columns, rows.count(steps) - 1
    for _ in steps.turns(columns):
        weights, until = each, last
        for pieces in rows.blocks(steps):
            for share in pieces:
                steps.steps.append(
                    TilingStep(share * each, a=share, b=weights, out=share * each, b_until=until)
                )
                weights, until = 0.0, 0


def _activations_held(steps: Steps, rows: _Rows, columns: int) -> None:
    each = 1.0 / columns
    for pieces in rows.blocks(steps):
        size = len(pieces)
        for j in steps.turns(columns):
            for i, share in enumerate(pieces):
                steps.steps.append(
                    TilingStep(
                        share * each,
                        a=share if j == 0 else 0.0,
                        a_until=size * (steps.written(columns) - 1) if j == 0 else 0,
                        b=each if i == 0 else 0.0,
                        b_until=size - 1 if i == 0 else 0,
                        out=share * each,
                    )
                )


def _outputs_held(steps: Steps, rows: _Rows, columns: int, chunks: int) -> None:
    each, last = 1.0 / columns, steps.written(chunks) - 1
    for pieces in rows.blocks(steps):
        size = len(pieces)
        for _ in steps.turns(columns):
            for k in steps.turns(chunks):
                for i, share in enumerate(pieces):
                    steps.steps.append(
                        TilingStep(
                            share * each / chunks,
                            a=share / chunks,
                            b=each / chunks if i == 0 else 0.0,
                            b_until=size - 1 if i == 0 else 0,
                            out=share * each if k == last else 0.0,
                            sums=share * each if k == 0 and chunks > 1 else 0.0,
                            sums_until=size * last if k == 0 else 0,
                        )
                    )


def _is_fetched_once(op: Any, result: Any) -> bool:
    """Whether a stored triangle is fetched once (`npusim.cost.search`): its traffic tells."""
    if not op["triangle"] or op["a_triangle_bytes"] <= 0.0:
        return False
    once_bytes = (
        op["a_triangle_bytes"] * result["column_blocks"]
        + op["b_dram_bytes"]
        + op["extra_dram_bytes"]
        + op["c_dram_bytes"]
    )
    return bool(
        abs(result["dram_bytes"] + result["level_bytes"] - once_bytes) <= 1e-9 * once_bytes
        and result["row_blocks"] == result["channel_chunks"]
    )


def _triangle_steps(result: Any, most_turns: int) -> Steps:
    """Return the steps of a product whose triangle is fetched once: sums wait until a pass ends."""
    rows, passes = int(result["row_blocks"]), int(result["column_blocks"])
    count = rows * (rows + 1) // 2
    if result["split"] == Split.ROWS:
        count = ceil(count / int(result["tiles"]))
    steps = Steps(most_turns)
    end = steps.written(count) - 1
    refuse_many(end + 1, steps.written(passes))
    for _ in steps.turns(passes):
        for i in steps.turns(count):
            step = TilingStep(1.0 / (count * passes), a=1.0 / count)
            if i == 0:
                step.b = step.sums = 1.0 / passes
                step.b_until = step.sums_until = end
            if i == end:
                step.out, step.last_of_pass = 1.0 / passes, True
            steps.steps.append(step)
    return steps


def _stream_steps(count: int, most_turns: int) -> Steps:
    """Return `count` equal steps of an operator whose elements stream past."""
    share, steps = 1.0 / count, Steps(most_turns)
    refuse_many(steps.written(count), 1)
    for _ in steps.turns(count):
        steps.steps.append(TilingStep(share, a=share, out=share))
    return steps


@dataclass(frozen=True, slots=True)
class DmaTimes:
    """Rates with all engines at work, and latencies, of a machine's transfers."""

    read_s_per_byte: float
    write_s_per_byte: float
    page_bytes: float
    read_latency_s: float
    """Latency of a read within a page."""
    far_read_latency_s: float
    """Latency of a longer read."""
    write_latency_s: float
    copy_latency_s: float


@dataclass(slots=True)
class Job:
    """One operator on an array device, ready to be written as tasks; times in s, sizes in bytes."""

    operator: int
    kind: TaskKind
    """DPU, DSP, or SYNC where DMA alone works."""
    units: Sequence[int]
    """Units that work at the same time, each for `work_s` in all."""
    engines: Sequence[int]
    dma: DmaTimes
    work_s: float
    steps: list[TilingStep]
    loops: list[Loop] = field(default_factory=list)
    """Loops of its steps that are written in part; only of a job that is alone in its chain."""
    macs: float = 0.0
    a_name: str = ""
    a_bytes: float = 0.0
    """DRAM bytes of one pass."""
    a_sram: float = 0.0
    """SRAM of one pass."""
    b_name: str = ""
    b_bytes: float = 0.0
    b_sram: float = 0.0
    once_bytes: float = 0.0
    """Small tables, read once at the start."""
    out_name: str = ""
    out_bytes: float = 0.0
    out_sram: float = 0.0
    sums_sram: float = 0.0
    a_s_per_byte: float = 0.0
    copy_s: float = 0.0
    """DMA within SRAM, over all steps."""
    copy_bytes: float = 0.0
    a_after: tuple[int, ...] = ()
    """Tasks that must end before activations are fetched (or SRAM is reserved, where nothing is fetched)."""
    b_after: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    """Tasks that must end before work starts: operands that wait in SRAM."""
    producers: tuple[int, ...] = ()
    """Places in the chain of the jobs whose rows it works on as they come."""
    repeats: float = 1.0
    """Times that it runs, one after the other: each task stands for its part in all of them."""
    dispatch_s: float = 0.0
    """Time of the call before the work starts."""
    stopped: Sequence[int] = ()
    """Units that do nothing else during that call."""
    read_served: float = 0.0
    """Share of the bytes read that memory levels serve instead of DRAM."""
    write_served: float = 0.0
    shared_served: float = 0.0
    """Share of the served bytes that come from the level which devices share."""
    residents: list[tuple[str, float]] = field(default_factory=list)
    """Resident tensors that are allocated here: (name, bytes)."""


class NpuUnits:
    """Numbers of the units in the first context of an array device, from `first` on, and its DMA times."""

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
        """Return the MAC grids of the first `tiles` tiles."""
        start = self._first + len(self.engines)
        return list(range(start, start + tiles))

    def dsp_units(self) -> list[int]:
        """Return the DSPs of all tiles of the context."""
        start = self._first + len(self.engines) + self.tiles * self.contexts
        return list(range(start, start + self.tiles * self.dsps))

    def units(self, name: str) -> list[ExecutionUnit]:
        """Return all units of a device: the units that contexts share, then context by context."""
        tiles = [(t, t // self.tiles) for t in range(self.tiles * self.contexts)]
        dma = [ExecutionUnit(f"{name}.dma{i}", f"{name}.dma") for i in range(len(self.engines))]
        dpu = [ExecutionUnit(f"{name}.tile{t}.dpu", f"{name}.dpu", c) for t, c in tiles]
        dsps = ((t, c, k) for t, c in tiles for k in range(self.dsps))
        dsp = [ExecutionUnit(f"{name}.tile{t}.dsp{k}", f"{name}.dsp", c) for t, c, k in dsps]
        return [*dma, *dpu, *dsp]


def job_of(
    arch: Any, op: Any, result: Any, number: int, units: NpuUnits, pieces: int = 0, most_turns: int = 0
) -> Job:
    """Return the job of an operator, without names, dependencies and MACs.

    Parameters
    ----------
    pieces : int
        Least number of steps; 0: as the SoC's compiler does.
    most_turns : int
        Turns to write of a loop that has many more; 0: all.
    """
    pieces = max(pieces, int(arch["stream_pieces"]))
    is_product = op["unit"] == Unit.DPU and op["dpu_operation"] in _PRODUCTS
    make = _product if is_product else _stream
    job = make(arch, op, result, number, units, pieces, most_turns)
    job.repeats = float(op["repeats"])
    _serve(job, op, result)
    job.a_s_per_byte = _activation_s_per_byte(job, float(result["dma_s"]) / job.repeats)
    return job


def _serve(job: Job, op: Any, result: Any) -> None:
    """Let memory levels serve their part of a job's bytes, at a rate between theirs and DRAM's."""
    if not result["level_bytes"]:
        return
    job.shared_served = float(result["shared_bytes"] / result["level_bytes"])
    moved = float(result["dram_bytes"] + result["level_bytes"]) / job.repeats
    read = moved - float(op["c_dram_bytes"])
    job.read_served = 1.0 - float(result["dram_read_bytes"]) / job.repeats / read if read > 0.0 else 0.0
    written = float(op["c_dram_bytes"])
    served = float(result["level_bytes"]) / job.repeats - job.read_served * read
    job.write_served = min(1.0, max(0.0, served / written)) if written > 0.0 else 0.0
    dram_s = read * job.dma.read_s_per_byte + written * job.dma.write_s_per_byte
    dma_s = float(result["dma_s"]) / job.repeats - job.copy_s
    ratio = min(1.0, max(0.0, dma_s) / dram_s) if dram_s > 0.0 else 1.0
    job.dma = replace(
        job.dma,
        read_s_per_byte=job.dma.read_s_per_byte * ratio,
        write_s_per_byte=job.dma.write_s_per_byte * ratio,
    )


def _activation_s_per_byte(job: Job, dma_s: float) -> float:
    """Return the DMA time of a byte of activations, which bear the extra cost of rows that are cut."""
    read_s, write_s = job.dma.read_s_per_byte, job.dma.write_s_per_byte
    a_bytes = job.a_bytes * _passes(s.a * s.repeats for s in job.steps)
    others = job.b_bytes * _passes(s.b * s.repeats for s in job.steps) + job.once_bytes
    smooth_s = (a_bytes + others) * read_s + job.out_bytes * write_s + job.copy_s
    gaps_s = max(0.0, dma_s - smooth_s)
    return read_s + (gaps_s / a_bytes if a_bytes else 0.0)


def _passes(shares: Iterable[float]) -> int:
    """Return how many passes the shares of all steps add up to."""
    return round(sum(shares))


def _product(
    arch: Any, op: Any, result: Any, number: int, units: NpuUnits, pieces: int, most_turns: int
) -> Job:
    used = int(result["tiles"])
    once = _is_fetched_once(op, result)
    tiling = _triangle_steps(result, most_turns) if once else _product_steps(op, result, pieces, most_turns)
    steps = tiling.steps
    split = int(result["split"])
    copied_a = used if split == Split.COLUMNS else 1
    copied_b = used if split == Split.ROWS else 1
    halo = halo_factor(op, float(result["row_blocks"]), float(result["strips"]))
    a_bytes = float(op["a_triangle_bytes"] if once else op["a_dram_bytes"] * halo)
    b_bytes, out_bytes = float(op["b_dram_bytes"]), float(op["c_dram_bytes"])
    small = float(op["extra_dram_bytes"]) <= arch["dma_page_bytes"] or once
    streamed = 0.0 if small else float(op["extra_dram_bytes"])
    # A second tensor (a residual) streams with the activations, but once only.
    a_passes = max(1, _passes(s.a * s.repeats for s in steps))
    a_bytes += streamed / a_passes
    keeps_sums = once or (result["order"] == Order.OUTPUTS_HELD and result["channel_chunks"] > 1)
    sums = (
        float(op["batch"] * op["out_w"] * op["out_h"] * op["out_c"] * arch["dpu_sum_bytes"])
        if keeps_sums
        else 0.0
    )
    job = Job(
        number,
        TaskKind.DPU,
        units.dpus(used),
        units.engines,
        units.dma,
        float(result["dpu_s"]),
        steps,
        tiling.loops,
        a_bytes=a_bytes,
        a_sram=a_bytes * copied_a,
        b_bytes=b_bytes,
        b_sram=b_bytes * copied_b,
        once_bytes=float(op["extra_dram_bytes"]) - streamed,
        out_bytes=out_bytes,
        out_sram=0.0 if op["c_resident"] else out_bytes,
        sums_sram=sums,
    )
    if once and split == Split.ROWS:  # each tile has sums of all rows, added up at the end of each pass
        job.sums_sram = sums * used
        job.copy_bytes = (used - 1.0) * sums
        job.copy_s = sram_copy_s(arch, job.copy_bytes)
    return job


def _stream(
    arch: Any, op: Any, result: Any, number: int, units: NpuUnits, pieces: int, most_turns: int
) -> Job:
    read = float(op["a_dram_bytes"] + op["b_dram_bytes"] + op["extra_dram_bytes"])
    written = float(op["c_dram_bytes"])
    tiles = float(arch["tiles"])
    free = tiles * (arch["sram_tile_bytes"] - op["live_copied_bytes"]) - op["live_spread_bytes"]
    count = pieces if op["fused_chain"] else 1
    if read + written > 0.0:
        # Two pieces on their way in and two on their way out fit together.
        count = max(pieces, ceil(2.0 * (read + written) / free))
    kind, busy, work_s = TaskKind.SYNC, [], 0.0
    if op["unit"] == Unit.DPU:
        kind, busy, work_s = TaskKind.DPU, units.dpus(units.tiles), float(result["dpu_s"])
    elif op["unit"] == Unit.DSP:
        dsps = 1 if op["dsp"]["serial"] else None
        kind, busy, work_s = TaskKind.DSP, units.dsp_units()[:dsps], float(result["dsp_s"])
    tiling = _stream_steps(count, most_turns)
    job = Job(
        number,
        kind,
        busy,
        units.engines,
        units.dma,
        work_s,
        tiling.steps,
        tiling.loops,
        a_bytes=read,
        a_sram=read,
        out_bytes=written,
        out_sram=0.0 if op["c_resident"] else written,
        dispatch_s=float(op["dispatches"] * arch["dispatch_s"]),
        stopped=[*units.dpus(units.tiles), *units.dsp_units()],
    )
    if kind is TaskKind.SYNC and op["copy_bytes"] > 0.0:
        # A transfer from or to DRAM changes the layout at no cost; only the rest is copied.
        job.copy_bytes = max(0.0, float(op["copy_bytes"]) - max(read, written))
        job.copy_s = sram_copy_s(arch, job.copy_bytes)
    return job
