"""A product or convolution never costs more than its parts run one after the other, in both engines."""

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import soc_with

from npusim.arch import Soc
from npusim.engines.event import run_events
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType

MOST_SLOWER, MOST_ENERGY = 1.005, 1.02
"""What a whole may take of its parts' time, and of their energy where they are as near to its latency."""
MACHINES = (
    ("core-ultra-series2", 6, ()),
    ("core-ultra-series2", 2, ("npu.sram.per_tile=512KiB",)),
    ("core-ultra-series2", 4, ("npu.sram.per_tile=4MiB", "dram.bandwidth=40GB/s")),
    ("core-ultra-series1", 2, ()),
    ("core-ultra-series1", 1, ("npu.sram.per_tile=1MiB",)),
)


class Cost(NamedTuple):
    latency_s: float
    energy_j: float


def product(rows: int, depth: int, columns: int, dtype: DType) -> Graph:
    editor = Editor("product")
    left = editor.input("x", (rows, depth), dtype)
    right = editor.constant("w", (depth, columns), dtype)
    editor.outputs.append(editor.matmul(left, right, "product"))
    return editor.finish()


def cost(graph: Graph, soc: Soc, tiles: int) -> Cost:
    """Latency without the launch, and dynamic energy."""
    results = map_graph(graph, soc, Run(tiles=tiles)).results
    return Cost(float(results["latency_s"].sum()), float(results["energy_j"].sum()))


def events_s(graph: Graph, soc: Soc, tiles: int) -> float:
    mapped = map_graph(graph, soc, Run(tiles=tiles))
    return run_events(mapped).latency_s - float(mapped.total["latency_s"] - mapped.results["latency_s"].sum())


@st.composite
def cut_products(draw: Any) -> tuple[Soc, int, DType, tuple[int, int, int], int, int]:
    """A machine, a format, sizes of a product, and into how many equal parts which axis is cut."""
    name, tiles, overrides = draw(st.sampled_from(MACHINES))
    size = st.one_of(st.sampled_from([256, 512, 1024, 2048, 4096]), st.integers(64, 5000))
    sizes = [draw(size), draw(size), draw(size)]
    axis, parts = draw(st.sampled_from([0, 2])), draw(st.sampled_from([2, 4]))
    sizes[axis] -= sizes[axis] % parts
    dtype = draw(st.sampled_from([DType.FP16, DType.INT8]))
    return soc_with(name, overrides), tiles, dtype, (sizes[0], sizes[1], sizes[2]), axis, parts


def check(case: tuple[Soc, int, DType, tuple[int, int, int], int, int]) -> None:
    soc, tiles, dtype, sizes, axis, parts = case
    part = list(sizes)
    part[axis] //= parts
    whole, each = (cost(product(*some, dtype), soc, tiles) for some in (sizes, part))
    assert whole.latency_s <= MOST_SLOWER * parts * each.latency_s
    if parts * each.latency_s <= whole.latency_s:
        assert whole.energy_j <= MOST_ENERGY * parts * each.energy_j


@given(cut_products())
@settings(max_examples=40)
def test_a_product_costs_no_more_than_its_parts(case):
    check(case)


@pytest.mark.slow
def test_of_two_thousand_products_hardly_any_costs_more_than_its_parts():
    """Parts of other proportions have tilings that the whole has not: in lanes along the columns, for one."""
    random, ratios = Random(5), []
    for _ in range(2000):
        name, tiles, overrides = random.choice(MACHINES)
        drawn = ([2**n for n in range(8, 13)] + [random.randint(64, 5000)] * 7 for _ in range(3))
        sizes = [random.choice(some) for some in drawn]
        axis, parts = random.choice([0, 2]), random.choice([2, 4])
        sizes[axis] -= sizes[axis] % parts
        part = [size // parts if i == axis else size for i, size in enumerate(sizes)]
        dtype, soc = random.choice([DType.FP16, DType.INT8]), soc_with(name, overrides)
        whole, each = (cost(product(*some, dtype), soc, tiles) for some in (sizes, part))
        ratios.append(whole.latency_s / (parts * each.latency_s))
    assert np.mean(np.array(ratios) > MOST_SLOWER) <= 0.01
    assert max(ratios) <= 1.1


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((2048, 2048, 2048), DType.FP16), ((4096, 4096, 4096), DType.INT8), ((512, 4096, 11008), DType.FP16)],
    ids=str,
)
def test_both_engines_agree_on_products_that_do_not_fit(sizes, dtype):
    soc = soc_with("core-ultra-series2", ())
    graph = product(*sizes, dtype)
    assert events_s(graph, soc, 6) == pytest.approx(cost(graph, soc, 6).latency_s, rel=0.06)


def test_one_buffer_is_used_only_where_the_sheet_allows_it():
    graph = product(2048, 2048, 2048, DType.FP16)
    allowed, refused = (soc_with("core-ultra-series2", (f"npu.schedule.fewest_buffers={n}",)) for n in (1, 2))
    one, two = (map_graph(graph, soc, Run(tiles=6)).results[0] for soc in (allowed, refused))
    assert (one["buffers"], two["buffers"]) == (1, 2)
    assert one["latency_s"] < 0.95 * two["latency_s"]
    assert one["dram_bytes"] < 0.6 * two["dram_bytes"]
