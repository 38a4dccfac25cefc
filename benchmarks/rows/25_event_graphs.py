WHAT = "event engine's table of GNNs on Cora with so many times its nodes and edges"
WANTED = "a tenth of 8, 105 and 58 s"
_CODE = """
import re, sys
from pathlib import Path
from npusim.locate import resource
factor, network, stack = int(sys.argv[1]), *sys.argv[2:4]
text = Path(str(resource("workloads", "statistics", "cora.yaml"))).read_text()
text = re.sub(r"^(nodes|edges): (.*)$", lambda m: f"{m[1]}: {int(m[2]) * factor}", text, flags=re.M)
text = re.sub(
    r"^adjacency_block_density: .*$",
    lambda m: re.sub(r": ([0-9.]+)", lambda share: f": {float(share[1]) / factor}", m[0]),
    text,
    flags=re.M,
)
histogram = re.search(r"degree_histogram: .(.*?)]", text, re.S)[1].replace(chr(10), " ").split(",")
more = ", ".join(str(int(count) * factor) for count in histogram)
text = re.sub(r"degree_histogram: .*?]", "degree_histogram: [" + more + "]", text, flags=re.S)
Path("large.yaml").write_text(text.replace("name: cora", "name: large"))
sys.argv[1:] = ["estimate", network, "-t", stack, "--engine", "event", "--set",
                "workload.dataset=large.yaml", "--set", "dram.capacity=2000GB"]
from npusim.cli import main
sys.exit(main())
"""
COMMANDS = {
    "GCN, stagr, 16 times": ["-c", _CODE, "16", "gcn-cora", "stagr"],
    "GCN, stagr, 64 times": ["-c", _CODE, "64", "gcn-cora", "stagr"],
    "GAT, effop, 16 times": ["-c", _CODE, "16", "gat-cora", "effop"],
}
LIMIT_S, TURNS = 60, 1
