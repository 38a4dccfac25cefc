# %% [markdown]
# # Lab 8. A token of a language model
#
# To write one token, a language model reads each of its weights once and multiplies it once. So the time is
# bytes over bandwidth, and fewer bytes per weight give more tokens per second.
#
# Before: `npusim learn llm_decode`. Time: 50 minutes. The first call takes some seconds.

# %%
import npusim


# %%
def tokens(model, weights, *settings):
    return npusim.language_models([model], weights=weights, devices="npu", settings=settings).rows[0]


_row = tokens("llama3.2-1b", "int8")
print(f"{_row.tokens_per_s:.1f} tokens/s, {_row.token_bytes.moved_bytes / 1e9:.2f} GB a token")

# %% [markdown]
# ## 1. Predict
#
# `llama3.2-3b` has 3.2 billion weights; with `int4` and its scales a weight takes some 4.8 bits on average. The
# sheet's DRAM brings 80.64 GB/s to the NPU.
#
# *Answer*: how many tokens per second? Within 15 % of the model.

# %%
tokens_per_s = None

# %% [markdown]
# ## 2. A slower memory
#
# *Answer*: the least bandwidth in GB/s, a whole number, with which `llama3.2-3b` in `int4` still writes 30 tokens
# per second. A setting is `"dram.bandwidth=70GB/s"`.

# %%
bandwidth_gb_s = None

# %% [markdown]
# ## 3. The best model for this laptop
#
# *Answer*: of `llama3.2-1b`, `llama3.2-3b` and `llama3-8b` with `fp16`, `int8` or `int4`, the one with the most
# parameters that writes **at least 20 tokens per second** and takes **at most 3 GB** of memory
# (`memory_bytes`).

# %%
model, weights = None, None
