r"""23. Tiling by hand.

A product does not fit into SRAM. Which operand stays, in how many blocks, and what comes again?

A tile multiplies activations [{m}, {k}] by weights [{k}, {n}], all of eight bits. SRAM holds less than both, so one operand is cut into blocks. A block *stays* while
the other operand *streams* past it, a piece at a time. Then comes the next block, and the stream again from its start. Cutting {n} columns keeps a block of weights;
cutting {m} rows keeps a block of activations. More blocks are smaller, and cost more traffic. DRAM gives 20 GB/s here, so that traffic counts.

Question
--------
Weights stay, in two blocks of columns. Which operand crosses DRAM twice?

- [x] the activations
- [ ] the weights
- [ ] the result

Each block of weights meets all rows of the activations, so they come once for each block. Each block of weights comes once.

Exercise
--------
Weights stay in four blocks of columns. How many MB cross DRAM, with the result?

Answer: {four} MB

Take the activations four times, the weights and the result once. That is 4 x 1.049 + 0.262 + 1.049 MB.

- {once}: the activations come again for each block of columns.
- {rows}: that is four blocks of rows, with activations that stay.
"""

from functools import cache

from npusim import DType
from npusim.course.drawings import stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, machine, product, uncompiled
from npusim.engines import Estimate
from npusim.errors import NpusimError
from npusim.locate import DEFAULT_SOC
from npusim.mapping import loop_lines, product_nests
from npusim.reporting.engineering import engineering
from npusim.reporting.machine import KIND_COLOURS, by_kind
from npusim.scenario import Scenario

M, K, N = 2048, 512, 512
STAYS = {"weights stay": ("columns rows", "columns"), "activations stay": ("rows columns", "rows")}
SIZES_MB = [0.25, 0.5, 1, 2]
BLOCKS = [1, 2, 4, 8, 16]
PRODUCT = product(M, K, N, DType.INT8)


def bytes_by_hand(stays: str, blocks: int) -> int:
    """Return the bytes that cross DRAM: the operand that streams comes once for each block."""
    is_weights = stays == "weights stay"
    return M * K * (blocks if is_weights else 1) + K * N * (1 if is_weights else blocks) + M * N


@cache
def cost(sram: float, stays: str = "", blocks: int = 0) -> tuple[Estimate | None, str]:
    """Return the cost of a tiling, or of the search's, with its loop nest; or why it is impossible."""
    settings = (f"npu.sram.per_tile={sram} MB", "npu.tiles=1", "dram.bandwidth=20 GB/s")
    soc, mapping = machine(DEFAULT_SOC, *settings), None
    if stays:
        order, loop = STAYS[stays]
        nest = {"dram": {"order": order, "blocks": {loop: blocks}}}
        mapping = {"operators": {"product": nest}}
    try:
        with uncompiled():
            mapped = Scenario(PRODUCT, soc, mapping=mapping).mapped
            lines = [line for each in product_nests(mapped) for line in loop_lines(each)]
            return estimate(PRODUCT, soc, mapping=mapping), "\n".join(lines)
    except NpusimError as error:
        return None, str(error).rpartition("product: ")[2]


@picture(
    stays=Slider("in SRAM", list(STAYS), next(iter(STAYS))),
    blocks=Slider("blocks", BLOCKS, 2),
    sram=Slider("SRAM of the tile (MB)", SIZES_MB, 0.25),
    height=240,
)
def _tiling(stays: str, blocks: int, sram: float) -> Shown:
    (own, said), (best, nest) = cost(sram, stays, blocks), cost(sram)
    assert best is not None
    bars = {"yours": own, "the search's": best}
    kinds = {name: by_kind(each.dram) for name, each in bars.items() if each is not None}
    counts = (blocks, 1) if stays == "weights stay" else (1, blocks)
    verdict = f"**It does not fit**: {said}. The picture shows the search's tiling alone."
    if own is not None:
        ratio = own.latency_s / best.latency_s
        verdict = (
            f"It takes **{engineering(own.latency_s, 's')}**, "
            + (f"{ratio:.2f} times the search's" if ratio > 1.005 else "as long as the search's")
            + f" ({engineering(best.latency_s, 's')}, {engineering(best.launch_s, 's')} of both the launch)."
        )
    text = rf"""
$$\begin{{aligned}} \text{{bytes}} &= {counts[0]} \cdot M K + {counts[1]} \cdot K N + M N \\[1ex]
&= {counts[0]} \cdot {M * K / 1e6:.3f} + {counts[1]} \cdot {K * N / 1e6:.3f} + {M * N / 1e6:.3f}\;\text{{MB}} \\[1ex]
&= \mathbf{{{bytes_by_hand(stays, blocks) / 1e6:.3f}\;\text{{MB}}}} \end{{aligned}}$$

{verdict}

The loop nest of {"your" if own is not None else "the search's"} tiling:

```text
{said if own is not None else nest}
```

`npusim estimate NETWORK --mapping FILE` costs a nest of your own for any network; `--save-mapping FILE` writes the search's.
"""
    return stacked(kinds, "DRAM traffic", "B", KIND_COLOURS), text


NUMBERS = {"four": bytes_by_hand("weights stay", 4) / 1e6, "once": bytes_by_hand("weights stay", 1) / 1e6}
LESSON = Lesson(
    __doc__,
    _tiling,
    numbers={"m": M, "k": K, "n": N, "rows": bytes_by_hand("activations stay", 4) / 1e6, **NUMBERS},
)
