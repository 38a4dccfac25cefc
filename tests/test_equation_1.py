"""Sparse aggregation, networks by Eq. 1 of GCNP, their pruned widths, and batches, as workloads."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Graph, GraphStructure
from npusim.ops import DType, Storage, Tensor, TensorKind
from npusim.workloads import GnnSpec, build_gnn, load_statistics

STRUCTURE = GraphStructure("g", 1000, 8000, 64, 7)


def network(structure: GraphStructure = STRUCTURE, **keys: Any) -> Graph:
    keys = {"model": "sage-concat", "form": "csr", "hidden": 32} | keys
    return build_gnn(GnnSpec(dataset="g", **keys), structure)


# --- the operator ---


def test_compressed_rows_hold_values_indices_and_row_starts() -> None:
    matrix = Tensor("a", (100, 200), DType.FP32, TensorKind.INPUT, density=0.01, storage=Storage.CSR)
    assert matrix.nonzeros == 200
    assert matrix.stored_bytes == matrix.bytes == 200 * (4 + 4) + 101 * 4


def test_a_sparse_product_counts_non_zeros_times_width() -> None:
    graph = network(layers=1)
    (op,) = [op for op in graph if op.type == "SparseMatMul"]
    work = graph.work(op)
    assert (work.macs, work.rows, work.row_length) == (8000 * 64, 8000, 64)
    (sort,) = [op for op in graph if op.type == "EdgesToCsr"]
    assert graph.work(sort).elements > 8000


def test_compressed_rows_are_lighter_than_messages_on_a_cpu() -> None:
    structure = GraphStructure("g", 20_000, 1_000_000, 64, 7)
    csr, edges = (npusim.estimate(network(structure, form=form), "generic-cpu") for form in ("csr", "edges"))
    assert csr.latency_s < edges.latency_s
    assert csr.memory.dram_peak_bytes < edges.memory.dram_peak_bytes / 2


@pytest.mark.parametrize("device", ["auto", "npu"])
def test_an_npu_refuses_compressed_rows_with_the_forms_that_it_can(device: str) -> None:
    with pytest.raises(InfeasibleError, match=r"edges, dense \(--set workload\.form=.*--device cpu"):
        npusim.estimate(network(), device=device)
    assert npusim.estimate(network(), device="cpu").latency_s > 0


def test_grasp_on_a_cpu_goes_along_the_non_zeros() -> None:
    dense, sparse = (
        npusim.estimate("gcn-cora", "generic-cpu", techniques=stack) for stack in ("stagr", "stagr+grasp")
    )
    aggregate = "layer0/aggregate/matmul"
    times = [next(o.latency_s for o in e.operators if o.name == aggregate) for e in (dense, sparse)]
    assert times[1] < times[0] / 10


@pytest.mark.parametrize("model", ["gcn", "gat", "sage-mean"])
def test_csr_computes_what_the_edges_do(model: str) -> None:
    csr = build_gnn(GnnSpec(model=model, dataset="cora", form="csr"), load_statistics("cora"))
    assert sum(op.type == "SparseMatMul" for op in csr) == 2
    assert not any(op.region.endswith("aggregate") and op.type == "Gather" for op in csr)


# --- networks by Eq. 1 ---


def test_sage_concat_is_two_branches_side_by_side() -> None:
    graph = network()
    dense = 64 * 2 * 32 + 64 * 2 * 32 + 64 * 7
    assert graph.macs == 1000 * dense + 8000 * (64 + 64)


def test_the_other_order_aggregates_what_a_layer_puts_out() -> None:
    assert network(order="transform_first").macs == network().macs - 8000 * (64 - 32) * 2


@pytest.mark.parametrize(
    ("model", "branches"), [("mixhop", 3 * 2), ("jk", 1 * 2), ("sign", 3), ("sgc", 1), ("sage-concat", 2 * 2)]
)
def test_each_model_has_its_branches(model: str, branches: int) -> None:
    graph = network(model=model)
    weights = [name for name in graph.tensors if name.endswith("weight") and name.startswith("layer")]
    assert len(weights) == branches


def test_jumping_knowledge_classifies_from_all_layers() -> None:
    graph = network(model="jk", layers=3)
    assert graph.tensors["classify/matmul/weight"].shape == (7, 3 * 32)


def test_features_aggregated_beforehand_leave_products_alone() -> None:
    assert network(model="sgc", preprocessed=True).macs == 1000 * 64 * 7


# --- pruned ---


@given(st.sampled_from(["full", "batched"]), st.integers(2, 16), st.integers(2, 16))
def test_work_never_rises_with_the_budget(scheme: str, first: int, second: int) -> None:
    small, large = sorted((first, second))
    macs = [
        network(pruning={"budget": float(b), "scheme": scheme}).macs for b in (small, large)
    ]  # fmt: skip
    assert macs[1] <= macs[0] <= network().macs


def test_full_pruning_keeps_raw_attributes_and_batched_keeps_the_own_branch() -> None:
    full, batched = (
        network(pruning={"budget": 4.0, "scheme": scheme}).tensors for scheme in ("full", "batched")
    )
    assert full["layer0/combine/order1/weight"].shape == (8, 64)
    assert full["layer1/combine/order0/weight"].shape == (8, 16)
    assert batched["layer0/combine/order0/weight"].shape == (8, 64)
    assert batched["layer0/combine/order1/weight"].shape == (8, 16)
    assert batched["layer1/combine/order0/weight"].shape == (32, 16)


@given(st.floats(0.01, 0.99), st.floats(1.1, 16.0))
def test_a_budget_keeps_as_many_channels_however_they_are_shared(share: float, budget: float) -> None:
    def widths(**more: float) -> list[int]:
        tensors = network(pruning={"budget": budget, **more}).tensors
        return [tensors[f"layer0/combine/order{order}/weight"].shape[0] for order in (0, 1)]

    even, shared = widths(), widths(own_share=share)
    assert sum(shared) == sum(even) and min(shared) >= 1 and max(shared) <= 32
    assert (shared[0] <= shared[1]) == (share <= 0.5) or abs(shared[0] - shared[1]) <= 1


def test_channels_are_kept_in_sixteens_where_that_is_asked_for() -> None:
    graph = network(hidden=64, pruning={"budget": 5.0, "multiple": 16})
    assert graph.tensors["layer0/combine/order0/weight"].shape == (16, 64)


@pytest.mark.parametrize("budget", [2.0, 4.0])
def test_a_network_of_16s_is_never_slower_on_an_npu_than_the_next_wider_one(budget: float) -> None:
    structure = load_statistics("cora")
    latency = [
        npusim.estimate(
            network(structure, form="dense", hidden=hidden, pruning={"budget": budget, "multiple": 16}),
            techniques="stagr",
        ).latency_s
        for hidden in (64, 96, 128)
    ]
    assert latency == sorted(latency)


# --- batches ---


def test_a_batch_answers_for_its_roots_and_reads_stored_features() -> None:
    graph = network(batch={"roots": 20, "stored": 0.5, "hop2": 4})
    assert graph.tensors[graph.outputs[0]].shape == (20, 7)
    assert graph.tensors["store/gather"].shape == (80, 64)
    assert graph.tensors["x"].shape == (20 + 160 + 80 * 4, 64)


def test_a_stored_share_of_0_is_the_plain_batch_and_of_1_costs_what_full_inference_costs_a_node() -> None:
    plain, none, every = (
        network(batch={"roots": 20} | more) for more in ({}, {"stored": 0.0}, {"stored": 1.0})
    )
    assert plain.digest == none.digest
    assert every.macs / 20 == network().macs / 1000


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=20)
def test_more_stored_features_never_mean_more_work(first: float, second: float) -> None:
    less, more = sorted((first, second))
    macs = [network(batch={"roots": 20, "stored": share}).macs for share in (less, more)]
    assert macs[1] <= macs[0]


@given(st.integers(1, 100), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([None, 2.0]))
@settings(max_examples=10)
def test_gathered_rows_and_normalised_branches_add_time_and_no_work(
    roots: int, stored: float, budget: float | None
) -> None:
    keys = {"pruning": {"budget": budget, "scheme": "batched"}} if budget else {}
    plain, fetched = (
        network(batch={"roots": roots, "stored": stored, "fetched": is_fetched}, **keys)
        for is_fetched in (False, True)
    )
    assert fetched.macs == plain.macs
    assert fetched.tensors["x"].shape == (1000, 64)
    normalised = network(batch={"roots": roots, "stored": stored, "fetched": True}, branch_norm=True, **keys)
    assert normalised.macs == plain.macs
    latency = [
        npusim.estimate(graph, "threadripper-a6000", device="cpu").latency_s
        for graph in (fetched, normalised)
    ]
    assert latency[0] < latency[1]


def test_a_batch_of_static_shapes_is_padded_to_its_capacity() -> None:
    histogram = tuple([0, 0, 0, 0, 500, 0, 0, 0, 0, 0, 0, 0, 500])
    structure = GraphStructure("g", 1000, 8000, 64, 7, degree_histogram=histogram)
    graph = network(structure, form="dense", batch={"roots": 10, "hop2": 4, "capacity": 700})
    assert graph.tensors["x"].shape == (700, 64)
    assert any("padding" in note and "% of batches" in note for note in graph.meta.notes)
    loose = network(structure, form="dense", batch={"roots": 10, "hop2": 4})
    assert (
        npusim.estimate(graph, techniques="grad").latency_s
        >= npusim.estimate(loose, techniques="grad").latency_s
    )


# --- bad input ---


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"pruning": {"budget": 0.0}}, "budget"),
        ({"pruning": {"budget": 1.0}}, "budget"),
        ({"pruning": {"budget": 33.0}}, "at most 32"),
        ({"model": "sgc", "pruning": {"budget": 2.0}}, "one layer"),
        ({"model": "sage-mean", "pruning": {"budget": 2.0}}, "only of gcn, gat, sage-concat"),
        ({"model": "sign", "pruning": {"budget": 2.0, "scheme": "batched"}}, "full"),
        ({"batch": {"roots": 1001}}, "at most 1000"),
        ({"batch": {"roots": 100, "capacity": 99}}, "at least the 100 roots"),
        ({"batch": {"roots": 10, "capacity": 20}}, "at least"),
        ({"batch": {"roots": 10, "stored": "visited"}}, "unvisited_neighbours"),
        ({"model": "gcn", "batch": {"roots": 10}}, "only of sage-concat"),
        ({"channels": [[{"order": 0, "inputs": 64, "outputs": 4}]]}, "3, as the network has"),
    ],
)
def test_impossible_settings_are_refused_with_what_is_allowed(keys: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=complaint):
        network(**keys)


def test_edges_that_do_not_make_the_list_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "g.yaml"
    file.write_text(
        "name: g\nsource: s\nnodes: 10\nedges: 20\nfeatures: 3\nclasses: 2\n"
        "listed_edges: {count: 11, read_as: undirected, source: s}\n"
    )
    with pytest.raises(ConfigError, match=r"listed_edges\.count"):
        load_statistics(str(file))
