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
    table, random = _fronts["_ready"]["table"], np.random.default_rng(1)
    encoded = table.encoded(_fronts["_ready"]["specs"])
    which = random.integers(0, len(encoded), _PAIRS)
    placements = random.integers(0, 2, (_PAIRS, encoded.shape[1]), np.int8)
    _ready.update(table=table, encoded=encoded, which=which, placements=placements)
    table.evaluate(encoded, which[:10], placements[:10])


def work(case):
    _ready["table"].evaluate(_ready["encoded"], _ready["which"], _ready["placements"])
    return _PAIRS
