"""Hypothesis strategies: random machines, made of the shipped ones by overrides, and random networks."""

from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from npusim.arch import Soc, load_soc, soc_names
from npusim.cost.lowering.plans import operators_of
from npusim.cost.lowering.tables import DpuOperation, Unit, empty_ops
from npusim.cost.machine.design_point import arch_row
from npusim.graph import Editor, Graph
from npusim.mapping import Run, plan_tables
from npusim.ops import DType, Role, Storage

NPU_SOCS = [name for name in soc_names(variants=False) if load_soc(name).has("npu")]

DIMENSIONS = st.one_of(st.sampled_from([1, 2, 15, 16, 17, 64, 65, 256, 300]), st.integers(1, 600))
ITEMS = st.sampled_from([DType.FP16, DType.INT8])


@cache
def soc_with(name: str, overrides: tuple[str, ...]) -> Soc:
    """Load a SoC once for each set of overrides."""
    return load_soc(name, overrides)


class Machine(NamedTuple):
    """A shipped SoC and what is set on top; short to print."""

    name: str
    settings: tuple[str, ...] = ()

    @property
    def soc(self) -> Soc:
        return soc_with(self.name, self.settings)

    def but(self, *settings: str) -> "Machine":
        """The same machine with further settings."""
        return Machine(self.name, (*self.settings, *settings))


@st.composite
def machines(draw: Any) -> Machine:
    """A shipped SoC with some of its numbers changed: small and odd ones, and large ones."""
    settings = {
        "npu.sram.per_tile": st.sampled_from(["6KiB", "20KiB", "64KiB", "200KiB", "1440KiB", "8MiB"]),
        "npu.dpu.clock": st.sampled_from(["0.5GHz", "1.85GHz", "1.95GHz"]),
        "npu.vpu_clock": st.sampled_from(["0.3GHz", "1057MHz", "1.4GHz"]),
        "dram.bandwidth": st.sampled_from(["1GB/s", "58.7GB/s", "80GB/s"]),
        "npu.contexts": st.sampled_from(["1", "3", "6"]),
        "npu.dma.engines": st.sampled_from(["1", "2", "5"]),
        "npu.dma.width": st.sampled_from(["8B/cycle", "64B/cycle"]),
        "npu.dsp.per_tile": st.sampled_from(["1", "2", "7"]),
        "npu.dpu.macs_per_mpe.int8": st.sampled_from(["4MAC/cycle", "8MAC/cycle", "32MAC/cycle"]),
        "npu.dpu.grid.mpe": st.sampled_from(["2", "4", "5"]),
        "npu.dpu.grid.vpe": st.sampled_from(["2", "4", "5"]),
        "npu.schedule.stream_pieces": st.sampled_from(["1", "8", "100"]),
        "npu.sparsity.decompress_weights": st.sampled_from(["true", "false"]),
        "npu.sparsity.decompress_activations": st.sampled_from(["true", "false"]),
        "npu.sparsity.skip_activations": st.sampled_from(["true", "false"]),
        "npu.symg.transposed_read_rate": st.sampled_from(["0.1", "0.5", "1"]),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(settings)), max_size=5, unique=True))
    return Machine(
        draw(st.sampled_from(NPU_SOCS)), tuple(f"{key}={draw(settings[key])}" for key in sorted(chosen))
    )


@st.composite
def arch_rows(draw: Any) -> Any:
    """A machine as one design point."""
    machine = draw(machines())
    tiles = draw(st.integers(1, int(machine.soc.npu.tiles)))
    return arch_row(machine.soc, tiles, draw(st.sampled_from([1, 8])), "latency")


