from pathlib import Path
from runpy import run_path

WHAT = "map of a chain of 1,000 operators; of GAT with 16 layers, whose states are too many to keep"
WANTED = "4 s, with a true bound"
_CODE = run_path(str(Path(__file__).with_name("20_chains.py")))["_CODE"]
COMMANDS = {
    "1,000 operators": ["-c", _CODE.format(n=1000, call="map", more="")],
    "GAT of 16 layers": ["-m", "npusim", "map", "gat-cora", "--set", "workload.layers=16"],
}
LIMIT_S, TURNS = 60, 2
