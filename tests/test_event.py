"""Laws of the event engine: nothing is lost, nothing is in two places, nothing is faster than its parts."""

from contextlib import nullcontext
from dataclasses import fields
from typing import NamedTuple

import naive_event
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_event import Clock, SharedMemory, Timer
from strategies import Machine, convolutions, graphs, machines, runs

from npusim.arch import load_soc
from npusim.compiling.kernels import plain_kernels
from npusim.cost.lowering.liveness import Liveness
from npusim.cost.lowering.tables import Unit
from npusim.engines.event import event_estimate, run_events
from npusim.engines.event.build import build_program, fused_chains, resident_tensors
from npusim.engines.event.jobs import apportion, blocks
from npusim.engines.event.machine import simulate, transfer_rates
from npusim.engines.event.program import ProgramBuilder
from npusim.engines.timeline import EventLog, ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import Mapped, Run, map_graph
from npusim.ops import DType
from npusim.scenario import Scenario
from npusim.techniques import apply
from npusim.workloads import load_workload

SERIES2 = load_soc("core-ultra-series2")
ON_DRAM = [TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.CPU, TaskKind.GPU]
ROUNDING = 1e-9


class Case(NamedTuple):
    """A network on a machine, short to print."""

    machine: Machine
    graph: Graph
    run: Run

    @property
    def mapped(self) -> Mapped:
        try:
            return map_graph(self.graph, self.machine.soc, self.run)
        except InfeasibleError:
            return map_graph(self.graph, SERIES2, Run())


@st.composite
def cases(draw):
    machine = draw(machines())
    run = draw(runs(machine.soc))
    run = Run(run.hint, min(run.requests, 3), run.tiles, "auto", run.swap_operands)
    return Case(machine, draw(st.one_of(graphs(), convolutions())), run)


def acted(mapped):
    """The time line of a mapped graph, with the estimate."""
    run = run_events(mapped)
    return run, run.timeline


@given(cases())
@settings(max_examples=25)
def test_laws_on_random_networks_and_machines(case):
    mapped = case.mapped
    estimate, line = acted(mapped)
    check_conservation(mapped, line)
    check_exclusiveness(line)
    check_bounds(mapped, estimate, line)


@given(cases(), st.integers(1, 3), st.booleans())
@settings(max_examples=20)
def test_the_run_is_that_of_its_slow_twin_to_the_bit(case, in_flight, as_python):
    """Compiled, and as plain Python: when each task was ready, began and ended, and why."""
    mapped = case.mapped
    program, rates = build_program(mapped), transfer_rates(mapped.arch)
    inferences = 1 if in_flight == 1 else 2 * in_flight + 1
    with plain_kernels() if as_python else nullcontext():
        found = simulate(program, rates, inferences, in_flight)
    twin = naive_event.simulate(program, rates, inferences, in_flight)
    for column in fields(EventLog):
        assert np.array_equal(getattr(found, column.name), getattr(twin, column.name)), column.name


def check_conservation(mapped, line):
    """Bytes and MACs of every inference are those of the graph, operator by operator."""
    for number in range(line.inferences):
        mine = line.inference == number
        moved = line.bytes * np.isin(line.kind, ON_DRAM) * mine
        per_operator = np.bincount(np.maximum(line.operator, 0), moved, len(line.operators))
        assert per_operator == pytest.approx(mapped.results["streamed_bytes"], rel=ROUNDING, abs=1e-3)
        assert (line.macs * mine).sum() == pytest.approx(mapped.graph.macs, rel=1e-12)
    assert line.energy_j.sum() == pytest.approx(
        line.inferences * mapped.results["energy_j"].sum(), rel=ROUNDING
    )


def check_exclusiveness(line):
    """SRAM is never above its capacity and empty in the end; no unit does two tasks at once; causes come
    before effects.
    """
    assert line.sram_bytes.max(initial=0.0) <= line.sram_capacity * (1 + ROUNDING)
    contexts = 1 + max(unit.context for unit in line.units)
    assert line.sram_peak_bytes <= line.sram_capacity / contexts * (1 + ROUNDING)
    if len(line.sram_bytes) and not line.left_out:  # or others are still in flight
        assert line.sram_bytes[-1] == pytest.approx(0.0, abs=1e-3)
    for rows in line.by_unit:
        assert (line.start[rows][1:] >= line.end[rows][:-1]).all()
    assert (line.end >= line.start).all()
    assert (line.start >= line.ready).all()
    assert (line.ready >= 0.0).all()
    starts, followers = line.followers
    for number in range(line.inferences):
        base = number * line.per_inference
        earlier = np.repeat(np.arange(line.per_inference), np.diff(starts))
        assert (line.end[base + earlier] <= line.ready[base + followers]).all()


