# %% [markdown]
# # Lab 2. A convolution is a product
#
# A convolution with C input channels, W output channels and a kernel of k x k computes, for each output pixel,
# W sums of C k k products. So it is a product of matrices: a row per output pixel, a column per output channel.
# The matrix on the left holds each input pixel once per kernel position that reads it. Copying it out
# (*im2col*) costs memory, zeros at the edge included; an NPU reads the image itself.
#
# Before: `npusim learn convolution`. Time: 40 minutes. Numbers are int8: one byte each.

# %%
from npusim.course.machine import convolution, estimate

# %% [markdown]
# ## 1. Sizes
#
# The layer below has an image of 56 x 56 pixels with 64 channels, 128 output channels, a kernel of 3 x 3, and
# stride 2: 28 x 28 output pixels.
#
# *Answer*: M, K and N of the product with the same MACs, weights and outputs; and the bytes of the copied left
# matrix.

# %%
layer = estimate(convolution(56, 64, 128, kernel=3, stride=2))
print(f"{layer.macs:,.0f} MACs; weights {layer.memory.constants_bytes:,.0f} B")
print(f"image {layer.memory.inputs_bytes:,.0f} B; result {layer.memory.outputs_bytes:,.0f} B")

# %%
m, k, n = None, None, None
copied_bytes = None

# %% [markdown]
# ## 2. The first layer
#
# A photo has 3 channels, and the first layer of a network does few MACs per byte. The function gives the
# time per million MACs of a first layer: 224 x 224 pixels, 32 output channels, kernel 3 x 3, stride 2.
#
# *Answer*: the **least** number of input channels at which a million MACs take at most **a third** of the time
# that they take with 3 channels. Predict first: which bytes stay the same when channels grow?


# %%
def ns_per_million_macs(channels):
    operator = estimate(convolution(224, channels, 32, kernel=3, stride=2)).operators[0]
    return 1e9 * operator.latency_s / (operator.macs / 1e6)


print(f"3 channels: {ns_per_million_macs(3):.0f} ns")

# %%
least_channels = None
