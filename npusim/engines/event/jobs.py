"""An operator with its tiling as a job for an array device: units, steps, bytes, rates, latencies.

A *step* fetches, computes and writes back one part of the work. The numbers of tiles and all times are those
of `npusim.cost`; the parts of all steps add up to the operator exactly. A loop with many equal turns is
written in part where steps are folded (`npusim.engines.event.steady_state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from npusim import cost
from npusim.cost import DpuOperation, Order, Split, Unit
from npusim.engines.event.program import PERIODS, Loop, refuse_many
from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.mapping import Mapped

_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)


@dataclass(slots=True)
class TilingStep:
    """A part of an operator's work; amounts are shares of the operator's totals, 0 to 1.

    A step fetches `a` of one pass over the activations and `b` of one over the weights, sets up `sums` of the
    partial sums, does `work` and writes `out` of the output. What it fetches or sets up is used until so many
    steps later (0: in this step alone). After the `last_of_pass` tiles add up each other's partial sums. It
    stands for `repeats` equal steps, itself included.
    """

    work: float
    a: float = 0.0
    b: float = 0.0
    out: float = 0.0
    a_until: int = 0
    b_until: int = 0
    sums: float = 0.0
    sums_until: int = 0
    last_of_pass: bool = False
    repeats: int = 1


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

    def passes(self) -> tuple[int, int]:
        """Return how many passes over activations and weights all steps make."""
        a, b = sum(s.a * s.repeats for s in self.steps), sum(s.b * s.repeats for s in self.steps)
        return round(a), round(b)


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
    """Return the sizes of at most `count` equal blocks of `total` register tiles, the last one smaller.

    Examples
    --------
    >>> blocks(10, 4)
    [3, 3, 3, 1]
    """
    size = ceil(total / count)
    return [min(size, total - at) for at in range(0, total, size)]


Rows = Callable[[], Iterator[list[float]]]
"""Yields the blocks of rows that are written in one pass: the share of each of their pieces."""


def _product_steps(op: Any, result: Any, pieces: int, most_turns: int, lanes: float) -> Steps:
    """Return the steps of a matrix product or convolution: at least `pieces`, to overlap DMA and work.

    A single block is cut by columns, into groups of `lanes` at most; that of a convolution only where its
    transfers take longer than its work.
    """
    batch, order = int(op["batch"]), Order(int(result["order"]))
    row_blocks, column_blocks = int(result["row_blocks"]), int(result["column_blocks"])
    chunks, strips, total = (int(result[name]) for name in ("channel_chunks", "strips", "row_pieces"))
    steps = Steps(most_turns)
    refuse_many(prod(steps.written(n) for n in (batch, strips, row_blocks, column_blocks, chunks)), 1)
    wanted = ceil(pieces / (batch * strips * row_blocks * column_blocks * chunks))
    sizes = Counter(blocks(total, row_blocks))  # equal blocks, then perhaps a smaller one
    shares = {size: [n / (total * strips) for n in blocks(size, min(size, wanted))] for size in sizes}

    def rows() -> Iterator[list[float]]:
        for _ in steps.turns(strips):
            for size, count in sizes.items():
                for _ in steps.turns(count):
                    yield shares[size]

    is_cut = op["dpu_operation"] == DpuOperation.MATMUL or result["dma_s"] > result["dpu_s"]
    is_cut = is_cut and total * strips * row_blocks * column_blocks * chunks == 1
    for _ in steps.turns(batch):
        if is_cut:  # work goes on column by column while the weights come in
            _hold_rows(steps, rows, min(wanted, ceil(result["tile_columns"] / lanes)), 0)
        elif order is Order.WEIGHTS_HELD:
            _hold_weights(steps, rows, column_blocks)
        else:
            _hold_rows(steps, rows, column_blocks, 0 if order is Order.ACTIVATIONS_HELD else chunks)
    for step in steps.steps:
        step.work, step.a, step.b, step.out = (part / batch for part in (step.work, step.a, step.b, step.out))
        step.sums /= batch
        if op["bands"]:  # the first band fetches all weights, held until the last one ends
            step.b, step.b_until = 0.0, 0
    if op["bands"]:
        steps.steps[0].b, steps.steps[0].b_until = 1.0, len(steps.steps) - 1
    return steps


def _hold_weights(steps: Steps, rows: Rows, columns: int) -> None:
    """Add the steps of a product whose weights are stationary."""
    each = 1.0 / columns
    for _ in steps.turns(columns):
        first = len(steps.steps)
        for pieces in rows():
            steps.steps += [TilingStep(share * each, a=share, out=share * each) for share in pieces]
        steps.steps[first].b, steps.steps[first].b_until = each, len(steps.steps) - 1 - first


def _hold_rows(steps: Steps, rows: Rows, columns: int, chunks: int) -> None:
    """Add the steps of a product whose outputs are stationary; its activations where there are no chunks."""
    each, last_column, last_chunk = 1.0 / columns, steps.written(columns) - 1, steps.written(chunks) - 1
    for pieces in rows():
        size = len(pieces)
        for j in steps.turns(columns):
            for k in steps.turns(chunks or 1):
                for i, share in enumerate(pieces):
                    step = TilingStep(share * each, a=share, b=each if i == 0 else 0.0)
                    step.b_until = size - 1 if i == 0 else 0
                    step.out = share * each if k == last_chunk or not chunks else 0.0
                    if chunks:
                        step.work, step.a, step.b = (n / chunks for n in (step.work, step.a, step.b))
                        step.sums = share * each if k == 0 and chunks > 1 else 0.0
                        step.sums_until = size * last_chunk if k == 0 else 0
                    elif j == 0:
                        step.a_until = size * last_column
                    else:
                        step.a = 0.0
                    steps.steps.append(step)


def _triangle_steps(result: Any, most_turns: int) -> Steps:
    """Return the steps of a product whose triangle is fetched once: sums wait until a pass ends."""
    rows, passes = int(result["row_blocks"]), int(result["column_blocks"])
    count = rows * (rows + 1) // 2
    if result["split"] == Split.ROWS:
        count = ceil(count / int(result["tiles"]))
    steps = Steps(most_turns)
    refuse_many(steps.written(count), steps.written(passes))
    for _ in steps.turns(passes):
        first = len(steps.steps)
        for _ in steps.turns(count):
            steps.steps.append(TilingStep(1.0 / (count * passes), a=1.0 / count))
        begin, end = steps.steps[first], steps.steps[-1]
        begin.b = begin.sums = end.out = 1.0 / passes
        begin.b_until = begin.sums_until = len(steps.steps) - 1 - first
        end.last_of_pass = True
    return steps


def _stream_steps(count: int, most_turns: int) -> Steps:
    """Return `count` equal steps of an operator whose elements stream past."""
    share, steps = 1.0 / count, Steps(most_turns)
    refuse_many(steps.written(count), 1)
    for _ in steps.turns(count):
        steps.steps.append(TilingStep(share, a=share, out=share))
    return steps


class NpuUnits:
    """Units in the first context of an array device, numbered from `first` on, and its transfer times."""

    def __init__(self, arch: Any, first: int = 0) -> None:
        self.tiles, self.contexts = int(arch["tiles"]), int(arch["contexts"])
        self.dsps = int(arch["dsps_per_tile"])
        self.engines = list(range(first, first + int(arch["dma_engines"])))
        engines, page = float(len(self.engines)), float(arch["dma_page_bytes"])
        self.read_s_per_byte = 1.0 / cost.dma_bytes_per_s(arch, cost.DDR2CMX, engines)
        """Rate of reading with all engines at work."""
        self.write_s_per_byte = 1.0 / cost.dma_bytes_per_s(arch, cost.CMX2DDR, engines)
        self.write_latency_s = cost.dma_latency_s(arch, cost.CMX2DDR, page)
        self.copy_latency_s = cost.dma_latency_s(arch, cost.CMX2CMX, page)
        self._page_bytes = page
        sizes = (page, page + 1.0)
        self._read_latencies_s = [cost.dma_latency_s(arch, cost.DDR2CMX, size) for size in sizes]
        self._first_dpu = first + len(self.engines)

    def read_latency_s(self, size: float) -> float:
        """Return the latency of a read: longer beyond a page."""
        return self._read_latencies_s[size > self._page_bytes]

    def dpus(self, tiles: int) -> list[int]:
        """Return the MAC grids of the first `tiles` tiles."""
        return list(range(self._first_dpu, self._first_dpu + tiles))

    def dsp_units(self) -> list[int]:
        """Return the DSPs of all tiles of the context."""
        start = self._first_dpu + self.tiles * self.contexts
        return list(range(start, start + self.tiles * self.dsps))

    def units(self, name: str) -> list[ExecutionUnit]:
        """Return all units of a device: the units that contexts share, then context by context."""
        tiles = [(t, t // self.tiles) for t in range(self.tiles * self.contexts)]
        dma = [ExecutionUnit(f"{name}.dma{i}", f"{name}.dma") for i in range(len(self.engines))]
        dpu = [ExecutionUnit(f"{name}.tile{t}.dpu", f"{name}.dpu", c) for t, c in tiles]
        dsps = ((t, c, k) for t, c in tiles for k in range(self.dsps))
        dsp = [ExecutionUnit(f"{name}.tile{t}.dsp{k}", f"{name}.dsp", c) for t, c, k in dsps]
        return [*dma, *dpu, *dsp]


@dataclass(slots=True)
class Operand:
    """A tensor that moves through SRAM part by part: bytes of DRAM and of SRAM in one pass."""

    bytes: float = 0.0
    sram_bytes: float = 0.0
    name: str = ""


@dataclass(slots=True)
class Prefetch:
    """Weights that the DMA engines fetch during an earlier operator (`npusim.cost.network.prefetch`)."""

    operator: int
    """Operator that uses them."""
    name: str
    seconds: float
    """Time of all engines."""
    sram_bytes: float
    """SRAM of all tiles until the operator ends."""
    is_own: bool
    """Whether they lie in the buffer of the operator's only block of them."""
    transfers: list[int] = field(default_factory=list)
    """Tasks that fetch them, once written."""
    buffer: int = -1


