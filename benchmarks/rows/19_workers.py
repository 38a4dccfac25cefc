from pathlib import Path

WHAT = (
    "shipped space on worker processes of a Dask scheduler, a thread each; start and all processes included"
)
WANTED = "processor time of one core without Dask, and 5 s for each worker"
UNIT = "points"
_COMMAND = ["-P", str(Path(__file__).parents[1] / "cluster.py"), "gcn-cora", "{out}"]
COMMANDS = {
    "no Dask": [*_COMMAND, "0"],
    "1 worker": [*_COMMAND, "1"],
    "2 workers": [*_COMMAND, "2"],
    "4 workers": [*_COMMAND, "4"],
}
AMOUNTS = dict.fromkeys(COMMANDS, 13_996_800)
LIMIT_S, TURNS = 150, 1
