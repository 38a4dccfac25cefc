WHAT = "search of the shipped space (NSGA-II), 100,000 evaluations"
WANTED = "5 s, start-up apart"
UNIT = "evaluations"
CASES = ("",)
WENT = (
    "objects of pymoo, one for each individual, 80 %; evaluation 18 %. What is left is a tiling search for "
    "each grid and size of SRAM of a generation, 0.15 ms each"
)


def prepare(case):
    import tempfile

    from npusim.explore.search import search

    with tempfile.TemporaryDirectory() as folder:
        search("gcn-cora", folder, budget=500, seed=1)


def work(case):
    from npusim.explore.search import search

    return search("gcn-cora", "found", budget=100_000, seed=1).evaluations
