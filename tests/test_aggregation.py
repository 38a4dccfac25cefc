"""Aggregation with PyTorch Geometric: suite, counted memory, refusals, a real run, what is costed."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.cli.program import run
from npusim.errors import ConfigError, NpusimError
from npusim.measuring.aggregation import MessagePassing, aggregation_bytes
from npusim.measuring.benchmarks import AGGREGATIONS, benchmark_graph
from npusim.measuring.document import Benchmark
from npusim.measuring.suites import Item, load_suite

SMALL = {"nodes": 200, "edges": 900, "hidden": 32}
HEAD = "schema: npusim.measurements/1\nbenchmarks:\n"


def item(operator: str = "MessagePassing", **sizes: int) -> Item:
    chunks = {"chunks": 1} if operator != "CsrProduct" else {}
    model = Benchmark(operator=operator, sizes=SMALL | chunks | sizes)
    return Item("row", model)


def test_the_shipped_suite_is_pytorchs_and_can_be_costed_row_by_row() -> None:
    items = load_suite("aggregation").items
    assert all(one.of_pytorch for one in items)
    for one in items[::7]:
        assert isinstance(one.model, Benchmark)
        assert len(benchmark_graph(one.model.operator, one.model.sizes)) >= 2


@pytest.mark.few(2)
@pytest.mark.parametrize("chunks", [1, 2, 4, 32])
def test_chunks_read_every_edge_again_and_sum_as_many_numbers(chunks: int) -> None:
    graph = benchmark_graph("MessagePassing", SMALL | {"chunks": chunks})
    assert graph.tensors[graph.outputs[0]].shape[-1] in (32, 1)
    gather = next(op for op in graph if op.type == "Gather")
    assert gather.repeats == chunks
    assert any(op.type == "SparseMatMul" for op in graph) is (32 // chunks >= 16)


@given(
    st.integers(1, 10**6), st.integers(1, 10**8), st.sampled_from([8, 16, 32, 64]), st.booleans(),
    st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_memory_falls_with_every_further_doubling_of_chunks(
    nodes: int, edges: int, width: int, scaled: bool, chunks: int
) -> None:
    few, many = (
        aggregation_bytes(MessagePassing(nodes, edges, width, p, scaled)) for p in (chunks, 2 * chunks)
    )
    assert many <= few


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "  - {operator: MessagePassing, grid: {nodes: [9], edges: [9], hidden: [8], chunks: [16]}}",
            "divide",
        ),
        (
            "  - {operator: MessagePassing, grid: {nodes: [9], edges: [9], hidden: [8], chunks: [3]}}",
            "divide",
        ),
        ("  - {operator: CsrProduct, grid: {nodes: [9], edges: [9], hidden: [8], chunks: [2]}}", "chunks"),
        (
            "  - {operator: CsrProduct, grid: {nodes: [9], edges: [9], hidden: [8]}}\n  - operator: Empty",
            "suite of one of them",
        ),
    ],
)
def test_impossible_suites_are_refused(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(ConfigError, match=complaint):
        load_suite(file)


def test_the_command_refuses_other_devices(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert run(["measure", "--suite", "aggregation", "--device", "GPU"]) == 2
    assert "CPU for this suite" in capsys.readouterr().err


# --- with PyTorch ---


def test_what_memory_does_not_hold_is_refused_with_the_fewest_chunks_that_it_does() -> None:
    pytest.importorskip("torch")
    from npusim.measuring.aggregation import counted_bytes, refuse_too_large

    one = item(nodes=1000, edges=10**6)
    sizes = [counted_bytes(item(nodes=1000, edges=10**6, chunks=p)) for p in (1, 2, 4, 8)]
    assert all(more > less for more, less in pairwise(sizes))
    refuse_too_large([one], sizes[0])
    with pytest.raises(NpusimError, match="chunks of at least 8"):
        refuse_too_large([one], (sizes[2] + sizes[3]) / 2)
    with pytest.raises(NpusimError, match="fewer nodes or edges"):
        refuse_too_large([one], 1e6)


def test_all_aggregations_give_the_same_sums() -> None:
    torch = pytest.importorskip("torch")
    from npusim.measuring.aggregation import prepared

    whole, cut = (prepared("MessagePassing", SMALL | {"chunks": p})() for p in (1, 8))
    assert torch.allclose(whole, cut, atol=1e-5)
    means = [prepared("MeanPassing", SMALL | {"chunks": p})() for p in (2, 32)]
    assert torch.allclose(*means, atol=1e-5)
    assert prepared("CsrProduct", SMALL)().shape == whole.shape


@pytest.mark.parametrize(
    "operators", [["MessagePassing"], pytest.param(list(AGGREGATIONS), marks=pytest.mark.slow)]
)
def test_rows_are_measured_in_processes_of_their_own_with_their_memory(operators: list[str]) -> None:
    pytest.importorskip("torch")
    from npusim.measuring.aggregation import measure_aggregations

    rows = [Item(name, item(name, nodes=5000, edges=100_000).model) for name in operators]
    found = measure_aggregations(rows, budget_s=0.01)
    assert found.complete and [row.id for row in found.rows] == [one.id for one in rows]
    for row in found.rows:
        assert row.latency_s is not None and row.counted_memory_bytes
        assert row.peak_memory_bytes is None or row.peak_memory_bytes > 1e6
    assert json.loads(found.to_json())["device"]["cores"] == 1
