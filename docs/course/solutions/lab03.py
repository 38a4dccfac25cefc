# Weights, 2.1 MB, in 4 blocks of 0.52 MB: 2.1 + 4 * 8.4 + 8.4 MB. Held activations, 8.4 MB, would need some 16
# blocks of 0.52 MB: 8.4 + 16 * 2.1 + 8.4 MB, which is more.
held, blocks = "weights", 4
dram_mb = (2 * 1024 * 1024 + 4 * 2 * 4096 * 1024 + 2 * 4096 * 1024) / 1e6
# Half of the weights has 1.05 MB, twice with a second buffer.
least_sram_mb = 2.5
