r"""20. The machine, step by step.

Where are the operands of a product at each moment, and which unit waits for which?

A product $C = A B$ needs $M \cdot K \cdot N$ multiply-accumulates. DMA brings parts of $A$ and $B$ from DRAM to SRAM, an array of {lanes} x {lanes} lanes multiplies
what has come, a DSP applies Gelu to finished sums, and DMA writes the results back. The machine below is a Core Ultra Series 2 with one tile, a small array, one DSP,
one DMA engine and a DRAM of 4 GB/s, so that each unit can be seen. Operands are int8. Move a slider, then press Play or Step.

Question
--------
An array of 8 x 8 lanes multiplies 12 x 12 by 12 x 12. How many lanes work on average, at most?

- [ ] all of them
- [x] about half
- [ ] a quarter

Two axes each hold 12 in groups of 8: 8, then 4. That is 12 of 16 places on each axis, 56 % of both.

Exercise
--------
A product of 64 x 64 x 64 fills 8 x 8 lanes. How many steps does the array take?

Answer: 4096

Divide the multiply-accumulates by the lanes. 262,144 by 64 is 4,096.

- 262144: that is the number of multiply-accumulates.
- 64: that is the number of lanes.
"""

from functools import cache

from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine_view import FLOWS, LANES, MachineSteps, machine_steps
from npusim.reporting.engineering import percent

SIZES = [8, 12, 20, 64]
steps = cache(machine_steps)


@picture(
    m=Slider("rows $M$", SIZES, 20),
    k=Slider("sum $K$", SIZES, 12),
    n=Slider("columns $N$", SIZES, 20),
    dataflow=Slider("dataflow", FLOWS, "output_stationary"),
    height=520,
    is_player=True,
)
def _machine(m: int, k: int, n: int, dataflow: str) -> Shown:
    machine: MachineSteps = steps(m, k, n, dataflow)
    down, across = machine.lanes[0][0], machine.lanes[1][0]
    cycles, macs = machine.counters["cycles"], machine.counters["macs"]
    text = rf"""
        $$\begin{{aligned}} \text{{lanes at work}} &= \frac{{M \cdot K \cdot N}}{{\text{{cycles}} \cdot \text{{lanes}}}} \\[1ex]
        &= \frac{{{macs:.0f}}}{{{cycles:.0f} \cdot {LANES * LANES}}} = \mathbf{{{100 * machine.busy_share:.0f}\,\%}} \end{{aligned}}$$

        The lanes hold {down.upper()} down and {across.upper()} across, so groups of {LANES} that a size does not fill leave lanes grey
        ({percent(machine.busy_share)} work on average). Counters end at what the analytical engine says: {cycles:.0f} cycles of the array,
        {machine.counters["sram_read"]:.0f} B read from SRAM.
        """
    return machine, text


LESSON = Lesson(__doc__, _machine, numbers={"lanes": LANES})
