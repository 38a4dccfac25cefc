"""Twin of `npusim.cost.tilings.search` and `npusim.cost.tilings.tiling`: every way to cut a product, all
counts, no cleverness.

All tables are NumPy arrays over (row blocks, column blocks, chunks), counted 1, 2, 3 ... up to single
register tiles.
"""

import copy
from types import SimpleNamespace
from typing import Any, NamedTuple

import naive_dma as dma
import naive_dpu
import numpy as np

from npusim.cost.lowering.tables import DpuOperation, Order, Split

Choice = SimpleNamespace


def tiles_and_share(arch: Any, op: Any, split: Split) -> tuple[int, float, float]:
    """Tiles that get something, and the largest share: rows (of pixels, or of an image) and output
    channels."""
    is_matmul = op.dpu_operation == DpuOperation.MATMUL
    length = op.out_w if is_matmul else op.out_h
    if split is Split.SINGLE:
        return 1, length, op.out_c
    if split is Split.ROWS:
        whole, lanes = length, arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h if is_matmul else 1
    else:
        whole, lanes = op.out_c, arch.dpu_channel_lanes
    groups = -(-whole // lanes)
    share = lanes * -(-groups // arch.tiles)
    used = int(min(arch.tiles, -(-whole // share)))
    return (used, min(share, whole), op.out_c) if split is Split.ROWS else (used, length, min(share, whole))


def sizes(most: float, *smaller: float) -> list[float]:
    """Sizes of a piece along one axis, none of them above `most`."""
    return sorted({min(most, size) for size in smaller}, reverse=True)


def strip_widths(arch: Any, op: Any) -> list[float]:
    """Widths of 1, 2, 4, 8 ... strips in whole groups of pixels, until a strip is one group."""
    if op.dpu_operation == DpuOperation.MATMUL:
        return [op.out_w]
    lanes, groups, found = arch.dpu_pixel_lanes_w, -(-op.out_w // arch.dpu_pixel_lanes_w), [op.out_w]
    share = groups
    while share > 1:
        share = -(-groups // 2 ** len(found))
        found.append(min(op.out_w, share * lanes))
    return found


def pieces(arch: Any, op: Any, rows: float, channels: float, mode: int) -> list[SimpleNamespace]:
    """Every size of piece that blocks may be made of; `level` numbers their heights."""
    wide = arch.dpu_mode_c[mode] * arch.dpu_channel_lanes
    across, down = (
        arch.dpu_mode_w[mode] * arch.dpu_pixel_lanes_w,
        arch.dpu_mode_h[mode] * arch.dpu_pixel_lanes_h,
    )
    if op.dpu_operation == DpuOperation.MATMUL:
        limits, depths = [across * down], [min(channels, wide)]
    else:
        limits = [down, min(down, arch.dpu_pixel_lanes_h), 1]
        depths = sizes(channels, wide, min(wide, arch.dpu_channel_lanes))
    heights = [min(rows, limit) for limit in limits]
    found = []
    for width in strip_widths(arch, op):
        for height in sizes(rows, *limits):
            for depth in depths:
                narrow = width < op.out_w or height < heights[0]
                found.append(
                    SimpleNamespace(
                        width=width,
                        level=heights.index(height),
                        rows=height,
                        channels=depth,
                        whole_rows=height == heights[0],
                        whole_channels=depth == depths[0],
                        area=min(across, width) * min(down, height) if narrow else across * down,
                        wide=depth if depth < depths[0] else wide,
                        fine=narrow or depth < depths[0],
                    )
                )
    return found


def at_rate(arch: Any, op: Any) -> Any:
    """The machine with the MAC rate of an operator: its format's, or that of its regular sparsity."""
    arch = copy.deepcopy(arch)
    arch.dpu_mac_bytes_per_cycle = [step * op.mac_rate for step in arch.dpu_mac_bytes_per_cycle]
    return arch


def tile_cycles(arch: Any, op: Any, rows: float, channels: float, mode: int, piece: Any) -> float:
    """Cycles of the grid on one tile's share of one product of the batch."""
    arch = at_rate(arch, op)
    zeros = (op.a_density, op.b_density, op.a_block_density, 1.0)
    items = (op.a_item, op.b_item, op.c_item)
    if op.dpu_operation == DpuOperation.MATMUL:
        cycles = naive_dpu.matmul_mode_cycles(arch, rows, op.in_c, channels, items, mode, 1.0, zeros)
        if op.triangle:  # blocks above the diagonal are read from those below, against their rows
            cycles = 0.5 * cycles + 0.5 * cycles / arch.symg_transposed_rate
        return cycles
    tall = rows if piece.whole_rows else piece.rows
    deep = channels if piece.whole_channels else piece.channels
    image, kernel = (piece.width, tall, deep, op.in_c), (op.kernel_w, op.kernel_h)
    each = naive_dpu.conv_cycles(arch, *image, kernel, (0.0, 0.0), items, mode, 1.0, zeros)
    count = -(-op.out_w // piece.width) * -(-rows // tall) * -(-channels // deep)
    return count * each - (count - 1) * arch.dpu_startup_cycles


def sized(arch: Any, op: Any, rows: float, channels: float, piece: Any) -> SimpleNamespace:
    """Counts of pieces of a tile's share, and the bytes of one row, one column, one block of them."""
    across = 1.0
    shared = line_share = 0.0
    if op.dpu_operation == DpuOperation.MATMUL:
        pixels, a_bytes, halo = piece.rows, piece.rows * op.in_c * op.a_item * op.a_pack, 0.0
    else:
        across = -(-op.out_w // piece.width)
        overlap = max(0.0, op.kernel_w - op.stride_w)
        width = op.in_w if across == 1 else min(op.in_w, piece.width * op.stride_w + overlap)
        line = width * op.in_c * op.a_item * op.a_pack
        pixels, a_bytes = piece.rows * piece.width, piece.rows * op.stride_h * line
        halo = max(0.0, op.kernel_h - op.stride_h) * line
        shared = min(op.in_h, max(0.0, op.kernel_h - op.stride_h)) / op.in_h
        line_share = min(op.in_w, overlap) / op.in_w
    b_bytes = piece.channels * op.in_c * op.kernel_w * op.kernel_h * op.b_item * op.b_pack
    rows, columns = int(-(-rows // piece.rows)), int(-(-channels // piece.channels))
    sums = pixels * piece.channels * arch.dpu_sum_bytes
    c_bytes = 0.0 if op.c_resident else pixels * piece.channels * op.c_item
    a_bytes = 0.0 if op.a_resident else a_bytes
    return SimpleNamespace(
        rows=rows,
        columns=columns,
        chunks=int(max(1, -(-op.in_c // arch.dpu_channel_lanes))),
        strips=int(across),
        line_bytes=0.0 if across == 1 else width * op.in_c * op.a_item,
        row_overlap=shared,
        column_overlap=line_share,
        a=a_bytes,
        halo=0.0 if op.a_resident else halo,
        b=0.0 if op.b_resident else b_bytes,
        c=c_bytes,
        sums=sums,
        spilled=rows * columns * sums,
        first_a=a_bytes,
        last_c=c_bytes,
    )


def working_set(s: Any, row_blocks: Any, column_blocks: Any, chunks: Any) -> Any:
    """Bytes of a tile's SRAM that a tiling needs: every operand that comes in several pieces twice."""
    rows, columns = -(-s.rows // row_blocks), -(-s.columns // column_blocks)
    piece = -(-s.chunks // chunks) / s.chunks

    def twice(pieces: Any) -> Any:
        return np.where(pieces > 1, 2.0, 1.0)

    a = rows * s.a * piece * twice(s.strips * row_blocks * chunks) + 2.0 * s.halo * piece
    b = columns * s.b * piece * twice(column_blocks * chunks)
    # Outputs of a block with partial sums leave while the sums of the next one are added up.
    c = rows * columns * s.c * np.where(chunks > 1, 1.0, twice(s.strips * row_blocks * column_blocks))
    return a + b + c + np.where(chunks > 1, rows * columns * s.sums, 0.0)


def overlapping(s: Any, row_blocks: Any) -> Any:
    """Input that is fetched in one pass over the image, rows and columns at borders twice, over the image."""
    return (1 + (row_blocks - 1) * s.row_overlap) * (1 + (s.strips - 1) * s.column_overlap)


def streamed(
    op: Any, s: Any, order: Order, row_blocks: Any, column_blocks: Any, rows: float, channels: float
) -> Any:
    """Bytes that stream past on one tile with so much of the rows and channels."""
    a = op.a_dram_bytes * rows * column_blocks * overlapping(s, row_blocks)
    b = op.b_dram_bytes * channels * row_blocks * s.strips
    return {Order.WEIGHTS_HELD: a, Order.ACTIVATIONS_HELD: b, Order.OUTPUTS_HELD: a + b}[order]


def waiting(s: Any, order: Order, column_blocks: Any) -> Any:
    """Bytes of weights that wait on a tile while activations stream past."""
    if order is not Order.WEIGHTS_HELD:
        return 0.0
    return -(-s.columns // column_blocks) * s.b * np.where(column_blocks > 1, 2.0, 1.0)


def overlapped(arch: Any, cost: Any, refills: Any) -> dict[str, Any]:
    """What follows from an operator's parts: waits for room that must be filled again, and the latency."""
    refilling = refills * dma.first_byte_s(arch)
    together = dma.overlapped_s(cost["dpu_s"], cost["dma_s"], cost["edges_s"], refilling)
    return {"refilling_s": refilling, "latency_s": together + cost["waits_s"]}


def cuts(length: float, lanes: float) -> list[tuple[int, float]]:
    """Numbers of parts above one, ascending, with the size of a part: whole groups of lanes, or elements
    where all parts have equally many groups."""
    groups = -(-length // lanes)
    sizes = {-(-groups // n) for n in range(2, int(groups) + 1)}
    counts = [(int(-(-groups // size)), size) for size in sorted(sizes, reverse=True)]
    return [(n, -(-length // n) if n * size == groups else min(length, size * lanes)) for n, size in counts]


def arrangements(length: float, lanes: float, count: int, size: float) -> list[list[float]]:
    """Lengths of the parts: all of a size with a smaller last one, or as even as groups of lanes allow."""
    equal = [size] * (count - 1) + [length - (count - 1) * size]
    groups, most = -(-length // lanes), -(-size // lanes)
    smaller = int(count * most - groups)
    if not 1 < smaller < count or most == 1:
        return [equal]
    even = [size] * (count - smaller) + [(most - 1) * lanes] * smaller
    even[-1] -= groups * lanes - length
    return [equal, even]


def choices(arch: Any, op: Any) -> list[Choice]:
    """Return every tiling that fits, for every split, mode and order, with its cost."""
    found: list[Choice] = []
    is_matmul = op.dpu_operation == DpuOperation.MATMUL
    lanes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h if is_matmul else 1
    for split in Split:
        used, rows, channels = tiles_and_share(arch, op, split)
        kept = arch.tiles * op.live_copied_bytes + op.live_spread_bytes
        free = arch.sram_tile_bytes - op.live_copied_bytes - op.live_spread_bytes / arch.tiles
        for mode in range(3):
            spread = {"split": split, "mode": mode, "tiles": used}
            every = pieces(arch, op, rows, channels, mode)
            for piece in every:
                found += _tilings(arch, op, rows, channels, piece, spread, free, kept)
            if is_matmul:  # blocks of outputs in groups of lanes
                line = SimpleNamespace(**vars(every[0]) | {"rows": min(rows, lanes)})
                found += _line_tilings(arch, op, rows, channels, every[0], line, spread, free, kept)
            for piece in (piece for piece in every if piece.whole_channels):
                for axis, (length, groups) in enumerate(((rows, lanes), (channels, arch.dpu_channel_lanes))):
                    for count, size in cuts(length, groups):
                        longer = _Parts(axis, 2, 3 * size + groups, [[3 * size + groups] * 2], False)
                        how = (piece, spread, free, kept)
                        is_few = longer.size >= length or not _part_tilings(
                            arch, op, rows, channels, longer, *how
                        )
                        is_streamed = axis and piece.channels / 2 <= size < piece.channels
                        sizes = arrangements(length, groups, count, size)
                        for streams in [False] * is_few + [True] * bool(is_streamed):
                            part = _Parts(axis, count, size, sizes, streams)
                            found += _part_tilings(arch, op, rows, channels, part, *how)
    return found


class _Parts(NamedTuple):
    """Parts of a tile's share that follow each other, along rows (axis 0) or channels (1)."""

    axis: int
    count: int
    size: float
    """Length of the largest."""
    sizes: list[list[float]]
    """See `arrangements`."""
    streams: bool
    """Whether both operands stream through each part, or one waits."""


def _parts_cycles(
    arch: Any, op: Any, rows: float, channels: float, parts: _Parts, of_share: Any, mode: int
) -> float:
    """Cycles of all parts of the quicker arrangement, with one start."""
    totals = []
    for sizes in parts.sizes:
        total = arch.dpu_startup_cycles
        for size in sizes:
            share = (rows, size) if parts.axis else (size, channels)
            every = [p for p in pieces(arch, op, *share, mode) if p.whole_channels]
            height = min(share[0], of_share.rows)
            piece = next(p for p in every if (p.width, p.rows) == (of_share.width, height))
            total += tile_cycles(arch, op, *share, mode, piece) - arch.dpu_startup_cycles
        totals.append(total)
    return min(totals)


def _part_tilings(
    arch: Any, op: Any, rows: float, channels: float, parts: _Parts, of_share: Any, spread: dict[str, Any],
    free: float, kept: float,
) -> list[Choice]:  # fmt: skip
    """Every tiling of a share in so many parts of pieces of a kind: with one block of what waits, or in
    chunks."""
    mode = spread["mode"]
    kind = (of_share.width, of_share.level)
    share = (rows, parts.size) if parts.axis else (parts.size, channels)
    every = pieces(arch, op, *share, mode)
    alike = [piece for piece in every if piece.whole_channels and (piece.width, piece.level) == kind]
    if not alike:  # the parts are so low that a coarser level has the same pieces
        return []
    piece = alike[0]
    s = sized(arch, op, *share, piece)
    all_pieces = (s.rows, channels / piece.channels) if parts.axis else (rows / piece.rows, s.columns)
    s.spilled = all_pieces[0] * all_pieces[1] * s.sums
    counts = [np.arange(1, n + 1) for n in (s.rows, s.columns, s.chunks)]
    counts[parts.axis] = np.array([1])
    counts[2] = counts[2][1:] if parts.streams else counts[2][:1]
    blocks = tuple(g.ravel() for g in np.meshgrid(*counts, indexing="ij"))
    order = Order.WEIGHTS_HELD if parts.axis else Order.ACTIVATIONS_HELD
    orders = [Order.OUTPUTS_HELD if parts.streams else order]
    cycles = _parts_cycles(arch, op, rows, channels, parts, piece, mode)
    how = (piece, spread, free, kept, orders)
    found = _costed(arch, op, rows, channels, s, *how, blocks, cycles, parts)
    if parts.streams and op.dpu_operation == DpuOperation.MATMUL:
        line = SimpleNamespace(
            **vars(piece) | {"rows": min(rows, arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h)}
        )
        found += _line_tilings(arch, op, rows, channels, piece, line, spread, free, kept, parts)
    return found


def _line_tilings(
    arch: Any, op: Any, rows: float, channels: float, piece: Any, line: Any, spread: dict[str, Any],
    free: float, kept: float, parts: _Parts | None = None,
) -> list[Choice]:  # fmt: skip
    """Every tiling whose blocks of outputs have whole groups of pixel lanes, not whole register tiles."""
    columns = parts.size if parts else channels
    s, found = sized(arch, op, rows, columns, line), []
    s.spilled *= channels / (s.columns * piece.channels) if parts else 1.0
    whole = sized(arch, op, rows, columns, piece)
    s.first_a, s.last_c = whole.first_a, whole.last_c
    mode, startup = spread["mode"], arch.dpu_startup_cycles
    for row_blocks in sorted({int(-(-s.rows // -(-s.rows // n))) for n in range(1, s.rows + 1)}):
        size = -(-s.rows // row_blocks) * line.rows
        if line.rows < piece.rows and not piece.rows < size <= 4 * piece.rows:
            continue
        heights = [size] * (row_blocks - 1) + [rows - (row_blocks - 1) * size]
        share = parts or _Parts(1, 1, channels, [[channels]], False)
        each = [_parts_cycles(arch, op, height, channels, share, piece, mode) for height in heights]
        cycles = sum(each) - (row_blocks - 1) * startup
        columns_of_part = np.arange(1, s.columns + 1) if parts is None else np.array([1])
        counts = (np.array([row_blocks]), columns_of_part, np.arange(2, s.chunks + 1))
        blocks = tuple(g.ravel() for g in np.meshgrid(*counts, indexing="ij"))
        held = [Order.OUTPUTS_HELD]
        found += _costed(arch, op, rows, channels, s, piece, spread, free, kept, held, blocks, cycles, parts)
    return found


def _tilings(
    arch: Any, op: Any, rows: float, channels: float, piece: Any, spread: dict[str, Any], free: float,
    kept: float,
) -> list[Choice]:  # fmt: skip
    """Every tiling of one tile's share in pieces of one size."""
    s = sized(arch, op, rows, channels, piece)
    cycles = tile_cycles(arch, op, rows, channels, spread["mode"], piece)
    counts = (np.arange(1, n + 1) for n in (s.rows, s.columns, s.chunks))
    blocks = tuple(g.ravel() for g in np.meshgrid(*counts, indexing="ij"))
    found: list[Choice] = []
    for order in Order:  # of stationary activations only the fewest row blocks
        some = tuple(x[blocks[2] == 1] for x in blocks) if order is Order.ACTIVATIONS_HELD else blocks
        found += _costed(arch, op, rows, channels, s, piece, spread, free, kept, [order], some, cycles, None)
    return found


def _costed(
    arch: Any, op: Any, rows: float, channels: float, s: Any, piece: Any, spread: dict[str, Any], free: float,
    kept: float, orders: list[Order], blocks: Any, cycles: float, parts: _Parts | None,
) -> list[Choice]:  # fmt: skip
    """The tilings of some numbers of blocks that fit, with their costs."""
    found: list[Choice] = []
    needed = working_set(s, *blocks)
    fits = needed <= free
    if parts is None and orders == [Order.ACTIVATIONS_HELD]:
        fewest = {c: min(blocks[0][fits & (blocks[1] == c)], default=0) for c in set(blocks[1].tolist())}
        fits &= blocks[0] == np.array([fewest[c] for c in blocks[1].tolist()])
    own = [x[fits] for x in blocks]
    row_parts, column_parts = (
        (1, 1) if parts is None else (1, parts.count) if parts.axis else (parts.count, 1)
    )
    pauses = parts.count if parts and not parts.streams else 1
    tilings = [own[0] * row_parts, own[1] * column_parts, own[2]]
    length = op.out_w if op.dpu_operation == DpuOperation.MATMUL else op.out_h
    for order in orders:
        past = streamed(op, s, order, *tilings[:2], rows / length, channels / op.out_c)
        held = held_first(s, order, spread["split"], spread["tiles"], *own[:2])
        table = _costs(arch, op, s, cycles, order, held, pauses, *tilings)
        refills = past / np.where(past > 0, free - waiting(s, order, own[1]), 1.0)
        table |= overlapped(arch, table, refills)
        table |= {"sram_peak_bytes": spread["tiles"] * needed[fits] + kept}
        keep = table.pop("possible")
        table = {name: np.broadcast_to(column, keep.shape)[keep] for name, column in table.items()}
        area = {"register_tile_pixels": piece.area, "register_tile_channels": piece.wide, "fine": piece.fine}
        area |= {"buffers": 1 if pauses > 1 else 2}
        found += _rows(table, **spread, **area, order=order, strips=s.strips, row_pieces=row_parts * s.rows)
    return found


def held_first(s: Any, order: Order, split: Split, tiles: int, row_blocks: Any, column_blocks: Any) -> Any:
    """Bytes (a, b) of a stationary operand that are fetched before the second piece streams past."""
    none = np.zeros(np.shape(row_blocks))
    if order is Order.WEIGHTS_HELD:
        tiles = tiles if split is Split.COLUMNS else 1
        return none, tiles * -(-s.columns // column_blocks) * s.b * (1 - 1 / (s.rows * s.strips))
    if order is Order.ACTIVATIONS_HELD:
        block = -(-s.rows // row_blocks) * s.a + s.halo
        streamed = (tiles if split is Split.COLUMNS else 1) * -(-s.columns // column_blocks) * s.b
        return (tiles if split is Split.ROWS else 1) * block * (1 - 1 / column_blocks), streamed
    return none, none


def _costs(
    arch: Any, op: Any, s: Any, cycles: float, order: Order, held: Any, parts: int, row_blocks: Any,
    column_blocks: Any, chunks: Any,
) -> dict[str, Any]:  # fmt: skip
    a_moved = op.a_dram_bytes * (1 if order is Order.ACTIVATIONS_HELD else column_blocks)
    a_moved = a_moved * overlapping(s, row_blocks)
    once = order is Order.WEIGHTS_HELD or op.b_resident
    b_moved = op.b_dram_bytes * (1 if once else row_blocks * s.strips)
    moved = a_moved + b_moved + op.extra_dram_bytes + op.c_dram_bytes
    dma_s = dma.stream_s(arch, moved - op.c_dram_bytes, op.c_dram_bytes)
    if not op.a_constant:
        together = np.where(chunks > 1, op.in_c * op.a_item / chunks, s.line_bytes)
        gaps_s = dma.read_gaps_s(arch, a_moved, np.maximum(together, 1e-300))
        dma_s = dma_s + np.where(together > 0.0, gaps_s, 0.0)
    # A partial sum is put down and taken up again once for each further chunk, at the pace of outputs.
    put_down = 2.0 * (chunks - 1) * s.strips * s.spilled
    spilled = put_down / (arch.dpu_drain_bytes_per_port_cycle * arch.dpu_write_ports)
    further_starts = (s.strips * row_blocks * column_blocks * chunks - 1) * arch.dpu_startup_cycles
    dpu_s = op.batch * (cycles + spilled + further_starts) / arch.dpu_clock_hz
    piece = -(-s.chunks // chunks) / s.chunks
    a_in, b_in = np.maximum((s.first_a + s.halo) * piece, held[0]), np.maximum(s.b * piece, held[1])
    every = a_in * (op.a_dram_bytes > 0) + b_in * (op.b_dram_bytes > 0)
    first = np.zeros_like(piece)
    if op.a_dram_bytes > 0:  # a piece of what is known beforehand is in SRAM already
        first = first + a_in - ((s.first_a + s.halo) * piece if op.a_prefetch else 0.0)
    if op.b_dram_bytes > 0:
        first = first + b_in - (s.b * piece if op.b_prefetch else 0.0)
    reads, writes = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0, op.c_dram_bytes > 0
    common_s = dma.waits_s(arch, np.zeros_like(first), reads, writes)
    walk_s = dma.waits_s(arch, first, True, False) - dma.first_byte_s(arch)
    pauses_s = (parts - 1) * dma.waits_s(arch, every, True, True)
    return {
        "possible": (chunks > 1) if order is Order.OUTPUTS_HELD else (chunks == 1),
        "edges_s": dma.stream_s(arch, first + (parts - 1) * every, parts * s.last_c if writes else 0.0),
        "waits_s": common_s + walk_s + pauses_s,
        "common_s": common_s,
        "dpu_s": dpu_s,
        "dma_s": dma_s,
        "dram_bytes": moved,
        "row_blocks": row_blocks,
        "column_blocks": column_blocks,
        "channel_chunks": chunks,
    }


def _rows(table: dict[str, Any], **same: Any) -> list[Choice]:
    columns = [np.asarray(c).tolist() for c in table.values()]
    return [Choice(**same, **dict(zip(table, row, strict=True))) for row in zip(*columns, strict=True)]
