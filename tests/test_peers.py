"""Suite `peers` on layers that the shipped figures lack: odd shapes, closed forms, counted elements."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.cost import best_order
from npusim.errors import ConfigError
from npusim.validation.array_figures import compulsory_bits, layer_nest, peer_machines
from npusim.validation.running import run_suite

SYSTOLIC = ("dataflow", "rows", "cols", "m", "n", "k", "compute_cycles")
ACCESSES = ("ifmap_sram_reads", "filter_sram_reads", "ofmap_sram_writes")
EDGES = (1, 2, 7, 16, 17, 33, 64, 65, 255, 1433)


def closed_form(dataflow, rows, cols, m, n, k):
    """Cycles and SRAM accesses as SCALE-Sim counts them: edge folds in full, folds one after the other."""
    folds, streamed, loading = {
        "os": (ceil(m / rows) * ceil(n / cols), k, 0),
        "ws": (ceil(k / rows) * ceil(n / cols), m, rows),
        "is": (ceil(k / rows) * ceil(m / cols), n, rows),
    }[dataflow]
    cycles = folds * (streamed + loading + rows + cols - 2) - 1
    return cycles, *{
        "os": (m * k * ceil(n / cols), k * n * ceil(m / rows), m * n + folds * (rows + cols)),
        "ws": (m * k * ceil(n / cols), k * n, m * n * ceil(k / rows)),
        "is": (m * k, k * n * ceil(m / cols), m * n * ceil(k / rows)),
    }[dataflow]


def table(folder, header, rows):
    file = folder / "figures.csv"
    lines = [header, *rows]
    file.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
    return file


def test_systolic_arrays_of_any_shape_are_the_closed_forms(tmp_path):
    """Dimensions of 1, smaller and larger than the array, and not a multiple of it; columns in any order."""
    rng, rows = np.random.default_rng(1), []
    for dataflow in ("os", "ws", "is"):
        for _ in range(10):
            shape = [int(rng.choice(sizes)) for sizes in ((1, 4, 8, 16, 128), (1, 4, 32, 256), *[EDGES] * 3)]
            rows.append(("SCALE-Sim", dataflow, *shape, *closed_form(dataflow, *shape)))
    order = rng.permutation(len(SYSTOLIC) + len(ACCESSES) + 1)
    header = ["tool", *SYSTOLIC, *ACCESSES]
    file = table(tmp_path, [header[i] for i in order], [[row[i] for i in order] for row in rows])
    evidence = run_suite("peers", file).evidence
    assert len(evidence.measured) == 4 * len(rows)
    assert evidence.predicted == pytest.approx(evidence.measured, rel=1e-6)


DIMENSION = st.sampled_from([1, 2, 3, 7, 8, 16, 33])


@st.composite
def layers(draw):
    """A convolution: pointwise, strided, depthwise, batched; or a product."""
    bits = {"w_bits": 8.0, "i_bits": 8.0, "o_final_bits": 8.0, "o_partial_bits": 16.0}
    none = dict.fromkeys(("gemm_M", "gemm_N", "gemm_K"), float("nan"))
    if draw(st.booleans()):
        return bits | {f"gemm_{name}": float(draw(DIMENSION)) for name in "MNK"}
    names = ("B", "G", "K", "C", "OY", "OX")
    sizes = {f"dim_{name}": float(draw(DIMENSION)) for name in names}
    if draw(st.booleans()):  # depthwise
        sizes |= {"dim_K": 1.0, "dim_C": 1.0}
    taps, stride = float(draw(st.sampled_from([1, 3, 5]))), float(draw(st.sampled_from([1, 2])))
    high, wide = (stride * (sizes[f"dim_{o}"] - 1.0) + taps for o in ("OY", "OX"))
    shape = {"dim_FY": taps, "dim_FX": taps, "stride": stride, "in_h": high, "in_w": wide}
    return bits | none | sizes | shape


@given(layers(), st.sampled_from(sorted(peer_machines())))
@settings(max_examples=15)
def test_no_mapping_of_any_layer_moves_less_than_each_element_or_beats_the_pes(row, machine):
    one, nest = peer_machines()[machine], layer_nest(row)
    fast, frugal = best_order(one, nest, False), best_order(one, nest, True)
    pes = np.prod(one["axis_pes"][: int(one["axes"])])
    assert fast.cost.cycles >= np.prod(nest.sizes) / pes * (1.0 - 1e-12)
    assert fast.cost.cycles <= frugal.cost.cycles and frugal.cost.energy_j <= fast.cost.energy_j
    for mapped in (fast, frugal):
        assert mapped.dram_bits.sum() >= compulsory_bits(nest) * (1.0 - 1e-9)


def test_layers_and_machines_of_a_file_may_be_any_of_the_tools(tmp_path):
    dims = [f"dim_{name}" for name in ("B", "G", "K", "C", "OY", "OX", "FY", "FX")]
    header = [
        "machine", "layer", "opt", *dims, "gemm_M", "gemm_N", "gemm_K", "in_h", "in_w", "stride",
        "w_bits", "i_bits", "o_final_bits", "o_partial_bits", "latency_total_cycles", "energy_total_pj",
        "dram_read_bits_W", "dram_read_bits_I", "dram_read_bits_O", "dram_write_bits_O",
    ]  # fmt: skip
    figures = [100000, 1e6, 1e6, 1e6, 0, 1e6]
    depthwise = [1, 64, 1, 1, 14, 14, 3, 3, "", "", "", 14, 14, 1, 8, 8, 8, 16]
    product = [*[""] * 8, 1, 1000, 2048, "", "", "", 8, 8, 8, 16]
    rows = [
        ["tpu_like", "dw", "latency", *depthwise, *figures],
        ["edge_tpu_like", "mm", "energy", *product, *figures],
    ]
    evidence = run_suite("peers", table(tmp_path, header, rows)).evidence
    assert [str(one) for one in evidence.ids][:2] == ["2 latency: latency", "2 latency: energy"]
    assert np.isfinite(evidence.predicted).all() and (evidence.predicted > 0.0).all()
    rows[0][0] = "tpu_lik"
    with pytest.raises(ConfigError, match=r"figures\.csv:2: machine: .*did you mean `tpu_like`"):
        run_suite("peers", table(tmp_path, header, rows))
