r"""16. Other dataflows: what stays where.

The same product, output-, weight- and row-stationary: what differs, if the multiplications do not?

A lane needs two operands and a sum for each multiplication. One of the three may *stay* in the lane while the others pass: the sum
(*output-stationary*, as Intel's NPU), a weight (*weight-stationary*, as TPU v1), an input, or a row of a filter that slides over a row of the image
(*row-stationary*, as Eyeriss). All compute the same; they differ in how often they read SRAM, and in which sizes fill the array.
Below, the same NPU with each of them: one line of its data sheet, `npu.dpu.dataflow`.
"""

from npusim import DType
from npusim.course.drawings import stacked
from npusim.course.lesson import Exercise, Lesson, Picture, Question, Shown, Slider
from npusim.course.machine import estimate, machine, product
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering
from npusim.reporting.html import amount_axis

FLOWS = ("output_stationary", "weight_stationary", "row_stationary", "input_stationary")
SIZES = [16, 64, 128, 256, 512, 1024, 2048]
MOVED = {"read in SRAM": "sram_read_bytes", "written in SRAM": "sram_written_bytes", "DRAM": "dram_bytes"}


def _flows(m: int, k: int, n: int) -> Shown:
    network = product(m, k, n, DType.INT8)
    socs = {flow: machine(DEFAULT_SOC, f"npu.dpu.dataflow={flow}") for flow in FLOWS}
    costs = {flow: estimate(network, soc).operators[0] for flow, soc in socs.items()}
    moved = {
        name: {flow: getattr(cost, field) for flow, cost in costs.items()} for name, field in MOVED.items()
    }
    least = min(FLOWS, key=lambda flow: costs[flow].energy.sram_j)
    quickest = min(FLOWS, key=lambda flow: costs[flow].latency_s)
    read_bytes = costs[least].sram_read_bytes
    text = rf"""
        $$\begin{{aligned}} \text{{reuse}} &= \frac{{\text{{multiply-accumulates}}}}{{\text{{bytes read in SRAM}}}} \\[1ex] &=
        \frac{{{m * k * n / 1e6:.4g}\,\text{{M}}}}{{{read_bytes / 1e6:.3g}\,\text{{MB}}}} = \mathbf{{{m * k * n / read_bytes:.1f}}} \end{{aligned}}$$

        That is {least.replace("_", "-")}, the best here.
        Least energy in SRAM: **{least.replace("_", "-")}**, {engineering(costs[least].energy.sram_j, "J")}. Quickest: **{quickest.replace("_", "-")}**,
        {engineering(costs[quickest].latency_s, "s")}; it waits for *{costs[quickest].bound}*. Compulsory traffic with DRAM is the same for all.
        """
    return stacked(moved, amount_axis("bytes moved", "B"), {}), text


LESSON = Lesson(
    Question(
        "A long sum (K large) and few rows. Which one reads and writes partial sums most often?",
        ["output-stationary", "weight-stationary", "all the same"],
        "weight-stationary",
        "Its weights stay and the sums travel: each of them leaves the array and comes back for every slice of K that the array holds.",
    ),
    [
        Picture(
            {
                "m": Slider("rows $M$", SIZES, 1024),
                "k": Slider("terms $K$", SIZES, 1024),
                "n": Slider("columns $N$", SIZES, 1024),
            },
            _flows,
            height=320,
        )
    ],
    Exercise(
        "A 256 x 256 weight-stationary array of 8-bit weights: how many KiB of weights does it hold?",
        64.0,
        "One weight in each lane, one byte each. 65,536 bytes are 64 KiB.",
        unit="KiB",
    ),
)
