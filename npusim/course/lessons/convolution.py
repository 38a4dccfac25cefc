r"""18. A convolution is a product.

A convolution slides a kernel over an image. How does a grid that multiplies matrices compute it, and which layers fill it?

Each output pixel has a sum for each of $N$ output channels, over the kernel's $k \times k$ positions and all $C$ input channels. So a convolution is a product
with $M$ = output pixels, $K = C\,k^2$ and $N$ = output channels. Written out, its left matrix holds each input pixel once per position that reads it (*im2col*).
An NPU does not write it out: it reads the image where it lies. The picture shows where the bytes of one int8 layer of 56 x 56 pixels go, and what im2col would add.

Question
--------
The kernel grows from 1 x 1 to 3 x 3. How much more of the image must come from DRAM?

- [ ] nine times as much
- [ ] three times as much
- [x] nothing

Each pixel is read nine times, but by lanes, out of SRAM. From DRAM it comes once; the work grows ninefold, so a byte serves more operations.

Exercise
--------
32 input channels, a kernel of 5 x 5: how many terms has a sum?

Answer: 800

Multiply the channels by the kernel's positions. 32 x 25 = 800.

- 160: the kernel has 5 x 5 positions, not 5.
"""

from npusim.course.drawings import stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import convolution, estimate
from npusim.reporting.engineering import engineering, percent

SIZE = 56


@picture(
    channels=Slider("input channels $C$", [3, 16, 32, 64, 128], 64),
    width=Slider("output channels $N$", [16, 32, 64, 128], 64),
    kernel=Slider("edge of the kernel $k$", [1, 3, 5, 7], 3),
)
def _layer(channels: int, width: int, kernel: int) -> Shown:
    cost = estimate(convolution(SIZE, channels, width, kernel))
    memory = cost.memory
    image, weights, result = memory.inputs_bytes, memory.constants_bytes, memory.outputs_bytes
    parts = {"image": image, "weights": weights, "result": result}
    bars = {"as the NPU reads it": parts, "im2col": {**parts, "image": kernel**2 * image}}
    intensity = 2 * cost.macs / cost.dram_bytes
    layer = cost.operators[0]
    text = rf"""
        $$\begin{{aligned}} M\,K\,N &= {SIZE}^2 \cdot ({channels} \cdot {kernel}^2) \cdot {width} \\[1ex]
        &= \mathbf{{{cost.macs / 1e6:.4g}}}\;\text{{million multiply-accumulates}} \end{{aligned}}$$

        DRAM brings {engineering(cost.dram_bytes, "B")}: a byte serves **{intensity:.0f} operations**. The whole model keeps
        **{percent(layer.grid_utilisation or 0.0)}** of the lanes busy; what limits the layer is *{layer.bound}*.
        {"A kernel of 1 copies nothing: the image is the left matrix already." if kernel == 1 else f"Im2col would read {kernel**2} times the bytes of the image."}
        """
    return stacked(bars, "bytes of the layer", "B"), text


LESSON = Lesson(__doc__, _layer)
