WHAT = "search of the shipped space (NSGA-II), 100,000 evaluations"
WANTED = "5 s, start-up apart"
UNIT = "evaluations"
CASES = ("",)
BEFORE_S = {"": 45}


def prepare(case):
    import tempfile

    from npusim.explore.search import search

    with tempfile.TemporaryDirectory() as folder:
        search("gcn-cora", folder, budget=500, seed=1)


def work(case):
    from npusim.explore.search import search

    return search("gcn-cora", "found", budget=100_000, seed=1).evaluations
