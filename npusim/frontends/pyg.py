"""Import of a PyTorch or PyTorch Geometric module as an operator graph, by tracing."""

from __future__ import annotations

import inspect
import re
import runpy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError, NpusimError, UnknownNameError, shown
from npusim.files import optional_module
from npusim.frontends.model_structure import user_line
from npusim.frontends.openvino_ir import graph_of_model, openvino, unreported
from npusim.frontends.openvino_write import run_model
from npusim.frontends.splicing import nodes_behind
from npusim.frontends.translation import Origin
from npusim.graph import Editor, Graph, GraphStructure
from npusim.graph.editor import with_meta
from npusim.graph.graph import Array, KnownValues
from npusim.ops import DType, Family, Role, TensorKind

Inputs: TypeAlias = Mapping[str, Array]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ExampleGraph:
    """The graph in a module's example inputs: one list of edges [2, E] among the nodes of one type.

    `edge_input` names the list.
    """

    nodes: int
    edge_input: str
    inputs: Inputs

    @classmethod
    def of(cls, inputs: Inputs) -> ExampleGraph | None:
        """Find the graph; None where there are several lists of pairs, or no rows of features."""
        pairs = [key for key, a in inputs.items() if a.dtype.kind in "iu" and a.ndim == 2 and len(a) == 2]
        features = [a.shape[0] for a in inputs.values() if a.dtype.kind == "f" and a.ndim > 1]
        if len(pairs) != 1 or not features or not inputs[pairs[0]].size:
            return None
        ends = inputs[pairs[0]]
        nodes = next((rows for rows in features if rows > ends.max()), None)
        if nodes is None or nodes == ends.shape[1] or ends.min() < 0:
            return None
        return cls(nodes, pairs[0], inputs)

    @property
    def sources(self) -> Array:
        """Node that each edge comes from, (E,)."""
        return np.asarray(self.inputs[self.edge_input][0])

    @property
    def targets(self) -> Array:
        """Node that each edge leads to, (E,)."""
        return np.asarray(self.inputs[self.edge_input][1])

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.sources)

    def structure(self, graph: Graph) -> GraphStructure:
        """Return the statistics of the graph, which a network is built on."""
        features = next(a.shape[1] for a in self.inputs.values() if a.dtype.kind == "f" and a.ndim > 1)
        result = graph.tensors[graph.outputs[0]].shape
        return GraphStructure(
            name=graph.name,
            nodes=self.nodes,
            edges=int(np.count_nonzero(self.sources != self.targets)),
            features=features,
            classes=result[-1] if result else 1,
        )

    def resized(self, nodes: int, edges: int) -> dict[str, Array]:
        """Return inputs of another size: rows are repeated, edges are random pairs of different nodes."""
        pairs = np.random.default_rng(0).choice(
            nodes * (nodes - 1), min(edges, nodes * (nodes - 1)), replace=False
        )
        sources, steps = pairs // (nodes - 1), pairs % (nodes - 1) + 1
        rows_of = {self.nodes: np.arange(nodes) % self.nodes, self.edges: np.arange(len(pairs)) % self.edges}
        arrays = {key: a[rows_of.get(len(a), ...)] if a.ndim else a for key, a in self.inputs.items()}
        return arrays | {self.edge_input: np.stack([sources, (sources + steps) % nodes])}

    def inputs_on(self, nodes: Numbers, edges: Numbers) -> dict[str, Array]:
        """Return the inputs on some nodes and edges between them; what follows neither stays as it is."""
        place, rows_of = np.full(self.nodes, -1, np.int64), {self.edges: edges, self.nodes: nodes}
        place[nodes] = np.arange(len(nodes))
        arrays = {key: a[rows_of.get(len(a), ...)] if a.ndim else a for key, a in self.inputs.items()}
        return arrays | {self.edge_input: place[self.inputs[self.edge_input][:, edges]]}

    def with_halo(self, is_own: npt.NDArray[np.bool_], hops: int) -> tuple[Numbers, Numbers]:
        """Return the nodes and edges that exact answers of some nodes need after some hops."""
        inside, is_read = is_own.copy(), np.zeros(self.edges, np.bool_)
        for _ in range(hops):
            is_read = inside[self.targets]
            inside[self.sources[is_read]] = True
        return np.flatnonzero(inside), np.flatnonzero(is_read)

    def nodes_with_halos(self, part_of: Numbers, hops: int) -> Numbers:
        """Count the nodes of each part and its halo; node i is in part `part_of[i]`."""
        from scipy.sparse import csr_matrix  # slow to import

        reads = csr_matrix((np.ones(self.edges, bool), (self.sources, self.targets)), [self.nodes] * 2)
        inside = csr_matrix((np.ones(self.nodes, bool), (np.arange(self.nodes), part_of)))
        for _ in range(hops):
            inside = inside + reads @ inside
        return np.asarray(np.diff(inside.tocsc().indptr))


