"""Conversion of Llama to OpenVINO, part by part, with states for the caches, as NITRO does.

    DIR/config.json         sizes, and how it was cut and stored
    DIR/model/0.xml ...     one model for each part, with its weights beside it

Inputs and outputs are called as in NITRO: `token`, `x`, `mask`, `freqs_cis`, `cache_k_0`, ..., `logits`
(arXiv 2412.11053, sections 3.4 and 3.5). One part is made, converted and saved before the next, so that no
more than its weights are in memory.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from npusim.errors import ConfigError, FileError
from npusim.frontends.openvino_ir import openvino, unreported
from npusim.frontends.openvino_write import save_model
from npusim.llm.llama import (
    EmbeddingPart,
    LayersPart,
    OutputPart,
    load_part,
    made_up_weights,
    weight_shapes,
)
from npusim.llm.spec import LlmSpec

_OUT = "_out"
"""What NITRO adds to the name of a cache that a model returns."""


class PartModel(NamedTuple):
    """A part of a model."""

    name: str
    """As `LlmSpec.part_names` has it."""
    module: nn.Module
    example: dict[str, Any]
    """Inputs of its shapes."""


def parts_of(spec: LlmSpec, weights: Mapping[str, Tensor] | None = None) -> Iterator[PartModel]:
    """Yield the parts of a model in order, each with its weights: the given ones, or made-up ones."""
    for name, module, example in _modules(spec):
        wanted = {"embed_tokens.weight", *module.state_dict()}
        held = made_up_weights(spec, only=wanted) if weights is None else weights
        yield PartModel(name, load_part(module, spec, held), example)


def _modules(spec: LlmSpec) -> Iterator[tuple[str, nn.Module, dict[str, Any]]]:
    """Yield name, module and example inputs of each part."""
    tokens = spec.new_tokens
    features = {"x": torch.zeros(1, tokens, spec.hidden)}
    yield "embedding", EmbeddingPart(spec), {"token": torch.zeros(1, tokens).long()}
    count = spec.layers // max(1, spec.chunks)
    places = spec.attended if spec.shapes == "static" else spec.attended - tokens
    cache = torch.zeros(1, places, spec.kv_heads, spec.head_width)
    positions, angles = torch.zeros(tokens).long(), torch.zeros(tokens, spec.head_width // 2, 2)
    example = features | {
        "mask": torch.zeros(1, spec.heads, tokens, spec.attended),
        "freqs_cis": positions if spec.rope == "graph" else angles,
    }
    for chunk, first in enumerate(range(0, spec.layers, count)):
        caches = {f"cache_{what}_{i}": cache.clone() for i in range(first, first + count) for what in "kv"}
        yield f"layers{chunk}", LayersPart(spec, first, count), example | {"kv_caches": caches}
    yield "output", OutputPart(spec), features


def converted(spec: LlmSpec, part: PartModel) -> Any:
    """Return a part as an `openvino.Model` of fixed shapes, caches as `spec.cache` has them."""
    ov = openvino("language models are converted with it")
    with unreported(), torch.no_grad():
        model = ov.convert_model(part.module, example_input=part.example)
    caches: dict[str, Any] = part.example.get("kv_caches", {})
    shapes = {
        name: list(value.shape) for name, value in {**part.example, **caches}.items() if name != "kv_caches"
    }
    parameters = {parameter.get_friendly_name(): parameter for parameter in model.get_parameters()}
    for name in ("kv_caches", *(key for key in parameters if key not in shapes)):
        if name in parameters:
            model.remove_parameter(parameters.pop(name))
    model.reshape({name: shapes[name] for name in parameters})
    results = _named_results(
        model, [*(f"{name}{_OUT}" for name in caches)], "logits" if part.name == "output" else "x"
    )
    if spec.cache == "state" and caches:
        _make_stateful(ov, model, parameters, results, caches)
    return _packed(spec, model)


def _named_results(model: Any, caches: list[str], main: str) -> dict[str, Any]:
    """Name results as NITRO does, and return them by name."""
    found: dict[str, Any] = {}
    for result in model.get_results():
        source = result.input(0).get_source_output()
        name = next((name for name in caches if name in source.get_names()), main)
        result.set_friendly_name(name)
        if name == main:
            source.get_tensor().set_names({name})
        found[name] = result
    return found


def _make_stateful(
    ov: Any, model: Any, parameters: Mapping[str, Any], results: Mapping[str, Any], caches: Mapping[str, Any]
) -> None:
    """Turn pairs of inputs and outputs into states that begin with zeros."""
    from openvino.passes import MakeStateful, Manager

    manager = Manager()
    manager.register_pass(MakeStateful([(parameters[name], results[f"{name}{_OUT}"]) for name in caches]))
    manager.run_passes(model)
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            shape = list(node.get_output_shape(0))
            node.set_arguments([ov.opset13.constant(np.zeros(shape, np.float32))])
    model.validate_nodes_and_infer_types()


def _packed(spec: LlmSpec, model: Any) -> Any:
    """Return the model with its weights packed as `spec` has it, by NNCF."""
    if spec.weights == "fp16":
        return model
    try:
        import nncf
    except ImportError:
        remedy = 'install it: pip install "npusim[gnn]"'
        raise FileError("nncf", "is not installed, and weights are packed with it", remedy) from None
    nncf.set_log_level(logging.ERROR)
    mode = nncf.CompressWeightsMode[f"{spec.weights}_{'sym' if spec.symmetric else 'asym'}".upper()]
    if spec.weights == "int8":
        return nncf.compress_weights(model, mode=mode)
    return nncf.compress_weights(model, mode=mode, group_size=spec.group or -1, all_layers=True, ratio=1.0)


def read_weights(path: Path, spec: LlmSpec) -> dict[str, Tensor]:
    """Read a user's weights: a file of `torch.save`, under the names that Hugging Face gives them.

    Raises
    ------
    FileError
        Where it is no such file, or a weight is missing or of another shape.
    """
    remedy = "write it with torch.save(model.state_dict(), ...), of a model of these sizes"
    try:
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises errors of many kinds for files that are no archives of its own
        raise FileError(
            str(path), f"is no file of weights ({str(error).splitlines()[0][:80]})", remedy
        ) from None
    named = {name.removeprefix("model."): value for name, value in held.items()}
    for name, shape in weight_shapes(spec).items():
        if name not in named:
            raise FileError(str(path), f"has no weight {name}", remedy)
        if tuple(named[name].shape) != shape:
            raise FileError(
                str(path), f"{name} has the shape {list(named[name].shape)}, not {list(shape)}", remedy
            )
    return named


def export_llm(
    spec: LlmSpec, folder: Path, weights: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write the folder of a model.

    Parameters
    ----------
    folder : Path
        Made where it is missing; one that holds other files is refused.
    weights : Path, optional
        See `read_weights`; None makes weights up.

    Returns
    -------
    list of Path
        The `.xml` files in order of execution.

    Raises
    ------
    ConfigError
        For shapes that are not fixed, or a network in one piece.
    FileError
        Where folder or weights cannot be used.
    """
    if spec.shapes != "static" or not spec.chunks:
        key, found = ("shapes", spec.shapes) if spec.shapes != "static" else ("chunks", spec.chunks)
        raise ConfigError(
            f"`{found}`", key=f"workload.{key}", allowed="static shapes, in 1 or more chunks, to export"
        )
    held = None if weights is None else read_weights(weights, spec)
    models = folder / "model"
    _claim(folder, models)
    (folder / "config.json").write_text(spec.model_dump_json(indent=2) + "\n", encoding="utf-8")
    files = []
    for number, part in enumerate(parts_of(spec, held)):
        file = models / f"{number}.xml"
        save_model(converted(spec, part), file, half=spec.precision == "fp16")
        tell(f"{file}: {part.name}")
        files.append(file)
        del part
        gc.collect()
    return files


def _claim(folder: Path, models: Path) -> None:
    """Make the folder; refuse one with files that were not written here."""
    strangers = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    own = {"config.json", "model"}
    if not own.issuperset(strangers):
        raise FileError(str(folder), "holds other files", "give a folder that is empty or new")
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(str(folder), f"cannot be made ({error.strerror})", "give it another place") from None
    for stale in models.glob("*"):
        stale.unlink()
