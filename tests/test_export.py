"""Exporting: files that are whole, messages that say what is missing, modules taken from memory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npusim.errors import FileError, IllegalTechniqueError, NpusimError, UnknownNameError
from npusim.ops import DType, Role
from npusim.workloads import load_workload

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("openvino")

from npusim.frontends.pyg import from_pyg  # noqa: E402
from npusim.gnn_models.export import export_model  # noqa: E402
from npusim.gnn_models.planetoid import read_planetoid  # noqa: E402
from npusim.gnn_models.training import Recipe  # noqa: E402

QUICK = Recipe(epochs=3)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these small products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_an_export_leaves_a_readable_pair_of_files_and_nothing_else(
    planetoid_root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "with space.xml"
    path.write_text("old", encoding="utf-8")
    export = export_model("gcn-cora", "symg+stagr", planetoid_root, path, recipe=QUICK)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["with space.bin", "with space.xml"]
    assert (export.path, export.techniques, export.operators) == (path, "stagr+symg", 8)
    assert 0 < export.test_accuracy <= 1
    graph = load_workload(path)
    assert (graph.name, len(graph)) == ("with space", 8)
    assert path.with_suffix(".bin").stat().st_size < 2 * 2708**2 * 1.1


def test_single_precision_is_kept_where_the_workload_asks_for_it(
    planetoid_root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.xml"
    settings = ("workload.precision=fp32",)
    export_model("gcn-cora", "none", planetoid_root, path, settings, QUICK)
    graph = load_workload(path, settings)
    assert {t.dtype for t in graph.tensors.values() if t.dtype.is_float} == {DType.FP32}


def test_training_is_the_same_every_time(planetoid_root: Path, tmp_path: Path) -> None:
    found = [
        export_model("gcn-cora", "stagr", planetoid_root, tmp_path / "m.xml", recipe=QUICK).test_accuracy
        for _ in range(2)
    ]
    assert found[0] == found[1]


def test_missing_data_says_what_to_set_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPUSIM_DATA", raising=False)
    with pytest.raises(FileError, match=r"--data DIR or set NPUSIM_DATA.*Planetoid\('DIR', 'cora'\)"):
        read_planetoid("cora")
    with pytest.raises(FileError, match=r"raw files are missing: ind\.cora\.x"):
        read_planetoid("cora", tmp_path)
    with pytest.raises(FileError, match="not a folder"):
        read_planetoid("cora", tmp_path / "nowhere")
    with pytest.raises(UnknownNameError, match="pubmed"):
        read_planetoid("pubmed", tmp_path)


def test_bad_requests_are_refused_before_training(planetoid_root: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=re.escape("does not end in .xml")):
        export_model("gcn-cora", output=tmp_path / "model.bin", data=planetoid_root)
    with pytest.raises(FileError, match="no directory"):
        export_model("gcn-cora", output=tmp_path / "no" / "model.xml", data=planetoid_root)
    with pytest.raises(UnknownNameError, match="stagr"):
        export_model("gcn-cora", "stager", planetoid_root, tmp_path / "model.xml")
    with pytest.raises(IllegalTechniqueError):
        export_model("gcn-cora", "grax3", planetoid_root, tmp_path / "model.xml")
    assert list(tmp_path.iterdir()) == []


def test_a_module_in_memory_becomes_a_graph() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 8)

        def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
            return torch.relu(self.linear(x)).index_select(0, edge_index[0])

    edges = torch.zeros(2, 6, dtype=torch.int64)
    graph = from_pyg(Net(), (torch.zeros(5, 4), edges))
    assert graph.name == "Net"
    assert graph.macs == 5 * 4 * 8
    assert (graph.tensors["x"].role, graph.tensors["edge_index"].role) == (Role.FEATURES, Role.EDGES)
    assert from_pyg(Net(), {"h": torch.zeros(5, 4), "e": edges}, "mine").tensors["h"].shape == (5, 4)


@pytest.mark.laws
def test_imports_and_conversions_are_reported_to_nobody() -> None:
    """OpenVINO would tell its maker of both, by processes that threads fork."""
    pytest.importorskip("openvino_telemetry")
    code = (
        "from openvino_telemetry.utils.sender import TelemetrySender\n"
        "TelemetrySender.send = lambda self, backend, message: print('sent')\n"
        "import torch\n"
        "from npusim.frontends.pyg import from_pyg\n"
        "print(from_pyg(torch.nn.ReLU(), {'x': torch.zeros(2, 2)}).name)"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "TF_BUILD")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "ReLU\n"


def test_a_convolution_of_torch_geometric_becomes_a_graph() -> None:
    from torch_geometric.nn import SAGEConv

    graph = from_pyg(SAGEConv(4, 8), (torch.zeros(5, 4), torch.zeros(2, 6, dtype=torch.int64)))
    assert "ScatterElementsUpdate" in {op.type for op in graph}
    assert graph.macs == 2 * 5 * 4 * 8


def test_a_module_that_cannot_be_converted_is_one_clear_error() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            raise RuntimeError("no such luck")

    with pytest.raises(NpusimError, match=r"Broken cannot be converted to OpenVINO: .*no such luck"):
        from_pyg(Broken(), (torch.zeros(2, 2),))

    class Exotic(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.linalg.eigh(x)[0]

    with pytest.raises(NpusimError, match="linalg_eigh"):
        from_pyg(Exotic(), (torch.zeros(2, 2),))


def test_without_torch_the_message_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from npusim.errors import FileError\n"
        "try:\n    import npusim.gnn_models.export\n"
        "except FileError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "npusim[gnn]"' in done.stdout
