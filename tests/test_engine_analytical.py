"""What the analytical engine must show: known figures, every workload on every machine, and independence of
order."""

import math
from itertools import cycle, groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Machine, graphs, machines, runs

from npusim import estimate, whatif
from npusim.arch import Accelerator, Npu, Soc, load_soc, soc_names
from npusim.engines import Estimate
from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.graph import Graph
from npusim.mapping import map_graph
from npusim.ops import Operator
from npusim.techniques import apply, legal, stacks
from npusim.workloads import load_workload, workload_names

SERIES2 = load_soc("core-ultra-series2")


def kinds_of(soc: Soc) -> tuple[tuple[str, str], ...]:
    """Kinds of its devices, each with its dataflow."""
    return tuple(
        sorted(
            (type(one).__name__, str(one.dpu.dataflow) if isinstance(one, Npu | Accelerator) else "")
            for one in soc.devices.values()
        )
    )


ROOMY = {"dram.capacity": "64GB"}
ALIKE = [
    list(group)
    for _, group in groupby(sorted((load_soc(n, ROOMY) for n in soc_names()), key=kinds_of), kinds_of)
]
"""SoCs by the kinds and dataflows of their devices, with room for every network."""
ALL_STACKS = sorted({str(stack) for menu in stacks().values() for stack in menu})


def throughput(workload: str, stack: str) -> Estimate:
    """The published comparison: fp16, 4 tiles, several requests in flight."""
    return estimate(apply(load_workload(workload), stack), SERIES2, hint="throughput", tiles=4)


@pytest.mark.parametrize("stack", ["stagr", "graphsplit+grad+nodepad"])
def test_the_two_big_products_of_gcn_cora_are_bound_by_dma(stack):
    products = [o for o in throughput("gcn-cora", stack).operators if o.type == "MatMul"]
    aggregations = [o for o in products if "aggregate" in o.name]
    assert len(aggregations) == 2
    assert [o.bound for o in aggregations] == ["dma", "dma"]


def test_eight_bits_nearly_double_the_throughput_of_gcn_cora():
    in_fp16 = throughput("gcn-cora", "graphsplit+grad+nodepad")
    in_int8 = throughput("gcn-cora", "graphsplit+grad+nodepad+quantgr")
    assert 1.7 <= in_int8.throughput_per_s / in_fp16.throughput_per_s <= 2.1


def test_compressed_storage_dominates_symg_where_activations_can_be_decompressed():
    soc = load_soc("core-ultra-series2", ["npu.sparsity.decompress_activations=true"])
    compared = whatif(
        load_workload("gcn-cora"), soc, ["stagr", "stagr+grasp", "stagr+symg"], hint="throughput", tiles=4
    )
    by_stack = {v.techniques: v for v in compared.variants}
    assert by_stack["stagr+symg"].dominated_by == "stagr+grasp"
    assert by_stack["stagr+grasp"].dominated_by is None


def test_symg_is_not_dominated_by_compressed_storage_on_todays_hardware():
    compared = whatif(
        load_workload("gcn-cora"), SERIES2, ["stagr", "stagr+grasp", "stagr+symg"], hint="throughput", tiles=4
    )
    by_stack = {v.techniques: v for v in compared.variants}
    assert by_stack["stagr+symg"].dominated_by is None
    assert by_stack["stagr+grasp"].dominated_by == "stagr+symg"


def test_gat_refuses_symg_for_want_of_a_norm():
    with pytest.raises(
        IllegalTechniqueError, match="needs a symmetric constant or input norm matrix; gat-cora has none"
    ):
        apply(load_workload("gat-cora"), "stagr+symg")


@pytest.mark.parametrize("name", ["gcn-cora", "gcn-citeseer"])
@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_symg_and_cacheg_never_move_more_than_without_them(name, hint):
    moved = {
        stack: estimate(apply(load_workload(name), stack), SERIES2, hint=hint).dram_bytes
        for stack in ("stagr", "stagr+symg", "stagr+cacheg", "stagr+symg+cacheg")
    }
    assert moved["stagr+symg"] <= moved["stagr"]
    assert moved["stagr+cacheg"] <= moved["stagr"]
    assert moved["stagr+symg+cacheg"] <= min(moved["stagr+symg"], moved["stagr+cacheg"])


def machine(number: int) -> Soc:
    """The kinds of machine in turn, and each time another one of its kind."""
    turn, kind = divmod(number, len(ALIKE))
    return ALIKE[kind][turn % len(ALIKE[kind])]


