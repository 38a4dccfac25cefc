"""DSP kernels: cycles of vector processors (Intel: SHAVEs) that share the elements of an operator.

A call takes a fixed time; after that each element takes so many cycles. A small share is
worked through by the plain loop, a large one by the unrolled loop with a set-up of its own, and a kernel that
works along an axis (Softmax, Gather) pays again at each new row: its vectors, or at least a head of the row
that is worked through one by one. A vector kernel gets faster with more lanes, a scalar one does not.

A kernel is data (`DSP_KERNEL_DTYPE`, filled from a SoC's kernel generation; the fields' meaning stands in
`npusim.arch.dsp`).
"""

from __future__ import annotations

from npusim.cost.architecture import ArchRecord
from npusim.cost.kernels import compiled
from npusim.cost.tables import DspKernelRecord, OpRecord


@compiled
def _lane_factor(kernel: DspKernelRecord, lanes: float) -> float:
    """Time of an element's work relative to the reference machine: the vector share shrinks with lanes."""
    return float(1.0 - kernel.vector_share + kernel.vector_share * kernel.reference_lanes / lanes)


@compiled
def _main_cycles(kernel: DspKernelRecord, elements: float, rows: float, factor: float) -> float:
    """Cycles of the unrolled loop over `rows` rows that hold `elements` elements together."""
    head = kernel.row_scalar_cycles * min(elements, kernel.row_scalar_elements * rows)
    body = kernel.cycles_per_element * factor * elements
    return float(kernel.fixed_cycles + kernel.cycles_per_row * rows + max(head, body))


@compiled
def _small_cycles(kernel: DspKernelRecord, elements: float, factor: float) -> float:
    """Cycles of the plain loop; where it counts a vector's elements only, further ones are free."""
    counted = (
        min(elements, kernel.small_counted_elements) if kernel.small_counted_elements > 0.0 else elements
    )
    return float(kernel.small_fixed_cycles + kernel.small_cycles_per_element * factor * counted)


@compiled
def _few_rows_cycles(kernel: DspKernelRecord, elements: float, rows: float, factor: float) -> float:
    """Cycles of a kernel that puts a row in each lane and has lanes to spare: position by position.

    A single row is worked through along itself instead.
    """
    if rows <= 1.0:
        return float(kernel.one_row_fixed_cycles + kernel.cycles_per_element * factor * elements)
    return float(kernel.few_rows_fixed_cycles + kernel.few_rows_cycles_per_position * elements / rows)


@compiled
def _stream_cycles(kernel: DspKernelRecord, elements: float, rows: float, factor: float) -> float:
    """Cycles of the streaming loop over `rows` rows that hold `elements` elements together."""
    per_row, per_element = kernel.stream_cycles_per_row, kernel.stream_cycles_per_element
    return float(kernel.fixed_cycles + per_row * rows + per_element * factor * elements)


@compiled
def dsp_kernel_cycles(
    kernel: DspKernelRecord, elements: float, rows: float, lanes: float, pad: bool
) -> float:
    """Cycles of one DSP on its own share of an operator.

    Parameters
    ----------
    pad : bool
        True: the compiler may pad a share up to the next loop's threshold where that is faster, so that time
        never falls as the share grows. False: one bare kernel call, as the tables of kernels list it.
    """
    if elements <= 0.0:
        return 0.0
    factor = _lane_factor(kernel, lanes)
    if kernel.stream_elements > 0.0 and elements >= kernel.stream_elements:
        return _stream_cycles(kernel, elements, rows, factor)
    if kernel.stream_rows > 0.0 and rows >= kernel.stream_rows:
        return _stream_cycles(kernel, elements, rows, factor)
    if kernel.few_rows > 0.0 and rows < kernel.few_rows:
        cycles = _few_rows_cycles(kernel, elements, rows, factor)
        if pad:
            longer = elements * kernel.few_rows / max(rows, 1.0)
            cycles = min(cycles, _main_cycles(kernel, longer, kernel.few_rows, factor))
    elif elements < kernel.small_elements:
        cycles = _small_cycles(kernel, elements, factor)
        if pad:
            cycles = min(cycles, _main_cycles(kernel, kernel.small_elements, rows, factor))
    else:
        cycles = _main_cycles(kernel, elements, rows, factor)
    if pad and kernel.stream_elements > 0.0:
        cycles = min(cycles, _stream_cycles(kernel, kernel.stream_elements, rows, factor))
    if pad and kernel.stream_rows > 0.0 and rows > 0.0:
        longer = elements * kernel.stream_rows / rows
        cycles = min(cycles, _stream_cycles(kernel, longer, kernel.stream_rows, factor))
    return cycles


@compiled
def dsp_operator_s(
    kernel: DspKernelRecord,
    elements: float,
    rows: float,
    dsps: float,
    lanes: float,
    clock_hz: float,
    pad: bool,
) -> float:
    """Time of an operator split evenly over `dsps` DSPs whose calls overlap (s)."""
    return dsp_kernel_cycles(kernel, elements / dsps, rows / dsps, lanes, pad) / clock_hz


@compiled
def dsp_time_s(arch: ArchRecord, op: OpRecord) -> float:
    """Time of an operator on all DSPs of the tiles in use (s)."""
    dsps = arch.tiles * arch.dsps_per_tile
    return float(dsp_operator_s(op.dsp, op.elements, op.rows, dsps, arch.dsp_lanes, arch.vpu_clock_hz, True))
