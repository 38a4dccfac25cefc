# %% [markdown]
# # Lab 6. Dataflows
#
# A lane needs an input, a weight and a sum for each MAC. A *dataflow* says which of them stays in the lane while
# the others pass, and which loops of the convolution run side by side on the two axes of the array. What stays
# is not read again from SRAM; sums that leave unfinished are written and read back.
#
# Before: `npusim learn dataflows`. Time: 50 minutes.

# %%
from npusim.course.machine import convolution, estimate, machine

# %% [markdown]
# ## 1. Which one for which layer?
#
# *Answer*: for each layer the dataflow with the least traffic between SRAM and the array
# (`sram_traffic_bytes`), one of `"output_stationary"`, `"weight_stationary"`, `"input_stationary"` and
# `"row_stationary"`. Guess all three before you look.
#
# | layer | pixels | channels in | channels out | kernel |
# | --- | --- | --- | --- | --- |
# | `last` | 7 x 7 | 512 | 512 | 3 x 3 |
# | `pointwise` | 56 x 56 | 64 | 64 | 1 x 1 |
# | `wide` | 14 x 14 | 64 | 1024 | 1 x 1 |

# %%
LAYERS = {"last": (7, 512, 512, 3), "pointwise": (56, 64, 64, 1), "wide": (14, 64, 1024, 1)}


def run(layer, dataflow):
    return estimate(layer, machine("core-ultra-series2", f"npu.dpu.dataflow={dataflow}"))


print(run(convolution(*LAYERS["last"]), "row_stationary").sram_traffic_bytes)

# %%
last, pointwise, wide = None, None, None

# %% [markdown]
# ## 2. A dataflow of your own
#
# In a depthwise layer each output channel has one input channel of its own, its *group*. Weight-stationary
# unrolls input channels and kernel on one axis and output channels on the other: both have one step only, and
# most lanes idle.
#
# *Answer*: the loops of both axes, so that a weight still stays in its lane and the operator takes at most a
# quarter of the time of `weight_stationary`. The loops are `batch`, `groups`, `output_channels`,
# `input_channels`, `output_height`, `output_width`, `kernel_height` and `kernel_width`; an axis takes several in
# turn.

# %%
depthwise = convolution(112, 64, 64, kernel=3, groups=64)
weight_stationary = (
    "{unroll: [[input_channels, kernel_height, kernel_width], [output_channels]], stationary: weights}"
)
print(1e6 * run(depthwise, weight_stationary).operators[0].latency_s, "us")

# %%
unroll = None
