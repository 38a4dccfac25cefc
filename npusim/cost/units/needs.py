"""Needs of a mapping candidate: what one operator takes of each resource, and its tiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from npusim.compiling.kernels import compiled
from npusim.compiling.records import Bytes, Number, dtype_of
from npusim.cost.lowering.tables import DpuOperation, OpRecord
from npusim.cost.units.resources import BODY, RESOURCES

_MATMUL = int(DpuOperation.MATMUL)


class NeedsRecord:
    """Needs of a mapping: a column for each resource of a candidate, in their order."""

    if TYPE_CHECKING:  # the columns of the table of resources

        def __getattr__(self, name: str) -> float: ...
        def __setattr__(self, name: str, value: float) -> None: ...


NeedsRecord.__annotations__ = {
    resource.name: Annotated[float, resource.unit, resource.meaning] for resource in RESOURCES[:BODY]
}


class CandidateRecord(NeedsRecord):
    """A mapping of one operator: its needs and, in the last twelve columns, its tiling.

    `npusim.cost.units.levels.serve_rows` deducts the bytes of memory levels after the search.
    """

    prologue_bytes: Bytes
    """The first piece in, which overlaps with no work."""
    known_bytes: Bytes
    """Part of the prologue that exists before the inference begins (`npusim.cost.network.prefetch`)."""
    epilogue_bytes: Bytes
    """The last piece out, which overlaps with no work."""
    streamed_bytes: Bytes
    """Streamed through SRAM of a tile (`refills`)."""
    held_bytes: Bytes
    """SRAM of a tile for live tensors and stationary operands."""
    needed_bytes: Bytes
    """Least SRAM of a tile."""
    most_bytes: Bytes
    """SRAM of a tile from which on half as many parts fit and so many are not tried; else infinite."""
    page_walks: Number
    """First pieces that wait for address translation."""
    restarts: Number
    """Blocks of a single-buffered operand after the first: work and transfers pause before each."""
    sram_peak_bytes: Bytes
    """Largest working set of all tiles with live tensors."""
    fine: Number
    """1 where pieces are smaller than a register tile: chosen only where strictly faster."""
    split: Number
    """See `npusim.cost.lowering.tables.Split`."""
    order: Number
    """See `npusim.cost.lowering.tables.Order`."""
    mode: Number
    """MPE mode."""
    tiles: Number
    """Tiles with a share."""
    row_pieces: Number
    """Pieces along the rows of the share of a tile."""
    strips: Number
    """Vertical strips of the image."""
    row_blocks: Number
    """Blocks of output rows of a strip."""
    column_blocks: Number
    """Blocks of output channels."""
    channel_chunks: Number
    """Chunks of input channels."""
    buffers: Number
    """Buffers of a stationary operand that comes in several blocks, 1 or 2."""
    parts: Number
    """1 where the share is cut into parts along channels, 2 along rows, else 0."""
    piece_level: Number
    """Size of the pieces, see `npusim.cost.tilings.tiling.piece_of`."""


CANDIDATE_DTYPE = dtype_of(CandidateRecord)
CANDIDATE_SIZE = CANDIDATE_DTYPE.itemsize // 8
"""Numbers of a candidate; as numbers, its first ones are a vector over resources."""


@compiled
def refills(candidate: CandidateRecord, sram_tile_bytes: float) -> float:
    """Return how often the streamed operand fills its free SRAM."""
    if candidate.streamed_bytes <= 0.0:
        return 0.0
    return float(candidate.streamed_bytes / (sram_tile_bytes - candidate.held_bytes))


@compiled
def halo_factor(op: OpRecord, row_blocks: float, strips: float) -> float:
    """Return the fetched over the existing input pixels, for one pass over the activations."""
    if op.dpu_operation == _MATMUL:
        return 1.0
    # Neighbouring blocks and strips both fetch the input rows and columns that their windows share.
    shared_rows = min(op.in_h, max(0.0, op.kernel_h - op.stride_h)) / op.in_h
    shared_columns = min(op.in_w, max(0.0, op.kernel_w - op.stride_w)) / op.in_w
    return float((1.0 + (row_blocks - 1.0) * shared_rows) * (1.0 + (strips - 1.0) * shared_columns))