def check_bounds(mapped, estimate, line):
    """Latency is at least the longest chain and every unit's work; busy times are the analytical engine's."""
    program = build_program(mapped)
    chain_s = longest_path_s(program, transfer_rates(mapped.arch))
    shortest_s = float((line.ended - line.begun).min())
    assert shortest_s >= chain_s * (1 - ROUNDING)
    busy_s = line.group_busy_s()
    contexts = {"npu.dpu": estimate.contexts, "npu.dsp": estimate.contexts}
    assert all(
        line.makespan_s >= spent / contexts.get(group, 1) * (1 - ROUNDING) for group, spent in busy_s.items()
    )
    for group, column in (("npu.dpu", "dpu_s"), ("npu.dsp", "dsp_s")):
        expected = line.inferences * float(mapped.total[column])
        assert busy_s[group] == pytest.approx(expected, rel=ROUNDING, abs=1e-15)
    spent_s = line.inferences * float(mapped.total["dma_s"])
    alone = max(speed for speed, _ in transfer_rates(mapped.arch).speed[0].values())
    assert busy_s["npu.dma"] >= spent_s / alone * (1 - 1e-6)


def longest_path_s(program, rates):
    """Length of the longest chain of tasks that wait for each other, each at its fastest (s)."""
    ready, longest = [0.0] * len(program), 0.0
    for number, task in enumerate(program.tasks):
        top_speed, _ = rates.speed[0].get(int(task["kind"]), (1.0, False))
        end = ready[number] + task["fixed_s"] + task["duration_s"] / top_speed
        longest = max(longest, end)
        for follower in program.followers[task["first_follower"] : task["end_follower"]]:
            ready[follower] = max(ready[follower], end)
    return longest


