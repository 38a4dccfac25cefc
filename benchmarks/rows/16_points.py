WHAT = "points of the shipped space, evaluation alone"
WANTED = "no slower than before"
UNIT = "points"
CASES = ("one core",)
TURNS = 5
_POINTS = 400_000
_ready = {}


def prepare(case):
    import numba

    from npusim.explore.campaign import campaign_of
    from npusim.explore.spaces import load_space

    numba.set_num_threads(1)
    _ready["campaign"] = campaign_of(load_space("gcn-cora"))
    _ready["campaign"].totals(0, 2_000)


def work(case):
    for start in (0, 2_000_000, 7_000_000, 11_000_000):
        _ready["campaign"].totals(start, start + _POINTS)
    return 4 * _POINTS