@pytest.mark.few(3)
@pytest.mark.parametrize("workload", workload_names("gnn"))
def test_every_stack_costs_something_finite_on_some_of_every_kind_of_soc(workload):
    graph, first = load_workload(workload), workload_names("gnn").index(workload)
    fitting = [apply(graph, stack) for stack in ALL_STACKS if legal(graph, stack) is None]
    assert len(fitting) > 10
    hints = cycle(("latency", "throughput", "throughput", "latency"))
    for i, (rewritten, hint) in enumerate(zip(fitting, hints, strict=False), first):
        soc = machine(i)
        if any(op.device is not None and soc.named(op.device) is None for op in rewritten):
            continue  # placed on a device that it lacks
        e = estimate(rewritten, soc, hint=hint)
        figures = (e.latency_s, e.throughput_per_s, e.energy_j, e.dram_bytes, e.macs)
        told = (rewritten.techniques, soc.name, hint)
        assert all(math.isfinite(x) and x > 0 for x in figures), told
        on_array = any(o.unit.partition(".")[0] in soc.array_devices for o in e.operators)
        assert math.isfinite(e.sram_peak_bytes) and (e.sram_peak_bytes > 0) == on_array, told
        assert math.isfinite(e.area_mm2) and (e.area_mm2 > 0) == bool(soc.array_devices), told
        for o in e.operators:
            assert math.isfinite(o.latency_s) and o.latency_s >= 0 and o.energy_j >= 0, o


def reordered(graph: Graph, order: list[int], rename: str = "") -> Graph:
    """The same graph with its operators and tensors listed in another order, all names with the same
    beginning."""
    operators, tensors = list(graph.operators.values()), list(graph.tensors.values())
    new = [
        Operator(
            rename + op.name,
            op.type,
            tuple(rename + t for t in op.inputs),
            tuple(rename + t for t in op.outputs),
            op.attrs,
            op.region,
            op.device,
        )
        for op in (operators[i] for i in order)
    ]
    named = [t.with_(name=rename + t.name) for t in reversed(tensors)]
    return Graph(graph.name, named, new, [rename + t for t in graph.outputs])


@given(st.data())
@settings(max_examples=25)
def test_the_estimate_does_not_depend_on_the_order_in_which_operators_are_listed(data):
    machine, graph = data.draw(machines()), data.draw(graphs())
    run = data.draw(runs(machine.soc))
    order = data.draw(st.permutations(range(len(graph))))
    assert_same(machine, graph, reordered(graph, order), run)
    assert_same(machine, graph, reordered(graph, order, rename="net/"), run)


@pytest.mark.parametrize("workload", ["gcn-cora", "gat-cora"])
def test_the_estimate_of_a_workload_does_not_depend_on_the_order_of_its_operators(workload):
    graph = load_workload(workload)
    backwards = reordered(graph, list(range(len(graph)))[::-1], rename="net/")
    first, second = estimate(graph, SERIES2), estimate(backwards, SERIES2)
    named = ("operators", "techniques", "provenance", "warnings")
    ignored = dict.fromkeys(named, True) | {"memory": {"peak_operator"}, "roofline": {"points"}}
    assert first.model_dump(exclude=ignored) == second.model_dump(exclude=ignored)


def assert_same(machine: Machine, graph: Graph, other: Graph, run: object) -> None:
    try:
        expected = map_graph(graph, machine.soc, run).total.tobytes()
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            map_graph(other, machine.soc, run)
        return
    assert map_graph(other, machine.soc, run).total.tobytes() == expected


def test_one_request_at_a_time_has_the_throughput_of_its_latency():
    e = estimate(load_workload("gcn-cora"), SERIES2, hint="throughput", requests=1)
    assert e.throughput_per_s == 1 / e.latency_s


@pytest.mark.few(3)
@pytest.mark.parametrize("setting", ["npu.sram.per_tile=2MiB", "npu.sram.per_tile=64MiB"])
@pytest.mark.parametrize("stack", ["none", "stagr", "stagr+cacheg", "stagr+symg+cacheg"])
@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_more_sram_never_slows_gcn_cora(setting, stack, hint):
    graph = apply(load_workload("gcn-cora"), stack)
    before = estimate(graph, SERIES2, hint=hint)
    after = estimate(graph, load_soc("core-ultra-series2", [setting]), hint=hint)
    assert after.throughput_per_s >= before.throughput_per_s * (1 - 1e-12)
    assert after.latency_s <= before.latency_s * (1 + 1e-12)