@dataclass(slots=True)
class Job:
    """One operator on an array device, ready to be written as tasks; times in s, sizes in bytes.

    All `units` work at the same time, each for `work_s` in all. The operator runs `repeats` times, one after
    the other: each task stands for its part in all of them. Memory levels serve a share of the bytes read and
    written instead of DRAM, and of that a share comes from the level which devices share.

    Activations are fetched `a_after` some tasks, weights `b_after`, and work starts after those that write
    operands into SRAM. Where nothing is fetched SRAM is reserved `a_after`. `producers` are the places in the
    chain of the jobs whose rows it works on as they come.
    """

    operator: int
    kind: TaskKind
    """DPU, DSP, or SYNC where DMA alone works."""
    units: Sequence[int]
    npu: NpuUnits
    work_s: float
    tiling: Steps
    """Loops are written in part only of a job that is alone in its chain."""
    a: Operand = field(default_factory=Operand)
    b: Operand = field(default_factory=Operand)
    out: Operand = field(default_factory=Operand)
    macs: float = 0.0
    once_bytes: float = 0.0
    """Small tables, read once at the start."""
    sums_bytes: float = 0.0
    """SRAM of partial sums."""
    a_s_per_byte: float = 0.0
    copy_s: float = 0.0
    """DMA within SRAM, over all steps."""
    copy_bytes: float = 0.0
    a_after: Sequence[int] = ()
    b_after: Sequence[int] = ()
    start: Sequence[int] = ()
    producers: Sequence[int] = ()
    repeats: float = 1.0
    read_s_per_byte: float = 0.0
    write_s_per_byte: float = 0.0
    dispatch_s: float = 0.0
    """Time of the call before the work starts, in which DPUs and DSPs stop."""
    read_served: float = 0.0
    write_served: float = 0.0
    shared_served: float = 0.0
    residents: Sequence[tuple[tuple[str, str], float]] = ()
    """Resident tensors that are allocated here, by device and name, with their bytes."""
    prefetches: Sequence[Prefetch] = ()
    """Weights of later operators that are fetched meanwhile."""


