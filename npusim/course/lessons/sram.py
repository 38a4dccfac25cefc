r"""17. What is SRAM worth?

More memory on the chip removes bytes from DRAM, but only some of them. Which ones, and how much time does that save?

Some bytes must cross DRAM: weights and inputs once, results once. They are *compulsory*, and no SRAM removes them within an inference. Others cross because SRAM is small.
Where the blocks of a product do not fit, an operand comes again for each block of the other one: it is *refetched*. Where a result does not fit until the next layer
reads it, it is written and read back: it is *spilled*. More SRAM removes both. It saves *time* only as far as work waits for these bytes: DMA and the MAC grid work at
the same time, and the slower one sets the pace. The fastest mapping may even move more bytes, where that saves time.

Question
--------
Which bytes does more SRAM not remove within an inference?

- [ ] a result that is written to DRAM and read back
- [x] weights that are read for the first time
- [ ] an operand that comes again for each block of the other

They lie in DRAM before the inference begins, so they cross it once. The others cross it because SRAM is too small.

Exercise
--------
A product of 4,096 x 4,096 x 4,096 in int8, result included. How many MB must cross DRAM at least?

Answer: 50.331648 MB

Two operands and the result have 4,096 x 4,096 bytes each. That is 50.3 MB.

- 33.554432: the result must be written, too.
- 100.663296: that is fp16; int8 has one byte.
"""

from npusim.course.drawings import stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import dram_gb_s, estimate, layers, machine, product
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, percent
from npusim.reporting.machine import KIND_COLOURS, by_kind

WORK = {
    "a product of 2048 x 2048 x 2048": lambda: product(2048, 2048, 2048),
    "eight layers of 2048 x 512 x 512": lambda: layers(2048, 512),
}
"""Networks of the picture, in fp16."""
SIZES_MB = [0.25, 0.5, 1, 1.5, 2, 4, 8, 16]
STEPS = (0.5, 1.0, 2.0, 4.0)
"""SRAM of the bars, over that of the slider."""
HARDLY = 1.01


def cost(work: str, sram: float, bandwidth: float) -> Estimate:
    """Return what an inference costs with SRAM of a tile in MB and DRAM in GB/s."""
    soc = machine(DEFAULT_SOC, f"npu.sram.per_tile={sram} MB", f"dram.bandwidth={bandwidth} GB/s")
    return estimate(WORK[work](), soc)


@picture(
    work=Slider("network", list(WORK), next(iter(WORK))),
    sram=Slider("SRAM of a tile (MB)", SIZES_MB, 0.5),
    bandwidth=Slider("DRAM (GB/s)", dram_gb_s(10, 20, 40, 60, 80, 100, 120), 80),
    height=320,
)
def _kinds(work: str, sram: float, bandwidth: float) -> Shown:
    costs = {step * sram: cost(work, step * sram, bandwidth) for step in STEPS}
    bars = {
        f"{size:g} MB a tile: {engineering(each.latency_s, 's')}": by_kind(each.dram)
        for size, each in costs.items()
    }
    now, twice = costs[sram], costs[2.0 * sram]
    avoidable = now.dram_bytes - now.dram.compulsory_bytes
    gain = now.latency_s / twice.latency_s
    change = twice.dram_bytes - now.dram_bytes
    moved = f"{engineering(abs(change), 'B')} {'more' if change > 0.0 else 'less'}" if change else "as much"
    effect = "hardly anything" if gain < HARDLY else f"{gain:.2f} times the speed"
    why = ""
    if gain < HARDLY:
        why = ": work did not wait for such bytes" if avoidable > 0.0 else ": nothing is left to avoid"
    text = rf"""
        $$\begin{{aligned}} t_{{\text{{DRAM}}}} &= \frac{{\text{{compulsory}} + \text{{refetched}} + \text{{spilled}}}}{{\text{{bandwidth}}}} \\[1ex]
        &= \frac{{{now.dram.compulsory_bytes / 1e6:.1f} + {now.dram.refetched_bytes / 1e6:.1f} + {now.dram.spilled_bytes / 1e6:.1f}\;\text{{MB}}}}{{{bandwidth:g}\;\text{{GB/s}}}}
        = \mathbf{{{now.dram_bytes / bandwidth / 1e3:.0f}\;\mu\text{{s}}}} \end{{aligned}}$$

        With {sram:g} MB a tile **{percent(avoidable / now.dram_bytes)}** of the bytes could be avoided. The inference takes {engineering(now.latency_s, "s")},
        {engineering(now.launch_s, "s")} of it the launch. With twice the SRAM the fastest mapping moves {moved}, and that gives **{effect}**{why}.
        """
    return stacked(bars, "DRAM traffic", "B", KIND_COLOURS), text


LESSON = Lesson(__doc__, _kinds)
