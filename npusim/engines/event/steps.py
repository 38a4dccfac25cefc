"""Steps of an operator's tiling: what is fetched, computed and written back, one after the other.

The numbers of tiles are those that the cost kernel chose; a step's parts add up to the operator's exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from npusim.cost import Order, Split
from npusim.engines.event.program import refuse_many


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


def product_steps(op: Any, result: Any, pieces: int) -> list[TilingStep]:
    """Write out the tiling of a matrix product or convolution.

    Parameters
    ----------
    pieces : int
        Steps that DMA and work need at least to overlap; blocks are cut along whole pieces where the tiling
        has fewer.
    """
    batch = int(op["batch"])
    row_blocks, column_blocks = int(result["row_blocks"]), int(result["column_blocks"])
    chunks, strips, total = (int(result[name]) for name in ("channel_chunks", "strips", "row_pieces"))
    refuse_many(batch * strips * row_blocks * column_blocks * chunks, 1)
    wanted = ceil(pieces / (batch * strips * row_blocks * column_blocks * chunks))
    strip = [
        [n / (total * strips) for n in blocks(block, min(block, wanted))]
        for block in blocks(total, row_blocks)
    ]
    row_shares = strip * strips
    columns = [1.0 / column_blocks] * column_blocks
    loops = {
        Order.WEIGHTS_HELD: lambda: _weights_held(row_shares, columns),
        Order.ACTIVATIONS_HELD: lambda: _activations_held(row_shares, columns),
        Order.OUTPUTS_HELD: lambda: _outputs_held(row_shares, columns, chunks),
    }
    steps: list[TilingStep] = []
    for _ in range(batch):
        steps += loops[Order(int(result["order"]))]()
    for step in steps:
        step.work, step.a, step.b, step.out = (part / batch for part in (step.work, step.a, step.b, step.out))
        step.sums /= batch
    return steps


def _weights_held(row_shares: list[list[float]], columns: list[float]) -> Iterator[TilingStep]:
    flat = [share for block in row_shares for share in block]
    for column in columns:
        for i, share in enumerate(flat):
            first = i == 0
            yield TilingStep(
                share * column,
                a=share,
                b=column if first else 0.0,
                out=share * column,
                b_until=len(flat) - 1 if first else 0,
            )


def _activations_held(row_shares: list[list[float]], columns: list[float]) -> Iterator[TilingStep]:
    for block in row_shares:
        for j, column in enumerate(columns):
            for i, share in enumerate(block):
                yield TilingStep(
                    share * column,
                    a=share if j == 0 else 0.0,
                    a_until=len(block) * (len(columns) - 1) if j == 0 else 0,
                    b=column if i == 0 else 0.0,
                    b_until=len(block) - 1 if i == 0 else 0,
                    out=share * column,
                )


def _outputs_held(row_shares: list[list[float]], columns: list[float], chunks: int) -> Iterator[TilingStep]:
    for block in row_shares:
        size = len(block)
        for column in columns:
            for k in range(chunks):
                for i, share in enumerate(block):
                    yield TilingStep(
                        share * column / chunks,
                        a=share / chunks,
                        b=column / chunks if i == 0 else 0.0,
                        b_until=size - 1 if i == 0 else 0,
                        out=share * column if k == chunks - 1 else 0.0,
                        sums=share * column if k == 0 and chunks > 1 else 0.0,
                        sums_until=size * (chunks - 1) if k == 0 else 0,
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


def triangle_steps(result: Any) -> list[TilingStep]:
    """Yield the steps of a product whose triangle is fetched once; sums wait until a pass ends."""
    rows, passes = int(result["row_blocks"]), int(result["column_blocks"])
    count = rows * (rows + 1) // 2
    if result["split"] == Split.ROWS:
        count = ceil(count / int(result["tiles"]))
    refuse_many(count, passes)
    steps = []
    for _ in range(passes):
        for i in range(count):
            first, last = i == 0, i == count - 1
            until = count - 1 if first else 0
            steps.append(
                TilingStep(
                    1.0 / (count * passes), a=1.0 / count, b=1.0 / passes if first else 0.0, b_until=until,
                    out=1.0 / passes if last else 0.0, sums=1.0 / passes if first else 0.0, sums_until=until,
                    last_of_pass=last,
                )
            )  # fmt: skip
    return steps


def stream_steps(count: int) -> list[TilingStep]:
    """Write out an operator whose elements stream past, in `count` equal pieces."""
    share = 1.0 / count
    return [TilingStep(share, a=share, out=share) for _ in range(count)]