def job_of(
    mapped: Mapped, index: int, npu: NpuUnits, pieces: int = 0, most_turns: int = 0, held_bytes: float = 0.0
) -> Job:
    """Return the job of a group, without names, dependencies and MACs.

    Parameters
    ----------
    pieces : int
        Least number of steps; 0: as the SoC's compiler does.
    most_turns : int
        Turns to write of a loop that has many more; 0: all.
    held_bytes : float
        SRAM of all tiles that prefetched weights of this and later operators take.
    """
    op, result = mapped.lowered.ops[index], mapped.results[index]
    arch = mapped.arch[mapped.decisions.groups[index].device]
    pieces = max(pieces, int(arch["stream_pieces"]))
    is_product = op["unit"] == Unit.DPU and op["dpu_operation"] in _PRODUCTS
    if is_product and result["piece_level"] == cost.TRIANGLE_ONCE:
        steps = _triangle_steps(result, most_turns)
    elif is_product:
        steps = _product_steps(op, result, pieces, most_turns, float(arch["dpu_channel_lanes"]))
    else:
        steps = _stream_steps(_stream_pieces(arch, op, pieces, held_bytes), most_turns)
    job = Job(index, TaskKind.SYNC, (), npu, 0.0, steps, repeats=float(op["repeats"]))
    job.read_s_per_byte, job.write_s_per_byte = npu.read_s_per_byte, npu.write_s_per_byte
    if op["unit"] == Unit.DPU:
        tiles = int(result["tiles"]) if is_product else npu.tiles
        job.kind, job.units, job.work_s = TaskKind.DPU, npu.dpus(tiles), float(result["dpu_s"])
    elif op["unit"] == Unit.DSP:
        dsps = 1 if op["dsp"]["serial"] else None
        job.kind, job.units, job.work_s = TaskKind.DSP, npu.dsp_units()[:dsps], float(result["dsp_s"])
    if is_product:
        _set_product(job, arch, op, result)
    else:
        _set_stream(job, arch, op)
    _serve(job, op, result)
    job.a_s_per_byte = _activation_s_per_byte(job, float(result["dma_s"]) / job.repeats)
    return job


