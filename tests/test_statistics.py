"""The shipped statistics are those of the real data, and a user's own are checked."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import ConfigError, FileError, UnknownNameError
from npusim.graph import GraphStructure
from npusim.workloads import dataset_names, load_statistics, sampled_edges


@pytest.fixture(scope="module")
def script(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("derive", repository / "scripts" / "derive_statistics.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_shipped_statistics_equal_those_derived_from_the_raw_files(
    name: str, script: ModuleType, planetoid_root: Path, repository: Path
) -> None:
    from npusim.gnn_models.planetoid import read_planetoid

    text = script.to_yaml(script.statistics_of(read_planetoid(name, planetoid_root)))
    assert text == (repository / "workloads" / "statistics" / f"{name}.yaml").read_text(encoding="utf-8")


def test_cora_and_citeseer_have_the_published_sizes() -> None:
    cora, citeseer = load_statistics("cora"), load_statistics("citeseer")
    assert (cora.nodes, cora.edges, cora.features, cora.classes) == (2708, 10556, 1433, 7)
    assert (citeseer.nodes, citeseer.edges, citeseer.features, citeseer.classes) == (3327, 9104, 3703, 6)
    assert {"citeseer", "cora"} < set(dataset_names())


def test_block_density_counts_border_blocks_as_whole(script: ModuleType) -> None:
    matrix = sp.coo_matrix(np.eye(17))
    assert script.block_density(matrix, 16) == 2 / 4


def test_sampled_edges_are_counted_from_the_degrees() -> None:
    structure = GraphStructure("g", nodes=4, edges=6, features=1, classes=2, degree_histogram=(1, 1, 1, 1))
    assert sampled_edges(structure, 2) == 1 + 1 + 2 + 2
    assert sampled_edges(structure, 10) == 1 + 1 + 2 + 3


@given(nodes=st.integers(2, 40), share=st.floats(0, 1), count=st.integers(1, 12), seed=st.integers(0, 99))
def test_a_drawn_sample_has_as_many_edges_as_the_statistics_say(
    nodes: int, share: float, count: int, seed: int
) -> None:
    pytest.importorskip("torch")
    from npusim.gnn_models.views import sample_neighbours, sampled_edge_index

    random = np.random.default_rng(seed)
    adjacency = np.triu(random.random((nodes, nodes)) < share, 1)
    edges = np.stack(np.nonzero(adjacency | adjacency.T)).astype(np.int64)
    degrees = np.bincount(np.bincount(edges[1], minlength=nodes))
    structure = GraphStructure("g", nodes, edges.shape[1], 1, 2, degree_histogram=tuple(degrees.tolist()))
    neighbours, mask = sample_neighbours(edges, nodes, count, seed)
    drawn = sampled_edge_index(neighbours, mask)
    assert drawn.shape[1] == sampled_edges(structure, count)
    assert np.unique(drawn, axis=1).shape == drawn.shape
    real = {*map(tuple, edges.T), *((n, n) for n in range(nodes) if n not in edges[1])}
    assert set(map(tuple, drawn.T)) <= real


def test_unknown_dataset_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="`cora`"):
        load_statistics("corra")


def test_a_missing_file_of_statistics_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"mine\.yaml"):
        load_statistics(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nodes": 0}, "nodes"),
        ({"feature_density": 1.5}, "feature_density"),
        ({"edges": 21}, "do not fit"),
        ({"degree_histogram": [0, 3]}, "degree_histogram counts 3 nodes"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_impossible_statistics_are_refused_by_file_and_key(
    change: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    valid = {"name": "mine", "source": "made up", "nodes": 5, "edges": 8, "features": 3, "classes": 2}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(valid), encoding="utf-8")
    assert load_statistics(str(path)).edges == 8
    path.write_text(yaml.safe_dump(valid | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_statistics(str(path))
    assert "mine.yaml" in str(caught.value)
