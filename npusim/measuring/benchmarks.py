"""Micro-benchmarks: networks of one kind of operator.

The measured graph is the graph that npusim estimates, so that a difference is an error of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from npusim.config.reading import read_yaml
from npusim.errors import ConfigError, UnknownNameError, nearest
from npusim.graph import Editor, Graph, GraphMeta
from npusim.locate import resource
from npusim.ops import DType, Role, Storage

_COPIED = 256  # numbers in a row of each half of a copy: long enough to use whole cache lines

_LINE_COLUMNS = 16  # numbers in a cache line of 64 bytes
# Columns from which PyTorch sorts the messages of a scatter (can_use_expanded_index_path in its
# TensorAdvancedIndexing.cpp).
_SORTED_FROM = 16

# Largest freed block that the C library keeps (mallopt(3), M_MMAP_THRESHOLD: at most 32 MiB on 64 bits);
# Linux gives larger blocks page by page, of this size.
_KEPT_BYTES, _PAGE_BYTES = 32 * 1024**2, 4096

Sizes = Mapping[str, int]
Build = Callable[[Editor, Sizes, DType], str]


@dataclass(frozen=True, slots=True)
class Microbenchmark:
    """Dimensions in the order of an id, a builder, and limits.

    The builder adds the operator to an editor and returns its result. `int8` says whether the benchmark
    exists in 8-bit integers; `granule` divides each dimension.
    """

    sizes: tuple[str, ...]
    build: Build
    int8: bool = False
    granule: int = 1

    def problem(self, sizes: Sizes) -> tuple[str, str, str | None] | None:
        """Return what is wrong with sizes, what is allowed and what was meant; None where they fit."""
        known = ", ".join(self.sizes) or "none"
        for name, size in sizes.items():
            if name not in self.sizes:
                return f"the unknown dimension `{name}`", known, nearest(name, self.sizes)
            if size < 1 or size % self.granule:
                allowed = "at least 1" if self.granule == 1 else f"a multiple of {self.granule}"
                return f"{name} `{size}`", allowed, None
        missing = [name for name in self.sizes if name not in sizes]
        return (f"no {', '.join(missing)}", known, None) if missing else None


def _declared(benchmark: Mapping[str, Any]) -> Microbenchmark:
    """Return a micro-benchmark of `configs/benchmarks.yaml`."""

    def build(editor: Editor, sizes: Sizes, dtype: DType) -> str:
        for name, tensor in benchmark["tensors"].items():
            fields = _resolved(tensor, sizes)
            add = editor.constant if fields.pop("constant", False) else editor.input
            role, tensor_dtype = Role(fields.pop("role", "")), DType(fields.pop("dtype", dtype))
            add(name, fields.pop("shape"), tensor_dtype, role=role, **fields)
        for name, operator in benchmark["operators"].items():
            fields = _resolved(operator, sizes)
            result_dtype = DType(fields.get("dtype", editor.meta.precision))
            add_operator = partial(editor.op, shape=fields["shape"]) if "shape" in fields else editor.add
            settings = fields.get("set", {})
            add_operator(fields["type"], fields["inputs"], name=name, dtype=result_dtype, **settings)
        return str(name)

    return Microbenchmark(tuple(benchmark.get("sizes", ())), build, benchmark.get("int8", False))


def _resolved(value: Any, sizes: Sizes) -> Any:
    """Return a value of the file with its dimensions as numbers, and lists as tuples."""
    if isinstance(value, dict):
        return {key: _resolved(inner, sizes) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(_resolved(inner, sizes) for inner in value)
    return sizes.get(value, value) if isinstance(value, str) else value


def _copy(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return two halves concatenated row by row: each byte is read once and written once.

    No compiler can remove that: a reshape or a slice of the whole would take no time, and consecutive halves
    are written in place.
    """
    rows = sizes["bytes"] // (2 * _COPIED * int(dtype.bytes))
    halves = [editor.input(name, (rows, _COPIED), dtype) for name in ("x", "y")]
    return editor.op("Concat", halves, (rows, 2 * _COPIED), dtype, "concat", axes=(1,))


