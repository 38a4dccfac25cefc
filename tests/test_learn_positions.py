"""Lessons and explorer at all positions of their sliders: no error, and claims are what the model says."""

import re
from importlib import import_module
from itertools import product
from typing import Any

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from lesson_positions import check, sampled, shown, walked

import npusim
from npusim.course.catalogue import LessonPage, lessons
from npusim.course.drawings import critical_parts
from npusim.course.explorer import KNOBS, Design, offered, stacks
from npusim.course.machine import gnn, machine
from npusim.course.machine import product as product_of
from npusim.errors import InfeasibleError

pytestmark = pytest.mark.usefixtures("own_main")
PAGES = {page.name: page for page in lessons()}


def lesson(name: str) -> Any:
    """Return the module of a lesson."""
    return import_module(PAGES[name].module)


@pytest.mark.few(4)
@pytest.mark.parametrize("page", lessons(), ids=list(PAGES))
def test_a_lesson_holds_at_the_ends_and_in_the_middle(page: LessonPage) -> None:
    for picture in lesson(page.name).LESSON.pictures:
        texts = {check(picture, values) for values in sampled(picture)}
        assert len(texts) > 1


@pytest.mark.slow
@pytest.mark.parametrize("page", lessons(), ids=list(PAGES))
def test_a_lesson_holds_at_every_position(page: LessonPage) -> None:
    for picture in lesson(page.name).LESSON.pictures:
        for values in walked(picture):
            check(picture, values)


def costs(graph: npusim.Graph, *stacks: str) -> list[npusim.Estimate]:
    return [npusim.estimate(graph, machine(), techniques=stack, interval=False) for stack in stacks]


@pytest.mark.laws
def test_bars_end_at_the_latency() -> None:
    for module, workload in ((lesson("preprocessing"), "gcn"), (lesson("control_flow"), "gat")):
        stacks = getattr(module, "STACKS", None) or module.STEPS
        for nodes in (250, 2708):
            estimates = costs(gnn(workload, nodes, 4), *stacks.values())
            figure, _ = module.LESSON.pictures[0].show(
                **{name: s.value for name, s in module.LESSON.pictures[0].sliders.items()} | {"nodes": nodes}
            )
            ends = [sum(bar) for bar in zip(*(trace.x for trace in figure.data), strict=True)]
            assert ends == pytest.approx([each.latency_s for each in estimates], rel=1e-9)


def test_twice_the_features_take_what_the_text_says() -> None:
    roofline = lesson("roofline")
    picture = roofline.LESSON.pictures[0]
    seen = set()
    for features, form in product(picture.sliders["features"].values, ("fp16", "int8")):
        _, text = picture.show(features=features, form=form)
        once, twice = (
            npusim.estimate(
                product_of(roofline.NODES, roofline.NODES, f, npusim.DType(form)), machine(), interval=False
            )
            for f in (features, 2 * features)
        )
        ratio = twice.operators[0].latency_s / once.operators[0].latency_s
        assert f"**{ratio:.2f} times**" in text
        assert ("hardly longer" in text) == (ratio < 1.1)
        least_bytes = (roofline.NODES + 2 * features) * roofline.NODES * (2 if form == "fp16" else 1)
        assert ("come again" in text) == (once.dram_bytes > 1.2 * least_bytes)
        seen |= {"hardly longer" in text, "come again" in text and 2}
    assert {True, False, 2} <= seen, "some condition cannot be false"


def test_blocks_are_called_empty_where_they_are() -> None:
    picture = lesson("sparsity").LESSON.pictures[0]
    said = {}
    for block in picture.sliders["block"].values:
        share = float(re.search(r"\\mathbf\{([\d.]+)", shown(picture, {"block": block})[1])[1])
        text = shown(picture, {"block": block})[1]
        said[block] = "hardly ever empty" in text, "are empty" in text
        assert said[block] == (share > 90, share <= 50)
    assert set(said.values()) == {(True, False), (False, True), (False, False)}


