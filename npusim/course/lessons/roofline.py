r"""2. The roofline, and why norm x H waits for memory.

A graph convolution multiplies a large matrix by a narrow one. Is the MAC grid the limit, or the bytes?

Summing up the features of neighbours is the product $\text{norm} \cdot H$: the normalised matrix of the graph,
$N \times N$, times the features $H$, $N \times F$. Cora has $N = 2708$ papers. At best each entry of norm comes from DRAM once
and is used for $F$ multiplications. A *roofline* puts an operator where it stands: to the right, the more work a byte serves; upwards, the
more work is done in a second. The slope is what DRAM can feed, the level what the grid can do.

Question
--------
F = 64 features. What does the product wait for?

- [ ] for the MAC grid
- [x] for DRAM
- [ ] for both about equally

An fp16 entry has 2 bytes and serves 64 multiply-accumulates, 128 operations: 64 operations for each byte. The grid would need three times as many
before it became the limit.

Exercise
--------
From how many operations for each byte on is the grid the limit, in fp16? That point is called the ridge.

Answer: {ridge}, within 0.04

Divide the peak rate of the grid by the bandwidth of DRAM. That is {ridge:.0f} operations for each byte, reached here at about {features:.0f} features
in fp16: an entry of 2 bytes serves 2 operations a feature, and the features themselves are bytes, too.

- {int8_ridge}: that is the ridge of int8, whose grid is twice as fast.
"""

from npusim import DType
from npusim.course.drawings import ceilings, roofline
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, product
from npusim.reporting.engineering import engineering

NODES = 2708
PEAKS, BANDWIDTH = ceilings(estimate(product(NODES, NODES, 64)))
RIDGES = {dtype: peak / BANDWIDTH for dtype, peak in PEAKS.items()}
RIDGE_FEATURES = RIDGES["fp16"] / (1 - 2 * RIDGES["fp16"] / NODES)
"""Features from which a byte of norm, H and the result in fp16 serves as many operations as the ridge says."""
_HARDLY, _READ_AGAIN = 1.1, 1.2


def _growth(ratio: float) -> str:
    """Return what it means that twice the features take `ratio` times as long."""
    if ratio < _HARDLY:
        return "hardly longer: nearly all bytes are the matrix, and it stays"
    if ratio < 1.8:
        return "between the two limits: the grid takes over from DRAM"
    return "in step with the work: the grid is full, or DRAM has more to bring"


@picture(
    features=Slider("features $F$", [8, 16, 32, 64, 128, 192, 256, 384, 512, 1024], 64),
    form=Slider("format", ["fp16", "int8"], "fp16"),
    height=400,
)
def _norm_times_h(features: int, form: str) -> Shown:
    cost, twice = (estimate(product(NODES, NODES, f, DType(form))) for f in (features, 2 * features))
    point, peak = cost.roofline.points[0], PEAKS[form]
    ratio = twice.operators[0].latency_s / cost.operators[0].latency_s
    intensity = point.intensity["dram"]
    fed = intensity * BANDWIDTH
    item_bytes = 2 if form == "fp16" else 1
    matrix_bytes = NODES * NODES * item_bytes
    once_bytes = matrix_bytes + 2 * NODES * features * item_bytes
    again = cost.dram_bytes / once_bytes
    traffic = f"{engineering(cost.dram_bytes, 'B')} pass DRAM"
    if again > _READ_AGAIN:
        traffic += (
            f", {again:.1f} times what is read and written at least: the features no longer fit into SRAM, parts of the "
            "operands come again for each block, and a byte serves fewer operations than at fewer features"
        )
    text = rf"""
        $$\begin{{aligned}} \text{{rate}} &\le \min\!\left(\text{{peak}},\; \frac{{2\,N\,N\,F}}{{\text{{bytes}}}} \cdot \text{{bandwidth}}\right) \\[1ex]
        &= \min({peak / 1e12:.3g}\;\text{{Top/s}},\; {intensity:.3g} \cdot {BANDWIDTH / 1e9:.3g}\;\text{{GB/s}}) \\[1ex]
        &= \mathbf{{{min(peak, fed) / 1e12:.3g}\;\text{{Top/s}}}} \end{{aligned}}$$

        The model finds {engineering(point.ops_per_s, "op/s")} and {engineering(cost.operators[0].latency_s, "s")};
        the matrix alone has {engineering(matrix_bytes, "B")}; {traffic}. Twice the features take **{ratio:.2f} times** as long:
        {_growth(ratio)}.
        """
    return roofline(peak, BANDWIDTH, f"norm x H, F = {features}", intensity, point.ops_per_s), text


LESSON = Lesson(
    __doc__,
    _norm_times_h,
    numbers={"ridge": RIDGES["fp16"], "int8_ridge": RIDGES["int8"], "features": RIDGE_FEATURES},
)
