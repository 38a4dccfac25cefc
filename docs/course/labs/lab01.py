# %% [markdown]
# # Lab 1. Fill the grid
#
# A multiply-accumulate (MAC) is `sum += a * b`. Intel's NPU 4000 does them on a grid in each of its tiles:
# 16 x 16 lanes, each with one output, each adding 4 products of fp16 numbers per cycle. A product of an
# M x K by a K x N matrix has M * K * N MACs. The grid is laid over M, K and N in steps of 16, 4 and 16; what
# sticks out of the matrix is a lane with nothing to do.
#
# Before: `npusim learn mac_grid`. Time: 30 minutes. Run a cell after the other, set the answers in
# the cells marked *Answer* (each is `None` now), save the file, and ask
#
#     npusim learn check lab01.py

# %%
from npusim.course.machine import estimate, product

# %% [markdown]
# ## 1. By hand
#
# *Answer*: what share of the lanes' work is useful for M = 100, K = 64, N = 40, in percent? Count the steps
# of a single grid. Round each size up to a whole number of steps, and divide the real product by the rounded one.

# %%
busy_percent = None

# %% [markdown]
# ## 2. What the equation leaves out
#
# The model also counts filling the lanes, spreading work over four tiles, and bytes from DRAM. So the number is far
# below yours. `bound` names what an operator waits for: `dma` for bytes from DRAM, `launch` means that the start
# of the NPU takes longer than the work. Nothing is asked here.

# %%
cost = estimate(product(100, 64, 40)).operators[0]
print(f"{cost.grid_utilisation:.1%} busy, bound by {cost.bound}, {cost.dram_bytes:,.0f} B from and to DRAM")

# %% [markdown]
# ## 3. A product that fills the grid
#
# *Answer*: find M, K and N with **at most 50 million MACs** that keep **at least 59 %** of the lanes busy in the
# whole model. 1024 x 96 x 480 has 47 million and reaches 38 %: which of its bytes are too many?

# %%
rows, depth, columns = None, None, None
