"""Handing intermediates on in stripes: which tensors can be, and what it saves."""

import numpy as np
import pytest

from npusim import estimate, load_soc, load_workload
from npusim.arch import Soc
from npusim.cost.lowering.liveness import roots
from npusim.graph import Editor, Graph
from npusim.mapping.fusion import fuse, row_fusable
from npusim.mapping.mapped import Run, map_placed

SOC = load_soc("core-ultra-series2")


def striped(graph: Graph, soc: Soc = SOC) -> frozenset[str]:
    groups = fuse(graph, soc, "npu")
    return row_fusable(graph, groups, roots(graph, groups))


def scores(nodes: int = 3000) -> Editor:
    """Scores of all pairs, masked and normalised, in an editor that still lacks its outputs."""
    editor = Editor("scores")
    left = editor.input("left", (nodes, 64))
    right = editor.input("right", (64, nodes))
    mask = editor.input("mask", (nodes, nodes))
    score = editor.matmul(left, right, "score")
    masked = editor.eltwise("Multiply", score, mask, "masked")
    editor.unary("Softmax", masked, "softmax", axes=(1,))
    return editor


def test_a_chain_over_rows_is_handed_on() -> None:
    editor = scores()
    editor.outputs.append(editor.matmul("softmax", editor.input("v", (3000, 64)), "result"))
    assert striped(editor.finish()) == {"score", "masked", "softmax"}


def test_a_tensor_with_two_readers_is_not() -> None:
    editor = scores()
    editor.outputs += [editor.unary("Exp", "masked", "other"), "softmax"]
    assert "masked" not in striped(editor.finish())


def test_a_result_of_the_network_is_not() -> None:
    editor = scores()
    editor.outputs += ["softmax"]
    assert "softmax" not in striped(editor.finish())


@pytest.mark.parametrize(
    ("type_", "settings"), [("Softmax", {"axes": (0,)}), ("Transpose", {"order": (1, 0)})]
)
def test_what_needs_all_rows_first_ends_the_chain(type_: str, settings: dict[str, tuple[int, ...]]) -> None:
    editor = scores()
    editor.outputs.append(
        editor.op(type_, ("softmax",), (3000, 3000), editor.tensors["softmax"].dtype, "whole", **settings)
    )
    assert striped(editor.finish()) == {"score", "masked"}


def test_the_right_operand_of_a_product_is_not() -> None:
    editor = scores()
    editor.outputs.append(editor.matmul(editor.input("v", (64, 3000)), "softmax", "result"))
    assert "softmax" not in striped(editor.finish())


def test_only_masks_and_results_cross_dram() -> None:
    nodes = 3000
    editor = scores(nodes)
    editor.outputs.append(editor.matmul("softmax", editor.input("v", (nodes, 64)), "result"))
    e = estimate(editor.finish(), SOC, tiles=4)
    assert e.dram_bytes < 1.3 * 2 * nodes**2


def test_units_of_a_chain_overlap() -> None:
    editor = scores()
    editor.outputs.append(editor.matmul("softmax", editor.input("v", (3000, 64)), "result"))
    mapped = map_placed(editor.finish(), SOC, Run(tiles=4))
    chained = mapped.lowered.ops["fused_chain"] > 0
    assert chained.sum() == 4
    busiest = max(mapped.results[unit].sum() for unit in ("dpu_s", "dsp_s", "dma_s"))
    alone = mapped.results["latency_s"].sum()
    launch = float(mapped.npu["launch_s"])
    assert busiest < mapped.total["latency_s"] - launch < alone


def test_attention_layers_are_handed_on() -> None:
    graph = load_workload("gat-cora")
    large = {name for name in striped(graph) if graph.tensors[name].elements == 2708**2}
    assert {graph.writer(name).type for name in large} == {"Add", "PRelu", "Select", "Softmax", "Broadcast"}  # type: ignore[union-attr]


def test_a_scatter_runs_on_one_dsp() -> None:
    graph = load_workload("gat-cora")
    two, four = (map_placed(graph, SOC, Run(tiles=tiles)) for tiles in (2, 4))
    place = [g.main for g in two.decisions.groups].index("preprocess/adjacency/scatter")
    assert np.isclose(two.results[place]["dsp_s"], four.results[place]["dsp_s"])
