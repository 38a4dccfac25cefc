"""DSP kernels: cycles of vector processors (Intel: SHAVEs) that share the elements of an operator.

A kernel has a fixed time, and cycles for each element and row. Small shares run the plain loop, large ones
the unrolled or the streaming loop, each with its own set-up. A kernel along an axis (Softmax, Gather) pays
for each row, or works on the head of a row one by one. More lanes shorten the vector share of a kernel only.
The numbers of a kernel come from the data sheet (`npusim.arch.dsp.DspKernel`).
"""

from __future__ import annotations

from npusim.compiling.kernels import compiled
from npusim.cost.lowering.tables import DspKernelRecord, OpRecord
from npusim.cost.machine.architecture import ArchRecord


@compiled
def _main_cycles(kernel: DspKernelRecord, elements: float, rows: float, lane_factor: float) -> float:
    """Return the cycles of the unrolled loop over `rows` rows with `elements` elements in all."""
    head = kernel.row_head_per_element * min(elements, kernel.row_head_elements * rows)
    body = kernel.per_element * lane_factor * elements
    return float(kernel.fixed + kernel.per_row * rows + max(head, body))


@compiled
def _small_cycles(kernel: DspKernelRecord, elements: float, lane_factor: float) -> float:
    """Return the cycles of the plain loop; elements beyond `small_counted` are free."""
    counted = min(elements, kernel.small_counted) if kernel.small_counted > 0.0 else elements
    return float(kernel.small_fixed + kernel.small_per_element * lane_factor * counted)


@compiled
def _few_rows_cycles(kernel: DspKernelRecord, elements: float, rows: float, lane_factor: float) -> float:
    """Return the cycles with one row per lane and idle lanes; a single row is divided among lanes."""
    if rows <= 1.0:
        return float(kernel.one_row_fixed + kernel.per_element * lane_factor * elements)
    return float(kernel.few_rows_fixed + kernel.few_rows_per_position * elements / rows)


@compiled
def _stream_cycles(kernel: DspKernelRecord, elements: float, rows: float, lane_factor: float) -> float:
    """Return the cycles of the streaming loop over `rows` rows with `elements` elements in all."""
    per_row, per_element = kernel.stream_per_row, kernel.stream_per_element
    return float(kernel.fixed + per_row * rows + per_element * lane_factor * elements)


@compiled
def dsp_kernel_cycles(
    kernel: DspKernelRecord, elements: float, rows: float, lanes: float, pad: bool
) -> float:
    """Return the cycles of one DSP kernel call on `elements` elements in `rows` rows.

    Parameters
    ----------
    pad : bool
        Whether the compiler may pad the work to the threshold of the next loop where that is faster. Time
        then never falls as work grows. False reproduces tables of measured calls, which are not padded.
    """
    if elements <= 0.0:
        return 0.0
    lane_factor = 1.0 - kernel.vector_share + kernel.vector_share * kernel.reference_lanes / lanes
    from_elements, from_rows = kernel.stream_from_elements, kernel.stream_from_rows
    if (from_elements > 0.0 and elements >= from_elements) or (from_rows > 0.0 and rows >= from_rows):
        return _stream_cycles(kernel, elements, rows, lane_factor)
    if kernel.few_rows_below > 0.0 and rows < kernel.few_rows_below:
        cycles = _few_rows_cycles(kernel, elements, rows, lane_factor)
        if pad:
            padded_elements = elements * kernel.few_rows_below / max(rows, 1.0)
            cycles = min(cycles, _main_cycles(kernel, padded_elements, kernel.few_rows_below, lane_factor))
    elif elements < kernel.small_below:
        cycles = _small_cycles(kernel, elements, lane_factor)
        if pad:
            cycles = min(cycles, _main_cycles(kernel, kernel.small_below, rows, lane_factor))
    else:
        cycles = _main_cycles(kernel, elements, rows, lane_factor)
    if pad and from_elements > 0.0:
        cycles = min(cycles, _stream_cycles(kernel, from_elements, rows, lane_factor))
    if pad and from_rows > 0.0 and rows > 0.0:
        cycles = min(cycles, _stream_cycles(kernel, elements * from_rows / rows, from_rows, lane_factor))
    return cycles


@compiled
def dsp_operator_s(
    kernel: DspKernelRecord, elements: float, rows: float, dsps: float, lanes: float, clock_hz: float
) -> float:
    """Return the time of an operator divided evenly over DSPs, whose calls overlap (s)."""
    return dsp_kernel_cycles(kernel, elements / dsps, rows / dsps, lanes, True) / clock_hz


@compiled
def dsp_time_s(arch: ArchRecord, op: OpRecord) -> float:
    """Return the time of an operator on all DSPs of the tiles in use (s)."""
    dsps = arch.tiles * arch.dsps_per_tile
    return float(dsp_operator_s(op.dsp, op.elements, op.rows, dsps, arch.dsp_lanes, arch.vpu_clock_hz))
