# %% [markdown]
# # Lab 7. A graph neural network that fits the machine
#
# Exported as it is, a graph convolution gathers and scatters along edges on a DSP, one by one. *Techniques*
# rewrite it: `stagr` makes the sums a product with the graph's matrix, `quantgr` stores 8-bit integers, `grasp`
# skips zeros of the matrix, `preg` and `graphsplit` move preprocessing to the CPU. `symg` and `cacheg` are
# what-ifs that no hardware runs today. A stack is written `"stagr+quantgr"`.
#
# Before: `npusim learn preprocessing`, `int8` and `sparsity`. Time: 50 minutes. All techniques: `npusim list techniques`.

# %%
from npusim.course.machine import estimate, gnn

# %% [markdown]
# ## 1. A stack
#
# *Answer*: a stack without what-ifs that makes `gcn-cora` at least 70 times as fast as exported (`"none"`) and
# takes at most 1.8 mJ.

# %%
_exported = estimate("gcn-cora", techniques="none")
print(f"{1e3 * _exported.latency_s:.1f} ms, {1e3 * _exported.energy_j:.1f} mJ")

# %%
stack = None

# %% [markdown]
# ## 2. Bytes of another graph
#
# With `stagr+quantgr` most bytes from DRAM are the N x N matrix, which each of the two
# layers reads. Cora has 2708 nodes.
#
# *Answer*: predict how many MB from and to DRAM `gcn-citeseer` (3327 nodes) takes with `stagr+quantgr`. Within
# 10 %: the first layer also reads the features, N x 3703 (Cora's are N x 1433).

# %%
citeseer_mb = None

# %% [markdown]
# ## 3. How large a graph?
#
# *Answer*: a number of nodes with which a GCN under `stagr+quantgr` takes between 9 and 10 ms, at 4 neighbours
# per node. Predict from `gnn("gcn", 4000, 4)`: does the time grow as N or as N^2?

# %%
print(f"{1e3 * estimate(gnn('gcn', 4000, 4), techniques='stagr+quantgr').latency_s:.2f} ms with 4000 nodes")

# %%
nodes = None