def sample(
    graph: ExampleGraph, seeds: Numbers, fan_out: Sequence[int], seed: int = 0
) -> tuple[Numbers, Numbers]:
    """Return nodes (seeds first) and edges of a batch with a bounded fan-out by hop.

    Neighbours are drawn without replacement, each node is expanded once, as PyTorch Geometric's
    NeighborLoader does.
    """
    random, order = np.random.default_rng(seed), np.argsort(graph.targets, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(graph.targets, minlength=graph.nodes))])
    known = np.zeros(graph.nodes, np.bool_)
    known[seeds] = True
    nodes, edges, frontier = [seeds], [np.zeros(0, np.int64)], seeds
    for most in fan_out:
        degrees = starts[frontier + 1] - starts[frontier]
        owner = np.repeat(np.arange(len(frontier)), degrees)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        shuffled = np.lexsort((random.random(len(owner)), owner))
        kept = shuffled[within < most]
        chosen = order[np.repeat(starts[frontier], degrees)[kept] + within[kept]]
        edges.append(chosen)
        reached = np.unique(graph.sources[chosen])
        frontier = reached[~known[reached]]
        known[frontier] = True
        nodes.append(frontier)
    return np.concatenate(nodes), np.concatenate(edges)


_RAISED = (Exception, SystemExit, GeneratorExit)
"""What code of a user may raise; Ctrl-C is not the code's."""
_SELF_LOOPS = "self_loops"
_MANY_EDGES = 100_000
"""Edges from which on a module is traced on a smaller graph."""
_FEW_NODES, _FEW_EDGES = 1009, 3001

_MASK = "use x * mask or torch.where(mask, x, 0): they keep the size"
_UNIQUE = "find the unique values before the network and hand them in"
_NONZERO = "make the indices before the network and hand them in, or multiply by the mask"
_ADVICE = {
    "aten::nonzero": _NONZERO,
    "aten::nonzero_numpy": _NONZERO,
    "aten::index": _MASK,
    "aten::masked_select": _MASK,
    "aten::_unique2": _UNIQUE,
    "aten::unique_dim": _UNIQUE,
    "aten::unique_consecutive": _UNIQUE,
    "aten::bincount": "sum a one-hot matrix, or scatter_add to zeros of a fixed size",
}
"""Operators of torch whose results have sizes that depend on values, and what has a fixed one."""
_ADVICE_SIZE = "this size is computed from values: use a fixed number, such as one of x.shape"
_ADVICE_SELF_LOOPS = (
    "give the layer add_self_loops=False and hand in an edge_index with self-loops "
    "(torch_geometric.utils.add_self_loops before the network)"
)
_SIZED = re.compile(
    "aten::(zeros|ones|full|empty|arange|expand|view|reshape|repeat|narrow|repeat_interleave|split_with_sizes)"
)
_ARITHMETIC = re.compile(
    "aten::(Int|IntImplicit|ScalarImplicit|item|add|sub|mul|floor_divide|div)|prim::(NumToTensor|ListConstruct)"
)
"""What sizes are computed with."""


def advice_of_trace(graph: Any) -> str:
    """Say which lines of a module make sizes that depend on values, and what to write."""
    advice_by_line: dict[str, str] = {}
    for node in graph.nodes():
        kind = node.kind()
        advice = _ADVICE_SIZE if _SIZED.fullmatch(kind) else _ADVICE.get(kind, "")
        if not advice or not _depends_on_values(node):
            continue
        trace = repr(node.sourceRange()).replace("\\n", "\n").strip("'\"")
        line = user_line(trace)
        if line:
            advice = _ADVICE_SELF_LOOPS if _SELF_LOOPS in trace else advice
            advice_by_line.setdefault(line, f"{line} ({kind.removeprefix('aten::')}): {advice}")
    return "; ".join(advice_by_line.values())


