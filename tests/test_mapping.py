"""Laws of the mapping: decisions about residency never make a larger SRAM or a smaller network slower."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Machine, graphs, machines, runs

from npusim.arch import load_soc
from npusim.cost.lowering.plans import Plan
from npusim.cost.lowering.tables import Unit
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph, plan_tables
from npusim.ops import DType
from npusim.scenario import Scenario

SERIES2 = load_soc("core-ultra-series2")
ROUNDING = 1 + 1e-12


@given(st.data())
@settings(max_examples=25)
def test_more_sram_is_never_slower_once_residency_is_decided_anew(data):
    machine, graph = data.draw(machines()), data.draw(graphs())
    run = data.draw(runs(machine.soc))
    sizes = data.draw(
        st.lists(st.sampled_from([6, 10, 20, 50, 100, 400, 1500, 8000]), min_size=2, max_size=2, unique=True)
    )
    small, large = (machine.but(f"npu.sram.per_tile={size}KiB").soc for size in sorted(sizes))
    try:
        before = map_graph(graph, small, run)
    except InfeasibleError:
        return
    after = map_graph(graph, large, run)
    hosts = any(g.unit.is_host for g in before.decisions.groups)
    # With hosts or several contexts, what all share may set the pace, and a quicker tiling may need more.
    if run.requests == 1 or (not hosts and before.npu["contexts"] == 1):
        assert after.total["latency_s"] <= before.total["latency_s"] * ROUNDING
        assert after.total["throughput_per_s"] * ROUNDING >= before.total["throughput_per_s"]


def test_more_sram_does_not_lengthen_a_row_wise_fusion_of_a_bandwidth_bound_product():
    found = []
    for kib in (1440, 1500, 2000, 2800, 3200, 4096):
        soc = Machine("core-ultra-series1", (f"npu.sram.per_tile={kib}KiB",)).soc
        found.append(Scenario("sage-max-citeseer", soc, "quantgr", tiles=2).mapped)
    assert all(mapped.decisions.residency.row_fused for mapped in found)
    for before, after in pairwise(found):
        assert after.total["latency_s"] <= before.total["latency_s"] * ROUNDING


def crowded_chain() -> Graph:
    """Products with results of one size; the first one's stays alive to the fourth."""
    editor = Editor("crowded")
    result = first = editor.input("x", (256, 256), DType.FP16)
    for i in range(24):
        weight = editor.constant(f"w{i}", (256, 256), DType.FP16)
        result = editor.matmul(result, weight, f"product{i}")
        first = result if i == 0 else first
        if i == 3:
            result = editor.eltwise("Add", result, first, "sum")
    editor.outputs.append(result)
    return editor.finish()


def test_tensors_of_one_size_stay_where_there_is_room_at_the_time():
    machine, counts = Machine("core-ultra-series2"), set[int]()
    for kib in range(200, 700, 25):
        mapped = map_graph(crowded_chain(), machine.but(f"npu.sram.per_tile={kib}KiB").soc, Run())
        counts.add(len(mapped.decisions.residency.whole))
    assert counts >= {0, 24, 25}  # none, all but the one that stays, all


@given(graphs())
@settings(max_examples=20)
def test_there_are_few_plans_and_the_first_keeps_nothing(graph):
    found = plan_tables(graph, SERIES2).plans
    assert found.steps[0] == Plan(False)
    assert len({step.whole for step in found.steps}) <= 90
    assert len(set(found.steps)) == len(found.steps)


def two_products(rows: int, columns: int, hidden: int, classes: int):
    editor = Editor("two products")
    x = editor.input("x", (rows, columns), DType.FP16)
    first = editor.matmul(x, editor.constant("w0", (columns, hidden), DType.FP16), "first")
    second = editor.matmul(first, editor.constant("w1", (hidden, classes), DType.FP16), "second")
    editor.outputs.append(second)
    return editor.finish()


