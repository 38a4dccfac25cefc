# %% [markdown]
# # Lab 4. The ridge of the roofline
#
# An operator takes the longer of two times: its operations over the peak of the grid, and its bytes over the
# bandwidth of DRAM. Both are equal at the *ridge*: peak / bandwidth, in operations per byte. Left of it, a faster
# grid is wasted.
#
# Before: `npusim learn roofline`. Time: 40 minutes. A MAC counts as two operations.

# %%
from npusim.course.machine import estimate, machine, product


# %%
def sums_of_neighbours(features, *settings):
    """Return the cost of norm x H for Cora's 2708 papers in fp16."""
    return estimate(product(2708, 2708, features), machine("core-ultra-series2", *settings))


for _ceiling in sums_of_neighbours(64).roofline.ceilings:
    print(_ceiling)

# %% [markdown]
# ## 1. Ridge
#
# *Answer*: the ridge of this machine for fp16 in operations per byte, from the ceilings above.

# %%
ridge = None

# %% [markdown]
# ## 2. Features
#
# Each entry of the 2708 x 2708 matrix is read once and serves F features.
#
# *Answer*: the least F that is a multiple of 16 at which the operator's `bound` is `compute`. Predict it: which
# F gives as many operations per byte as the ridge, if H and the result count too?

# %%
print(sums_of_neighbours(64).operators[0].bound)

# %%
features = None

# %% [markdown]
# ## 3. A slower grid
#
# With F = 64 the product waits for bytes.
#
# *Answer*: the least clock of the grid in GHz, in steps of 0.05, at which the **whole inference**
# (`latency_s`) takes at most 5 % longer than at the clock of the data sheet. A setting is written as
# `"npu.dpu.clock=1.5GHz"`.

# %%
clock_ghz = None
