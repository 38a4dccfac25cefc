"""The front door of Python: what calls take, how results show, and as which tables they come."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import re
from importlib import import_module
from pathlib import Path

import openvino as ov
import pytest
import torch
from torch import nn

import npusim
from npusim.cli.options import SCENARIO, documented
from npusim.documents import Document
from npusim.errors import ConfigError, FileError, NpusimError, UnknownNameError
from npusim.measuring.suites import items_of
from npusim.plugins import announced
from npusim.scenario import Scenario

SPACE = {
    "schema": "npusim.space/1",
    "workload": "gcn-cora",
    "techniques": "stagr",
    "axes": {"npu.tiles": {"values": [1, 2]}, "npu.dsp.per_tile": {"values": [1, 2]}},
    "keep": "all",
}


class Sums(nn.Module):
    """Sums the features of each node's sources."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        summed = torch.zeros_like(x).index_add(0, edge_index[1], x.index_select(0, edge_index[0]))
        return self.out(summed)


class Graph:
    """A data object as PyG has them."""

    x = torch.ones(6, 8)
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    directory = tmp_path_factory.mktemp("swept") / "points"
    return {
        "estimate": npusim.estimate("gcn-cora", techniques="stagr"),
        "whatif": npusim.whatif("gcn-cora", stacks=["stagr", "stagr+symg"], samples=0),
        "sweep": npusim.sweep(SPACE, directory),
        "pareto": npusim.pareto(directory),
        "map": npusim.map("gcn-cora"),
        "stream": npusim.stream("gcn-cora", updates=3),
        "compare": npusim.compare("gcn-cora", "stagr", "stagr+symg"),
    }


