r"""12. Why a token takes as long as reading all weights.

A language model writes one token after the other. What does each of them wait for?

To write a token, a decoder multiplies *one row* by every weight matrix it has. Each weight is read, used once, and dropped: two operations for
2 bytes, far left on the roofline of lesson 2. Llama 3.2 with 1.24 billion weights reads 2.5 GB for each token. An NPU is compiled for fixed shapes, so the
*cache* of earlier keys and values has its full length from the first token on, and attention reads all of it (NITRO).

Question
--------
DRAM gives the GPU of this machine {bandwidth:.3g} GB/s. At most how many tokens a second, with 2.5 GB of weights in fp16?

- [ ] about {tenth:.0f}
- [x] about {tokens:.0f}
- [ ] about {tenfold:.0f}

{bandwidth:.3g} GB/s divided by 2.5 GB. No grid, however large, changes that; fewer bytes do. The picture shows what is left of it.

Exercise
--------
A model has 8 billion weights in int4; DRAM gives 100 GB/s. At most how many tokens a second?

Answer: 25

Divide the bandwidth by the bytes of all weights. Half a byte each: 4 GB, 25 tokens a second.

- 12.5: that is one byte for each weight; int4 has half.
- 6.25: that is fp16.
"""

from functools import cache

from npusim.course.drawings import curves
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, machine
from npusim.engines import Estimate
from npusim.reporting.engineering import engineering, percent
from npusim.reporting.html import amount_axis

MODEL, SOC = "llama3.2-1b", "core-ultra-nitro"
HALF, LITTLE = 0.5, 1.01
SHORT, LONG = 128, 2048
WEIGHT_BYTES = 2.5e9
"""What the introduction says that a token reads."""


@cache
def _token(weights: str, length: int, device: str) -> Estimate:
    settings = ["workload.form=nitro", f"workload.weights={weights}", f"workload.max_sequence={length}"]
    return estimate(MODEL, machine(SOC), settings=settings, device=device)


@cache
def dram_bytes_per_s(device: str) -> float:
    """Return the bandwidth that a device of the machine gets from DRAM, from the machine's data sheet."""
    roofs = {roof.name: roof.bytes_per_s for roof in estimate("gcn-cora", machine(SOC)).roofline.ceilings}
    return float(roofs[f"{device} DRAM"] or 0.0)


def _why(weights: str, reading_s: float, token_s: float, gain: float) -> str:
    """Return what the time of a token is; `gain` says how many times quicker it is than in fp16."""
    if weights != "fp16" and gain < LITTLE:
        return f"Packed weights do not help here: the driver unpacks them in DRAM, and a token takes {1 / gain:.2f} times as long as in fp16."
    if reading_s > HALF * token_s:
        return f"Reading the weights is **{percent(reading_s / token_s)}** of the token."
    return f"Reading the weights is only {percent(reading_s / token_s)} of the token: the cache, unpacking and calls of the device take the rest."


@picture(
    weights=Slider("weights", ["fp16", "int8", "int4"], "fp16"),
    device=Slider("device", ["gpu", "npu", "cpu"], "gpu"),
    length=Slider("length of the cache (tokens)", [128, 256, 512, 1024, 1536, 2048], 128),
)
def _decoding(weights: str, device: str, length: int) -> Shown:
    lengths = sorted({SHORT, length, LONG})
    costs = {each: _token(weights, each, device) for each in lengths}
    short, long, token_s = costs[SHORT], costs[LONG], costs[length].latency_s
    slope = (long.latency_s - short.latency_s) / (LONG - SHORT)
    gain = _token("fp16", SHORT, device).latency_s / short.latency_s
    bandwidth = dram_bytes_per_s(device)
    weight_bytes = short.memory.constants_bytes
    reading_s = weight_bytes / bandwidth
    figure = curves(
        lengths,
        {
            f"a token on the {device}": [cost.latency_s for cost in costs.values()],
            "of which reading the weights": [reading_s] * len(lengths),
        },
        length,
        {"title": "length of the cache (tokens)"},
        amount_axis("time of a token", "s"),
    )
    text = rf"""
        $$\begin{{aligned}} \text{{token}} &= \frac{{\text{{weights}}}}{{\text{{bandwidth}}}} + \text{{cache and the rest}} \\[1ex]
        &= \frac{{{weight_bytes / 1e9:.2f}\;\text{{GB}}}}{{{bandwidth / 1e9:.1f}\;\text{{GB/s}}}} + {1e3 * (token_s - reading_s):.1f}\;\text{{ms}} = \mathbf{{{1e3 * token_s:.1f}\;\text{{ms}}}} \end{{aligned}}$$

        That is {1 / token_s:.1f} tokens a second; weights alone would allow {1 / reading_s:.1f}. The bandwidth stands in the data sheet of this machine ({SOC}): what its {device} gets from DRAM.
        {_why(weights, reading_s, token_s, gain)}
        {engineering(slope, "s")} more for each token that the cache is longer, on average from {SHORT} to {LONG}.
        `npusim llm` compares models, formats and devices.
        """
    return figure, text


GPU_GB_S = dram_bytes_per_s("gpu") / 1e9
MOST_TOKENS = 1e9 * GPU_GB_S / WEIGHT_BYTES


LESSON = Lesson(
    __doc__,
    _decoding,
    numbers={
        "bandwidth": GPU_GB_S,
        "tenth": MOST_TOKENS / 10,
        "tokens": MOST_TOKENS,
        "tenfold": 10 * MOST_TOKENS,
    },
)
