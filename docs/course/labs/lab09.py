# %% [markdown]
# # Lab 9. Design a machine
#
# A camera runs `yolov8n`. You design the NPU beside it: tiles, SRAM of a tile, and the clock of the grid. DRAM is
# one cheap chip with **4 GB/s**, so SRAM has to keep what DRAM cannot bring. The model gives the area for 3 nm.
#
# Before: `npusim learn pareto`. Time: 75 minutes.

# %%
import npusim


# %%
def design(tiles, sram_mb, clock_ghz):
    return npusim.estimate(
        "yolov8n",
        settings=[
            "dram.bandwidth=4GB/s",
            f"npu.tiles={tiles}",
            f"npu.sram.per_tile={sram_mb} MB",
            f"npu.dpu.clock={clock_ghz}GHz",
        ],
        interval=False,
    )


_first = design(6, 1.5, 1.95)
print(
    f"{_first.area_mm2:.2f} mm2, {1 / _first.latency_s:.0f} frames/s, {1e3 * _first.energy_j:.1f} mJ a frame"
)

# %% [markdown]
# ## 1. Under 10 mm2
#
# *Answer*: a design with **less than 10 mm2**, **at least 60 frames per second** (1 / latency), and **at most
# 10 mJ** a frame.

# %%
tiles, sram_mb, clock_ghz = None, None, None

# %% [markdown]
# ## 2. No larger than needed
#
# *Answer*: a second design with 60 frames per second and **at most 25 mJ** a frame that nothing can be taken from:
# with **one tile less**, or with **0.25 MB less SRAM** in each tile, it misses a limit (at the same clock). It
# has at most 5 mm2. Use a loop, or a sweep (`help(npusim.sweep)`), and say which limit each neighbour misses.

# %%
small_tiles, small_sram_mb, small_clock_ghz = None, None, None
