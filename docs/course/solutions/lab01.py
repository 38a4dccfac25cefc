# 7 steps of 16 for M, 16 of 4 for K, 3 of 16 for N: 100 * 64 * 40 / (112 * 64 * 48).
busy_percent = 100 * 100 * 64 * 40 / (112 * 64 * 48)
# A cube has the least bytes for its MACs, as M K + K N + M N is least there; 368 is a multiple of 16.
rows, depth, columns = 368, 368, 368
