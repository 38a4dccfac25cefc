WHAT = "architectures of MaGNAS's space, at random, with exact fronts of mappings to Xavier's GPU and DLA"
WANTED = "1,000 architectures/s on two cores"
UNIT = "architectures"
CASES = ("",)
TURNS = 1
_OPERATORS = ("max_relative", "edgeconv", "gin", "graphsage")
_ready = {}


def prepare(case):
    import numpy as np

    from npusim.arch import load_soc
    from npusim.magnas.block_costs import MappedSpace
    from npusim.magnas.space import ArchitectureSpace
    from npusim.workloads import load_spec

    backbone, widths = load_spec("magnas-vig"), (96, 192, 320)
    space = ArchitectureSpace(operators=_OPERATORS)
    random = np.random.default_rng(0)
    drawn = [
        {
            "depth": random.integers(2, 5, 4).tolist(),
            "operator": random.choice(_OPERATORS, 4).tolist(),
            "preprocess": random.choice([False, True], 4).tolist(),
            "ffn_hidden": random.choice([0, *widths], 4).tolist(),
        }
        for _ in range(2_000)
    ]
    _ready["table"] = MappedSpace(backbone, space, load_soc("jetson-agx-xavier"), ("gpu", "dla")).table
    _ready["specs"] = [backbone.model_copy(update=one) for one in drawn]
    _ready["table"].front(_ready["specs"][0])


def work(case):
    for spec in _ready["specs"]:
        _ready["table"].front(spec)
    return len(_ready["specs"])
