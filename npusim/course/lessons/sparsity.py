r"""6. Zeros: what they save, and what they do not.

Cora's matrix is 99.8 % zeros. Why is a product with it not 500 times quicker?

Two things can use a zero. *Storage*: zero-value compression (ZVC) keeps one bit for each entry and then only the others, so that fewer bytes
cross DRAM. *The grid*: a lane looks at the bitmap and skips multiplications by zero. But a lane looks at a step of the bitmap even if
all of it is zero, and lanes wait for the fullest among them. The picture shows {matrix}; a blue dot is {dot} x {dot} entries with a non-zero, and pink blocks hold at least one.

Question
--------
99.8 % of the entries are zero. How much smaller is the matrix in fp16 with one bit for each entry?

- [ ] about 500 times
- [x] about 15 times
- [ ] about twice

The bitmap stays, one bit where 16 stood: no more than 16 times can be saved, whatever the zeros.

Exercise
--------
How many times smaller does ZVC make an int8 matrix of zeros alone, at most?

Answer: 8 times

The bitmap stays: compare one bit with what an entry took. An int8 entry has 8 bits, so 8 times at most.

- 16: that is fp16, whose entries have 16 bits.
"""

from npusim.course.drawings import DOT, cora_edges, curves, dots, filled_blocks, random_edges
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, machine
from npusim.reporting.engineering import engineering
from npusim.reporting.html import log_axis

NODES = 2708
BITMAP_BYTES, DENSE_BYTES = NODES**2 / 8, 2 * NODES**2
CORA = cora_edges()
EDGES = random_edges(NODES, 3.9) if CORA is None else CORA
SIMILAR = "a random matrix of Cora's size (`npusim learn --data DIR` shows the real one)"
SKIPS = machine().npu.dpu.model.sparse_skip_max
DENSITIES = [k / 100 for k in (0.2, 1, 3, 10, 20, 40, 60, 80, 100)]


def _emptiness(filled: float) -> str:
    """Return what a share of filled blocks means for skipping."""
    if filled > 0.9:
        return (
            "Blocks of this size are hardly ever empty, for neighbours stand anywhere: nothing to skip whole."
        )
    if filled > 0.5:
        return "Most blocks of this size hold a non-zero, for neighbours stand anywhere: few could be skipped whole."
    return "Most blocks of this size are empty and could be skipped whole, by hardware that decides block by block."


@picture(block=Slider("edge of a block", [8, 16, 32, 64, 128, 256], 64), height=480)
def _blocks(block: int) -> Shown:
    filled = filled_blocks(EDGES, NODES, block)
    text = rf"""
        $$\begin{{aligned}} \text{{filled}} &= \frac{{\text{{blocks with a non-zero}}}}{{\text{{blocks}}}} \\[1ex] &= \frac{{{filled.sum():.0f}}}{{\lceil {NODES} / {block} \rceil^2}}
        = \mathbf{{{100 * filled.mean():.1f}\,\%}} \end{{aligned}}$$

        These cannot be left out. {_emptiness(float(filled.mean()))}
        """
    return dots(EDGES, NODES, block), text


@picture(density=Slider("share of non-zeros", DENSITIES, 0.1), height=340)
def _compressed(density: float) -> Shown:
    stored = [(BITMAP_BYTES + DENSE_BYTES * share) / DENSE_BYTES for share in DENSITIES]
    figure = curves(
        DENSITIES,
        {
            "bytes of the matrix, against dense": stored,
            "steps of the grid, at best": [max(share, 1 / SKIPS) for share in DENSITIES],
        },
        density,
        log_axis("share of non-zeros", "", DENSITIES[0], DENSITIES[-1]),
        {"title": "share of the dense", "rangemode": "tozero"},
    )
    text = rf"""
        $$\begin{{aligned}} \text{{bytes}} &= \frac{{N^2}}{{8}} + 2\,N^2 \cdot \text{{share}} \\[1ex]
        &= {BITMAP_BYTES / 1e6:.2f}\;\text{{MB}} + {DENSE_BYTES / 1e6:.2f}\;\text{{MB}} \cdot {density:g} = \mathbf{{{(BITMAP_BYTES + DENSE_BYTES * density) / 1e6:.2f}\;\text{{MB}}}} \end{{aligned}}$$

        A step of zeros still takes a {SKIPS:.3g}th of a full one (fitted to Intel's cost model): the grid is at best {SKIPS:.3g} times quicker, in practice less,
        because lanes wait for each other. And where DRAM is the bound, even that is worth 1.0: only the bytes count.
        """
    return figure, text


def _whole_network() -> str:
    costs = {
        "dense (`-t stagr`)": estimate("gcn-cora", techniques="stagr"),
        "ZVC, norm as input (`-t stagr+grasp`)": estimate("gcn-cora", techniques="stagr+grasp"),
        "ZVC, norm as weights (`--swap-operands search`)": estimate(
            "gcn-cora", techniques="stagr+grasp", swap_operands="search"
        ),
    }
    rows = "\n".join(
        f"| {name} | {engineering(cost.latency_s, 's')} | {engineering(cost.dram_bytes, 'B')} |"
        for name, cost in costs.items()
    )
    return (
        f"The whole network, Cora by a GCN:\n\n| techniques | latency | through DRAM |\n| --- | ---: | ---: |\n{rows}\n\n"
        "This NPU's DMA decompresses *weights* on their way in, but not *inputs*. In norm x H the matrix of the graph is the input: "
        "ZVC changes nothing. Transposed, H' x norm', it takes the place of the weights, and few bytes are left to wait for."
    )


LESSON = Lesson(
    __doc__,
    _blocks,
    _compressed,
    numbers={"matrix": SIMILAR if CORA is None else "Cora's own matrix", "dot": DOT},
    closing=_whole_network,
)