def test_the_ridge_in_features_is_where_a_byte_serves_so_many_operations() -> None:
    roofline = lesson("roofline")
    features, nodes = roofline.RIDGE_FEATURES, roofline.NODES
    intensity = 2 * nodes * nodes * features / (2 * nodes * nodes + 4 * nodes * features)
    assert intensity == pytest.approx(roofline.RIDGES["fp16"])


def test_moving_preprocessing_alone_gives_little_and_the_matrix_much() -> None:
    # The thesis of lesson 3, at every position of its sliders that is sampled.
    module = lesson("preprocessing")
    for values in sampled(module.LESSON.pictures[0]):
        graph = gnn("gcn", values["nodes"], values["degree"])
        exported, split, preg, stagr = costs(graph, *module.STACKS.values())
        gains = [exported.latency_s / each.latency_s for each in (split, preg, stagr)]
        _, text = shown(module.LESSON.pictures[0], values)
        assert f"{gains[0]:.2f} times" in text and f"{gains[1]:.1f} times" in text
        assert 1 <= gains[0] < 1.1 and gains[0] < gains[1] < gains[2]
        assert critical_parts(stagr, module._phase).get("preprocessing", 0.0) < 0.1 * stagr.latency_s
        assert ("fills this machine's DRAM" in text) == ("Time alone would be even" in text)
    exported = costs(gnn("gcn", 2708, 4), "none")[0]
    assert (
        sum(op.critical_s or 0 for op in exported.operators if op.unit == "npu.dpu")
        < 0.01 * exported.latency_s
    )


def test_padding_is_what_the_capacity_costs_beyond_todays_nodes() -> None:
    module = lesson("changing_graphs")
    picture, divided = module.LESSON.pictures[0], set()
    for nodes in (2000, 2050, 3000, 3050, 4000, 4050, 5950, 6000):
        capacity = min(each for each in module.CAPACITIES if each >= nodes)
        padded, exact = (
            cost.latency_s
            for cost in costs(gnn("gcn", 2000, 4), *(f"grad+nodepad:capacity={c}" for c in (capacity, nodes)))
        )
        _, text = picture.show(nodes=nodes, compile_s=60)
        divided.add(padded > exact)
        if padded > exact:
            quotient = float(re.search(r"\\mathbf\{([\d{},]+)\}", text)[1].replace("{,}", ""))
            assert quotient == pytest.approx(60 / (padded - exact), rel=0.006)
        else:
            assert r"\frac" not in text and "never pay" in text
        assert (capacity == nodes) == ("no room" in text)
    assert divided == {True, False}
    twice, once = costs(gnn("gcn", 2000, 4), "grad+nodepad:capacity=4000", "grad+nodepad:capacity=2000")
    assert 2 < twice.latency_s / once.latency_s < 2.8, "a little more than twice, says the question"


@pytest.mark.laws
def test_what_symg_adds_to_cacheg_is_said_by_a_condition() -> None:
    module, seen = lesson("symg_cacheg"), set()
    for values in sampled(module.LESSON.pictures[0]):
        _, text = shown(module.LESSON.pictures[0], values)
        plain, cached, _, both = module._costs(**values).values()
        again = cached.latency_s / both.latency_s
        assert f"**{plain.latency_s / both.latency_s:.2f} times**" in text and f"it {again:.2f} times" in text
        assert ("hardly anything" in text) == (again < 1.05)
        seen.add(again < 1.05)
        faster = module._gain(values["nodes"], values["sram"], module.FASTEST_GB_S)
        if "takes away" in text:
            assert faster < plain.latency_s / both.latency_s
    assert seen == {True, False}


