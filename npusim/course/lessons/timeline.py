r"""9. The time line: double buffering and stalls.

Data come while the grid works. When does the grid wait all the same?

Operands do not fit into SRAM at once, so a product is cut into *blocks*. While the grid works on one, DMA brings the next into a second
buffer: *double buffering*. The first block has nobody to hide behind (*prologue*), the last result neither (*epilogue*). In between, the
slower of the two sets the pace, and the other one waits.
"""

from npusim import Scenario
from npusim.course.drawings import gantt
from npusim.course.lesson import Exercise, Lesson, Picture, Question, Shown, Slider
from npusim.course.machine import dram_gb_s, machine, product
from npusim.engines.event import event_estimate
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, percent


def _time_line(rows: int, columns: int, bandwidth: float) -> Shown:
    soc = machine(DEFAULT_SOC, f"dram.bandwidth={bandwidth} GB/s")
    run = event_estimate(Scenario(product(rows, 2048, columns), soc))
    span_s = run.operators[0].span_s
    dma_s, grid_s = (run.units[unit].busy_s for unit in ("npu.dma", "npu.dpu"))
    text = rf"""
        $$\begin{{aligned}} \text{{time}} &= \max(\text{{DMA}}, \text{{grid}}) + \text{{rest}} \\[1ex]
        {1e6 * span_s:.1f}\,\mu\text{{s}} &= \max({1e6 * dma_s:.1f},\, {1e6 * grid_s:.1f}) + {1e6 * (span_s - max(dma_s, grid_s)):.1f} \end{{aligned}}$$

        The rest is what nothing hides: the first block's transfer, the last result's, and launches. The grid's tiles are busy {percent(grid_s / span_s)} of {engineering(span_s, "s")}, DMA {percent(dma_s / span_s)}.
        `npusim estimate ... --engine event --trace run.html` shows this picture for a whole network.
        """
    return gantt(run.timeline), text


LESSON = Lesson(
    Question(
        "A block takes DMA 3 µs and the grid 2 µs; there are 10 blocks. How long does it all take, about?",
        [
            "50 µs: one after the other",
            "32 µs: ten times the slower, and the last block's work",
            "30 µs exactly",
        ],
        "32 µs: ten times the slower, and the last block's work",
        "DMA never stops, 30 µs; when the last block has arrived, the grid still has its 2 µs to do.",
    ),
    [
        Picture(
            {
                "rows": Slider("rows $M$", [256, 512, 1024, 2048], 1024),
                "columns": Slider("columns $N$", [16, 64, 256, 512, 1024], 256),
                "bandwidth": Slider("DRAM (GB/s)", dram_gb_s(10, 20, 40, 80, 160), 80),
            },
            _time_line,
            height=380,
        )
    ],
    Exercise(
        "20 blocks, each 2 µs of DMA and 5 µs of work. How long does it take with double buffering?",
        102.0,
        "Count the slower one for every block and add what the first block has to wait for. That is 2 + 20 x 5 = 102 µs.",
        unit="µs",
        within=0.001,
        hints={
            "that leaves out the first block, for which the grid has to wait.": 100.0,
            "that is one after the other; DMA works meanwhile.": 140.0,
        },
    ),
)