def _depends_on_values(node: Any) -> bool:
    """Whether this use of an operator has a size from values: an index by a mask, a computed size."""
    inputs = list(node.inputs())
    if node.kind() == "aten::index":
        picks = [part.type() for part in inputs[1].node().inputs()]
        return any(pick.kind() == "TensorType" and pick.scalarType() == "Bool" for pick in picks)
    if not _SIZED.fullmatch(node.kind()):
        return True
    sizes = inputs if node.kind() == "aten::arange" else inputs[:1] if len(inputs) < 2 else inputs[:2]
    return any(_is_computed(part) for part in sizes if "Tensor" not in str(part.type()))


def _is_computed(size: Any) -> bool:
    """Whether a size follows from values, not from shapes and numbers alone."""
    node = size.node()
    if not _ARITHMETIC.fullmatch(node.kind()):
        return node.kind() not in ("aten::size", "prim::Constant", "prim::Param")
    return any(_is_computed(part) for part in node.inputs())


def from_pyg(
    module: Any,
    inputs: Mapping[str, Any] | Sequence[Any] | Any,
    name: str | None = None,
    roles: Mapping[str, Role] | None = None,
    precision: DType | None = DType.FP16,
) -> Graph:
    """Trace a module and return its operator graph.

    Parameters
    ----------
    module : torch.nn.Module
        The module.
    inputs : mapping of str to tensor, sequence of tensors, or data object
        Example inputs in the order of `forward`; with names, or x, edge_index, input2 ... without; of a data
        object, such as `torch_geometric.data.Data` or `HeteroData`, the attributes that `forward` names. A
        dictionary, such as `x_dict`, becomes an input for each entry, named by the argument and the key.
        Sizes that depend on values are those of these examples; a note has the line that makes them.
    name : str, optional
        Name of the graph; default: the module's class.
    roles : mapping of str to Role, optional
        What inputs mean where their name does not say it.
    precision : DType, optional
        Format in which wider floating-point tensors are held; None keeps the module's.

    Raises
    ------
    NpusimError
        When the module cannot be converted.

    Examples
    --------
    >>> import torch
    >>> from_pyg(torch.nn.Linear(4, 8), {"x": torch.zeros(5, 4)}).macs
    160.0
    """
    name = name or type(module).__name__
    module, named = flattened(module, inputs)
    model, origin, examples = convert(module, named), Origin(), as_arrays(named)
    graph = graph_of_model(model, name, None, roles, precision, origin, examples)
    shown_on = tuple((_on_fewer_nodes(named) or named).values())
    if graph.meta.notes and (advice := advice_of_module(module, shown_on)):
        notes = (*graph.meta.notes, f"sizes that depend on values are made by {advice}")
        graph = with_meta(graph, notes=notes)
    return with_known_values(graph, origin, examples)


def with_known_values(graph: Graph, origin: Origin, inputs: Mapping[str, Array]) -> Graph:
    """Return a graph that knows the values of what features meet of the edges, for example inputs.

    These are node numbers, weights and divisors, which rewrites with data-dependent sizes need. What depends
    on an input without an example stays unknown.
    """
    independent, wanted = graph.feature_independent, dict[str, str]()
    for op in graph:
        if not independent.issuperset(op.outputs):
            for name in independent.intersection(op.inputs):
                scales = op.type in ("Multiply", "Divide") and graph.tensors[name].shape[-1:] in ((), (1,))
                is_blank = (
                    op.family is Family.SCATTER and name == op.inputs[0] and graph.tensors[name].density
                )
                numbers = op.family in (Family.GATHER, Family.SCATTER) and name == op.inputs[1]
                if name in graph.structural or scales or is_blank or numbers:
                    wanted[graph.before_broadcast(name)] = name
    fed = {t.name for t in graph.tensors.values() if t.kind is TensorKind.INPUT and t.name not in inputs}
    for op in graph:
        if not fed.isdisjoint(op.inputs):
            fed.update(op.outputs)
    clone = origin.model.clone()
    pairs = zip(origin.model.get_ordered_ops(), clone.get_ordered_ops(), strict=True)
    nodes, ops = {ours.get_name(): theirs for ours, theirs in pairs}, openvino().opset15
    outputs = {
        tensor: nodes[node].output(port)
        for (node, port), tensor in reversed(origin.tensors.items())
        if tensor in wanted and tensor not in fed and node in nodes
    }
    editor, example = Editor.of(graph), ExampleGraph.of(inputs)
    if example is not None:
        editor.structure = example.structure(graph)
    if not outputs:
        return editor.finish()
    ports = {port.get_node().get_name(): port for port in clone.inputs}
    needed = nodes_behind([output.get_node() for output in outputs.values()])
    parameters = [node for name, node in needed.items() if name in ports]
    model = openvino().Model([ops.result(output) for output in outputs.values()], parameters, graph.name)
    values = {
        tensor: _unrepeated(value) if graph.tensors[tensor].kind is TensorKind.CONSTANT else value
        for tensor, value in zip(outputs, run_model(model, inputs), strict=True)
    }
    editor.meta = replace(graph.meta, known=KnownValues(values))
    return editor.finish()


