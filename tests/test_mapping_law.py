"""A product or convolution never costs more than its parts run one after the other, in both engines."""

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from strategies import soc_with

from npusim.arch import Soc
from npusim.engines.event import run_events
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType

MOST_SLOWER, MOST_ENERGY = 1.005, 1.02
"""What a whole may take of its parts' time, and of their energy where they are as near to its latency."""
MOST_OF_ARRAYS = 1.04
"""The same time on arrays, whose loop orders have at most six factors."""
MACHINES = (
    ("core-ultra-series2", 6, ()),
    ("core-ultra-series2", 2, ("npu.sram.per_tile=512KiB",)),
    ("core-ultra-series2", 4, ("npu.sram.per_tile=4MiB", "dram.bandwidth=40GB/s")),
    ("core-ultra-series1", 2, ()),
    ("core-ultra-series1", 1, ("npu.sram.per_tile=1MiB",)),
)


DATAFLOWS = ("weight_stationary", "output_stationary", "input_stationary", "kcp_ws")


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


class Case(NamedTuple):
    """A product or convolution on a machine, and into how many equal parts which axis is cut."""

    machine: tuple[str, int, tuple[str, ...]]
    dtype: DType
    sizes: tuple[int, int, int]
    """Output rows, input channels, output channels."""
    image: tuple[int, int, int] | None
    """Output width, kernel and stride of a convolution, which has no padding; none of a product."""
    axis: int
    parts: int

    def graph(self, parts: int) -> Graph:
        """One of so many parts; rows of a convolution overlap."""
        sizes = list(self.sizes)
        sizes[self.axis] //= parts
        if self.image is None:
            return product(*sizes, self.dtype)
        (rows, depth, columns), (width, kernel, stride) = sizes, self.image
        editor, in_h, in_w = (
            Editor("convolution"),
            (rows - 1) * stride + kernel,
            (width - 1) * stride + kernel,
        )
        image = editor.input("x", (1, depth, in_h, in_w), self.dtype)
        weight = editor.constant("w", (columns, depth, kernel, kernel), self.dtype)
        shape, strides = (1, columns, rows, width), (stride, stride)
        editor.outputs.append(
            editor.op("Convolution", (image, weight), shape, self.dtype, "conv", strides=strides)
        )
        return editor.finish()

    def ratios(self) -> tuple[float, float]:
        """Latency and energy of the whole over those of its parts."""
        name, tiles, overrides = self.machine
        soc = soc_with(name, overrides)
        whole, part = (cost(self.graph(parts), soc, tiles) for parts in (1, self.parts))
        return whole.latency_s / (self.parts * part.latency_s), whole.energy_j / (self.parts * part.energy_j)


def drawn(random: Random, kind: str) -> Case:
    """A random case: a product, a convolution, or a product on an array of another dataflow."""
    name, tiles, overrides = random.choice(MACHINES)
    if kind == "array":
        overrides = (*overrides, f"npu.dpu.dataflow={random.choice(DATAFLOWS)}")
    image, parts, most = None, random.choice([2, 4]), 2500 if kind == "array" else 5000
    sizes = [random.choice([2 ** random.randint(6, 12), random.randint(64, most)]) for _ in range(3)]
    if kind == "convolution":
        image = (random.randint(7, 112), *random.choice([(1, 1), (3, 1), (3, 2), (5, 1)]))
        depth, columns = (
            random.choice([2 ** random.randint(5, 9), random.randint(16, 600)]) for _ in range(2)
        )
        sizes = [max(8, image[0]), depth, columns]
    axis = random.choice([0, 2])
    sizes[axis] -= sizes[axis] % parts
    dtype = random.choice([DType.FP16, DType.INT8])
    return Case((name, tiles, overrides), dtype, (sizes[0], sizes[1], sizes[2]), image, axis, parts)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "count", "most"),
    [("product", 60, MOST_SLOWER), ("convolution", 12, MOST_SLOWER), ("array", 20, MOST_OF_ARRAYS)],
)
def test_a_whole_costs_no_more_than_its_parts(kind, count, most):
    random = Random(28)
    for case in (drawn(random, kind) for _ in range(count)):
        slower, energy = case.ratios()
        assert slower <= most, case
        assert slower < 1.0 or energy <= MOST_ENERGY, case


_TWO_SMALL = ("core-ultra-series2", 2, ("npu.sram.per_tile=512KiB",))
_TWO_TILES = ("core-ultra-series1", 2, ())
_ONE_SMALL = ("core-ultra-series1", 1, ("npu.sram.per_tile=1MiB",))


@pytest.mark.parametrize(
    "case",
    [
        Case(_TWO_SMALL, DType.INT8, (3076, 3822, 374), None, 2, 2),  # halves of 187 channels
        Case(_TWO_SMALL, DType.FP16, (2048, 3623, 544), None, 2, 2),  # halves of 17 groups
        Case(_TWO_SMALL, DType.INT8, (512, 2742, 1024), None, 0, 2),  # parts of 3 and 2 groups
        Case(_TWO_SMALL, DType.INT8, (256, 4461, 2109), None, 0, 2),  # rows below a register tile
        Case(_TWO_TILES, DType.INT8, (1198, 3919, 3151), None, 0, 2),  # parts below half of what fits
        Case(_ONE_SMALL, DType.FP16, (57, 321, 128), (57, 5, 1), 2, 4),  # 32 channels of a convolution
    ],
    ids=str,
)
def test_a_whole_has_the_parts_of_its_parts(case):
    slower, energy = case.ratios()
    assert slower <= MOST_SLOWER
    assert slower < 1.0 or energy <= MOST_ENERGY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "share", "most"),
    [("product", 0.001, 1.01), ("convolution", 0.001, 1.005), ("array", 0.006, MOST_OF_ARRAYS)],
)
def test_of_two_thousand_hardly_any_costs_more_than_its_parts(kind, share, most):
    """The rest end within a register tile, or within an array, at other places than their parts do."""
    random = Random(5)
    slower, energy = np.array([drawn(random, kind).ratios() for _ in range(2000)]).T
    assert np.mean(slower > MOST_SLOWER) <= share
    assert slower.max() <= most
    assert np.mean((slower >= 1.0) & (energy > MOST_ENERGY)) <= share


@pytest.mark.few(2)
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
