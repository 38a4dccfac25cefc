# %% [markdown]
# # Lab 10. Predict, then measure on your own CPU
#
# A model is worth as much as its worst prediction. Here you measure matrix products with NumPy on your own
# machine, fit three numbers of a data sheet to some of them, and predict the others.
#
# Before: `npusim learn calibrating`. Time: 90 minutes. Close other programs, and plug the laptop in.
# One core is measured: the first cell must run before anything else imports NumPy.

# %%
import os
import time

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np

import npusim
from npusim.course.machine import product

FITTED = [(512, 512, 512), (1024, 1024, 1024), (4096, 4096, 1)]
PREDICTED = [(768, 768, 768), (8192, 4096, 1)]

# %% [markdown]
# ## 1. Measure
#
# Call the function below for each shape in a cell of your own, and take the least of several runs: noise only adds
# time. *Answer*: type the seconds in as numbers, in the order of the lists, so that the file says the same when it
# runs again. `process_time` counts what this process computes, so other programs disturb it less; on Windows it has
# steps of 16 ms: use `perf_counter` there.


# %%
def least_seconds(m, k, n, runs=50):
    a, b = np.random.rand(m, k).astype("f4"), np.random.rand(k, n).astype("f4")
    seconds = []
    for _run in range(runs):
        start = time.process_time()
        a @ b
        seconds.append(time.process_time() - start)
    return min(seconds)


# %%
fitted_s = None

# %% [markdown]
# ## 2. Fit
#
# *Answer*: clock, MACs per cycle in fp32 (16 for 256-bit vectors, 32 for 512-bit), and the bandwidth of DRAM to one
# core, so that the model is within 30 % of each fitted time. The cubes depend on clock x MACs per cycle, the thin
# product on bandwidth.


# %%
def modelled_s(shape, clock_ghz, macs_per_cycle, bandwidth_gb_s):
    settings = {
        "cpu.cores": 1,
        "cpu.clock": f"{clock_ghz}GHz",
        "cpu.macs_per_cycle.fp32": f"{macs_per_cycle} MAC/cycle",
        "cpu.dram_bandwidth": f"{bandwidth_gb_s}GB/s",
        "cpu.core_bandwidth": f"{bandwidth_gb_s}GB/s",
    }
    graph = product(*shape, npusim.DType.FP32)
    return npusim.estimate(graph, "generic-cpu", settings=settings, interval=False).operators[0].latency_s


# %%
clock_ghz, macs_per_cycle, bandwidth_gb_s = None, None, None

# %% [markdown]
# ## 3. Predict, then measure
#
# Write down what the fitted model says about the shapes in `PREDICTED`. Only then measure them, and type in what you
# measured. *Answer*: measured seconds; the check wants the model within a factor of 1.6 of each.

# %%
predicted_shapes_s = None
