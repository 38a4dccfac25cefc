r"""21. Cache against scratchpad.

A level between SRAM and DRAM is managed by hardware, as a cache, or by software, as a scratchpad. What happens when the data are a little too large for it?

A recurrent network multiplies its state by the *same* matrix in every step. Where a level of capacity $C$ holds the matrix, DRAM brings it once, and the level brings it again.
Where the matrix of $W$ bytes does not fit, a cache drops what was used longest ago (*least recently used*): in a loop that is what comes next, so every read misses.
Software knows the loop: it keeps as much of the matrix as there is room for, and streams the rest past the level. The machine is a Core Ultra Series 2 with
250 kB of SRAM a tile; all of its 8 MB side cache, or a level of another size, is the NPU's.

Question
--------
A loop reads a matrix again and again. It is 10 % larger than a cache that drops what was used longest ago. Which share of these reads does the cache
serve?

- [ ] about 90 %
- [ ] about half
- [x] none

When the loop comes back to the first row, the last rows have just pushed it out. That holds for every row. Software would keep about 90 %.

Exercise
--------
A loop reads 10 MB of weights ten times; nothing else passes. A scratchpad of 8 MB keeps what it can. How many MB come from DRAM in all?

Answer: 28 MB

Kept bytes come once, the others every time. 8 MB + 10 x 2 MB is 28 MB; a cache would bring all 100 MB.

- 100: that is a cache that drops what was used longest ago; software keeps a part.
- 20: the kept part must come for the first time, too.
"""

from functools import cache

from npusim import DType, Editor, Graph
from npusim.course.drawings import stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, machine
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, percent

STEPS, ROWS, HARDLY = 4, 16, 1.01
BOTH = {"cache": "cache", "scratchpad": "software"}
"""Who manages the level, as the data sheet says it."""
LEVEL = "npu.levels.side_cache"


def weight_bytes(width: int) -> int:
    """Return the size of the matrix, in fp16."""
    return 2 * width**2


def recurrent(width: int) -> Graph:
    """Return a state [rows, width] that the same matrix [width, width] multiplies in every step."""
    editor = Editor(f"{STEPS} steps of {width}")
    state = editor.input("state", (ROWS, width), DType.FP16)
    weights = editor.constant("weights", (width, width), DType.FP16)
    for step in range(STEPS):
        state = editor.unary("Relu", editor.matmul(state, weights, f"step{step}"), f"relu{step}")
    editor.outputs.append(state)
    return editor.finish()


@cache
def cost(width: int, capacity: float, manager: str) -> Estimate:
    """Return what an inference costs with a level of a capacity in MB; 0: without a level."""
    settings = (f"{LEVEL}.capacity={capacity} MB", f"{LEVEL}.managed_by={manager}")
    return estimate(recurrent(width), machine(DEFAULT_SOC, "npu.sram.per_tile=0.25 MB", *settings))


def served(estimate: Estimate, width: int) -> float:
    """Return the share of the matrix's repeated reads that the level serves."""
    return estimate.level_bytes / ((STEPS - 1) * weight_bytes(width))


@picture(
    width=Slider("edge of the matrix", [1024, 1536, 1792, 1920, 2048, 2304, 2560], 2048),
    capacity=Slider("level (MB)", [4, 6, 8, 10, 12], 8),
    height=320,
)
def _levels(width: int, capacity: float) -> Shown:
    without = cost(width, 0, "cache")
    costs = {name: cost(width, capacity, manager) for name, manager in BOTH.items()}
    bars = {f"{name}: {engineering(each.latency_s, 's')}": each for name, each in costs.items()}
    bars[f"no level: {engineering(without.latency_s, 's')}"] = without
    parts = {
        bar: {"from DRAM": each.dram_bytes, "from the level": each.level_bytes} for bar, each in bars.items()
    }
    size_mb = weight_bytes(width) / 1e6
    cached = costs["cache"]
    gain = cached.latency_s / costs["scratchpad"].latency_s
    shares = {name: served(each, width) for name, each in costs.items()}
    kept = min(1.0, capacity / size_mb)
    state = ": the state of each step takes room, too" if shares["scratchpad"] < kept - 0.005 else ""
    faster = f"{gain:.2f} times as fast as" if gain >= HARDLY else "as fast as"
    cut = without.dram_bytes / cached.dram_bytes
    text = rf"""
        $$\begin{{aligned}} \text{{scratchpad: }} & \min\left(1, \frac{{C}}{{W}}\right) \\[1ex]
        &= \min\left(1, \frac{{{capacity:g}}}{{{size_mb:.2f}}}\right) = \mathbf{{{kept:.2f}}} \\[1ex]
        \text{{cache: }} & \text{{1 if }} W \le C, \text{{ else 0}} \end{{aligned}}$$

        The matrix of {size_mb:.2f} MB {"fits" if shares["cache"] > 0.5 else "does not fit"}. It is read again {STEPS - 1} times; of these reads the cache serves **{percent(shares["cache"])}**, the scratchpad
        **{percent(shares["scratchpad"])}**{state}. The cache {"saves no byte" if cut < HARDLY else f"cuts DRAM traffic {cut:.1f} times"}. The machine with the scratchpad is **{faster}** the one with the cache.
        """
    return stacked(parts, "bytes that the NPU reads and writes", "B"), text


LESSON = Lesson(__doc__, _levels)
