r"""2. The roofline, and why norm x H waits for memory.

A graph convolution multiplies a large matrix by a narrow one. Is the MAC grid the limit, or the bytes?

Summing up the features of neighbours is the product $\text{norm} \cdot H$: the normalised matrix of the graph,
$N \times N$, times the features $H$, $N \times F$. Cora has $N = 2708$ papers. Each entry of norm comes from DRAM once and
is used for $F$ multiplications. A *roofline* puts an operator where it stands: to the right, the more work a byte serves; upwards, the
more work is done in a second. The slope is what DRAM can feed, the level what the grid can do.
"""

from npusim import DType
from npusim.course.drawings import ceilings, roofline
from npusim.course.lesson import Exercise, Lesson, Picture, Question, Shown, Slider
from npusim.course.machine import estimate, product
from npusim.reporting.engineering import engineering

NODES = 2708
PEAKS, BANDWIDTH = ceilings(estimate(product(NODES, NODES, 64)))
RIDGES = {dtype: peak / BANDWIDTH for dtype, peak in PEAKS.items()}


def _norm_times_h(features: int, form: str) -> Shown:
    cost = estimate(product(NODES, NODES, features, DType(form)))
    point, peak = cost.roofline.points[0], PEAKS[form]
    intensity = point.intensity["dram"]
    fed = intensity * BANDWIDTH
    matrix_bytes = NODES * NODES * (2 if form == "fp16" else 1)
    text = rf"""
        $$\begin{{aligned}} \text{{rate}} &\le \min\!\left(\text{{peak}},\; \frac{{2\,N\,N\,F}}{{\text{{bytes}}}} \cdot \text{{bandwidth}}\right) \\[1ex]
        &= \min({peak / 1e12:.3g}\,\text{{Top/s}},\; {intensity:.3g} \cdot {BANDWIDTH / 1e9:.3g}\,\text{{GB/s}}) \\[1ex]
        &= \mathbf{{{min(peak, fed) / 1e12:.3g}\,\text{{Top/s}}}} \end{{aligned}}$$

        The model finds {engineering(point.ops_per_s, "op/s")} and {engineering(cost.operators[0].latency_s, "s")};
        the matrix alone has {engineering(matrix_bytes, "B")}. Twice the features take
        {"hardly longer: the bytes stay" if fed < peak else "twice as long: the grid is full"}.
        """
    return roofline(peak, BANDWIDTH, f"norm x H, F = {features}", intensity, point.ops_per_s), text


LESSON = Lesson(
    Question(
        "F = 64 features. What does the product wait for?",
        ["for the MAC grid", "for DRAM", "for both about equally"],
        "for DRAM",
        "An fp16 entry has 2 bytes and serves 64 multiply-accumulates, 128 operations: 64 operations for each byte. "
        "The grid would need three times as many before it became the limit.",
    ),
    [
        Picture(
            {
                "features": Slider("features $F$", [8, 16, 32, 64, 128, 192, 256, 384, 512, 1024], 64),
                "form": Slider("format", ["fp16", "int8"], "fp16"),
            },
            _norm_times_h,
            height=400,
        )
    ],
    Exercise(
        "From how many operations for each byte on is the grid the limit, in fp16? That point is called the ridge.",
        RIDGES["fp16"],
        "Divide the peak rate of the grid by the bandwidth of DRAM. "
        f"That is {RIDGES['fp16']:.0f} operations for each byte, or {RIDGES['fp16']:.0f} features in fp16, whose entries of 2 bytes serve 2 operations a feature.",
        within=0.04,
        hints={"that is the ridge of int8, whose grid is twice as fast.": RIDGES["int8"]},
    ),
)
