"""A scenario: whatever names network and SoC, the same is asked, loaded once, and refused in one message."""

import pytest

import npusim
from npusim import Editor, Graph, Scenario, apply, estimate, load_soc, load_workload
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.scenario import name_of

SERIES2 = load_soc("core-ultra-series2")


def mlp(hidden: int = 64, precision: str = "fp16") -> Graph:
    editor = Editor(f"mlp-{hidden}")
    x = editor.input("x", (256, 128), npusim.DType(precision))
    for layer, width in enumerate((hidden, 16)):
        weights = editor.constant(
            f"w{layer}", (128 if layer == 0 else hidden, width), npusim.DType(precision)
        )
        x = editor.matmul(x, weights, f"layer{layer}")
    editor.outputs.append(x)
    return editor.finish()


def test_names_and_objects_ask_the_same():
    named = Scenario("gcn-cora", "core-ultra-series2", "stagr", hint="throughput")
    held = Scenario(load_workload("gcn-cora"), SERIES2, "stagr", hint="throughput")
    rewritten = Scenario(apply(load_workload("gcn-cora"), "stagr"), hint="throughput")
    assert estimate(named) == estimate(held) == estimate(rewritten)


def test_a_factory_takes_the_settings_of_its_network():
    wide = Scenario(mlp, SERIES2, settings=["workload.hidden=512", "npu.tiles=2"])
    assert wide.baseline.macs == mlp(512).macs
    assert int(wide.machine.npu.tiles) == 2
    assert estimate(wide).workload == "mlp-512"
    assert name_of(mlp) == "mlp"


@pytest.mark.parametrize(
    ("network", "settings", "message"),
    [
        (mlp, ["workload.hiden=512"], "workload.hidden"),
        (mlp(), ["workload.hidden=512"], "made already"),
        (lambda: 7, [], "found a int; allowed: a Graph"),
        ("gcn-cora", ["wrkload.hidden=3"], "unknown path"),
    ],
)
def test_a_network_that_cannot_be_made_is_refused(network, settings, message):
    with pytest.raises(NpusimError, match=message):
        Scenario(network, SERIES2, settings=settings).load()


def test_shapes_are_for_model_files():
    with pytest.raises(ConfigError, match="only for a model file"):
        Scenario(mlp(), shapes={"x": [1, 2]}).load()


def test_what_changes_is_loaded_again_and_nothing_else():
    asked = []

    def counted() -> Graph:
        asked.append(1)
        return mlp()

    scenario = Scenario(counted, SERIES2).load()
    for other in (scenario.with_(techniques="quantgr"), scenario.with_(hint="throughput", tiles=2)):
        assert other.load().machine is scenario.machine
        assert other.baseline is scenario.baseline
    assert scenario.on(load_soc("core-ultra-series1")).baseline is scenario.baseline
    assert len(asked) == 1
    assert scenario.with_settings(["npu.tiles=3"]).machine.npu.tiles == 3


def test_a_run_is_made_definite():
    assert Scenario(mlp, SERIES2, tiles="all").run.tiles == int(SERIES2.npu.tiles)
    with pytest.raises(UnknownNameError, match="latency"):
        _ = Scenario(mlp, SERIES2, hint="latncy").run
    with pytest.raises(NpusimError, match="--tiles: found 99"):
        _ = Scenario(mlp, SERIES2, tiles=99).run


def test_both_engines_are_called_by_name():
    assert estimate(mlp, engine="event").engine == "event"
    with pytest.raises(UnknownNameError, match="analytical"):
        estimate(mlp, engine="analytic")


def test_an_own_graph_is_compared_and_placed():
    compared = npusim.whatif(mlp, SERIES2, ["none", "quantgr"], samples=0)
    assert [v.techniques for v in compared.variants] == ["none", "quantgr"]
    over = npusim.whatif(
        mlp, SERIES2, ["none", "quantgr"], over={"workload.hidden": ["64", "1024"]}, samples=0
    )
    assert len(over.points) == 2
    assert npusim.map(mlp, devices=["npu", "cpu"]).devices == ["npu", "cpu"]


# Tiles


@pytest.mark.parametrize(
    ("settings", "hint", "tiles", "contexts"),
    [
        ([], "latency", 4, 1),  # as the data sheet says
        ([], "throughput", 2, 2),
        (["npu.tiles=8"], "latency", 8, 1),
        (["npu.tiles=6"], "latency", 6, 1),
        (["npu.tiles=3"], "latency", 3, 1),
        (["npu.tiles=8"], "throughput", 4, 2),
        (["npu.tiles=8", "npu.contexts=4"], "throughput", 2, 4),
        (["npu.tiles=8", "npu.tiles_for.latency=5"], "latency", 5, 1),
        (["npu.tiles_for.latency=5", "npu.tiles=8"], "latency", 5, 1),
    ],
)
def test_tiles_that_are_set_are_used_unless_told_otherwise(settings, hint, tiles, contexts):
    mapped = Scenario("gcn-cora", techniques="stagr", hint=hint, settings=settings).mapped
    assert (mapped.run.tiles, int(mapped.npu["contexts"])) == (tiles, contexts)


@pytest.mark.parametrize(("own", "tiles"), [("", 8), ("\n    tiles_for: {latency: 4, throughput: 2}", 4)])
def test_a_data_sheet_of_eight_tiles_runs_on_eight_unless_it_says_otherwise(tmp_path, own, tiles):
    sheet = tmp_path / "mine.yaml"
    sheet.write_text(
        "schema: npusim.soc/1\nextends: core-ultra-series2\nname: mine\ntitle: Mine\n"
        f"devices:\n  npu:\n    tiles: {{value: 8, source: mine}}{own}\n"
    )
    assert Scenario("gcn-cora", sheet).run.tiles == tiles


def test_a_tile_that_is_set_twice_is_used_as_set_last():
    soc = load_soc("core-ultra-series2", ["npu.tiles=8"])
    assert Scenario("gcn-cora", soc, settings=["npu.tiles=10"]).run.tiles == 10
