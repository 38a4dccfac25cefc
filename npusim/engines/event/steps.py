"""Steps of an operator's tiling: what is fetched, computed and written back, one after the other.

The numbers of tiles are those that the cost kernel chose; a step's parts add up to the operator's exactly.
Of a loop with many equal turns some are written where steps are folded (`npusim.engines.event.folding`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any, NamedTuple

from npusim.cost import Order, Split
from npusim.engines.event.program import PERIODS, Loop, refuse_many


@dataclass(slots=True)
class TilingStep:
    """One piece of an operator's work; parts are shares of the operator's totals, 0 to 1."""

    work: float
    """Share of the work."""
    a: float = 0.0
    """Share of one pass over the activations that is brought in for it."""
    b: float = 0.0
    """Share of one pass over the weights that is brought in for it."""
    out: float = 0.0
    """Share of the output that leaves after it."""
    a_until: int = 0
    """Steps from here until what `a` brought in is used up (0: by this step itself)."""
    b_until: int = 0
    sums: float = 0.0
    """Share of the partial sums that are set up for it ..."""
    sums_until: int = 0
    """... and the steps from here to the last that adds to them."""
    last_of_pass: bool = False
    """Whether tiles add up each other's partial sums after it."""
    times: int = 1
    """Equal steps that it stands for, itself counted."""


