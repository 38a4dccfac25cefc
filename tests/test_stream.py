"""Following a graph that changes: totals add up, padding compiles once, the break-even is where it says."""

import io
import json
from contextlib import nullcontext
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from npusim import estimate, stream
from npusim.arch import load_soc
from npusim.arch.loading import load_toolchain
from npusim.cli.program import run
from npusim.compiling.kernels import VARIABLE
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.reporting.stream import stream_page
from npusim.scenario import Scenario
from npusim.studies.stream import EVENTS, BatchJudgement, Followed, Update, follow, generated, read_events
from npusim.studies.stream.document import best_by_rate, sustained_per_s
from npusim.studies.stream.following import entries_changed
from npusim.studies.stream.updates import Size, response_times, sizes
from npusim.techniques import apply
from npusim.workloads import build_gnn, load_gnn, load_statistics, load_workload

SERIES2 = load_soc("core-ultra-series2")
TOOLCHAIN = load_toolchain()
CORA = load_statistics("cora")
counts = st.dictionaries(st.sampled_from(EVENTS), st.integers(0, 5), max_size=4)
streams = st.lists(counts.map(Update), min_size=1, max_size=12)


def followed(updates, model="gcn-cora", techniques="none", **options) -> Followed:
    return follow(Scenario(model, SERIES2, techniques), updates, TOOLCHAIN, **options)


@cache
def followed_once() -> Followed:
    return followed(generated(3, 0))


# Sizes


