WHAT = "points of the shipped space, evaluation alone"
WANTED = "no slower than before"
UNIT = "points"
CASES = ("one core",)
TURNS = 5
WENT = (
    "latencies of candidates 33 %, references to arrays counted 11 %, new pages for results 6 %; the rest "
    "is records of 128 points that no near cache holds, what follows from them, sums of plans, energies"
)
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
