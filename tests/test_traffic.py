"""What each byte of DRAM traffic is: kinds sum to the traffic, and no mapping changes what is compulsory."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Machine, convolutions, graphs, machines, runs

from npusim.engines import Estimate
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import DramByKind
from npusim.engines.event import run_events
from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import OWN, Run, map_graph, sram_contents
from npusim.ops import DType, Storage
from npusim.scenario import Scenario
from npusim.studies.elasticity import memory_needs
from npusim.techniques import apply

KINDS = tuple(DramByKind.model_fields)
SERIES2 = Machine("core-ultra-series2")
TIGHT, ROOMY = "npu.sram.per_tile=16KiB", "npu.sram.per_tile=64MiB"


def check_conserved(estimate: Estimate) -> None:
    """Kinds are not negative and sum to the bytes of each operator and of the inference."""
    for part in (*estimate.operators, estimate):
        sizes = part.dram.model_dump()
        assert min(sizes.values()) >= 0.0
        assert sum(sizes.values()) == pytest.approx(part.dram_bytes, rel=1e-12, abs=1e-6)
    for kind in KINDS:
        assert sum(getattr(op.dram, kind) for op in estimate.operators) == pytest.approx(
            getattr(estimate.dram, kind), rel=1e-12
        )


def compulsory(estimate: Estimate) -> tuple[float, float]:
    return estimate.dram.compulsory_weights_bytes, estimate.dram.compulsory_activations_bytes


@given(machines(), st.one_of(graphs(), convolutions()), st.data())
@settings(max_examples=40)
def test_the_kinds_sum_to_the_traffic_and_no_machine_changes_what_is_compulsory(machine, graph, data):
    estimates = []
    sram = data.draw(st.sampled_from([TIGHT, "npu.sram.per_tile=1MiB", ROOMY]))
    bandwidth = data.draw(st.sampled_from(["1GB/s", "50GB/s"]))
    # The roles of operands stay: in the other role a matrix may be stored unpacked.
    run = data.draw(runs(machine.soc))
    for other in (machine, machine.but(sram, f"dram.bandwidth={bandwidth}")):
        try:
            mapped = map_graph(
                graph, other.soc, replace(run, tiles=data.draw(st.integers(1, int(other.soc.npu.tiles))))
            )
        except InfeasibleError:
            continue
        estimates.append(mapped_estimate(mapped))
        if data.draw(st.integers(0, 3)) == 0:
            estimates.append(run_events(mapped))
    for estimate in estimates:
        check_conserved(estimate)
        assert compulsory(estimate) == pytest.approx(compulsory(estimates[0]), rel=1e-9)


@given(
    graphs(), st.sampled_from(["stagr", "symg", "grasp", "quantgr", "symg+cacheg", "grasp+cacheg"]), st.data()
)
@settings(max_examples=25)
def test_the_kinds_sum_to_the_traffic_under_techniques_and_levels(graph, stack, data):
    capacity = data.draw(st.sampled_from(["0B", "100KiB", "4MiB", "64MiB"]))
    manager = data.draw(st.sampled_from(["cache", "software"]))
    level = (f"npu.levels.side_cache.capacity={capacity}", f"npu.levels.side_cache.managed_by={manager}")
    packed = "npu.sparsity.decompress_activations=true"
    try:
        rewritten = apply(graph, stack)
        machine = SERIES2.but(*level, packed)
        one, other = (map_graph(rewritten, m.soc, Run(tiles=4)) for m in (machine, machine.but(TIGHT)))
    except (IllegalTechniqueError, InfeasibleError):
        return
    for mapped in (one, other):
        check_conserved(mapped_estimate(mapped))
    assert compulsory(mapped_estimate(one)) == pytest.approx(compulsory(mapped_estimate(other)), rel=1e-9)


@pytest.mark.few(3)
@pytest.mark.parametrize("device", ["auto", "npu", "cpu"])
@pytest.mark.parametrize(
    ("workload", "stack"),
    [("gcn-cora", "none"), ("gcn-cora", "stagr+symg+cacheg"), ("gat-cora", "stagr+effop")],
)
def test_the_kinds_sum_to_the_traffic_of_shipped_networks(workload, stack, device):
    mapped = Scenario(workload, techniques=stack, device=device).mapped
    check_conserved(mapped_estimate(mapped))
    assert run_events(mapped).dram == mapped_estimate(mapped).dram


@pytest.mark.parametrize(
    ("workload", "stack", "soc"),
    [
        ("gcn-cora", "stagr", "core-ultra-series1"),
        ("gcn-cora", "stagr", "generic-cpu"),
        ("resnet-50", "none", "core-ultra-series2"),
        ("mobilenet-v2", "none", "two-npus"),
    ],
)
def test_what_is_compulsory_is_what_lies_in_dram_before_and_after(workload, stack, soc):
    found = mapped_estimate(Scenario(workload, soc=soc, techniques=stack).mapped)
    memory, rel = found.memory, 1e-2  # a constant that only shapes read is never moved
    assert found.dram.compulsory_weights_bytes == pytest.approx(memory.constants_bytes, rel=rel)
    outside_bytes = memory.inputs_bytes + memory.outputs_bytes
    assert found.dram.compulsory_activations_bytes == pytest.approx(outside_bytes, rel=rel)


# ---------------------------------------------------------------------------------------------- by hand
def estimate(graph: Graph, *settings_: str) -> Estimate:
    return mapped_estimate(map_graph(graph, SERIES2.but(*settings_).soc, Run(tiles=1)))


def test_a_chain_that_fits_moves_what_is_compulsory_alone():
    editor = Editor("chain")
    value = editor.input("x", (64, 128), DType.FP16)
    for i in range(3):
        value = editor.matmul(value, editor.constant(f"w{i}", (128, 128), DType.FP16), f"product{i}")
    editor.outputs.append(value)
    found = estimate(editor.finish())
    assert found.dram.model_dump() == {
        "compulsory_weights_bytes": 3 * 128 * 128 * 2,
        "compulsory_activations_bytes": 2 * 64 * 128 * 2,
        "refetched_bytes": 0.0,
        "spilled_bytes": 0.0,
    }


def test_a_result_that_does_not_fit_is_written_and_read_back():
    editor = Editor("spill")
    x, weight = editor.input("x", (2048, 256), DType.FP16), editor.constant("w", (256, 256), DType.FP16)
    square = editor.constant("m", (64, 2048), DType.FP16)
    editor.outputs.append(editor.matmul(square, editor.matmul(x, weight, "first"), "second"))
    size = 2048 * 256 * 2
    graph = editor.finish()
    small, large = (
        {op.name: op.dram for op in estimate(graph, sram).operators}
        for sram in ("npu.sram.per_tile=256KiB", ROOMY)
    )
    assert (small["first"].spilled_bytes, small["second"].spilled_bytes) == (size, size)
    assert (large["first"].spilled_bytes, large["second"].spilled_bytes) == (0.0, 0.0)


def test_a_constant_that_two_operators_read_is_refetched_by_the_second():
    editor = Editor("twice")
    x = editor.input("x", (64, 512), DType.FP16)
    weight = editor.constant("w", (512, 512), DType.FP16)
    value = editor.matmul(editor.matmul(x, weight, "first"), weight, "second")
    editor.outputs.append(value)
    found = {op.name: op.dram for op in estimate(editor.finish()).operators}
    assert found["first"].compulsory_weights_bytes == 512 * 512 * 2
    assert found["second"].compulsory_weights_bytes == 0.0
    assert found["second"].refetched_bytes == 512 * 512 * 2


@pytest.mark.parametrize(("decompress", "share"), [("true", 0.25 + 1 / 16), ("false", 1.0)])
def test_packed_weights_count_as_stored(decompress, share):
    editor = Editor("packed")
    weight = editor.constant("w", (256, 256), DType.FP16, density=0.25, storage=Storage.ZVC)
    editor.outputs.append(editor.matmul(editor.input("x", (32, 256), DType.FP16), weight, "product"))
    found = estimate(editor.finish(), f"npu.sparsity.decompress_weights={decompress}")
    assert found.dram.compulsory_weights_bytes == pytest.approx(256 * 256 * 2 * share, rel=0.02)
    assert found.dram.refetched_bytes == 0.0


# ------------------------------------------------------------------------ what would remove it, and SRAM
@pytest.mark.parametrize(("workload", "stack"), [("gcn-cora", "stagr"), ("gcn-cora", "stagr+symg+cacheg")])
def test_the_memory_that_removes_a_kind_of_traffic_does_so_and_half_of_it_does_not(workload, stack):
    needs = memory_needs(Scenario(workload, techniques=stack).mapped)
    assert needs
    for need in (one for one in needs if not one.left_bytes):
        path, _, size = need.setting.partition("=")
        half = f"{path}={float(size.removesuffix('MiB')) / 2}MiB"
        enough, too_little = (
            mapped_estimate(Scenario(workload, techniques=stack, settings=(text,)).mapped).dram
            for text in (need.setting, half)
        )
        assert getattr(enough, need.kind) == 0.0 < getattr(too_little, need.kind)


def test_a_network_without_avoidable_traffic_needs_no_more_memory():
    assert memory_needs(Scenario("resnet-50").mapped) == []


@given(machines(), st.one_of(graphs(), convolutions()), st.integers(1, 4))
@settings(max_examples=20)
def test_the_layers_of_sram_and_free_room_sum_to_its_capacity(machine, graph, tiles):
    run = Run(tiles=min(tiles, int(machine.soc.npu.tiles)))
    try:
        mapped = map_graph(graph, machine.soc, run)
    except InfeasibleError:
        return
    contents = sram_contents(mapped)
    if not contents.operators:
        return
    used = sum(contents.group(name) for name in contents.layers)
    assert used + contents.free == pytest.approx(contents.capacity_bytes)
    assert min(contents.free) >= -1e-6 * contents.capacity_bytes
    assert min(size.min() for group in contents.layers.values() for size in group.values()) >= 0.0
    assert used.max() == pytest.approx(float(mapped.total["sram_peak_bytes"]))
    assert contents.group(OWN).shape == contents.ends_s.shape
