"""Check of lab 3: the tiling that the search finds, and the SRAM for half of the blocks."""

from collections.abc import Iterator
from math import isclose
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from npusim.course.machine import estimate, machine, product
from npusim.engines import OperatorCost

ROWS, DEPTH, COLUMNS, STEP_MB = 4096, 1024, 1024, 0.25
A_MB, W_MB, C_MB = (2 * size / 1e6 for size in (ROWS * DEPTH, DEPTH * COLUMNS, ROWS * COLUMNS))


def _searched(sram_mb: float) -> OperatorCost:
    soc = machine("core-ultra-series2", "npu.tiles=1", f"npu.sram.per_tile={sram_mb} MB")
    return estimate(product(ROWS, DEPTH, COLUMNS), soc).operators[0]


def check_tiling(
    held: Literal["weights", "activations"], blocks: PositiveInt, dram_mb: float
) -> Iterator[tuple[bool, str, str]]:
    own_mb = W_MB + blocks * A_MB + C_MB if held == "weights" else A_MB + blocks * W_MB + C_MB
    hint = f"by your own blocks {own_mb:.1f} MB would cross: held once, streamed {blocks} times, result once"
    if isclose(dram_mb, own_mb * 1e6, rel_tol=0.01):
        hint = "the answer is asked in MB"
    elif isclose(dram_mb, own_mb * 1e6 / 2**20, rel_tol=0.01):
        hint = "that is in MiB; 1 MB is 10^6 B"
    yield isclose(dram_mb, own_mb, rel_tol=0.01), f"{dram_mb:.1f} MB follow from your blocks", hint
    found = _searched(1).mapping
    order = found.order if found else None
    hint = "the other choice moves less: compare, for both, the blocks that fit and the bytes of a pass"
    yield order == f"{held}_held", f"you and the search hold {held}", hint
    count = (found.column_blocks if held == "weights" else found.row_blocks) if found else 0
    block_mb = (W_MB if held == "weights" else A_MB) / blocks
    hint = (
        f"a block of yours has {block_mb:.2f} MB, and SRAM has 1 MB with room for the stream and the result"
    )
    yield (
        blocks == count,
        f"the search needs {count} blocks, too" if blocks == count else "as many blocks",
        hint,
    )


def check_sram(
    least_sram_mb: Annotated[float, Field(ge=0.25, le=16)],
) -> Iterator[tuple[bool, str, str]]:
    multiple = isclose(least_sram_mb / STEP_MB, round(least_sram_mb / STEP_MB))
    yield multiple, f"{least_sram_mb:g} MB is a multiple of {STEP_MB} MB", "the step is 0.25 MB"
    passes = _passes(least_sram_mb)
    hint = (
        "print `searched(...).mapping.buffers`: with 2, two blocks must fit beside the stream and the result"
    )
    yield passes <= 2, f"with {least_sram_mb:g} MB the other matrix streams {passes} times", hint
    hint = "one step less does it too"
    yield _passes(least_sram_mb - STEP_MB) > 2, f"{least_sram_mb:g} MB is the least", hint


def _passes(sram_mb: float) -> int:
    """Return how often the streamed matrix is read."""
    if sram_mb < STEP_MB:
        return ROWS
    found = _searched(sram_mb).mapping
    if found is None:
        return ROWS
    return found.column_blocks if found.order == "weights_held" else found.row_blocks