def use_prefetched(job: Job, op: Any, prefetches: Sequence[Prefetch]) -> None:
    """Let a job wait for prefetched weights, and fetch so much less of its known operands in each step."""
    known = [
        (operand, operand.bytes * passes)
        for operand, passes, is_known in zip(
            (job.a, job.b), job.tiling.passes(), (op["a_prefetch"], op["b_prefetch"]), strict=True
        )
        if is_known
    ]
    fetched_bytes = sum(prefetch.seconds for prefetch in prefetches) / job.npu.read_s_per_byte
    share = max(0.0, 1.0 - fetched_bytes / (job.repeats * sum(size for _, size in known)))
    for operand, _ in known:
        operand.bytes *= share
        operand.sram_bytes *= share if prefetches[0].is_own else 1.0
    job.start = [*job.start, *(task for prefetch in prefetches for task in prefetch.transfers)]


def _serve(job: Job, op: Any, result: Any) -> None:
    """Let memory levels serve their part of a job's bytes, at a rate between theirs and DRAM's."""
    if not result["level_bytes"]:
        return
    job.shared_served = float(result["shared_bytes"] / result["level_bytes"])
    written = float(op["c_dram_bytes"])
    read = float(result["dram_bytes"] + result["level_bytes"]) / job.repeats - written
    job.read_served = 1.0 - float(result["dram_read_bytes"]) / job.repeats / read if read > 0.0 else 0.0
    served = float(result["level_bytes"]) / job.repeats - job.read_served * read
    job.write_served = min(1.0, max(0.0, served / written)) if written > 0.0 else 0.0
    dram_s = read * job.read_s_per_byte + written * job.write_s_per_byte
    dma_s = float(result["dma_s"]) / job.repeats - job.copy_s
    ratio = min(1.0, max(0.0, dma_s) / dram_s) if dram_s > 0.0 else 1.0
    job.read_s_per_byte *= ratio
    job.write_s_per_byte *= ratio