@st.composite
def product_rows(
    draw: Any, triangle: bool = False, limit: int = 600, deep: bool = False, rates: bool = False
) -> Any:
    """A row of the operator table: a matrix product with operands in DRAM or in SRAM, known early or late.

    `deep`: its input channels are whole steps of any MAC unit of up to 256 bytes per cycle.
    """
    row = empty_ops(1)[0]
    item, out_item = draw(st.sampled_from([1.0, 2.0])), draw(st.sampled_from([1.0, 2.0]))
    size = st.one_of(st.sampled_from([1, 16, 17, 256, 599]), st.integers(1, limit))
    m, k, n = draw(size), draw(size), draw(size)
    k = int(draw(st.integers(1, 4)) * 256 / item) if deep else k
    m = k if triangle else m
    batch = 1 if triangle else draw(st.sampled_from([1, 1, 3]))
    row["unit"], row["dpu_operation"], row["batch"] = Unit.DPU, DpuOperation.MATMUL, batch
    row["out_w"], row["in_c"], row["out_c"] = m, k, n
    row["macs"] = batch * m * k * n
    row["a_item"] = row["b_item"] = item
    row["c_item"] = out_item
    for side, elements in (("a", m * k), ("b", k * n)):
        resident = draw(st.integers(0, 3)) == 0
        pack = 1.0 if triangle else draw(st.sampled_from([1.0, 1.0, 0.2]))
        row[f"{side}_pack"] = pack
        row[f"{side}_resident"] = resident
        row[f"{side}_dram_bytes"] = 0.0 if resident else batch * elements * item * pack
        row[f"{side}_prefetch"] = draw(st.booleans())
    row["a_constant"] = draw(st.booleans())
    row["extra_dram_bytes"] = draw(st.sampled_from([0.0, 2.0 * n]))
    row["c_resident"] = draw(st.booleans())
    leaves = draw(st.booleans()) or not row["c_resident"]
    row["c_dram_bytes"] = batch * m * n * out_item if leaves else 0.0
    row["live_spread_bytes"] = draw(st.sampled_from([0.0, 0.0, 5000.0]))
    row["live_copied_bytes"] = draw(st.sampled_from([0.0, 0.0, 3000.0]))
    if draw(st.booleans()) and not triangle:
        row["a_density"] = draw(st.sampled_from([1.0, 0.3, 0.001]))
        row["a_block_density"] = draw(st.sampled_from([1.0, 0.4]))
        row["b_density"] = draw(st.sampled_from([1.0, 0.3]))
    if rates:
        row["mac_rate"], row["mac_energy"] = draw(st.sampled_from([(2.0, 0.5), (4.0, 0.8), (1.0, 0.5)]))
    if triangle:
        row["triangle"] = 1
        row["a_triangle_bytes"] = 0.0 if row["a_resident"] else m * (m + 1) / 2 * item
    return row


@st.composite
def tight_products(draw: Any, **kinds: bool) -> tuple[Any, Any]:
    """A design point and a product row, with SRAM that mostly holds a part of the operands only."""
    row, op = draw(arch_rows()), draw(product_rows(**kinds))
    m, k, n = op["out_w"], op["in_c"], op["out_c"]
    operands_bytes = m * k * op["a_item"] + k * n * op["b_item"] + m * n * op["c_item"]
    share = draw(st.sampled_from([0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0]))
    live = op["live_copied_bytes"] + op["live_spread_bytes"]
    row["npu"]["sram_tile_bytes"] = live + share * operands_bytes
    if draw(st.booleans()):
        row.shared["dram_bytes_per_s"] *= draw(st.sampled_from([0.1, 10.0]))
    row.derive()
    return row, op


@st.composite
def runs(draw: Any, soc: Soc) -> Run:
    """A way to run a network on a SoC."""
    requests = draw(st.sampled_from([1, 1, 2, 8]))
    tiles = draw(st.integers(1, int(soc.npu.tiles)))
    return Run("latency" if requests == 1 else "throughput", requests, tiles, "auto", draw(st.booleans()))


@st.composite
def operands(
    draw: Any, editor: Editor, name: str, shape: tuple[int, ...], dtype: DType, square: bool = False
) -> str:
    """A constant or an input, dense or stored in any way that its shape allows."""
    density = draw(st.sampled_from([1.0, 0.5, 0.002]))
    storages = [Storage.DENSE, Storage.DENSE, Storage.ZVC, *([Storage.TRIANGLE] * 2 if square else [])]
    storage = draw(st.sampled_from(storages))
    fields = {
        "density": density,
        "block_density": draw(st.sampled_from([None, max(density, 0.3)])),
        "storage": storage,
        "symmetric": square,
        "role": Role.NORM if square else Role.NONE,
        "cached": draw(st.booleans()) if square else False,
    }
    add = editor.constant if draw(st.booleans()) else editor.input
    return add(name, shape, dtype, **fields)


