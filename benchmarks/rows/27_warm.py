WHAT = "estimate, kernels compiled before"
WANTED = "0.6 s"
COMMANDS = {
    "gcn-cora": ["-m", "npusim", "estimate", "gcn-cora", "--format", "json"],
    "gcn-cora, stagr": ["-m", "npusim", "estimate", "gcn-cora", "-t", "stagr", "--format", "json"],
}
TURNS = 5
