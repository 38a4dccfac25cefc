stack = "stagr+quantgr+grasp"
# The matrix twice and the features in bytes; weights and the rest are less than 1 MB.
citeseer_mb = (2 * 3327 * 3327 + 3327 * 3703) / 1e6
# 0.67 ms at 4000 nodes, 0.25 ms of it the launch: 0.42 ms * (N / 4000)^2 = 9.3 ms gives 18,800; then one try.
nodes = 19_000
