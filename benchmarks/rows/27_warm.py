WHAT = "estimate, kernels compiled before"
WANTED = "0.6 s"
COMMANDS = {
    "gcn-cora": ["-m", "npusim", "estimate", "gcn-cora", "--format", "json"],
    "gcn-cora, stagr": ["-m", "npusim", "estimate", "gcn-cora", "-t", "stagr", "--format", "json"],
}
TURNS = 7
WENT = (
    "imports 70 % (numpy 10 %, the compiler 15 %, pydantic and its classes 20 %, typer 5 %), "
    "loading compiled code 18 %, data sheet and network 7 %"
)
