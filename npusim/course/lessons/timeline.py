r"""9. The time line: double buffering and stalls.

Data come while the grid works. When does the grid wait all the same?

Operands do not fit into SRAM at once, so a product is cut into *blocks*. While the grid works on one, DMA brings the next into a second
buffer: *double buffering*. The first block has nobody to hide behind (*prologue*), the last result neither (*epilogue*). In between, the
slower of the two sets the pace, and the other one waits.

Question
--------
A block takes DMA 3 µs and the grid 2 µs; there are 10 blocks. How long does it all take, about?

- [ ] 50 µs: one after the other
- [x] 32 µs: ten times the slower, and the last block's work
- [ ] 30 µs exactly

DMA never stops, 30 µs; when the last block has arrived, the grid still has its 2 µs to do.

Exercise
--------
20 blocks, each 2 µs of DMA and 5 µs of work. How long does it take with double buffering?

Answer: 102 µs, within 0.001

Count the slower one for every block and add what the first block has to wait for. That is 2 + 20 x 5 = 102 µs.

- 100: that leaves out the first block, for which the grid has to wait.
- 140: that is one after the other; DMA works meanwhile.
"""

import numpy as np

from npusim import Scenario
from npusim.course.drawings import gantt
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import dram_gb_s, machine, product
from npusim.engines.event import event_estimate
from npusim.engines.timeline import TaskKind, Timeline
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, percent

STALLED = 0.05


def grid_times(line: Timeline) -> tuple[float, float, float, float]:
    """Return prologue, work, stalls and epilogue of the first tile's grid (s)."""
    tasks = np.flatnonzero(np.isin(line.kind, (TaskKind.DMA_IN, TaskKind.DPU, TaskKind.DMA_OUT)))
    begin, end = line.start[tasks].min(), line.end[tasks].max()
    on_grid = tasks[line.kind[tasks] == TaskKind.DPU]
    grid = on_grid[line.unit[on_grid] == line.unit[on_grid[0]]]
    first, last = line.start[grid].min(), line.end[grid].max()
    work_s = float((line.end[grid] - line.start[grid]).sum())
    return float(first - begin), work_s, max(float(last - first) - work_s, 0.0), float(end - last)


def pace(work_s: float, waits_s: float) -> str:
    """Return which of the two sets the pace between prologue and epilogue."""
    if waits_s > STALLED * work_s:
        return "**DMA sets the pace**: the grid stops between blocks until the next one is there."
    return "**The grid sets the pace**: once it works, the next block is there in time."


@picture(
    rows=Slider("rows $M$", [256, 512, 1024, 2048], 1024),
    columns=Slider("columns $N$", [16, 64, 256, 512, 1024], 256),
    bandwidth=Slider("DRAM (GB/s)", dram_gb_s(10, 20, 40, 60, 80, 100, 120), 80),
    height=380,
)
def _time_line(rows: int, columns: int, bandwidth: float) -> Shown:
    soc = machine(DEFAULT_SOC, f"dram.bandwidth={bandwidth} GB/s")
    run = event_estimate(Scenario(product(rows, 2048, columns), soc))
    span_s, mapping = run.operators[0].span_s, run.operators[0].mapping
    dma_s, grid_s = (run.units[unit].busy_s for unit in ("npu.dma", "npu.dpu"))
    before_s, work_s, waits_s, after_s = grid_times(run.timeline)
    held = mapping.order.removesuffix("_held").replace("_", " ") if mapping and mapping.order else "operands"
    text = rf"""
        $$\begin{{aligned}} \text{{time}} &= \text{{prologue}} + \text{{grid}} + \text{{stalls}} + \text{{epilogue}} \\[1ex]
        {1e6 * span_s:.1f}\;\mu\text{{s}} &= {1e6 * before_s:.1f} + {1e6 * work_s:.1f} + {1e6 * waits_s:.1f} + {1e6 * after_s:.1f} \end{{aligned}}$$

        All four are read off the time line of the first tile's grid. {pace(work_s, waits_s)} DMA is busy {percent(dma_s / span_s)} of {engineering(span_s, "s")}, the grids {percent(grid_s / span_s)}.
        The first transfers are long because they bring what stays in SRAM, here the *{held}*, and the first block of what streams past.
        `npusim estimate ... --engine event --trace run.html` shows this picture for a whole network.
        """
    return gantt(run.timeline), text


LESSON = Lesson(__doc__, _time_line)
