# %% [markdown]
# # Lab 5. Where the joules go
#
# Energy of an inference: switching (MACs, SRAM, DRAM), leakage while it works, and the idle power of the package
# while it lasts. A slower clock allows a lower voltage V, and switching costs V^2. But a slower clock also makes
# everything else pay for longer. Somewhere in between lies the least energy.
#
# Before: `npusim learn energy`. Time: 40 minutes.

# %%
from npusim.course.machine import estimate, machine


# %%
def resnet(clock_ghz):
    return estimate("resnet-50", machine("core-ultra-series2", f"npu.dpu.clock={clock_ghz:g}GHz"))


print(resnet(1.95).energy, resnet(1.95).energy_j)

# %% [markdown]
# ## 1. The sheet's clock
#
# *Answer*: which part of the energy at 1.95 GHz is not switching, in percent (`static_j` and `idle_j`)?

# %%
waiting_percent = None

# %% [markdown]
# ## 2. The best clock
#
# *Answer*: the clock between 0.4 and 2.6 GHz with the least energy per inference (within 1 % of the least energy).
# Guess first: higher or lower than 1.95 GHz?

# %%
best_clock_ghz = None

# %% [markdown]
# ## 3. Nobody pays for the package
#
# Suppose that a camera runs on the same package all day, so that its idle power (`idle_j`) is paid anyway.
#
# *Answer*: which clock needs the least of the remaining energy (within 1 %)?

# %%
best_clock_without_idle_ghz = None
