WHAT = "shipped space, 13,996,800 points"
WANTED = "4 million points/s, 1.9 times one core"
UNIT = "points"
_COMMAND = ["-m", "npusim", "sweep", "gcn-cora", "-o", "{out}", "--keep", "pareto", "--quiet", "--cores"]
COMMANDS = {"one core": [*_COMMAND, "1"], "two cores": [*_COMMAND, "2"]}
AMOUNTS = {"one core": 13_996_800, "two cores": 13_996_800}
BEFORE_S = {"one core": 30, "two cores": 30}
TURNS = 1