@given(cases())
@settings(max_examples=20)
def test_the_same_input_gives_the_same_time_line_to_the_bit(case):
    first, second = acted(case.mapped)[1], acted(case.mapped)[1]
    for name in ("ready", "start", "end", "cause", "sram_time", "sram_bytes", "ended"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


@given(cases())
@settings(max_examples=20)
def test_resident_tensors_are_those_that_the_cost_model_counts(case):
    mapped = case.mapped
    counted = Liveness(mapped.graph, mapped.decisions, mapped.soc)
    residents = resident_tensors(mapped)
    tiles = float(mapped.npu["tiles"])
    chains = mapped.lowered.ops["fused_chain"].tolist()
    # All of a chain work when its last operator has its turn.
    turn = {chain: i for i, chain in enumerate(chains) if chain}
    when = [turn.get(chain, i) for i, chain in enumerate(chains)]
    for i, group in enumerate(mapped.decisions.groups):
        if group.unit not in (Unit.VIEW, Unit.HOST):
            spread, copied = counted.bytes_at(i)
            live = spread + copied * tiles
            times = [(r.bytes, [when[user] for user in r.users]) for r in residents]
            named = sum(size for size, used in times if min(used) <= when[i] <= max(used))
            if chains[i]:  # weights wait, too
                assert named <= live * (1 + ROUNDING)
            else:
                assert named == pytest.approx(live, rel=ROUNDING)


@pytest.mark.parametrize("stack", ["none", "stagr", "stagr+symg+cacheg", "graphsplit+grad+nodepad+quantgr"])
@pytest.mark.parametrize("soc", ["core-ultra-series1", "core-ultra-series2"])
def test_laws_on_gcn_cora(stack, soc):
    mapped = map_graph(apply(load_workload("gcn-cora"), stack), load_soc(soc), Run("latency", 1, 2))
    estimate, line = acted(mapped)
    check_conservation(mapped, line)
    check_exclusiveness(line)
    check_bounds(mapped, estimate, line)


def test_a_transfer_overlaps_with_work_and_the_next_operator_is_fetched_ahead():
    """Weights of a second product arrive while the first one computes."""
    editor = Editor("two products")
    x = editor.input("x", (512, 2048), DType.FP16)
    first = editor.matmul(x, editor.constant("w0", (2048, 1024), DType.FP16), "first")
    second = editor.matmul(first, editor.constant("w1", (1024, 256), DType.FP16), "second")
    editor.outputs.append(second)
    _, line = acted(map_graph(editor.finish(), SERIES2, Run("latency", 1, 4)))
    end_of_first = line.end[(line.operator == 0) & (line.kind == TaskKind.DPU)].max()
    assert line.start[(line.operator == 1) & (line.kind == TaskKind.DMA_IN)].min() < end_of_first


def test_requests_in_flight_hide_launches_and_share_the_npu():
    graph = apply(load_workload("gcn-cora"), "stagr+quantgr")
    one = event_estimate(Scenario(graph, SERIES2, tiles=2))
    many = event_estimate(Scenario(graph, SERIES2, hint="throughput", tiles=2))
    assert many.throughput_per_s > 1.5 * one.throughput_per_s
    inferences = many.timeline.inferences + many.timeline.left_out
    assert inferences == 5 * many.requests  # a multiple of two contexts
    alive = [(b, 1) for b in many.timeline.begun] + [(e, -1) for e in many.timeline.ended]
    in_flight = np.cumsum([change for _, change in sorted(alive)])
    assert in_flight.max() == many.requests


def test_by_littles_law_latency_is_requests_over_throughput():
    run = event_estimate(Scenario("gcn-cora", SERIES2, "stagr", hint="throughput"))
    e = run
    assert e.latency_s * e.throughput_per_s == pytest.approx(e.requests, rel=0.02)


def test_an_inference_works_on_the_tiles_of_one_context():
    run = event_estimate(Scenario("gcn-cora", hint="throughput", settings=["npu.contexts=3"]))
    line, contexts = run.timeline, np.array([unit.context for unit in run.timeline.units])
    on_tiles = np.isin(line.kind, [TaskKind.DPU, TaskKind.DSP])
    assert {unit.name for unit in line.units if unit.group == "npu.dpu"} == {
        f"npu.tile{t}.dpu" for t in range(6)
    }
    used = [set(contexts[line.unit[on_tiles & (line.inference == i)]]) for i in range(line.inferences)]
    assert all(len(mine) == 1 for mine in used) and set().union(*used) == {0, 1, 2}
    assert max(use.utilisation for use in run.units.values()) <= 1.0 + 1e-6


@pytest.mark.few(2)
@pytest.mark.parametrize("contexts", [1, 2, 3])
@pytest.mark.parametrize(
    ("network", "settings_"),
    [("resnet-50", []), ("resnet-50", ["workload.precision=int8"]), ("gcn-cora", []), ("gat-cora", [])],
)
def test_engines_agree_on_the_throughput_of_contexts(network, settings_, contexts):
    mapped = Scenario(network, hint="throughput", settings=[*settings_, f"npu.contexts={contexts}"]).mapped
    closed, acted_out = float(mapped.total["throughput_per_s"]), run_events(mapped)
    assert acted_out.contexts == contexts
    assert acted_out.throughput_per_s == pytest.approx(closed, rel=0.15)


def test_deadlock_names_the_tensors_that_do_not_fit():
    builder = ProgramBuilder([ExecutionUnit("npu.dma0", "npu.dma")], ["conv"], (100.0,))
    begin = builder.sync(())
    gate = builder.task(TaskKind.ENTER, after=[begin])
    first = builder.task(TaskKind.RESERVE, operator=0, after=[gate])
    held = builder.buffer(first, "weights", 60.0)
    second = builder.task(TaskKind.RESERVE, operator=0, after=[first])
    builder.buffer(second, "image", 50.0)
    builder.release(held, [second])
    builder.task(TaskKind.LEAVE, after=[second])
    builder.sync([second])
    with pytest.raises(InfeasibleError, match=r"operator 'conv' needs room for 'image'.*held: 'weights'"):
        simulate(builder.finish(), transfer_rates(map_graph(two_small_products(), SERIES2, Run()).arch))


def test_blocks_of_a_chain_take_room_only_while_it_runs():
    """Five attention chains begin with a block that the first could run early: all at once do not fit."""
    five = {"workload.hidden": 1, "workload.layers": 5}
    mapped = Scenario("gat-cora", SERIES2, "stagr+cacheg", settings=five).mapped
    chains = fused_chains(mapped, resident_tensors(mapped))
    assert set(chains) == set(np.flatnonzero(mapped.lowered.ops["fused_chain"]).tolist())
    estimate, line = acted(mapped)
    check_exclusiveness(line)
    assert estimate.latency_s == pytest.approx(float(mapped.total["latency_s"]), rel=0.25)


def two_small_products():
    editor = Editor("small")
    x = editor.input("x", (64, 64), DType.FP16)
    editor.outputs.append(editor.matmul(x, editor.constant("w", (64, 64), DType.FP16), "product"))
    return editor.finish()


def shared(flows, total):
    """When flows begun together end: (number, seconds and bytes per second at speed 1, top speed).

    Two engines, one host.
    """
    clock, ended = Clock(), {}
    memory = SharedMemory(clock, [0, 0], 1, total, lambda flow: ended.update({flow: clock.now}))
    for flow in flows:
        memory.begin(*flow)
    clock.run()
    return ended


def test_an_engine_alone_is_faster_than_one_of_two():
    assert shared([(0, 1.0, 1.5, 50.0)], 200.0) == pytest.approx({0: 1.0 / 1.5})
    assert shared([(0, 1.0, 1.5, 50.0), (1, 1.0, 1.5, 50.0)], 200.0) == pytest.approx({0: 1.0, 1: 1.0})


def test_what_ends_early_leaves_its_share_to_the_others():
    assert shared([(0, 1.0, 2.0, 50.0), (1, 0.5, 2.0, 50.0)], 200.0) == pytest.approx({1: 0.5, 0: 0.75})


def test_a_host_and_the_npu_share_dram_fairly():
    """Two engines of 50 B/s and a host that asks for 80 of 120 B/s: 40 each; the host's rest is faster when
    the engines are done.
    """
    ended = shared([(0, 1.0, 1.5, 50.0), (1, 1.0, 1.5, 50.0), (2, 1.0, 1.0, 80.0)], 120.0)
    assert ended == pytest.approx({0: 1.25, 1: 1.25, 2: 1.25 + 30.0 / 80.0})
    modest = shared([(0, 1.0, 1.5, 50.0), (1, 1.0, 1.5, 50.0), (2, 1.0, 1.0, 10.0)], 110.0)
    assert modest == pytest.approx({0: 1.0, 1: 1.0, 2: 1.0})


@given(st.floats(0.0, 1e9), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_parts_add_up_to_the_whole(total, shares):
    total = float(round(total))
    parts = apportion(total, shares)
    assert all(part >= 0.0 for part in parts)
    assert sum(parts) == (total if any(shares) else 0.0)


@given(st.integers(1, 500), st.integers(1, 500))
def test_blocks_cover_all_register_tiles(total, count):
    cut = blocks(total, min(total, count))
    assert sum(cut) == total
    assert max(cut) == cut[0]


def test_tasks_are_compact():
    program = build_program(map_graph(two_small_products(), SERIES2, Run()))
    assert program.tasks.itemsize <= 112
    assert all(array.dtype == np.int64 for array in (program.followers, program.freed))


def test_a_fused_chain_may_be_longer_than_pythons_stack():
    editor = Editor("long")
    x = editor.input("x", (64, 64), DType.FP16)
    for i in range(700):
        x = editor.unary("Sigmoid", x, f"sigmoid{i}")
    editor.outputs.append(x)
    mapped = map_graph(editor.finish(), SERIES2, Run("latency", 1, 4))
    assert mapped.lowered.ops["fused_chain"].all()
    estimate, line = acted(mapped)
    check_conservation(mapped, line)
    assert estimate.latency_s > 0.0


def test_actions_of_one_time_are_called_in_the_order_they_were_asked_for():
    clock, called = Clock(), []
    for delay_s, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        clock.after(delay_s, lambda name=name: called.append((clock.now, name)))
    clock.run()
    assert called == [(1.0, "a"), (1.0, "b"), (2.0, "c")]


def test_a_timer_calls_at_its_time_or_before():
    clock, called = Clock(), []
    timer = Timer(clock, lambda: called.append(clock.now))
    for at in (3.0, 5.0, 2.0):
        timer.set(at)
    clock.run()
    assert called == [2.0, 3.0]
