from pathlib import Path
from runpy import run_path

WHAT = "costs of pairs of an architecture of MaGNAS's space and a mapping to Xavier's GPU and DLA"
WANTED = "1,000,000 pairs/s on two cores"
UNIT = "pairs"
CASES = ("",)
TURNS = 1
_PAIRS = 2_000_000
_fronts = run_path(str(Path(__file__).with_name("28_fronts.py")))
_ready = {}


def prepare(case):
    import numpy as np

    _fronts["prepare"](case)
    table, specs = _fronts["_ready"]["table"], _fronts["_ready"]["specs"]
    problems, random = [table.problem(table.rows(spec)) for spec in specs], np.random.default_rng(1)
    each = _PAIRS // len(problems)
    placements = [random.integers(0, 2, (each, len(problem.blocks)), np.int8) for problem in problems]
    _ready.update(problems=problems, placements=placements)


def work(case):
    for problem, placements in zip(_ready["problems"], _ready["placements"], strict=True):
        problem.evaluate(placements)
    return _PAIRS