@pytest.mark.laws
def test_what_more_sram_gives_is_said_by_its_bytes_and_times() -> None:
    module, seen = lesson("sram"), set()
    for values in sampled(module.LESSON.pictures[0]):
        figure, text = shown(module.LESSON.pictures[0], values)
        now, twice = (module.cost(**{**values, "sram": factor * values["sram"]}) for factor in (1, 2))
        assert sum(trace.x[1] for trace in figure.data) == pytest.approx(now.dram_bytes)
        assert f"{now.dram_bytes / values['bandwidth'] / 1e3:.0f}" in re.search(r"mathbf\{(.*?)\}", text)[1]
        gain = now.latency_s / twice.latency_s
        assert ("hardly anything" in text) == (gain < module.HARDLY)
        assert ("nothing is left" in text) <= (now.dram.refetched_bytes + now.dram.spilled_bytes == 0.0)
        seen.add("hardly anything" in text)
    assert seen == {True, False}


def test_prologue_work_stalls_and_epilogue_make_the_time() -> None:
    module, paces = lesson("timeline"), set()
    for values in sampled(module.LESSON.pictures[0]):
        _, text = shown(module.LESSON.pictures[0], values)
        whole, *parts = map(
            float,
            re.search(r"([\d.]+)\\;\\mu\\text\{s\} &= (.+) \\end", text)[0]
            .replace("+", " ")
            .replace(r"\;\mu\text{s} &=", " ")
            .removesuffix(r"\end")
            .split(),
        )
        assert sum(parts) == pytest.approx(whole, abs=0.2)
        assert ("DMA sets the pace" in text) == (parts[2] > 0.05 * parts[1])
        paces.add("DMA sets the pace" in text)
    assert paces == {True, False}


def test_dataflows_differ_by_operand_and_a_product_counts_itself() -> None:
    module = lesson("dataflows")
    side, k, n = 16, 64, 128
    flows = {name: module.moved(name, side, k, n, 1) for name in module.FLOWS}
    assert len({each.total for each in flows.values()}) == len(flows)
    steps = side * side * k * n / module.EDGE
    # Lanes of a row or column share an operand; what stays is read once, and unfinished sums travel.
    output, weight, inputs, row = flows.values()
    assert (output.inputs, output.weights, output.sums_back) == (steps, steps, 0)
    assert (weight.weights, inputs.inputs) == (k * n, side * side * k)
    rounds = k / module.EDGE
    for each in (weight, inputs):
        assert each.sums_back == side * side * n * rounds * module.SUM_BYTES
    assert row.total < min(output.total, weight.total, inputs.total)


def test_a_cache_serves_all_of_a_loop_or_nothing_and_software_a_part() -> None:
    module, seen = lesson("scratchpad"), set()
    for values in sampled(module.LESSON.pictures[0]):
        figure, text = shown(module.LESSON.pictures[0], values)
        size, capacity = module.weight_bytes(values["width"]), 1e6 * values["capacity"]
        cached, software = (module.cost(**values, manager=name) for name in module.BOTH.values())
        assert module.served(cached, values["width"]) == float(size <= capacity)
        part = module.served(software, values["width"])
        assert part == pytest.approx(min(1.0, capacity / size), abs=0.03)
        assert software.latency_s <= 1.001 * cached.latency_s
        assert ("does not fit" in text) == ("saves no byte" in text) == (size > capacity)
        assert ("takes room" in text) <= (size > capacity)
        gain = cached.latency_s / software.latency_s
        assert ("**as fast as**" in text) == (gain < module.HARDLY)
        totals = [sum(bar) for bar in zip(*(trace.x for trace in figure.data), strict=True)]
        assert totals[0] == pytest.approx(cached.dram_bytes + cached.level_bytes)
        seen.add((size <= capacity, gain < module.HARDLY))
    assert seen == {(True, True), (False, False)}


