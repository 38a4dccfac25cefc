"""Twin of the DSP kernels: a call of each loop, and the loops that the compiler may choose from.

Written from the meaning of the fields of a kernel in a data sheet (`npusim.arch.dsp.DspKernel`).
"""

import math
from typing import Any


def operator_cycles(kernel: Any, elements: float, rows: float, dsps: float, lanes: float) -> float:
    """Cycles of an operator split evenly over DSPs: the call, or a padded one that is faster."""
    if elements <= 0:
        return 0.0
    share = (elements / dsps, rows / dsps)
    loop = loop_of(kernel, *share)
    choices = [call(kernel, loop, *share, lanes)]
    if loop in ("few rows", "one row"):
        length = share[0] / max(share[1], 1.0)  # a part of a row counts as a row
        choices.append(call(kernel, "unrolled", length * kernel.few_rows_below, kernel.few_rows_below, lanes))
    if loop == "plain":
        choices.append(call(kernel, "unrolled", kernel.small_below, share[1], lanes))
    if loop != "streaming" and kernel.stream_from_elements:
        choices.append(call(kernel, "streaming", kernel.stream_from_elements, share[1], lanes))
    if loop != "streaming" and kernel.stream_from_rows and rows:
        length = elements / rows
        least_rows = kernel.stream_from_rows
        choices.append(call(kernel, "streaming", length * least_rows, least_rows, lanes))
    return min(choices)


def loop_of(kernel: Any, elements: float, rows: float) -> str:
    """Name of the loop that a bare call takes."""
    if elements >= (kernel.stream_from_elements or math.inf) or rows >= (kernel.stream_from_rows or math.inf):
        return "streaming"
    if rows < kernel.few_rows_below:
        return "few rows" if rows > 1 else "one row"
    return "plain" if elements < kernel.small_below else "unrolled"


def call(kernel: Any, loop: str, elements: float, rows: float, lanes: float) -> float:
    """Cycles of a call that takes a certain loop."""
    vectors_shrink = kernel.reference_lanes / lanes

    def elementwise(cycles: float, count: float) -> float:
        scalar = count * cycles * (1 - kernel.vector_share)
        vector = count * cycles * kernel.vector_share
        return scalar + vector * vectors_shrink

    if loop == "streaming":
        per_rows = rows * kernel.stream_per_row
        return kernel.fixed + per_rows + elementwise(kernel.stream_per_element, elements)
    if loop == "one row":
        return kernel.one_row_fixed + elementwise(kernel.per_element, elements)
    if loop == "few rows":
        positions = elements / rows
        return kernel.few_rows_fixed + positions * kernel.few_rows_per_position
    if loop == "plain":
        counted = min(elements, kernel.small_counted or math.inf)
        return kernel.small_fixed + elementwise(kernel.small_per_element, counted)
    heads = min(elements, rows * kernel.row_head_elements) * kernel.row_head_per_element
    bodies = elementwise(kernel.per_element, elements)
    return kernel.fixed + rows * kernel.per_row + max(heads, bodies)
