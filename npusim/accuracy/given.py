"""What techniques do to the answers of a user's own module on his own data.

The module keeps its parameters and its layers. Layers of PyG that sum up weighted neighbours become products
with the matrix of the edges where a stack gives the model such a matrix; each is checked against the layer's
own result. All else that a stack changes is either exact (placement, storage, padding, the order of sums) or
a number format, and is computed: fp16 and int8 as for shipped models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from npusim.accuracy.document import AccuracyReport, LeftOut, OneSeed, StackAccuracy
from npusim.accuracy.judging import expected_of, outputs_of
from npusim.accuracy.models import ModelInstance, annotates, stored
from npusim.errors import ConfigError, IllegalTechniqueError
from npusim.frontends.pyg import from_pyg, named_inputs
from npusim.graph import Graph
from npusim.ops import Annotation, DType
from npusim.techniques import Stack, apply, parse

_CLOSE = 1e-4
"""Relative difference up to which a product is the layer's own sum, in another order."""
_MATRIX = "aggregation_matrix"


def judge_module(
    module: nn.Module,
    data: Any,
    stacks: Sequence[Stack | str],
    inputs: Mapping[str, Any] | None = None,
    mask: Any = None,
) -> AccuracyReport:
    """Compare stacks of techniques on a trained module.

    Parameters
    ----------
    module : torch.nn.Module
        Trained; its result holds a score per node and class.
    data : data object
        With `y`, the class of each node, and `test_mask`; as `torch_geometric.data.Data`.
    stacks : sequence of Stack or str
        `none` is always judged, and first.
    inputs : mapping of str to tensor, optional
        Values for `forward`; default: the attributes of `data` that it names.
    mask : tensor of bool, optional
        Nodes whose answers count; default: `data.test_mask`, or all.

    Returns
    -------
    AccuracyReport
        Without a training; stacks that the module's network or this way of computing do not allow are named.

    Raises
    ------
    NpusimError
        Where the module cannot be traced, or its result is no score per node.
    """
    module = deepcopy(module).eval()
    given = named_inputs(module, data if inputs is None else inputs)
    labels, chosen = _answers(data, mask)
    baseline = outputs_of(ModelInstance(module, given), "fp32")
    if baseline.ndim != 2 or baseline.shape[0] != labels.size:
        allowed = f"a score per node and class, for the {labels.size} nodes of `y`"
        raise ConfigError(f"a result of shape {list(baseline.shape)}", allowed=allowed)
    name, graph = type(module).__name__, from_pyg(module, given)
    results, skipped = [], []
    for text in dict.fromkeys(map(str, map(parse, ("none", *stacks)))):
        stack = parse(text)
        try:
            _refuse(stack, graph)
        except IllegalTechniqueError as error:
            skipped.append(LeftOut(workload=name, techniques=text, reason=error.reason))
            continue
        form = ModelInstance(form_of(module, given, stack), given)
        for numbers in ("int8",) if stack.precision is DType.INT8 else ("fp32", "fp16"):
            one = _compared(outputs_of(form, numbers), baseline, labels, chosen)
            results.append(StackAccuracy.over(name, text, numbers, expected_of(stack), [one]))
    return AccuracyReport(training=None, results=results, skipped=skipped)


