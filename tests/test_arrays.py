"""MAC arrays: reuse by brute force, laws of traffic and time, and what a data sheet may say of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim import estimate
from npusim.arch import load_soc
from npusim.arch.array import LOOPS, ArrayLevel, Dataflow, MacArray, shipped_dataflows
from npusim.cost import Unit, operator_costs
from npusim.cost.machine.spatial_array import (
    INPUTS,
    OUTPUTS,
    WEIGHTS,
    LoopNest,
    array_record,
    is_irrelevant,
    operand_elements,
    unroll,
)
from npusim.cost.units.arrays.allocation import FROM_ABOVE, FROM_BELOW, TO_ABOVE, TO_BELOW
from npusim.cost.units.arrays.mapper import best_order, mapped_order
from npusim.cost.units.arrays.timing import covered_cycles, new_transfers
from npusim.errors import ConfigError
from npusim.scenario import Scenario
from tests.naive_arrays import LOOPS as SHORT
from tests.naive_arrays import Walk, covered, moved

BIT = "1e-6 B"
DRAM = {"capacity": "1 GB", "width": "8 B/cycle", "read_energy": "100 pJ/B", "least_access": BIT}
OPERANDS = ("weights", "inputs", "outputs")


def array(axes: dict[str, int], levels: dict[str, dict[str, Any]], **more: Any) -> MacArray:
    """Return an array; levels that read nothing for free and access single bits."""
    plain = {"width": "1024 B/cycle", "least_access": BIT, "read_energy": "1 pJ/B"}
    return MacArray.model_validate(
        {"axes": axes, "transfer": "broadcast", "mac_energy": "0.1 pJ/MAC"}
        | {"levels": {name: plain | level for name, level in levels.items()}}
        | more
    )


def record(
    axes: dict[str, int], unroll_: list[list[str]], levels: dict[str, dict[str, Any]], **more: Any
) -> Any:
    """Return the record of an array."""
    stays = more.pop("stationary", "any")
    flow = Dataflow.model_validate({"unroll": unroll_, "stationary": stays})
    return array_record(array(axes, levels, **more), flow, ArrayLevel.model_validate(DRAM))[0]


def nest(stride: float = 1.0, **sizes: int) -> LoopNest:
    """Return a nest by the short names of its loops, without padding."""
    all_sizes = np.array([float(sizes.get(name, 1)) for name in SHORT])
    width, height = (
        stride * (sizes.get(o, 1) - 1) + sizes.get(f, 1) for o, f in (("OX", "FX"), ("OY", "FY"))
    )
    return LoopNest(all_sizes, stride, stride, width, height, np.full(4, 8.0))


SMALL = st.fixed_dictionaries({name: st.sampled_from([1, 2, 4]) for name in ("K", "C", "OX", "FX", "B")})
LEVELS = {
    "registers": {"capacity": "2 B", "operands": ["weights"], "shared_by": []},
    "sums": {"capacity": "4 B", "operands": ["outputs"], "shared_by": ["reduction"]},
    "inputs": {"capacity": "8 B", "operands": ["inputs"], "shared_by": ["columns"]},
    "sram": {"capacity": "64 B"},
}


@pytest.mark.laws
@settings(max_examples=15)
@given(sizes=SMALL, widths=st.tuples(*[st.sampled_from([1, 3, 16])] * 2))
def test_a_port_for_each_operand_is_no_slower_than_one_for_all(sizes, widths):
    """Ports work in parallel; one that serves all operands serves them in turn."""
    cycles = []
    for ports in ("one", "one_of_each_operand"):
        levels = {name: dict(level) for name, level in LEVELS.items()}
        levels["sram"] |= {"ports": ports, "width": f"{widths[0]} B/cycle"}
        levels["sums"] |= {"width": f"{widths[1]} B/cycle"}
        machine = record({"columns": 2, "reduction": 2}, [["output_channels"], ["input_channels"]], levels)
        cycles.append(best_order(machine, nest(**sizes), False).cost.cycles)
    assert cycles[1] <= cycles[0] * (1 + 1e-12)


class TestBruteForce:
    """Traffic of every level is what walking the nest step by step moves."""

    @settings(max_examples=20)
    @given(sizes=SMALL, stride=st.sampled_from([1, 2]), seed=st.integers(0, 1000))
    def test_each_level_moves_what_a_walk_moves(self, sizes, stride, seed):
        machine = record({"columns": 2, "reduction": 2}, [["output_channels"], ["input_channels"]], LEVELS)
        layer = nest(float(stride), **sizes)
        unrolling = unroll(machine, layer)
        order = [(loop, steps) for loop, steps in enumerate(unrolling.steps) if steps > 1]
        np.random.default_rng(seed).shuffle(order)
        loops, factors = np.array([o[0] for o in order], np.int64), np.array([o[1] for o in order])
        mapped = mapped_order(machine, layer, loops, factors, 1)
        lanes = unrolling.lanes[[0, 3]].astype(int)
        for operand, name in enumerate("WIO"):
            places = int(unrolling.depth[operand])
            walk = Walk(
                order=[(SHORT[loop], int(steps)) for loop, steps in order],
                axes=[("K", lanes[0]), ("C", lanes[1])],
                spans=[_spans(machine, unrolling.chain[operand, place]) for place in range(places)],
                cuts=[int(cut) for cut in mapped.cuts[operand, :places]],
                stride=stride,
            )
            upper = FROM_BELOW if operand == OUTPUTS else TO_BELOW
            lower = TO_ABOVE if operand == OUTPUTS else FROM_ABOVE
            for place in range(1, places):
                below, above = moved(walk, name, place)
                assert mapped.billed_bits[operand, place, upper] == pytest.approx(8.0 * above)
                assert mapped.billed_bits[operand, place - 1, lower] == pytest.approx(8.0 * below)

    @given(
        factors=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        shares=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
    )
    def test_windows_of_a_port_cover_what_counting_cycles_says(self, factors, shares):
        moves, periods = new_transfers(), np.cumprod([2, *factors])[::-1]
        windows = []
        for i, period in enumerate(periods):
            may = max(1, int(period * shares[i % 4]))
            moves.period[i], moves.allowed_cycles[i] = period, may
            windows.append((int(period), may))
        found = covered_cycles(moves, np.arange(len(windows)), len(windows))
        assert found == pytest.approx(covered(windows))


def _spans(machine: Any, level: int) -> list[bool]:
    is_dram = level == int(machine["levels"]) - 1
    return [is_dram or machine["level_spans"][level * 5 + axis] > 0 for axis in range(2)]


LAYERS = st.fixed_dictionaries(
    {"K": st.integers(1, 40), "C": st.integers(1, 40), "OX": st.integers(1, 12), "OY": st.integers(1, 12),
     "FX": st.sampled_from([1, 3]), "FY": st.sampled_from([1, 3]), "G": st.sampled_from([1, 4])}
)  # fmt: skip
FLOWS = st.sampled_from(sorted(shipped_dataflows()))


def _machine(flow: str, side: int = 8, buffer: str = "64 KiB", **more: Any) -> Any:
    found = shipped_dataflows()[flow]
    registers = {"capacity": "1 B", "operands": ["weights"], "shared_by": []}
    levels = {"registers": registers, "sram": {"capacity": buffer, "read_energy": "0 pJ/B"}}
    made = array({"rows": side, "columns": side}, levels, **more)
    return array_record(made, found, ArrayLevel.model_validate(DRAM))[0]


class TestLaws:
    @given(flow=FLOWS, sizes=LAYERS)
    def test_no_array_is_faster_than_its_pes_nor_moves_less_than_every_element_once(self, flow, sizes):
        layer = nest(**sizes)
        mapped = best_order(_machine(flow), layer, False)
        assert mapped.cost.steps >= np.prod(list(sizes.values())) / 64 - 1e-9
        assert mapped.cost.cycles >= mapped.cost.steps
        for operand, moved_bits in ((WEIGHTS, 0), (INPUTS, 1), (OUTPUTS, 3)):
            least = 8.0 * operand_elements(layer, operand, layer.sizes)
            assert mapped.dram_bits[moved_bits] >= least * (1 - 1e-9)

    @given(sizes=LAYERS, flow=st.sampled_from(["weight_stationary", "kcp_ws", "yxp_os"]))
    def test_a_larger_buffer_never_moves_more_and_a_larger_array_takes_no_more_steps(self, sizes, flow):
        layer = nest(**sizes)
        small, large = (best_order(_machine(flow, buffer=size), layer, True) for size in ("1 KiB", "8 KiB"))
        if np.isfinite(small.cost.cycles):
            assert large.dram_bits.sum() <= small.dram_bits.sum() * (1 + 1e-9)
        narrow, wide = (unroll(_machine(flow, side), layer).steps.prod() for side in (8, 16))
        assert wide <= narrow

    @given(sizes=LAYERS)
    def test_the_order_of_axes_means_nothing(self, sizes):
        levels = {
            "registers": {"capacity": "1 B", "operands": ["weights"], "shared_by": ["b"]},
            "sram": {"capacity": "4 KiB"},
        }
        one = record({"a": 4, "b": 8}, [["output_channels"], ["output_width"]], levels)
        two = record({"b": 8, "a": 4}, [["output_width"], ["output_channels"]], levels)
        first, second = (best_order(machine, nest(**sizes), True) for machine in (one, two))
        assert first.cost.energy_j == pytest.approx(second.cost.energy_j)
        assert first.cost.cycles == second.cost.cycles
        assert first.billed_bits.sum() == pytest.approx(second.billed_bits.sum())

    @given(sizes=LAYERS, flow=FLOWS)
    def test_what_leaves_a_level_arrives_in_the_next(self, sizes, flow):
        """As often as there are instances below that hold the same elements."""
        machine, layer = _machine(flow), nest(**sizes)
        mapped, unrolling = best_order(machine, layer, False), unroll(machine, layer)
        for operand, up, down in ((WEIGHTS, TO_BELOW, FROM_ABOVE), (OUTPUTS, FROM_BELOW, TO_ABOVE)):
            for place in range(1, int(unrolling.depth[operand])):
                upper = mapped.billed_bits[operand, place, up]
                copies = unrolling.instances[operand, place - 1] / unrolling.feeds[0, operand, place]
                copies /= unrolling.instances[operand, place]
                assert mapped.billed_bits[operand, place - 1, down] == pytest.approx(upper * copies)

    @given(sizes=LAYERS, flow=st.sampled_from(["weight_stationary", "output_stationary", "input_stationary"]))
    def test_what_stays_is_fetched_for_no_loop_that_does_not_concern_it(self, sizes, flow):
        stays = OPERANDS.index(shipped_dataflows()[flow].stationary)
        loops = best_order(_machine(flow), nest(**sizes), False).loops
        concern = [not is_irrelevant(stays, int(loop)) for loop in loops]
        assert concern == sorted(concern)

    def test_systolic_folds_pay_for_skew_and_loading_each_time(self):
        """The closed forms of SCALE-Sim, one fold and many."""
        for flow, cycles in (("output_stationary", 32 + 8 + 8 - 2), ("weight_stationary", 8 + 16 + 8 - 2)):
            machine = _machine(flow, transfer="systolic", folds="serial")
            one = best_order(machine, nest(K=8, C=8 if "weight" in flow else 32, B=8), False).cost
            assert one.steps + one.skew == cycles
            many = best_order(machine, nest(K=24, C=8 if "weight" in flow else 32, B=8), False).cost
            assert many.steps + many.skew == 3 * cycles


def test_dataflows_that_make_no_sense_are_refused():
    for bad in (
        {"unroll": [["output_channels"], ["output_channels"]], "stationary": "any"},
        {"unroll": [["output_chanels"]], "stationary": "any"},
        {"unroll": [["batch"]], "stationary": "biases"},
    ):
        with pytest.raises(ValueError, match=r"unroll|stationary"):
            Dataflow.model_validate(bad)
    assert set(LOOPS) >= {
        loop for flow in shipped_dataflows().values() for axis in flow.unroll for loop in axis
    }


class TestTiles:
    """`npu.dpu.dataflow`: the MACs of a tile as another dataflow has them."""

    @pytest.mark.parametrize("flow", ["weight_stationary", "output_stationary", "kcp_ws", "nlr"])
    def test_no_dataflow_beats_the_macs_of_the_grid(self, flow):
        soc = load_soc("core-ultra-series2", {"npu.dpu.dataflow": flow})
        estimated = estimate("gcn-cora", soc=soc, techniques="stagr")
        npu = soc.npu
        for op in estimated.operators:
            if op.unit == "npu.dpu":
                peak = npu.peak_macs_per_s("int8", npu.tiles_used("latency"))
                assert op.macs / peak <= op.busy_s * (1 + 1e-9)

    def test_a_dataflow_of_ones_own_is_one_entry(self):
        own = {"unroll": [["input_channels"], ["output_channels"]], "stationary": "weights"}
        named = load_soc("core-ultra-series2", {"npu.dpu.dataflow": "weight_stationary"})
        in_place = load_soc("core-ultra-series2", {"npu.dpu.dataflow": own})
        assert named.npu.dpu.dataflow.stationary == in_place.npu.dpu.dataflow.stationary == "weights"

    def test_an_unknown_dataflow_is_refused_with_what_was_meant(self):
        with pytest.raises(ConfigError) as refused:
            load_soc("core-ultra-series2", {"npu.dpu.dataflow": "weight_stationery"})
        assert refused.value.suggestion == "weight_stationary"


class TestAccelerator:
    """A device of kind accelerator goes the way of an NPU's tiles."""

    def test_an_array_runs_a_network_no_faster_than_its_macs(self):
        scenario = Scenario("resnet-50", "nvdla-large", device="dla", settings=["workload.precision=int8"])
        total = scenario.mapped.total
        assert total["dpu_s"] >= 3.8e9 / (2048 * 1e9)
        assert total["latency_s"] >= total["dpu_s"]

    @pytest.mark.parametrize(
        ("key", "value", "what"),
        [
            ("dla.dpu.dataflow", "grid", "a dataflow of configs/dataflows.yaml"),
            ("dla.dpu.eltwise_ops", ["add"], "vector units run them"),
            ("dla.dpu.dataflow", {"unroll": [["batch"]] * 3, "stationary": "any"}, "on two axes|at most 2"),
            ("dla.dpu.dataflow", "input_stationary", "inputs that stay, with no level to stay in"),
        ],
    )
    def test_what_an_array_cannot_be_is_refused(self, key, value, what):
        with pytest.raises(ConfigError, match=what):
            load_soc("nvdla-large", {key: value})

    @pytest.mark.parametrize(
        ("soc", "settings", "stack"),
        [
            ("core-ultra-series2", {"npu.dpu.dataflow": "weight_stationary"}, "stagr"),
            ("tpu-v1", {}, "stagr+quantgr"),
            ("eyeriss", {}, "stagr"),
        ],
    )
    def test_both_engines_agree_and_what_the_array_cannot_runs_elsewhere(self, soc, settings, stack):
        machine = load_soc(soc, settings)
        one, two = (
            estimate("gcn-cora", machine, techniques=stack, engine=name) for name in ("analytical", "event")
        )
        assert one.latency_s == pytest.approx(two.latency_s, rel=0.05)
        if machine.has("accelerator"):
            assert "cpu" in {op.unit for op in one.operators}


def test_operators_that_are_alike_cost_what_each_does_by_itself():
    mapped = Scenario("resnet-50", "jetson-agx-xavier", device="dla").mapped
    ops, found = mapped.lowered.ops, mapped.results
    chosen = np.flatnonzero(ops["unit"] == int(Unit.DPU))[:12]
    assert len(chosen) == 12
    for o in chosen:
        alone = operator_costs(mapped.arch, ops[o : o + 1])
        assert alone[0] == found[o]