def _activation_s_per_byte(job: Job, dma_s: float) -> float:
    """Return the DMA time of a byte of activations, which bear the extra cost of rows that are cut."""
    read_s = job.read_s_per_byte
    a_passes, b_passes = job.tiling.passes()
    a_bytes, others = job.a.bytes * a_passes, job.b.bytes * b_passes + job.once_bytes
    smooth_s = (a_bytes + others) * read_s + job.out.bytes * job.write_s_per_byte + job.copy_s
    gaps_s = max(0.0, dma_s - smooth_s)
    return read_s + (gaps_s / a_bytes if a_bytes else 0.0)


def _set_product(job: Job, arch: Any, op: Any, result: Any) -> None:
    """Set the operands and partial sums of a matrix product or convolution."""
    used, split = int(result["tiles"]), int(result["split"])
    once = result["piece_level"] == cost.TRIANGLE_ONCE
    halo = cost.halo_factor(op, float(result["row_blocks"]), float(result["strips"]))
    a_bytes = float(op["a_triangle_bytes"] if once else op["a_dram_bytes"] * halo)
    b_bytes, out_bytes, extra = (float(op[f"{name}_dram_bytes"]) for name in ("b", "c", "extra"))
    # A large second tensor (a residual) streams with the activations, but once only.
    streamed = 0.0 if extra <= arch["dma_page_bytes"] or once else extra
    a_bytes += streamed / max(1, job.tiling.passes()[0])
    job.a = Operand(a_bytes, a_bytes * (used if split == Split.COLUMNS else 1))
    job.b = Operand(b_bytes, b_bytes * (used if split == Split.ROWS else 1))
    job.out = Operand(out_bytes, 0.0 if op["c_resident"] else out_bytes)
    job.once_bytes = extra - streamed
    if once or (result["order"] == Order.OUTPUTS_HELD and result["channel_chunks"] > 1):
        elements = op["batch"] * op["out_w"] * op["out_h"] * op["out_c"]
        job.sums_bytes = float(elements * arch["dpu_sum_bytes"])
    if once and split == Split.ROWS:  # each tile has sums of all rows, added up at the end of each pass
        job.copy_bytes = (used - 1.0) * job.sums_bytes
        job.sums_bytes *= used
        job.copy_s = cost.sram_copy_s(arch, job.copy_bytes)


def _stream_bytes(op: Any) -> tuple[float, float]:
    """Return the DRAM bytes that an operator reads and writes as its elements stream past."""
    return float(op["a_dram_bytes"] + op["b_dram_bytes"] + op["extra_dram_bytes"]), float(op["c_dram_bytes"])


def _stream_pieces(arch: Any, op: Any, least_pieces: int, held_bytes: float) -> int:
    """Return the steps of an operator whose elements stream past: two pieces each way fit into free SRAM.

    Free SRAM is what live tensors leave, less prefetched weights beyond the bytes reserved for them. An
    operator of a depth-first segment has as many pieces in each of its bands.
    """
    moved_bytes = sum(_stream_bytes(op))
    if moved_bytes <= 0.0 and not op["fused_chain"]:
        return 1
    pieces = least_pieces
    if moved_bytes > 0.0:
        live_in_tile, live_spread = op["live_copied_bytes"], op["live_spread_bytes"]
        free_bytes = float(float(arch["tiles"]) * (arch["sram_tile_bytes"] - live_in_tile) - live_spread)
        free_bytes -= max(0.0, held_bytes - float(op["reserved_bytes"]))
        pieces = max(pieces, ceil(2.0 * moved_bytes / free_bytes))
    bands = int(op["batch"]) if op["bands"] else 1
    return bands * ceil(pieces / bands)


def _set_stream(job: Job, arch: Any, op: Any) -> None:
    """Set the operands and copies of an operator whose elements stream past."""
    read, written = _stream_bytes(op)
    job.a, job.out = Operand(read, read), Operand(written, 0.0 if op["c_resident"] else written)
    job.dispatch_s = float(op["dispatches"] * arch["dispatch_s"])
    if job.kind is TaskKind.SYNC and op["copy_bytes"] > 0.0:
        # A transfer from or to DRAM changes the layout at no cost; only the rest is copied.
        job.copy_bytes = max(0.0, float(op["copy_bytes"]) - max(read, written))
        job.copy_s = cost.sram_copy_s(arch, job.copy_bytes)
