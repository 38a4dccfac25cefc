# Measured with the lab's function on a virtual machine with an Intel Xeon (AVX-512), two runs of 100, the least.
fitted_s = [0.00159, 0.013853, 0.003941]
# 1024^3 MACs in 13.9 ms are 77.5 per ns: 2.5 GHz x 35 x 0.9 (`dense_efficiency` of the sheet). The thin product
# reads 67 MB in 3.9 ms: 17 GB/s, of which the sheet's write cost and latency leave a little less.
clock_ghz, macs_per_cycle, bandwidth_gb_s = 2.5, 35, 13
predicted_shapes_s = [0.006104, 0.008181]