def _unrepeated(value: Array) -> Array:
    """Return node numbers once that a constant repeats over the width of the features, [E, ...] to [E]."""
    if value.dtype.kind != "i" or value.ndim < 2 or not value.size:
        return value
    rows = value.reshape(len(value), -1)
    return rows[:, 0] if (rows == rows[:, :1]).all() else value


MODULE = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
"""How a module of a Python file is named: `model.py:net`."""


@dataclass(frozen=True, slots=True)
class FoundModule:
    """A module of a user's file, with example inputs."""

    name: str
    module: Any
    inputs: Mapping[str, Any]
    example: Any
    """The example inputs as the file has them, such as a data object with the classes of its nodes."""


def module_at(what: str) -> FoundModule:
    """Run a user's Python file and return one of its modules, such as `model.py:net`.

    The name stands for a pair of a `torch.nn.Module` and its example inputs, or for a function that returns
    one.

    Raises
    ------
    FileError
        Where there is no such file, or it cannot be run.
    UnknownNameError, NpusimError
        Where it has no such name, or the name stands for something else.
    """
    match = MODULE.fullmatch(what)
    if match is None:
        raise NpusimError(f"{shown(what)} names no module; allowed: FILE.py:NAME, such as model.py:net")
    path, name = Path(match["file"]), match["name"]
    if not path.is_file():
        raise FileError(str(path), "does not exist or is no file", "check the path")
    with _blamed(path, ""):
        space = runpy.run_path(str(path))
    if name not in space:
        raise UnknownNameError(f"name in {path}", name, [key for key in space if not key.startswith("_")])
    import torch

    value = space[name]
    if callable(value) and not isinstance(value, torch.nn.Module):
        with _blamed(path, f"`{name}` "):
            value = value()
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], torch.nn.Module)):
        raise NpusimError(
            f"{what} is a {type(value).__name__}; allowed: a pair (module, example inputs) of a "
            "torch.nn.Module and its tensors, or a function that returns one"
        )
    module, inputs = value
    return FoundModule(name, *flattened(module, inputs), inputs)


