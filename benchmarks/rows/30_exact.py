WHAT = "exact front of a chain of 34 blocks, all of them other ones, on three units: 3^34 mappings"
WANTED = "1 s"
UNIT = "fronts"
CASES = ("",)
TURNS = 1
_ready = {}


def prepare(case):
    import numpy as np

    from npusim.mapping import ChainProblem, chain_front

    random = np.random.default_rng(3)
    time_s, energy_j = random.uniform(1, 10, (2, 34, 3))
    crossing_s, crossing_j = random.uniform(0, 3, (2, 33, 3, 3))
    names = tuple(map(str, range(34)))
    _ready["problem"] = ChainProblem(names, ("u", "d", "t"), time_s, energy_j, crossing_s, crossing_j)
    chain_front(_ready["problem"])


def work(case):
    from npusim.mapping import chain_front

    chain_front(_ready["problem"])
    return 1