@st.composite
def graphs(draw: Any, max_operators: int = 6) -> Graph:
    """A chain of products, elementwise operators, moves and reductions with a few side branches."""
    editor = Editor("random")
    dtype = draw(ITEMS)
    rows, columns = draw(DIMENSIONS), draw(DIMENSIONS)
    current = editor.input("x", (rows, columns), dtype)
    norm: str | None = None
    kinds = [
        "matmul",
        "matmul",
        "aggregate",
        "aggregate",
        "bias",
        "relu",
        "softmax",
        "self",
        "concat",
        "view",
        "batch",
        "host",
    ]
    for i in range(draw(st.integers(1, max_operators))):
        kind = draw(st.sampled_from(kinds))
        rows, columns = editor.tensors[current].shape
        name = f"{i:02d}_{kind}"
        if kind == "matmul":
            weight = draw(operands(editor, f"w{i}", (columns, draw(DIMENSIONS)), dtype))
            current = editor.matmul(current, weight, name)
        elif kind == "aggregate":
            norm = norm or draw(operands(editor, "norm", (rows, rows), dtype, square=True))
            current = editor.matmul(norm, current, name)
        elif kind == "bias":
            bias = editor.constant(f"b{i}", draw(st.sampled_from([(columns,), (1,), (rows, columns)])), dtype)
            current = editor.eltwise("Add", current, bias, name)
        elif kind == "relu":
            current = editor.unary("Relu", current, name)
        elif kind == "softmax":
            current = editor.unary("Softmax", current, name, axes=(1,))
        elif kind == "self":
            current = editor.eltwise(draw(st.sampled_from(["Add", "Multiply"])), current, current, name)
        elif kind == "concat":
            current = editor.op("Concat", (current, current), (rows, 2 * columns), dtype, name, axes=(1,))
        elif kind == "view":
            flat = editor.reshape(current, (1, rows * columns), f"{name}_flat")
            current = editor.reshape(flat, (rows, columns), name)
        elif kind == "batch":
            heads = editor.constant(
                f"h{i}", (draw(st.integers(2, 3)), columns, draw(st.integers(1, 40))), dtype
            )
            batched = editor.matmul(current, heads, f"{name}_product")
            current = editor.reduce("ReduceSum", batched, (0,), name)
        else:
            current = editor.unary("Tanh", current, name, device="cpu")
        if draw(st.integers(0, 3)) == 0:
            editor.outputs.append(current)
    editor.outputs.append(current)
    return editor.finish()


@st.composite
def convolutions(draw: Any) -> Graph:
    """A convolution, strided and padded in any way, and a pooling, a depthwise convolution and a sum after
    it."""
    editor = Editor("image")
    dtype = draw(ITEMS)
    batch, in_c, out_c = draw(st.integers(1, 2)), draw(st.integers(1, 70)), draw(st.integers(1, 70))
    kernel_h, kernel_w = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride_h, stride_w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    out_h, out_w = draw(st.integers(1, 20)), draw(st.integers(1, 40))
    in_h, in_w = (out_h - 1) * stride_h + kernel_h, (out_w - 1) * stride_w + kernel_w
    image = editor.input("x", (batch, in_c, in_h, in_w), dtype)
    weight = editor.constant("w", (out_c, in_c, kernel_h, kernel_w), dtype)
    strides = (stride_h, stride_w)
    shape = (batch, out_c, out_h, out_w)
    current = editor.op("Convolution", (image, weight), shape, dtype, "conv", strides=strides)
    for kind in draw(
        st.lists(st.sampled_from(["pool", "average", "depthwise", "sum"]), max_size=3, unique=True)
    ):
        if kind == "sum":
            current = editor.eltwise("Add", current, editor.input("residual", shape, dtype), "sum")
        elif kind == "depthwise":
            filters = editor.constant("filters", (out_c, 1, 1, 1, 1), dtype)
            current = editor.op(
                "GroupConvolution", (current, filters), shape, dtype, "depthwise", strides=(1, 1)
            )
        else:
            type_ = "MaxPool" if kind == "pool" else "AvgPool"
            current = editor.op(type_, (current,), shape, dtype, kind, kernel=(1, 1), strides=(1, 1))
    editor.outputs.append(current)
    return editor.finish()


@st.composite
def tight_convolutions(draw: Any) -> tuple[Any, Any]:
    """A design point and the row of a convolution, with little SRAM for it."""
    graph, machine = draw(convolutions()), draw(machines())
    row = arch_row(machine.soc, draw(st.integers(1, 3)), 1, "latency")
    op = operators_of(plan_tables(graph, machine.soc).table, 0)[0]
    for side in "abc":
        if draw(st.integers(0, 3)) == 0:
            op[f"{side}_resident"] = 1
            if side != "b" or draw(st.booleans()):  # a segment fetches its weights, and holds them
                op[f"{side}_dram_bytes"] = 0.0
        if side != "c":
            op[f"{side}_prefetch"] = draw(st.booleans())
    op["a_constant"] = draw(st.booleans())
    row["npu"]["sram_tile_bytes"] = draw(st.sampled_from([1e3, 3e3, 1e4, 3e4, 1e5, 1e6]))
    row.derive()
    return row, op