NAMES = ("estimate", "whatif", "sweep", "pareto", "map", "stream", "compare")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_result_prints_a_few_lines(results: dict[str, Document], name: str) -> None:
    lines = repr(results[name]).splitlines()
    assert len(lines) <= 6 and max(map(len, lines)) <= 110
    assert lines[0].startswith(type(results[name]).__name__)
    assert str(results[name]) == repr(results[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_result_shows_in_a_notebook_without_anything_from_elsewhere(
    results: dict[str, Document], name: str
) -> None:
    shown = results[name]._repr_html_()
    assert shown.startswith("<pre") and "http" not in shown and "<script" not in shown


@pytest.mark.parametrize("name", NAMES)
def test_a_result_becomes_records_with_named_columns(results: dict[str, Document], name: str) -> None:
    for table in (None, *results[name].tables()):
        records = results[name].records(table)
        assert (records or table) and all(isinstance(one, dict) and one for one in records)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_data_frame_holds_the_figures_of_the_document(results: dict[str, Document], kind: str) -> None:
    pytest.importorskip(kind)
    estimate = results["estimate"]
    assert list(estimate.to_frame(kind)["latency_s"]) == [op.latency_s for op in estimate.operators]
    assert list(estimate.to_frame("units", kind)["name"]) == list(estimate.units)
    assert list(estimate.to_frame(kind, "units")["name"]) == list(estimate.units)
    assert list(estimate.to_frame(kind=kind, table="units")["name"]) == list(estimate.units)
    assert list(estimate.to_frame("units")["name"]) == list(estimate.units)
    assert len(results["sweep"].to_frame(kind)) == results["sweep"].kept
    assert "npu.tiles" in results["sweep"].to_frame(kind).columns


def test_points_of_a_comparison_are_columns() -> None:
    over = npusim.whatif("gcn-cora", stacks=["stagr"], over={"npu.tiles": ["2", "4"]}, samples=0)
    assert [record["at.npu.tiles"] for record in over.records()] == ["2", "4"]


def test_a_missing_library_is_told_with_its_remedy(
    results: dict[str, Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(import_module("sys").modules, "pandas", None)
    with pytest.raises(
        FileError, match=r'pandas: is not installed; install it: pip install "npusim\[frames\]"'
    ):
        results["estimate"].to_frame()


def test_a_wrong_table_or_kind_is_told_with_those_that_are_there(results: dict[str, Document]) -> None:
    with pytest.raises(UnknownNameError, match="`operators`"):
        results["estimate"].records("operator")
    with pytest.raises(UnknownNameError, match="Known: pandas, polars"):
        results["estimate"].to_frame(kind="arrow")


def test_a_module_is_a_network_like_any_other() -> None:
    given = Graph()
    named = npusim.estimate(Sums(), inputs={"x": given.x, "edge_index": given.edge_index})
    assert npusim.estimate(Sums(), inputs=given) == named
    assert npusim.whatif(Sums(), inputs=given, stacks=["none"], samples=0).workload == "Sums"
    assert npusim.estimate(npusim.from_pyg(Sums(), given)).latency_s == named.latency_s
    fp32 = npusim.estimate(Sums(), inputs=given, settings=["workload.precision=fp32"])
    assert fp32.precision == "fp32"


def test_a_module_without_inputs_and_inputs_without_a_module_are_refused() -> None:
    with pytest.raises(ConfigError, match="no inputs for the module Sums"):
        npusim.estimate(Sums())
    with pytest.raises(ConfigError, match="only for a PyTorch module"):
        npusim.estimate("gcn-cora", inputs=Graph())
    with pytest.raises(NpusimError, match=r"forward takes x, edge_index, and object has no x, edge_index"):
        npusim.from_pyg(Sums(), object())


@pytest.mark.parametrize(
    "network", ["gcn-cora", npusim.load_workload("gcn-cora"), lambda: GCN], ids=["name", "graph", "factory"]
)
def test_a_network_is_measured_however_it_is_given(network: object) -> None:
    items, files = items_of(Scenario(network, techniques="stagr"), "latency")
    assert [item.hint for item in items] == ["latency"]
    assert items[0].id.endswith(":stagr")
    assert bool(files) == (network != "gcn-cora")


GCN = npusim.load_workload("gcn-cora")


def test_measured_modules_run_with_their_own_values() -> None:
    run = npusim.measure(Sums(), "CPU", inputs=Graph(), hint="latency", seconds=0.05)
    assert run.rows[0].id == "Sums:none" and run.rows[0].latency_s is not None
    assert repr(run).count("\n") < 4


def save(path: Path, rows: int, inner: bool) -> None:
    """Save a model whose first axis is open (-1), or which has an inner size that depends on values."""
    ops = ov.opset13
    x = ops.parameter(ov.PartialShape([rows, 4]), ov.Type.f32, name="x")
    x.output(0).get_tensor().set_names({"x"})
    made = ops.non_zero(ops.relu(x), output_type="i32") if inner else ops.relu(x)
    ov.save_model(ov.Model([made], [x], "net"), path)


@pytest.mark.laws
def test_a_model_file_is_measured_with_the_shapes_given(tmp_path: Path) -> None:
    save(tmp_path / "open.xml", -1, inner=False)
    run = npusim.measure(tmp_path / "open.xml", "CPU", shapes={"x": [8, 4]}, hint="latency", seconds=0.05)
    assert run.rows[0].model.shapes == {"x": (8, 4)}
    with pytest.raises(NpusimError, match=r"dynamic shapes: x \[\?,4\].*--shape"):
        npusim.measure(tmp_path / "open.xml", "CPU", hint="latency", seconds=0.05)


def test_sizes_inside_may_depend_on_values_where_a_device_runs_them(tmp_path: Path) -> None:
    save(tmp_path / "inner.xml", 8, inner=True)
    assert npusim.measure(tmp_path / "inner.xml", "CPU", hint="latency", seconds=0.05).rows


def test_the_front_door_shows_public_names_only() -> None:
    assert set(dir(npusim)) == {*npusim.__all__, *announced("npusim.calls")}


def test_docstrings_of_the_front_door_point_to_public_names_only() -> None:
    for name in npusim.__all__:
        public = getattr(npusim, name)
        for text in (inspect.getdoc(public) or "", inspect.getdoc(getattr(public, "__init__", None)) or ""):
            named = set(re.findall(r"`npusim\.(\w+)[^`]*`", text)) - {"api"}
            assert named <= {*npusim.__all__, "accuracy"}, (name, named)


def test_a_network_given_in_python_can_be_calibrated_to(tmp_path: Path) -> None:
    run = npusim.measure(Sums(), "CPU", inputs=Graph(), hint="latency", seconds=0.05)
    run.write(tmp_path / "run.json")
    with pytest.raises(NpusimError, match="handed in from Python and is not at hand"):
        npusim.calibrate("generic-cpu", run, fit_networks=True, keep_unsteady=True)
    with pytest.raises(NpusimError, match="found 1 rows to fit to"):
        given = {"Sums": Scenario(Sums(), inputs=Graph())}
        npusim.calibrate(
            "generic-cpu", tmp_path / "run.json", networks=given, fit_networks=True, keep_unsteady=True
        )


def test_an_axis_of_networks_takes_graphs_and_factories(tmp_path: Path) -> None:
    def slim(hidden: int = 16) -> npusim.Graph:
        return npusim.load_workload("gcn-cora", [f"workload.hidden={hidden}"])

    wide = npusim.load_workload("gcn-citeseer")
    axes = {"workload": {"values": ["gcn-cora", slim, wide]}, "npu.tiles": {"values": [1, 2]}}
    swept = npusim.sweep({**SPACE, "axes": axes}, tmp_path / "points")
    found = {(record["workload"], record["npu.tiles"]): record["latency_s"] for record in swept.records()}
    assert {name for name, _ in found} == {"gcn-cora", "slim", "gcn-citeseer"}
    for name, network in (("slim", slim), ("gcn-citeseer", wide)):
        alone = npusim.estimate(network, techniques="stagr", settings=["npu.tiles=2"])
        assert found[name, 2] == pytest.approx(alone.latency_s)
    with pytest.raises(ConfigError, match="networks go by their names"):
        npusim.sweep({**SPACE, "axes": {"workload": {"values": [wide, wide]}}}, tmp_path / "twice")
    with pytest.raises(NpusimError):
        npusim.sweep({**SPACE, "axes": {"techniques": {"values": [wide]}}}, tmp_path / "wrong")


def test_an_estimate_says_which_form_of_the_network_it_is_of() -> None:
    assert npusim.estimate("gcn-cora").provenance["form"] == "edges"
    assert "form dense" in npusim.estimate("gcn-cora", settings=["workload.form=dense"])._repr_html_()
    assert npusim.estimate(Sums(), inputs=Graph()).provenance["form"] == "imported"


# Nothing is ignored in silence

ASKED = Scenario("gcn-cora", techniques="stagr")
TAKING_A_SCENARIO = {
    "estimate": npusim.estimate,
    "map": npusim.map,
    "stream": npusim.stream,
    "whatif": npusim.whatif,
    "advise": npusim.advise,
    "measure": npusim.measure,
    "compare": lambda network, **how: npusim.compare(network, ASKED.with_(tiles=1), **how),
}


@pytest.mark.parametrize("name", TAKING_A_SCENARIO)
@pytest.mark.parametrize(
    ("argument", "value"), [("techniques", "stagr+quantgr"), ("settings", ["npu.tiles=2"])], ids=str
)
def test_an_argument_beside_a_scenario_is_refused(name: str, argument: str, value: object) -> None:
    with pytest.raises(ConfigError, match=argument):
        TAKING_A_SCENARIO[name](ASKED, **{argument: value})


@pytest.mark.parametrize("name", ["estimate", "map", "stream", "whatif", "advise"])
@pytest.mark.parametrize("soc", ["core-ultra-series1", "core-ultra-series2", npusim.load_soc("generic-cpu")])
def test_a_machine_beside_a_scenario_is_refused(name: str, soc: object) -> None:
    with pytest.raises(ConfigError, match="--soc"):
        TAKING_A_SCENARIO[name](ASKED, soc)


@pytest.mark.parametrize("call", [npusim.whatif, npusim.advise])
@pytest.mark.parametrize("asked", [{"network": ASKED}, {"network": "gcn-cora", "techniques": "stagr"}])
def test_techniques_are_refused_where_the_call_chooses_them(call: object, asked: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="techniques `stagr`"):
        call(**asked)


def test_arguments_that_hold_for_another_kind_of_question_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"interval.*analytical"):
        npusim.estimate("gcn-cora", engine="event", interval=True)
    with pytest.raises(ConfigError, match=r"--hint.*rows say their own"):
        npusim.measure(device="CPU", hint="latency")
    with pytest.raises(ConfigError, match=r"--suite.*not both"):
        npusim.measure("gcn-cora", "CPU", suite="aggregation")
    with pytest.raises(ConfigError, match=r"--seeds.*npusim trains"):
        npusim.accuracy(Sums(), data=Graph(), seeds=[1], retrain=True)
    with pytest.raises(ConfigError, match=r"--mask.*PyTorch module"):
        npusim.accuracy("gcn-cora", mask=torch.ones(3))


def test_lists_are_taken_wherever_text_lists_are(planetoid_root: Path) -> None:
    as_text = npusim.accuracy("gcn-cora", "none,stagr", data=planetoid_root)
    assert npusim.accuracy("gcn-cora", ["none", "stagr"], data=planetoid_root) == as_text
    stacks = npusim.whatif("gcn-cora", stacks=["stagr", "stagr+symg"], samples=0).variants
    assert npusim.whatif("gcn-cora", stacks="stagr,stagr+symg", samples=0).variants == stacks
    placed = npusim.map("gcn-cora", devices=["npu", "cpu"])
    assert npusim.map("gcn-cora", devices="npu,cpu") == placed


# One table of options


def test_the_command_line_asks_what_a_scenario_holds() -> None:
    fields = {one.name: one.default for one in dataclasses.fields(Scenario)}
    written = documented("npusim.scenario:Scenario")[1]
    assert set(SCENARIO) == set(fields) - {"network", "inputs"}
    for name in SCENARIO:
        assert written[name].help
        parameter = SCENARIO[name](name, written[name]) if name == "soc" else written[name]
        assert parameter.default == fields[name]


def test_an_axis_may_be_a_plain_list_and_a_sweep_needs_no_directory() -> None:
    swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    folder = Path(swept.directory)
    assert [record["npu.tiles"] for record in swept.records()] == [1, 2, 4]
    assert npusim.pareto(swept, "latency_s").points == 3
    del swept
    gc.collect()
    assert not folder.exists()


def test_limits_are_texts_with_units_or_numbers_in_si_units() -> None:
    asked = {"minimise": "latency,energy", "devices": "npu,gpu", "max_transitions": 2}
    texts = npusim.map("vit", max_power="5W", **asked)
    assert npusim.map("vit", max_power=5.0, **asked) == texts
    with pytest.raises(ConfigError, match=r"--max-power.*latency,energy"):
        npusim.map("gcn-cora", max_power=5.0)
