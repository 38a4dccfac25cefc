"""Speed-ups by zeros that Sparseloop published: structured weights, compressed inputs, intersections.

A row is a product of m x k weights and n inputs of a layer, its cycles and those of dense operands. The
figures of Eyeriss v2's PE are of a simulation of the actual data, the others Sparseloop's own predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from npusim.arch import load_soc
from npusim.graph import Editor, Graph
from npusim.locate import resource
from npusim.ops import DType, Role, Storage
from npusim.scenario import Scenario
from npusim.validation.figures import Row, RowPredictor, read_declared
from npusim.validation.suite import Suite

# Settings of each design besides the use of sparse weights: what it does with inputs, and its size.
_DESIGNS = {
    "stc": (),
    "stc-compressed": ("core.sparsity.decompress_activations=true",),
    "eyeriss-v2-pe": (
        "core.dpu.array.axes={rows: 1, columns: 1}", "core.dpu.grid.vpe=1", "core.dpu.grid.mpe=1",
        "core.dpu.skips_by_both=true",
    ),
}  # fmt: skip


def _layer(m: int, k: int, n: int, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Graph:
    """Return a product as a network."""
    editor = Editor("layer")
    x = editor.input("inputs", (n, k), DType.INT8, **inputs)
    w = editor.constant("weights", (k, m), DType.INT8, role=Role.WEIGHT, **weights)
    editor.outputs.append(editor.matmul(x, w, "product"))
    return editor.finish()


@cache
def _cycles(design: str, sizes: tuple[int, int, int], pattern: str, shares: tuple[float, ...]) -> float:
    """Return the cycles of the array by the densities of both operands; without a pattern they are dense."""
    both = design == "eyeriss-v2-pe"
    used = ("weights", "inputs") if both else ("weights",)
    uses = ", ".join(f"{{operand: {each}, structure: '{pattern}', action: skipping}}" for each in used)
    settings = [*_DESIGNS[design], *([f"core.dpu.sparsity=[{uses}]"] if pattern else [])]
    weights, inputs = (
        {"pattern": name, "density": share, "storage": Storage.ZVC} if pattern and share < 1.0 else {}
        for name, share in zip((pattern, pattern if both else ""), shares, strict=True)
    )
    soc = load_soc(resource("validate", "definitions", "sparse_tensor_core.yaml"), settings)
    mapped = Scenario(_layer(*sizes, weights, inputs), soc, device="core").mapped
    return float(mapped.results[0]["dpu_s"]) * float(soc.array_devices["core"].dpu.clock)


def _rows(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    """Return the speed-up of each row over dense operands."""
    figures, rows = read_declared(suite, path), []
    for i, line in enumerate(figures.ids):
        design, pattern = str(figures["design"][i]), str(figures["pattern"][i])
        sizes = int(figures["m"][i]), int(figures["k"][i]), int(figures["n"][i])
        shares = float(figures["weight_density"][i]), float(figures["input_density"][i])
        predicted = _cycles(design, sizes, "", (1.0, 1.0)) / _cycles(design, sizes, pattern, shares)
        key = {"design": design, "layer": str(figures["layer"][i]), "pattern": pattern}
        measured = float(figures["dense_cycles"][i]) / float(figures["cycles"][i])
        rows.append(Row(int(line), measured, predicted, key))
    return rows, list(figures.notes)


SPARSELOOP = RowPredictor(_rows)
"""Speed-ups of Sparseloop's tensor cores and of Eyeriss v2's PE."""
