# %% [markdown]
# # Lab 3. The tiling that the search found
#
# Two matrices of a product do not fit into SRAM. So one is *held*: a block of it is loaded, the whole other
# matrix streams past, then comes the next block. With B blocks the other matrix is read B times:
#
#     bytes = held + B * streamed + result
#
# The simulator searches over which matrix is held, and in how many blocks. Predict what it finds.
#
# Before: `npusim learn tiling`, then `sram`. Time: 50 minutes. An fp16 number has 2 bytes; 1 MB is 10^6 B.

# %%
from npusim.course.machine import estimate, machine, product

# %% [markdown]
# ## 1. By hand
#
# Activations of 4096 x 1024 times weights of 1024 x 1024, in fp16, on one tile with 1 MB of SRAM. Room is
# needed for the block that is held, and also for the piece of the stream and of the result in work: take 60 % of
# SRAM for the block. Weights are cut by columns, activations by rows: round the columns (or rows) of a
# block down to a multiple of 16 before you count blocks. *Held* and *streamed* are words of lesson `tiling`.
#
# *Answer*: which matrix is held (`"weights"` or `"activations"`), in how many blocks, and how many MB cross DRAM?
# Compute the bytes of both choices and take the smaller.

# %%
held = None
blocks = None
dram_mb = None

# %% [markdown]
# ## 2. What the search found
#
# When you have predicted, remove the `#` before `print`. If the search found something else: which of your bytes
# were wrong?


# %%
def searched(sram_mb):
    one_tile = machine("core-ultra-series2", "npu.tiles=1", f"npu.sram.per_tile={sram_mb} MB")
    return estimate(product(4096, 1024, 1024), one_tile).operators[0]


# In the printed mapping `order` says which matrix is held, `column_blocks` counts the blocks of the weights,
# `row_blocks` those of the activations. Of the matrix that streams it counts pieces, which do not matter. `buffers` is 2 where a block in use and the next one are in SRAM at
# the same time. The other fields do not matter here.
# print(searched(1).mapping, searched(1).dram_bytes)

# %% [markdown]
# ## 3. More SRAM
#
# *Answer*: the least SRAM of the tile, in steps of 0.25 MB, with which the search streams the other matrix only
# **twice**. With two buffers (`buffers=2`) SRAM holds two blocks: one in use, and one that arrives meanwhile.
# Predict from the size of half of the held matrix, in one buffer and in two, plus room for the stream and the
# result: about 0.4 MB as in part 1, however large SRAM is. With one buffer work waits while the next block comes:
# which of your two predictions will it be? Then try: `print(searched(1.5).mapping.buffers)`. The search takes the
# quickest tiling; of those within 0.5 % of it, the one with the fewest bytes. So bytes may rise with SRAM, where
# two buffers become possible.

# %%
least_sram_mb = None