@contextmanager
def _blamed(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a user's file raises into a `FileError`; Ctrl-C is not the file's."""
    try:
        yield
    except _RAISED as error:
        problem = f"{what}cannot be run: {type(error).__name__}: {_reason(error)}"
        raise FileError(str(path), problem, "mend it") from error


def advice_of_module(module: Any, examples: tuple[Any, ...]) -> str:
    """Say which lines of a module make sizes that depend on values, and what to write instead of them."""
    import torch

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return advice_of_trace(torch.jit.trace(module, examples, check_trace=False).inlined_graph)
    except Exception:  # whatever a user's module raises: another message stands already
        return ""


def flattened(module: Any, inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return a module that takes a tensor an argument, and its example inputs by name; see `from_pyg`.

    A module that takes dictionaries, such as `x_dict` and `edge_index_dict` of PyTorch Geometric's tutorials,
    is wrapped in one with an input for each entry: `x_user`, `edge_index_user_buys_item`.
    """
    named = _named(module, inputs)
    if not any(isinstance(value, Mapping) for value in named.values()):
        return module, named
    import torch

    tensors: dict[str, Any] = {}
    for argument, value in named.items():
        for key, tensor in value.items() if isinstance(value, Mapping) else [((), value)]:
            words = key if isinstance(key, tuple) else (key,)
            tensors["_".join([argument.removesuffix("_dict"), *map(str, words)])] = tensor

    class Flattened(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *values: Any) -> Any:
            rest = iter(values)
            arguments = {
                argument: {key: next(rest) for key in value} if isinstance(value, Mapping) else next(rest)
                for argument, value in named.items()
            }
            result = self.module(**arguments)
            return tuple(result.values()) if isinstance(result, Mapping) else result

    return Flattened(), tensors


def _named(module: Any, inputs: Any) -> dict[str, Any]:
    """Return the example inputs of a module by the arguments of `forward`."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, Sequence):
        names = ["x", "edge_index", *(f"input{n}" for n in range(2, len(inputs)))]
        return dict(zip(names, inputs, strict=False))
    parameters = inspect.signature(module.forward).parameters.values()
    values = {parameter.name: getattr(inputs, parameter.name, None) for parameter in parameters}
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    missing = [name for name in needed if values[name] is None]
    if missing or not values:
        raise NpusimError(
            f"{type(module).__name__}.forward takes {', '.join(values)}, and {type(inputs).__name__} has no "
            f"{', '.join(missing)}; hand in a mapping, such as {{'x': data.x, 'edge_index': data.edge_index}}"
        )
    return {name: value for name, value in values.items() if value is not None}


def convert(module: Any, inputs: Mapping[str, Any]) -> Any:
    """Trace a module to an `openvino.Model` with fixed shapes and the given input names."""
    torch = optional_module("torch", '"npusim[gnn]"')
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            raise NpusimError(
                f"{type(module).__name__}: input {shown(name)} is a {type(value).__name__}; allowed: a "
                "tensor, or a dictionary of tensors such as x_dict"
            )
    module.eval()
    try:
        model = _traced_on_fewer_nodes(module, inputs) or _traced(module, inputs, inputs)
    except _RAISED as error:  # it is about the module
        raise NpusimError(
            f"{type(module).__name__} cannot be converted to OpenVINO: {_reason(error)}"
        ) from error
    for port, name in zip(model.inputs, inputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    return model


def _traced(module: Any, inputs: Mapping[str, Any], examples: Mapping[str, Any]) -> Any:
    """Trace a module on examples, and return the model for the shapes of the inputs."""
    import torch

    with torch.no_grad(), unreported():
        shapes = [tuple(value.shape) for value in inputs.values()]
        return openvino().convert_model(module, example_input=tuple(examples.values()), input=shapes)


def _traced_on_fewer_nodes(module: Any, inputs: Mapping[str, Any]) -> Any:
    """Trace a module on a small graph; None for a small example, or where a trace fixes sizes.

    A trace runs the module, which takes gigabytes for millions of edges. The sizes of the small graph are
    primes: a multiple of one in the model comes from the trace.
    """
    examples = _on_fewer_nodes(inputs)
    if examples is None:
        return None
    try:
        model = _traced(module, inputs, examples)
    except _RAISED:  # the example itself may still work
        return None
    constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
    sizes = [size for constant in constants for size in _sizes_in(constant)]
    fixed = any(size > 0 and (size % _FEW_NODES == 0 or size % _FEW_EDGES == 0) for size in sizes)
    return None if fixed or _FEW_NODES + _FEW_EDGES in sizes else model


def _on_fewer_nodes(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return example inputs on a small graph; None where the graph is not large."""
    graph = ExampleGraph.of(as_arrays(inputs))
    if graph is None or graph.edges < _MANY_EDGES:
        return None
    few = graph.inputs_on(np.arange(_FEW_NODES), np.arange(_FEW_EDGES))
    few[graph.edge_input] = np.arange(2 * _FEW_EDGES).reshape(2, -1) % _FEW_NODES
    return as_tensors(few)


def _sizes_in(constant: Any) -> list[int]:
    """Return the sizes of a constant, and its whole numbers where they are few."""
    data = constant.data
    are_sizes = data.dtype.kind in "iu" and data.size < _FEW_NODES
    return [*data.shape, *(map(int, data.ravel()) if are_sizes else ())]


def as_arrays(tensors: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return tensors as arrays."""
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def as_tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return arrays as tensors."""
    import torch

    return {name: torch.tensor(array) for name, array in arrays.items()}


def all_results(module: Any, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Run a module on values of its inputs, and return its results in order."""
    import torch

    def flat(result: Any) -> list[npt.NDArray[Any]]:
        if isinstance(result, torch.Tensor):
            return [np.array(result.numpy())]
        parts = result.values() if isinstance(result, Mapping) else result
        return [array for part in parts for array in flat(part)]

    with torch.no_grad():
        return flat(module(*as_tensors(inputs).values()))


def _reason(error: BaseException) -> str:
    """Return what says most: the operators OpenVINO has no rule for, else what the module itself raised."""
    unknown = [line for line in str(error).splitlines() if "No conversion rule found" in line]
    if unknown:
        return unknown[0].strip("- ")
    first = error
    while (earlier := first.__cause__ or first.__context__) is not None:
        first = earlier
    lines = [line for line in str(first).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(first).__name__