@dataclass(slots=True)
class Steps:
    """Steps as they are written, in order."""

    most: int = 0
    """Turns of a loop to write, where it has many more; 0: all."""
    steps: list[TilingStep] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    """Loops of which turns are left out, inner ones first."""

    def written(self, turns: int) -> int:
        """Return how many turns of a loop are written."""
        spare = turns - self.most
        return self.most + spare % PERIODS[-1] if self.most and spare >= PERIODS[-1] else turns

    def turns(self, turns: int) -> Iterator[int]:
        """Yield the number of each turn that is written; the steps that come meanwhile are its."""
        count, starts, inner = self.written(turns), [], len(self.loops)
        for turn in range(count):
            starts.append(len(self.steps))
            yield turn
        starts.append(len(self.steps))
        if count < turns:
            for step in self.steps[starts[count // 2] : starts[count // 2 + 1]]:
                step.times *= 1 + turns - count
            level = 1 + max((loop.level for loop in self.loops[inner:]), default=-1)
            self.loops.append(Loop(turns, level, starts))


def apportion(total: float, shares: list[float]) -> list[float]:
    """Cut a total into parts near the given shares that add up exactly; whole numbers stay whole.

    Examples
    --------
    >>> apportion(10.0, [0.33, 0.33, 0.34])
    [3.0, 4.0, 3.0]
    """
    parts, given, upto = [], 0.0, 0.0
    scale = sum(shares)
    last = max((i for i, share in enumerate(shares) if share > 0.0), default=-1)
    for i, share in enumerate(shares):
        upto += share
        target = total if i == last else min(total, round(total * upto / scale)) if scale else 0.0
        part = target - given if share > 0.0 else 0.0
        parts.append(part)
        given += part
    return parts


def blocks(total: int, count: int) -> list[int]:
    """Cut `total` stencils into at most `count` blocks of the same size, the last one smaller.

    Examples
    --------
    >>> blocks(10, 4)
    [3, 3, 3, 1]
    """
    size = ceil(total / count)
    return [min(size, total - at) for at in range(0, total, size)]


class _Rows(NamedTuple):
    """Blocks of rows: so many equal ones, then perhaps a smaller one, in each strip."""

    equal: int
    pieces: list[float]
    """Share of each piece of an equal block."""
    rest: list[float]
    """The same of the smaller one; empty without."""
    strips: int

    def steps(self, steps: Steps) -> int:
        """Return the pieces of all blocks that are written."""
        blocks_each = steps.written(self.equal) * len(self.pieces) + len(self.rest)
        return steps.written(self.strips) * blocks_each

    def each(self, steps: Steps) -> Iterator[list[float]]:
        """Yield the pieces of each block that is written."""
        for _ in steps.turns(self.strips):
            for _ in steps.turns(self.equal):
                yield self.pieces
            if self.rest:
                yield self.rest


def product_steps(op: Any, result: Any, pieces: int, most: int = 0) -> Steps:
    """Write out the tiling of a matrix product or convolution.

    Parameters
    ----------
    pieces : int
        Steps that DMA and work need at least to overlap; blocks are cut along whole pieces where the tiling
        has fewer.
    most : int
        Turns of a loop to write, where it has many more; 0: all.
    """
    batch = int(op["batch"])
    row_blocks, column_blocks = int(result["row_blocks"]), int(result["column_blocks"])
    chunks, strips, total = (int(result[name]) for name in ("channel_chunks", "strips", "row_pieces"))
    steps = Steps(most)
    counts = [steps.written(n) for n in (batch, strips, row_blocks, column_blocks, chunks)]
    refuse_many(prod(counts), 1)
    wanted = ceil(pieces / (batch * strips * row_blocks * column_blocks * chunks))
    sizes = blocks(total, row_blocks)
    cut = [
        [n / (total * strips) for n in blocks(block, min(block, wanted))] for block in (sizes[0], sizes[-1])
    ]
    equal = len(sizes) - (sizes[-1] < sizes[0])
    rows = _Rows(equal, cut[0], cut[1] if equal < len(sizes) else [], strips)
    loops = {
        Order.WEIGHTS_HELD: lambda: _weights_held(steps, rows, column_blocks),
        Order.ACTIVATIONS_HELD: lambda: _activations_held(steps, rows, column_blocks),
        Order.OUTPUTS_HELD: lambda: _outputs_held(steps, rows, column_blocks, chunks),
    }
    for _ in steps.turns(batch):
        loops[Order(int(result["order"]))]()
    for step in steps.steps:
        step.work, step.a, step.b, step.out = (part / batch for part in (step.work, step.a, step.b, step.out))
        step.sums /= batch
    return steps


def _weights_held(steps: Steps, rows: _Rows, columns: int) -> None:
    each, last = 1.0 / columns, rows.steps(steps) - 1
    for _ in steps.turns(columns):
        weights, until = each, last
        for pieces in rows.each(steps):
            for share in pieces:
                steps.steps.append(
                    TilingStep(share * each, a=share, b=weights, out=share * each, b_until=until)
                )
                weights, until = 0.0, 0


def _activations_held(steps: Steps, rows: _Rows, columns: int) -> None:
    each = 1.0 / columns
    for pieces in rows.each(steps):
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
    for pieces in rows.each(steps):
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


def is_fetched_once(op: Any, result: Any) -> bool:
    """Whether a stored triangle is fetched once (`npusim.cost.search`), by the operator's traffic."""
    if not op["triangle"] or op["a_triangle_bytes"] <= 0.0:
        return False
    once = (
        op["a_triangle_bytes"] * result["column_blocks"]
        + op["b_dram_bytes"]
        + op["extra_dram_bytes"]
        + op["c_dram_bytes"]
    )
    return bool(
        abs(result["dram_bytes"] + result["level_bytes"] - once) <= 1e-9 * once
        and result["row_blocks"] == result["channel_chunks"]
    )


def triangle_steps(result: Any, most: int = 0) -> Steps:
    """Write out a product whose triangle is fetched once; sums wait until a pass ends."""
    rows, passes = int(result["row_blocks"]), int(result["column_blocks"])
    count = rows * (rows + 1) // 2
    if result["split"] == Split.ROWS:
        count = ceil(count / int(result["tiles"]))
    steps = Steps(most)
    end = steps.written(count) - 1
    refuse_many(end + 1, steps.written(passes))
    for _ in steps.turns(passes):
        for i in steps.turns(count):
            first, last = i == 0, i == end
            until = end if first else 0
            steps.steps.append(
                TilingStep(
                    1.0 / (count * passes), a=1.0 / count, b=1.0 / passes if first else 0.0, b_until=until,
                    out=1.0 / passes if last else 0.0, sums=1.0 / passes if first else 0.0, sums_until=until,
                    last_of_pass=last,
                )
            )  # fmt: skip
    return steps


def stream_steps(count: int, most: int = 0) -> Steps:
    """Write out an operator whose elements stream past, in `count` equal pieces."""
    share, steps = 1.0 / count, Steps(most)
    refuse_many(steps.written(count), 1)
    for _ in steps.turns(count):
        steps.steps.append(TilingStep(share, a=share, out=share))
    return steps