def _answers(data: Any, mask: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the class of each node, and which nodes count."""
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        raise ConfigError(
            f"no `y` in {type(data).__name__}", allowed="a data object with y, the class of each node"
        )
    labels = y.reshape(-1).numpy()
    chosen = mask if mask is not None else getattr(data, "test_mask", None)
    counts = np.ones(labels.size, bool) if chosen is None else np.asarray(chosen, dtype=bool).reshape(-1)
    if counts.size != labels.size or not counts.any():
        raise ConfigError(
            f"a mask of {counts.size} values, {int(counts.sum())} of them true",
            allowed=f"one value per node, {labels.size}, at least one of them true",
        )
    return labels, counts


def _refuse(stack: Stack, graph: Graph) -> None:
    """Raise an `IllegalTechniqueError` where the network does not allow a stack, or nobody can compute it."""
    apply(graph, stack)
    for entry in stack:
        technique = entry.technique
        if technique.precision is None and not technique.exact:
            raise IllegalTechniqueError(
                technique.name,
                "it changes how a layer masks or scores, and a module's own layers are computed as they are; "
                "shipped models show what it does to the answers (npusim accuracy gat-cora)",
            )


def form_of(module: nn.Module, inputs: Mapping[str, Any], stack: Stack) -> nn.Module:
    """Return the module that computes what a stack makes of it, in floating point."""
    if all(entry.technique.edges is None for entry in stack):
        return module
    form = deepcopy(module)
    layers = [layer for layer in form.modules() if hasattr(layer, "propagate") and hasattr(layer, "aggr")]
    for layer in layers:
        _record(layer)
    with torch.no_grad():
        form(*inputs.values())
    triangle, compressed = (annotates(stack, one) for one in (Annotation.TRIANGLE, Annotation.COMPRESSED))
    for layer in layers:
        matrix = layer.__dict__.pop("recorded_matrix", None)
        layer.__dict__.pop("propagate", None)
        if matrix is not None:
            kept = stored(matrix.numpy(), triangle and bool((matrix == matrix.T).all()), compressed)
            layer.register_buffer(_MATRIX, torch.from_numpy(kept), persistent=False)
            layer.__class__ = type(type(layer).__name__, (type(layer),), {"propagate": _product})
    return form


def _product(self: Any, edge_index: Any, size: Any = None, **given: Any) -> Tensor:
    """Sum up neighbours as one product with the matrix of the edges."""
    result: Tensor = getattr(self, _MATRIX) @ _sources(given)
    return result


def _sources(given: Mapping[str, Any]) -> Tensor:
    x: Any = given["x"]
    result: Tensor = x[0] if isinstance(x, tuple) else x
    return result


def _record(layer: Any) -> None:
    """Make a layer keep the matrix that sums up its neighbours, where there is one, at its next call."""
    own = layer.propagate

    def propagate(edge_index: Any, size: Any = None, **given: Any) -> Tensor:
        result: Tensor = own(edge_index, size=size, **given)
        layer.__dict__["recorded_matrix"] = _matrix_of(layer, edge_index, given, result)
        return result

    layer.__dict__["propagate"] = propagate


def _matrix_of(layer: Any, edge_index: Any, given: Mapping[str, Any], result: Tensor) -> Tensor | None:
    """Return the matrix [targets, sources] whose product with the features is the layer's sum; or None."""
    kind, x = str(layer.aggr), given.get("x")
    if kind not in ("add", "sum", "mean") or x is None or not isinstance(edge_index, Tensor):
        return None
    features, weights = _sources(given), given.get("edge_weight")
    source, target = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)
    values = torch.ones(source.numel()) if weights is None else weights.reshape(-1)
    if features.dim() != 2 or values.numel() != source.numel():
        return None
    matrix = torch.zeros(result.shape[0], features.shape[0]).index_put(
        (target, source), values, accumulate=True
    )
    if kind == "mean":
        counts = torch.bincount(target, minlength=result.shape[0]).clamp(min=1)
        matrix = matrix / counts.unsqueeze(1)
    product = matrix @ features
    same = product.shape == result.shape and bool(
        (product - result).abs().max() <= _CLOSE * result.abs().max().clamp(min=1.0)
    )
    return matrix if same else None


def _compared(
    scores: npt.NDArray[np.float32],
    baseline: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.bool_],
) -> OneSeed:
    def right(found: npt.NDArray[np.float32]) -> float:
        return float((found.argmax(axis=1) == labels)[chosen].mean())

    finite = bool(np.isfinite(scores).all())
    return OneSeed(
        seed=0,
        baseline_accuracy=right(baseline),
        accuracy=right(scores),
        agreement=float((scores.argmax(axis=1) == baseline.argmax(axis=1)).mean()),
        largest_difference=float(np.abs(scores - baseline).max()) if finite else None,
    )
