"""What a workload's graph contains, whatever its model, data set and form."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.config import schema_of
from npusim.errors import ConfigError, FileError, NpusimError, UnknownNameError
from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType, Role, TensorKind
from npusim.workloads import (
    KINDS,
    GnnSpec,
    WorkloadKind,
    WorkloadSpec,
    build_gnn,
    load_gnn,
    load_spec,
    load_workload,
    workload_file,
    workload_names,
)
from npusim.workloads.gnn.spec import EQUATION_1

FORMS = [
    ("gcn", "edges"),
    ("gcn", "dense"),
    ("gat", "dense"),
    ("gat", "edges"),
    ("sage-mean", "gathered"),
    ("sage-mean", "edges"),
    ("sage-mean", "dense"),
    ("sage-max", "gathered"),
    ("sage-max", "edges"),
    ("gcn", "csr"),
    ("gat", "csr"),
    ("sage-mean", "csr"),
    *((model, form) for model in EQUATION_1 for form in ("edges", "dense", "csr")),
]


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph]


def test_each_model_comes_with_each_dataset() -> None:
    models = ("gcn", "gat", "sage-mean", "sage-max", "sage-concat")
    assert workload_names("gnn") == sorted(f"{m}-{d}" for m in models for d in ("cora", "citeseer"))


@pytest.mark.parametrize("name", workload_names("gnn"))
def test_a_named_workload_says_what_it_is(name: str) -> None:
    graph = load_workload(name)
    assert graph.name == name
    assert graph.meta.model + "-" + graph.meta.dataset == name
    assert graph.tensors["x"].role is Role.FEATURES
    assert graph.tensors["x"].density == graph.structure.feature_density
    assert [graph.tensors[t].shape for t in graph.outputs] == [
        (graph.structure.nodes, graph.structure.classes)
    ]
    assert all(op.traits.known for op in graph)
    assert all(op.name.startswith(op.region + "/") for op in graph)


@given(
    form=st.sampled_from(FORMS),
    nodes=st.integers(2, 50),
    features=st.integers(1, 40),
    classes=st.integers(2, 9),
    layers=st.integers(1, 4),
    heads=st.sampled_from([1, 2, 4]),
    share=st.floats(0, 1),
)
def test_every_form_of_every_model_builds_for_every_size(
    form: tuple[str, str], nodes: int, features: int, classes: int, layers: int, heads: int, share: float
) -> None:
    edges = 2 * int(share * nodes * (nodes - 1) / 2)
    structure = GraphStructure("g", nodes, edges, features, classes)
    more = {"heads": heads} if form[0] == "gat" else {}
    more |= {"layers": layers} if form[0] not in ("sign", "sgc") else {}
    spec = GnnSpec(model=form[0], dataset="g", form=form[1], hidden=16, **more)
    graph = build_gnn(spec, structure)
    assert graph.tensors[graph.outputs[0]].shape == (nodes, classes)
    assert graph.macs > 0
    floats = {t.dtype for t in graph.tensors.values() if t.dtype.is_float}
    assert floats == {DType.FP16}
    preprocessing = [op for op in graph if graph.structural.issuperset(op.outputs)]
    assert all(op.region.endswith("preprocess") for op in preprocessing)


def test_gcn_multiplies_the_norm_as_often_as_it_has_layers() -> None:
    graph = load_workload("gcn-cora", ["workload.form=dense", "workload.layers=3"])
    products = [op for op in graph.readers("preprocess/norm") if op.type == "MatMul"]
    assert len(products) == 3
    norm = graph.tensors["preprocess/norm"]
    assert (norm.role, norm.symmetric, norm.shape) == (Role.NORM, True, (2708, 2708))
    assert norm.density == pytest.approx((10556 + 2708) / 2708**2)
    assert graph.macs == 2708 * (1433 * 64 + 64 * 64 + 64 * 7) + 2708**2 * (64 + 64 + 7)


def test_gcn_along_edges_gathers_scales_and_scatters_in_each_layer() -> None:
    graph = load_workload("gcn-cora")
    aggregate = [op.type for op in graph if op.region == "layer0/aggregate"]
    assert {"Gather", "Multiply", "ScatterElementsUpdate"} <= set(aggregate)
    assert graph.macs == 2708 * (1433 * 64 + 64 * 7)


def test_gat_baseline_masks_with_one_greater_and_a_select_a_layer() -> None:
    graph = load_workload("gat-cora")
    assert types(graph).count("Greater") == 1
    assert types(graph).count("Select") == types(graph).count("Broadcast") == 2


def test_sage_max_reduces_neighbours_side_by_side() -> None:
    graph = load_workload("sage-max-cora")
    reduce = next(op for op in graph if op.type == "ReduceMax")
    assert graph.inputs_of(reduce)[0].shape == (2708, 10, 1433)


def test_transforming_first_aggregates_the_narrow_side() -> None:
    narrow = load_workload("sage-mean-cora", ["form=dense", "order=transform_first"])
    wide = load_workload("sage-mean-cora", ["form=dense"])
    widest = [max(g.work(op).macs for op in g) for g in (narrow, wide)]
    assert widest == [2708 * 2708 * 64, 2708 * 2708 * 1433]


def test_precision_is_that_of_every_floating_tensor() -> None:
    graph = load_workload("gat-cora", ["workload.precision=fp32"])
    assert {t.dtype for t in graph.tensors.values() if t.dtype.is_float} == {DType.FP32}


def test_only_graph_inputs_are_structural_inputs() -> None:
    graph = load_workload("sage-mean-cora")
    inputs = {t.name: t.structural for t in graph.tensors.values() if t.kind is TensorKind.INPUT}
    assert inputs == {"x": False, "neighbours": True, "mask": True}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("workload.form=gathered", "gcn has no form 'gathered'; it has edges, dense, csr"),
        ("workload.heads=2", "gcn has no attention heads"),
        ("workload.hiden=32", "workload.hidden"),
        ("workload.layers=0", "layers"),
        ("workload.layers=true", "layers"),
        ("workload.layers=2.5", "layers"),
        ("workload.model=gin", "model"),
        ("workload.precision=int8", "precision"),
    ],
)
def test_an_impossible_setting_is_refused_with_what_is_allowed(override: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace(".", r"\.")):
        load_workload("gcn-cora", [override])


def test_heads_must_share_the_width_evenly() -> None:
    with pytest.raises(ConfigError, match="multiple of heads"):
        load_workload("gat-cora", ["workload.heads=7"])


def test_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="`gcn-cora`"):
        load_workload("gcn-corra")


def test_a_missing_workload_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.yaml"):
        load_workload(tmp_path / "none.yaml")


def test_a_users_own_graph_is_found_beside_the_workload_file(tmp_path: Path) -> None:
    (tmp_path / "town.yaml").write_text(
        "name: town\nsource: counted\nnodes: 30\nedges: 60\nfeatures: 5\nclasses: 3\n", encoding="utf-8"
    )
    (tmp_path / "mine.yaml").write_text("model: gat\ndataset: town.yaml\n", encoding="utf-8")
    graph = load_workload(tmp_path / "mine.yaml")
    assert graph.name == "mine"
    assert graph.structure.nodes == 30
    assert graph.meta.form == "dense"


def test_a_file_without_kind_is_a_gnn_and_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("model: gcn\ndataset: cora\n", encoding="utf-8")
    assert load_spec(file) == load_spec("gcn-cora").model_copy(update={"description": ""})
    file.write_text("model: gcn\nkind: gnm\ndataset: cora\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"mine\.yaml:2: kind: found `gnm`; allowed: gnn.*did you mean `gnn`"
    ):
        load_workload(file)


class LineSpec(WorkloadSpec):
    """A chain of activations."""

    kind: Literal["line"]
    """A chain."""
    model: Literal["relu"] = "relu"
    """The activation."""
    precision: Literal["fp16"] = "fp16"
    """Format of the tensors."""
    length: int
    """Operators in the chain."""


def build_line(spec: LineSpec, name: str, folder: Path) -> Graph:
    editor = Editor(name)
    x = editor.input("x", (4, 4))
    for step in range(spec.length):
        x = editor.unary("Relu", x, f"relu{step}")
    editor.outputs = [x]
    return editor.finish()


@pytest.fixture
def line() -> Iterator[None]:
    KINDS.register(WorkloadKind("line", "chains", LineSpec, build_line))
    yield
    KINDS.remove("line")


@pytest.mark.usefixtures("line")
def test_a_registered_kind_brings_its_own_keys(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("kind: line\nlength: 3\n", encoding="utf-8")
    assert len(load_workload(file)) == 3
    assert len(load_workload(file, ["workload.length=5"])) == 5
    with pytest.raises(ConfigError, match=r"workload\.hidden"):
        load_workload(file, ["workload.hidden=5"])
    with pytest.raises(ConfigError, match="of kind line; allowed: one of kind gnn"):
        load_gnn(file)
    assert "LineSpec" in schema_of(workload_file())["$defs"]


def test_a_kind_whose_files_do_not_name_it_is_refused_when_it_is_declared() -> None:
    with pytest.raises(NpusimError, match='needs `kind: Literal\\["chain"\\]`'):
        WorkloadKind("chain", "chains", LineSpec, build_line)
    with pytest.raises(NpusimError, match="already"):
        KINDS.register(KINDS["gnn"])


def test_shapes_are_for_model_files_only() -> None:
    with pytest.raises(ConfigError, match="only for a model file"):
        load_workload("gcn-cora", shapes={"x": [1, 2]})


def test_building_a_workload_imports_neither_torch_nor_openvino() -> None:
    code = (
        "import sys, npusim.workloads as w; w.load_workload('gcn-cora');"
        "print(sorted({'torch', 'openvino', 'torch_geometric', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_kind_brings_workloads_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "long-line.yaml").write_text("kind: line\nlength: 7\n", encoding="utf-8")
    KINDS.register(WorkloadKind("line", "chains", LineSpec, build_line, tmp_path))
    try:
        assert workload_names("line") == ["long-line"]
        assert len(load_workload("long-line")) == 7
    finally:
        KINDS.remove("line")
    with pytest.raises(UnknownNameError):
        load_workload("long-line")


def test_settings_of_a_workload_are_a_keyword_as_those_of_a_machine() -> None:
    wide = load_workload("gcn-cora", settings={"workload.hidden": 128})
    assert wide.tensors.keys() == load_workload("gcn-cora", ["workload.hidden=128"]).tensors.keys()
    assert any(128 in tensor.shape for tensor in wide.tensors.values())