@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 4),
    steps=st.tuples(*[st.integers(0, 2)] * 4),
    machine=st.sampled_from(
        [Machine("core-ultra-series2", (f"npu.sram.per_tile={k}KiB",)) for k in (60, 200, 1440)]
    ),
    tiles=st.integers(1, 4),
)
@settings(max_examples=25)
def test_a_network_is_never_faster_with_larger_matrices(sizes, steps, machine, tiles):
    step = (256, 64, 64, 64)
    small = two_products(*(n * s for n, s in zip(sizes, step, strict=True)))
    large = two_products(*((n + more) * s for n, more, s in zip(sizes, steps, step, strict=True)))
    run = Run(tiles=tiles)
    try:
        after = map_graph(large, machine.soc, run)
    except InfeasibleError:
        return
    assert after.total["latency_s"] * ROUNDING >= map_graph(small, machine.soc, run).total["latency_s"]


def test_a_bias_and_an_activation_ride_along_with_their_product():
    editor = Editor("layer")
    product = editor.matmul(editor.input("x", (64, 64)), editor.constant("w", (64, 32)), "product")
    biased = editor.eltwise("Add", product, editor.constant("b", (32,)), "bias")
    editor.outputs.append(editor.unary("Relu", biased, "relu"))
    (group,) = map_graph(editor.finish(), SERIES2, Run()).decisions.groups
    assert (group.main, group.fused) == ("product", ("bias", "relu"))


def test_every_output_of_a_split_is_written():
    from npusim.ops import Operator, Tensor

    editor = Editor("split")
    x = editor.input("x", (8, 64), DType.FP16)
    halves = [Tensor(f"half{i}", (8, 32), DType.FP16) for i in range(2)]
    editor.add_operator(Operator("split", "Split", (x,), ("half0", "half1"), {"axes": (1,)}), halves)
    editor.outputs += ["half0", "half1"]
    total = map_graph(editor.finish(), SERIES2, Run()).total
    assert total["dram_bytes"] == 2 * 8 * 64 * 2.0


def test_a_matrix_seen_first_through_a_view_is_fetched_whole_once():
    editor = Editor("twice")
    norm = editor.constant("norm", (1, 256, 256), DType.FP16, cached=True)
    square = editor.reshape(norm, (256, 256), "a_view")
    first = editor.matmul(square, editor.input("x", (256, 64), DType.FP16), "first")
    editor.outputs.append(editor.matmul(square, first, "second"))
    total = map_graph(editor.finish(), SERIES2, Run(tiles=4)).total
    assert total["dram_bytes"] >= (256 * 256 + 2 * 256 * 64) * 2.0


def test_nothing_waits_in_sram_for_a_host_while_other_inferences_need_the_room():
    editor = Editor("interrupted")
    norm = editor.constant("norm", (256, 256), DType.FP16, cached=True)
    first = editor.matmul(norm, editor.input("x", (256, 64), DType.FP16), "first")
    asked = editor.unary("Relu", first, "asked", device="cpu")
    editor.outputs.append(editor.matmul(norm, asked, "second"))
    graph = editor.finish()
    for requests, waits in ((1, True), (4, False)):
        ops = map_graph(graph, SERIES2, Run(tiles=4, requests=requests)).lowered.ops
        on_host = ops[ops["unit"] == Unit.HOST]
        assert bool(on_host["live_spread_bytes"].sum() > 0.0) is waits


@given(graphs())
@settings(max_examples=20)
def test_searched_roles_are_never_slower_than_operands_as_written_or_all_swapped(graph):
    found = {}
    for asked in (False, True, "search"):
        try:
            found[asked] = map_graph(graph, SERIES2, Run(swap_operands=asked)).total["latency_s"]
        except InfeasibleError:
            continue
    if "search" in found:
        assert found["search"] <= min(found.values()) * ROUNDING


def test_a_compressed_matrix_saves_its_bytes_as_the_weight_only():
    seconds = {
        (stack, roles): Scenario("gcn-cora", SERIES2, stack, swap_operands=roles).mapped
        for stack in ("stagr", "stagr+grasp")
        for roles in (False, "search")
    }
    moved = {key: float(mapped.total["dram_bytes"]) for key, mapped in seconds.items()}
    assert moved["stagr+grasp", False] == moved["stagr", False]
    assert moved["stagr+grasp", "search"] < 0.2 * moved["stagr", "search"]
    swapped = {g.main for g in seconds["stagr+grasp", "search"].decisions.groups if g.swapped}
    assert {"layer0/aggregate/matmul", "layer1/aggregate/matmul"} <= swapped