@pytest.mark.laws
def test_requests_wait_as_the_queue_says_and_frames_that_go_first_keep_the_bound() -> None:
    module, seen = lesson("many_networks"), set()
    for load in module.LOADS:
        assert module.mean_wait(load) == pytest.approx(module.md1_wait(load), rel=0.2)
    waits, frames = module.LESSON.pictures
    said = {load: "longer than the work" in shown(waits, {"load": load})[1] for load in module.LOADS}
    assert said == {load: module.mean_wait(load) > 1 for load in module.LOADS}
    assert set(said.values()) == {True, False}
    assert 10.0 * module.mean_wait(0.8) == pytest.approx(module.LESSON.exercise.right, rel=0.1)
    for values in sampled(frames):
        _, text = shown(frames, values)
        fifo, first, interrupting = (module.missed(**values, rule=rule) for rule in module.RULES)
        assert interrupting <= first <= fifo
        slowest = max(module.shared(**values, rule="frames first").answers[0].response_s)
        assert 1e3 * slowest <= module.longest_ms(values["graphs"]) * (1 + 1e-9)
        assert ("no frame can be late" in text) == (module.longest_ms(values["graphs"]) <= module.DEADLINE_MS)
        assert ("no frame can be late" in text) <= (first == 0)
        seen.add((first > 0, fifo > 0))
    assert seen == {(True, True), (False, True), (False, False)}


@pytest.mark.laws
@pytest.mark.few(1)
@pytest.mark.parametrize("soc", ["core-ultra-series1", "core-ultra-series2"])
def test_the_explorer_offers_what_a_data_sheet_takes(soc: str) -> None:
    explored(soc, "gcn-cora", "stagr", ends=True)


@pytest.mark.slow
def test_every_machine_and_network_of_the_explorer_takes_every_slider_to_its_ends() -> None:
    socs, workloads = offered()
    for soc in socs:
        explored(soc, "gcn-cora", "stagr")
    for workload in workloads:
        explored(socs[0], workload, stacks(workload)[-1], ends=True)


def test_the_explorer_offers_the_stacks_that_are_legal() -> None:
    offers = {workload: stacks(workload) for workload in ("gcn-cora", "gat-cora", "unet")}
    assert len(offers["gcn-cora"]) == 6 and offers["unet"] == ["none", "quantgr"]
    assert offers["gat-cora"] and not any("symg" in stack for stack in offers["gat-cora"])


def explored(soc: str, workload: str, stack: str, ends: bool = False) -> None:
    """Cost a design with each slider at each position, or at its ends."""
    sheet = {knob.path: knob.sheet_value(soc) for knob in KNOBS}
    for knob in KNOBS:
        values = knob.values(soc)
        for value in (values[0], values[-1]) if ends else values:
            design = Design.of(soc, workload, stack, {**sheet, knob.path: value})
            try:
                low, high = design.estimate.latency_interval_s or (0.0, float("inf"))
            except InfeasibleError:
                continue  # the page says why
            assert low <= design.estimate.latency_s <= high
            assert len(re.findall(r"\d", design.latency.split(" ")[0])) <= 3


@pytest.mark.laws
def test_a_tiling_moves_what_the_equation_says_and_beats_no_search() -> None:
    tiling = lesson("tiling")
    fitting = 0
    for stays, blocks, sram in product(tiling.STAYS, tiling.BLOCKS, tiling.SIZES_MB):
        own, said = tiling.cost(sram, stays, blocks)
        best, _ = tiling.cost(sram)
        _, text = tiling.LESSON.pictures[0].show(stays=stays, blocks=blocks, sram=sram)
        block = (tiling.K * tiling.N if stays == "weights stay" else tiling.M * tiling.K) / blocks
        assert ("does not fit" in text) == (own is None)
        if own is None:
            # Nothing that fits with one buffer beside its streams is refused.
            assert 2 * block > 0.9 * 1e6 * sram and "do not fit into npu.sram.per_tile" in said
            continue
        fitting += 1
        assert block < 1e6 * sram
        assert own.dram_bytes == pytest.approx(tiling.bytes_by_hand(stays, blocks), rel=1e-9)
        # Of tilings within 0.5 % of the fastest, the search takes the one with the least traffic.
        assert own.latency_s >= 0.995 * best.latency_s
    assert fitting > 20