def _chain(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return consecutive square products: the overhead per operator, without the launch."""
    size = sizes["size"]
    result = editor.input("x", (size, size), dtype, role=Role.FEATURES)
    for layer in range(sizes["layers"]):
        weight = editor.constant(f"weight{layer}", (size, size), dtype, role=Role.WEIGHT)
        result = editor.matmul(result, weight, f"matmul{layer}", transpose_b=True)
    return result


_DECLARED = read_yaml(resource("configs", "benchmarks.yaml")).data

OPERATORS: dict[str, Microbenchmark] = {
    **{name: _declared(benchmark) for name, benchmark in _DECLARED.items()},
    "Copy": Microbenchmark(("bytes",), _copy, granule=2 * _COPIED * 4),
    "Chain": Microbenchmark(("layers", "size"), _chain),
}


def _chunk(sizes: Sizes) -> int:
    """Return the width of a chunk; a `ConfigError` where chunks do not divide the features."""
    chunks, hidden = sizes.get("chunks", 1), sizes["hidden"]
    if chunks > hidden or hidden % chunks:
        allowed = f"a divisor of the {hidden} hidden features"
        raise ConfigError(f"`{chunks}`", file="aggregation", key="chunks", allowed=allowed)
    return hidden // chunks


def _message_passing(editor: Editor, sizes: Sizes, dtype: DType, scaled: bool = True) -> str:
    """Return sums of messages [nodes, hidden] as PyTorch Geometric computes them, chunk by chunk.

    A narrow row of a chunk is fetched with its whole cache line. PyTorch sorts wide messages by target and
    adds whole rows. It adds narrow messages number by number, edge after edge (cpu_scatter_gather_base_kernel
    in its ScatterGatherKernel.cpp), so that a row is looked up once.
    """
    nodes, edges, chunks, width = sizes["nodes"], sizes["edges"], sizes.get("chunks", 1), _chunk(sizes)
    x = editor.input("x", (nodes, max(width, _LINE_COLUMNS)), dtype)
    source, target = (editor.input(name, (edges,), DType.INT32) for name in ("source", "target"))
    messages = editor.op("Gather", (x, source), (edges, max(width, 2)), dtype, "gather", axes=(0,))
    names = [messages]
    if scaled:
        weight = editor.input("weight", (edges, 1), dtype)
        messages = editor.op("Multiply", (messages, weight), (edges, width), dtype, "scale")
        names.append(messages)
    if width >= _SORTED_FROM:
        names.append(_compressed(editor, (nodes, edges), (source, target), edges, dtype))
        result = editor.op("SparseMatMul", (names[-1], messages), (nodes, width), dtype, "sum")
    else:
        index = editor.input("index", (edges, width), DType.INT32)
        blank = editor.constant("blank", (nodes, width), dtype, density=0.0)
        inputs, shape = (blank, index, messages), (nodes, width)
        result = editor.op("ScatterElementsUpdate", inputs, shape, dtype, "sum", axes=(0,), reduction="sum")
    names.append(result)
    item = float(dtype.bytes)
    blocks = [edges * width * item] * (2 if scaled else 1)
    names += _take_pages(editor, "messages_pages", [*blocks, nodes * width * item])
    if chunks == 1:
        return result
    for name in names:
        editor.change_operator(name, repeats=chunks)
    _take_pages(editor, "joined_pages", [nodes * sizes["hidden"] * item])
    return editor.op("Concat", (result,) * chunks, (nodes, sizes["hidden"]), dtype, "join", axes=(1,))


def _take_pages(editor: Editor, name: str, blocks: Sequence[float]) -> list[str]:
    """Add page faults for blocks (B) that the C library does not keep; return the operator's name, if any."""
    pages = sum(int(size // _PAGE_BYTES) for size in blocks if size > _KEPT_BYTES)
    if not pages:
        return []
    size = editor.input(f"{name}_size", (1,), DType.INT32)
    operator = editor.op("TakePages", (size,), (pages,), DType.INT32, name)
    editor.outputs.append(operator)
    return [operator]


def _compressed(
    editor: Editor, shape: tuple[int, int], ends: tuple[str, str], edges: int, dtype: DType
) -> str:
    """Return a matrix in compressed rows, sorted from the edges."""
    fields = {"density": min(1.0, edges / (shape[0] * shape[1])), "storage": Storage.CSR}
    return editor.op("EdgesToCsr", ends, shape, dtype, "sort", tensor=fields, normalise="none")


def _csr_product(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return [nodes, hidden] as a product with a matrix in compressed rows, sorted from the edges."""
    nodes, edges = sizes["nodes"], sizes["edges"]
    x = editor.input("x", (nodes, sizes["hidden"]), dtype)
    source, target = (editor.input(name, (edges,), DType.INT32) for name in ("source", "target"))
    matrix = _compressed(editor, (nodes, nodes), (source, target), edges, dtype)
    _take_pages(editor, "sum_pages", [nodes * sizes["hidden"] * float(dtype.bytes)] * 2)
    return editor.op("SparseMatMul", (matrix, x), (nodes, sizes["hidden"]), dtype, "sum")


_GRAPH = ("nodes", "edges", "hidden")
AGGREGATIONS: dict[str, Microbenchmark] = {
    "MessagePassing": Microbenchmark((*_GRAPH, "chunks"), _message_passing),
    "MeanPassing": Microbenchmark((*_GRAPH, "chunks"), partial(_message_passing, scaled=False)),
    "CsrProduct": Microbenchmark(_GRAPH, _csr_product),
}
"""Aggregations that PyTorch Geometric runs: weighted sums, means, products in compressed rows."""


def benchmark_graph(
    operator: str, sizes: Sizes, dtype: DType = DType.FP32, floats: DType = DType.FP32
) -> Graph:
    """Return the network of one operator.

    Parameters
    ----------
    operator : str
        One of `OPERATORS` or `AGGREGATIONS`.
    dtype : DType, optional
        Number format of its operands: floating point, for products also int8.
    floats : DType, optional
        Floating-point format in a benchmark of int8.

    Raises
    ------
    UnknownNameError
        When there is no such operator.
    ConfigError
        When a size is unknown or missing, or the operator does not exist in the format.

    Examples
    --------
    >>> benchmark_graph("MatMul", {"m": 128, "k": 64, "n": 32}).macs
    262144.0
    """
    kind = _kind(operator)
    place = f"benchmark {operator}"
    if problem := kind.problem(sizes):
        found, allowed, meant = problem
        raise ConfigError(found, file=place, allowed=allowed, suggestion=meant)
    if not dtype.is_float and not (kind.int8 and dtype is DType.INT8):
        allowed = "fp32, fp16, bf16" + (", int8" if kind.int8 else "")
        raise ConfigError(f"`{dtype.value}`", file=place, key="dtype", allowed=allowed)
    name, precision = benchmark_id(operator, sizes, dtype), dtype if dtype.is_float else floats
    editor = Editor(name, meta=GraphMeta(model=operator, form="benchmark", precision=precision))
    editor.outputs = [kind.build(editor, sizes, dtype), *editor.outputs]
    return editor.finish()


def benchmark_id(operator: str, sizes: Sizes, dtype: DType = DType.FP32) -> str:
    """Return the name of a benchmark in reports.

    Examples
    --------
    >>> benchmark_id("MatMul", {"m": 128, "k": 64, "n": 32}, DType.INT8)
    'MatMul-128x64x32-int8'
    >>> benchmark_id("Empty", {})
    'Empty'
    """
    shape = "x".join(str(sizes[name]) for name in _kind(operator).sizes)
    parts = [operator, shape, "" if dtype is DType.FP32 else dtype.value]
    return "-".join(part for part in parts if part)


def _kind(operator: str) -> Microbenchmark:
    known = OPERATORS | AGGREGATIONS
    if operator not in known:
        raise UnknownNameError("benchmark", operator, known)
    return known[operator]