@given(st.integers(1, 40), st.integers(0, 100), streams)
def test_a_graph_never_has_fewer_than_no_edges_or_more_than_all_pairs(nodes, edges, updates):
    start = Size(nodes, min(edges, nodes * (nodes - 1) // 2))
    for size in sizes(start, updates):
        assert size.nodes >= 1
        assert 0 <= size.edges <= size.nodes * (size.nodes - 1) // 2


def test_nodes_and_edges_come_and_go():
    course = list(sizes(Size(10, 20), [Update({"add_node": 2, "add_edge": 3}), Update({"remove_node": 1})]))
    assert course[0] == Size(12, 23)
    assert course[1] == Size(11, 23 - round(2 * 23 / 12))


def test_the_same_seed_gives_the_same_stream():
    assert generated(50, 3) == generated(50, 3) != generated(50, 4)
    only = generated(20, 0, {"add_edge": 1.0})
    assert all(update.counts == {"add_edge": 1} for update in only)
    with pytest.raises(UnknownNameError, match="add_node"):
        generated(5, 0, {"add_nodes": 1.0})
    with pytest.raises(ConfigError):
        generated(5, 0, {"add_node": 0.0})


# Strategies


@pytest.mark.laws
@given(streams, st.integers(0, 40), st.integers(1, 3))
@settings(max_examples=15)
def test_totals_add_up_and_padding_never_recompiles_below_its_capacity(updates, room, inferences):
    course = [Size(CORA.nodes, CORA.edges // 2)]
    course += sizes(course[0], updates)
    capacity = CORA.nodes + room
    result = followed(updates, capacity=capacity, inferences=inferences)
    for s in result.strategies:
        assert s.total_s == pytest.approx(s.compile_s + s.mask_s + s.inference_s)
        assert s.cumulative_s[-1] == pytest.approx(s.total_s)
        assert len(s.cumulative_s) == len(updates) + 1
        assert s.cumulative_s == sorted(s.cumulative_s)
        assert s.memory_bytes >= s.largest_version_bytes
    recompile, on_nodes, padded, *_ = result.strategies
    assert recompile.compilations == 1 + sum(any(update.counts.values()) for update in updates)
    assert on_nodes.compilations == len({size.nodes for size in course})
    if max(size.nodes for size in course) <= capacity:
        assert padded.compilations == 1
    assert padded.compilations <= on_nodes.compilations <= recompile.compilations


def test_an_inference_costs_what_estimate_says():
    result = followed([Update({"add_edge": 1})] * 3, capacity=3000, inferences=2)
    graph = load_workload("gcn-cora")
    recompile, _, padded, *_ = result.strategies
    alone = {t: estimate(apply(graph, t), SERIES2).latency_s for t in ("stagr", "grad+nodepad:capacity=3000")}
    assert recompile.inference_s == pytest.approx(6 * alone["stagr"])
    assert padded.inference_s == pytest.approx(6 * alone["grad+nodepad:capacity=3000"])
    assert padded.techniques == "grad+nodepad:capacity=3000"


def test_a_capacity_that_is_outgrown_is_compiled_again_with_as_much_room():
    result = followed([Update({"add_node": 1})] * 10, capacity=CORA.nodes + 4)
    assert (
        result.strategies[2].compilations == 3
    )  # 4 nodes of room, then outgrown by 1 with 4 to spare, twice


def test_the_break_even_capacity_is_the_last_that_pays():
    updates = generated(60, 1)
    few = followed(updates, inferences=400)
    limit, best = few.strategies[0].total_s, few.breakeven_capacity
    assert best is not None and not few.breakeven_is_limit
    at, beyond = (
        followed(updates, inferences=400, capacity=n).strategies[2].total_s for n in (best, best + 1)
    )
    assert at <= limit < beyond


def test_the_break_even_in_inferences_is_where_both_take_as_long():
    updates = generated(40, 2)
    even = followed(updates, capacity=4000).breakeven_inferences
    assert even is not None
    below, above = (followed(updates, capacity=4000, inferences=max(1, round(even * f))) for f in (0.9, 1.1))
    assert below.strategies[2].total_s < below.strategies[0].total_s
    assert above.strategies[2].total_s > above.strategies[0].total_s


def test_a_compiler_that_takes_no_time_leaves_nothing_to_save():
    costs = ("compile_fixed=0 s", "compile_per_operator=0 s", "compile_bandwidth=100 TB/s")
    result = stream("gcn-cora", updates=20, settings=[f"toolchain.{cost}" for cost in costs])
    assert result.breakeven_capacity is None
    assert "padding costs more" in result.conclusion


@pytest.mark.few(1)
@pytest.mark.parametrize("model", ["gcn-cora", "gat-cora", "sage-mean-cora"])
def test_every_model_with_a_mask_can_be_followed(model):
    result = followed(generated(5, 0), model)
    assert all(s.total_s > 0 for s in result.strategies)


def test_an_attention_mask_changes_in_fewer_entries_than_a_norm():
    update, size = Update({"add_edge": 1}), Size(100, 300)
    changed = {m: entries_changed(m, update, size, 10) for m in ("gcn", "gat", "sage-mean")}
    assert changed["gat"] == 2
    assert changed["gat"] < changed["sage-mean"] < changed["gcn"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"techniques": "grad"}, "grad"),
        ({"capacity": 5}, "2708"),
        ({"inferences": 0}, "at least 1"),
        ({"kept": [100, 200]}, "--kept: found 100, 200; .* 2708 nodes"),
        ({"batch": 2708}, "--batch: found 2708; allowed: from 1 to 2707"),
    ],
)
def test_what_cannot_be_followed_is_refused(options, message):
    with pytest.raises(NpusimError, match=message):
        followed(generated(2, 0), **options)


# Several kept blobs, mini-batches, rates of updates


def test_kept_blobs_are_compiled_beforehand_and_the_smallest_that_holds_the_graph_is_run():
    result = followed([Update({"add_node": 1})] * 6, kept=[2710, 2712, 2900], inferences=3)
    kept = result.strategies[3]
    assert kept.name == "several kept blobs" and kept.compiled_nodes == [2710, 2712, 2900]
    single = {
        n: followed([Update({"add_edge": 1})], capacity=n, inferences=3).strategies[2]
        for n in kept.compiled_nodes
    }
    assert kept.startup_s == kept.compile_s == pytest.approx(sum(one.compile_s for one in single.values()))
    assert kept.memory_bytes == pytest.approx(sum(one.memory_bytes for one in single.values()))
    steps = [2710, 2710, 2712, 2712, 2900, 2900]  # 2709 to 2714 nodes
    assert kept.inference_s == pytest.approx(sum(single[n].inference_s for n in steps))
    padded = result.strategies[2]
    assert kept.mask_s > padded.mask_s, "a mask is written again for another version"
    assert kept.compilations == 3 and kept.lost_edges == 0.0


def test_one_kept_blob_is_pad_and_mask():
    updates = generated(30, 4)
    result = followed(updates, capacity=2720, kept=[2720])
    fields = ("compilations", "compile_s", "mask_s", "inference_s", "total_s", "memory_bytes", "cumulative_s")
    padded, kept = (result.strategies[i].model_dump(include=set(fields)) for i in (2, 3))
    assert padded == kept


def test_mini_batches_run_one_after_the_other_and_never_recompile():
    updates = [Update({"add_node": 40})] * 8
    result = followed(updates, batch=500, inferences=2)
    batches, batch = result.strategies[4], 500
    assert batches.compilations == 1 and batches.compiled_nodes == [batch]
    counts = [-(-(CORA.nodes + 40 * i) // batch) for i in range(1, 9)]
    latency_s = batches.inference_s / (2 * sum(counts))
    assert batches.latency_s == pytest.approx(2 * sum(counts) * latency_s / 16)
    within = 5 * batch * (batch - 1) + 208 * 207
    assert batches.lost_edges == pytest.approx(1.0 - within / (CORA.nodes * (CORA.nodes - 1)))
    assert batches.accuracy is None and "at random" in " ".join(result.notes)
    smaller = followed(updates, batch=100).strategies[4]
    assert smaller.lost_edges > batches.lost_edges


ways = st.tuples(st.floats(0.0, 10.0), st.floats(1e-4, 1.0))


@given(st.lists(ways, min_size=1, max_size=5), st.floats(0.0, 30.0))
def test_the_best_way_at_any_rate_is_that_with_most_inferences(ways, rate):
    base = followed_once().strategies[0]
    strategies = [
        base.model_copy(
            update={"update_s": u, "latency_s": s, "most_updates_per_s": 1.0 / u if u > 0.0 else None}
        )
        for u, s in ways
    ]
    found = best_by_rate(strategies)
    assert found[0].from_updates_per_s == 0.0
    for one, other in pairwise(found):
        assert one.to_updates_per_s == other.from_updates_per_s
        assert one.to_inferences_per_s == pytest.approx(other.from_inferences_per_s, rel=1e-6, abs=1e-9)
    most = max(sustained_per_s(s, rate) for s in strategies)
    end = found[-1].to_updates_per_s
    if end is not None and rate > end:
        assert most == pytest.approx(0.0, abs=1e-6)
    else:
        here = next(b for b in found if b.to_updates_per_s is None or rate <= b.to_updates_per_s)
        low, high = here.from_inferences_per_s, here.to_inferences_per_s
        assert min(low, high) * (1 - 1e-6) - 1e-6 <= most <= max(low, high) * (1 + 1e-6) + 1e-6


def test_a_way_that_loses_edges_is_never_the_best():
    result = followed(generated(20, 0), batch=100)
    assert {best.strategy for best in result.best_by_rate} <= {s.name for s in result.strategies[:4]}
    assert result.best_by_rate[0].strategy != "recompile" or result.strategies[0].update_s == 0.0
    rates = [best.from_updates_per_s for best in result.best_by_rate]
    assert rates == sorted(rates)


@pytest.mark.laws
def test_mini_batches_are_judged_on_a_model_with_the_edges_that_are_left(tmp_path):
    pytest.importorskip("torch")
    from npusim.gnn_models.batches import in_batches
    from npusim.gnn_models.planetoid import GraphData

    edges = np.array([[0, 1, 1, 4, 5, 3], [1, 0, 4, 1, 3, 5]])
    none = np.zeros(6, bool)
    data = GraphData("six", np.eye(6, dtype=np.float32), edges, np.zeros(6, np.int64), none, none, none)
    left = in_batches(data, 3)
    assert left.edge_index.tolist() == [[0, 1, 5, 3], [1, 0, 3, 5]]
    assert in_batches(data, 6).edge_index.tolist() == edges.tolist()


@pytest.mark.laws
def test_accuracy_of_mini_batches_stands_in_document_and_page():
    judged = BatchJudgement(0.25, 0.7, 0.8)
    result = followed(generated(5, 0), batch=900, judge=lambda size: judged if size == 900 else None)
    batches = result.strategies[4]
    assert (batches.lost_edges, batches.accuracy, batches.accuracy_of_all_edges) == (0.25, 0.7, 0.8)
    text = io.StringIO()
    Console(file=text, width=80).print(stream_page(result))
    assert "accuracy 70.0% instead of 80.0%" in " ".join(text.getvalue().split())
    html = stream_page(result).html()
    assert "Best way by rate of updates" in html and "25% of the edges lost" in html


# Files, document and page


def test_a_file_of_events_is_read_update_by_update(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("update,event,count\n1,add_node,2\n1,add_edge,\n4,remove_edge,3\n")
    assert read_events(path) == [Update({"add_node": 2, "add_edge": 1}), Update({"remove_edge": 3})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("update,what\n1,add_node\n", "no column `event`"),
        ("update,event\n1,add_nodes\n", ":2"),
        ("update,event\n2,add_node\n1,add_node\n", ":3"),
        ("update,event,count\n1,add_node,-1\n", "whole number"),
        ("update,event\n", "no rows"),
    ],
)
def test_a_wrong_file_of_events_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "events.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_events(path)


def test_the_command_writes_a_document_of_its_schema(capsys, tmp_path):
    import jsonschema

    events = tmp_path / "events.csv"
    events.write_text("update,event\n1,add_node\n2,add_edge\n")
    arguments = ["stream", "gcn-cora", "--events", str(events), "--set", "toolchain.compile_fixed=5s"]
    assert run([*arguments, "--set", "npu.tiles=4", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert run(["schema", "stream"]) == 0
    jsonschema.validate(document, json.loads(capsys.readouterr().out))
    assert document["updates"] == 2
    assert document["strategies"][0]["compile_s"] > 15.0


def test_a_wrong_setting_of_the_toolchain_is_answered(capsys):
    assert run(["stream", "gcn-cora", "--set", "toolchain.compile_fixd=5s"]) == 2
    assert "compile_fixed" in capsys.readouterr().err
    assert run(["stream", "gcn-cora", "--mix", "add_node"]) == 2
    assert "--mix" in capsys.readouterr().err


def test_the_page_fits_into_eighty_columns():
    text = io.StringIO()
    Console(file=text, width=80).print(stream_page(followed(generated(30, 0), inferences=5)))
    assert max(map(len, text.getvalue().splitlines())) <= 80
    assert "…" not in text.getvalue()


@pytest.mark.laws
def test_a_factory_on_a_data_graph_is_followed_like_the_workload_it_builds():
    def mine(structure=CORA, hidden=64):
        return build_gnn(load_gnn("gcn-cora", {"workload.hidden": hidden}), structure, "gcn-cora")

    updates = generated(5, 0)
    assert stream(mine, updates=updates) == stream("gcn-cora", updates=updates)
    wider = stream(mine, updates=updates, settings=["workload.hidden=256"])
    assert wider == stream("gcn-cora", updates=updates, settings=["workload.hidden=256"])
    assert wider.strategies[0].inference_s > stream(mine, updates=updates).strategies[0].inference_s
    with pytest.raises(ConfigError, match="a factory that takes `structure`"):
        stream(load_workload("gcn-cora"), updates=updates)


def test_the_break_even_ends_where_memory_does():
    updates = [Update({"add_edge": 1})] * 40
    held, roomy = (
        stream("gcn-cora", updates=updates, settings=[f"dram.capacity={capacity}"])
        for capacity in ("4GB", "100GB")
    )
    assert held.breakeven_is_limit
    assert held.breakeven_capacity < roomy.breakeven_capacity
    assert held.strategies == roomy.strategies


def test_answers_at_a_rate_take_the_time_of_pollaczek_and_khinchine() -> None:
    """Two classes in order of arrival: the wait follows from the mean square of both services."""
    update_s, inference_s, rates = [0.2], [0.02], (1.0, 10.0)
    load = 1.0 * 0.2 + 10.0 * 0.02
    wait_s = (1.0 * 0.2**2 + 10.0 * 0.02**2) / 2.0 / (1.0 - load)
    times = response_times(update_s, inference_s, rates)
    assert times["answer_s"] == pytest.approx(wait_s + 0.02, rel=0.05)
    assert times["in_force_s"] == pytest.approx(wait_s + 0.2, rel=0.05)
    assert response_times(update_s, inference_s, (5.1, 1.0)) == {}


@pytest.mark.laws
def test_a_stream_says_how_long_answers_take_at_its_rates() -> None:
    result = stream("gcn-cora", updates=5, rates="1,10")
    recompile, padded = result.strategies[0], result.strategies[2]
    assert recompile.answer_s is not None and padded.answer_s is not None
    assert padded.latency_s <= padded.answer_s < recompile.answer_s
    assert stream("gcn-cora", updates=5).strategies[0].answer_s is None
    for wrong in ("1", "0,5", "a,b"):
        with pytest.raises(ConfigError, match="--rates"):
            stream("gcn-cora", updates=5, rates=wrong)


@pytest.mark.parametrize("kernels", ["plain", "compiled"])
def test_progress_comes_before_every_estimate(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(done: int, most: int, stack: str) -> None:
        steps.append((done, most))
        if kernels == "plain" and len(steps) == 3:
            raise KeyboardInterrupt

    steps: list[tuple[int, int]] = []
    monkeypatch.setenv(VARIABLE, kernels)
    with pytest.raises(KeyboardInterrupt) if kernels == "plain" else nullcontext():
        stream("gcn-cora", updates=1000, progress=heard)
    assert steps == sorted(steps) and len(steps) >= 3
    assert all(done <= most for done, most in steps)
