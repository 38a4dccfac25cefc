"""DSP kernels: cycles of vector processors (Intel: SHAVEs) that share the elements of an operator.

A call takes a fixed time; after that each element takes so many cycles. A small share is
worked through by the plain loop, a large one by the unrolled loop with a set-up of its own, and a kernel that
works along an axis (Softmax, Gather) pays again at each new row: its vectors, or at least a head of the row
that is worked through one by one. A vector kernel gets faster with more lanes, a scalar one does not.

A kernel is data (`DSP_KERNEL_DTYPE`, filled from a SoC's kernel generation; the fields' meaning stands in
`npusim.arch.dsp`).
"""

from __future__ import annotations

from typing import Any

from npusim.cost.jit import compiled

__all__ = ["dsp_kernel_cycles", "dsp_operator_s", "dsp_time_s"]


@compiled
def _lane_factor(cost: Any, lanes: float) -> float:
    """Time of an element's work relative to the reference machine: the vector share shrinks with lanes."""
    return float(1.0 - cost.vector_share + cost.vector_share * cost.reference_lanes / lanes)


@compiled
def _main_cycles(cost: Any, elements: float, rows: float, factor: float) -> float:
    """Cycles of the unrolled loop over `rows` rows that hold `elements` elements together."""
    head = cost.row_scalar_cycles * min(elements, cost.row_scalar_elements * rows)
    body = cost.cycles_per_element * factor * elements
    return float(cost.fixed_cycles + cost.cycles_per_row * rows + max(head, body))


@compiled
def _small_cycles(cost: Any, elements: float, factor: float) -> float:
    """Cycles of the plain loop; where it counts a vector's elements only, further ones are free."""
    counted = min(elements, cost.small_counted_elements) if cost.small_counted_elements > 0.0 else elements
    return float(cost.small_fixed_cycles + cost.small_cycles_per_element * factor * counted)


@compiled
def _few_rows_cycles(cost: Any, elements: float, rows: float, factor: float) -> float:
    """Cycles of a kernel with a row per lane and lanes to spare: all rows advance by position.

    A single row is worked through along itself instead.
    """
    if rows <= 1.0:
        return float(cost.one_row_fixed_cycles + cost.cycles_per_element * factor * elements)
    return float(cost.few_rows_fixed_cycles + cost.few_rows_cycles_per_position * elements / rows)


@compiled
def _stream_cycles(cost: Any, elements: float, rows: float, factor: float) -> float:
    """Cycles of the streaming loop over `rows` rows that hold `elements` elements together."""
    per_row, per_element = cost.stream_cycles_per_row, cost.stream_cycles_per_element
    return float(cost.fixed_cycles + per_row * rows + per_element * factor * elements)


@compiled
def dsp_kernel_cycles(cost: Any, elements: float, rows: float, lanes: float, pad: bool) -> float:
    """Cycles of one DSP on its own share of an operator.

    Parameters
    ----------
    cost : record of DSP_KERNEL_DTYPE
    elements, rows : float
        Elements and rows of this DSP's share.
    lanes : float
        fp16 lanes of the DSP.
    pad : bool
        True: the compiler may pad a share up to the next loop's threshold where that is faster, so that time
        never falls as the share grows. False: one bare kernel call, as the tables of kernels list it.
    """
    if elements <= 0.0:
        return 0.0
    factor = _lane_factor(cost, lanes)
    if cost.stream_elements > 0.0 and elements >= cost.stream_elements:
        return _stream_cycles(cost, elements, rows, factor)
    if cost.stream_rows > 0.0 and rows >= cost.stream_rows:
        return _stream_cycles(cost, elements, rows, factor)
    if cost.few_rows > 0.0 and rows < cost.few_rows:
        cycles = _few_rows_cycles(cost, elements, rows, factor)
        if pad:
            longer = elements * cost.few_rows / max(rows, 1.0)
            cycles = min(cycles, _main_cycles(cost, longer, cost.few_rows, factor))
    elif elements < cost.small_elements:
        cycles = _small_cycles(cost, elements, factor)
        if pad:
            cycles = min(cycles, _main_cycles(cost, cost.small_elements, rows, factor))
    else:
        cycles = _main_cycles(cost, elements, rows, factor)
    if pad and cost.stream_elements > 0.0:
        cycles = min(cycles, _stream_cycles(cost, cost.stream_elements, rows, factor))
    if pad and cost.stream_rows > 0.0 and rows > 0.0:
        longer = elements * cost.stream_rows / rows
        cycles = min(cycles, _stream_cycles(cost, longer, cost.stream_rows, factor))
    return cycles


@compiled
def dsp_operator_s(
    cost: Any, elements: float, rows: float, dsps: float, lanes: float, clock_hz: float, pad: bool
) -> float:
    """Time of an operator split evenly over `dsps` DSPs whose calls overlap (s)."""
    return dsp_kernel_cycles(cost, elements / dsps, rows / dsps, lanes, pad) / clock_hz


@compiled
def dsp_time_s(arch: Any, op: Any) -> float:
    """Time of an operator on all DSPs of the tiles in use (s)."""
    dsps = arch.tiles * arch.dsps_per_tile
    return float(dsp_operator_s(op.dsp, op.elements, op.rows, dsps, arch.dsp_lanes, arch.vpu_clock_hz, True))
