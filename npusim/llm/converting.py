"""Export of Llama as OpenVINO models, part by part, with states for the caches, as NITRO has them.

    DIR/config.json         sizes, and how it was cut and stored
    DIR/model/0.xml ...     one model for each part, with its weights beside it

Inputs and outputs are called as in NITRO: `token`, `x`, `mask`, `freqs_cis`, `cache_k_0`, ..., `logits`
(arXiv 2412.11053, sections 3.4 and 3.5). Models are written from the graph that estimates cost
(`npusim.llm.decoder`), one part after the other, so that no more than the weights of one are in memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from npusim.errors import ConfigError, FileError
from npusim.files import make_folder
from npusim.frontends.openvino_write import model_of_graph, save_model
from npusim.frontends.quantising import load_nncf
from npusim.llm.decoder import Decoder
from npusim.llm.spec import EMBEDDING, OUTPUT, LlmSpec, rotary_angles
from npusim.ops import DType

EPSILON = 5e-5
"""Added to the mean square before the root; NITRO's, since fp16 holds no much smaller number."""
_SPREAD = 0.02
"""Standard deviation of made-up weights."""
_IN_LAYER = {
    "attention/norm": "input_layernorm",
    "attention/query": "self_attn.q_proj",
    "attention/key": "self_attn.k_proj",
    "attention/value": "self_attn.v_proj",
    "attention/output": "self_attn.o_proj",
    "feed/norm": "post_attention_layernorm",
    "feed/gate": "mlp.gate_proj",
    "feed/up": "mlp.up_proj",
    "feed/down": "mlp.down_proj",
}
"""Hugging Face's name of each weight of a layer, by the operator that reads it."""
_OUTSIDE = {
    "embedding/table": "embed_tokens.weight",
    "output/norm/weight": "norm.weight",
    "output/logits/weight": "lm_head.weight",
}
"""The same of other weights, by their names in the graph."""


def made_up_weights(spec: LlmSpec, part: str = "") -> dict[str, Tensor]:
    """Return random weights under Hugging Face's names, of a part or all; equal for equal names."""
    weights = {}
    for name, shape in weight_shapes(spec, part).items():
        generator = torch.Generator().manual_seed(crc32(name.encode()))
        mean = 1.0 if len(shape) == 1 else 0.0  # of a normalisation
        weights[name] = mean + torch.randn(shape, generator=generator) * _SPREAD
    return weights


def weight_shapes(spec: LlmSpec, part: str = "") -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a part, or of all parts, by its published name."""
    parts = [part] if part else spec.part_names
    tensors = (t for one in parts for t in part_decoder(spec, one).editor.tensors.values())
    named = ((published_name(t.name), t.shape) for t in tensors)
    return {name: shape[-1:] if name.endswith("norm.weight") else shape for name, shape in named if name}


def published_name(weight: str) -> str:
    """Return Hugging Face's name of a weight of the graph; empty for other constants."""
    layer, _, place = weight.partition("/")
    number, name = layer.removeprefix("layer"), _IN_LAYER.get(place.removesuffix("/weight"), "")
    if number.isdigit() and name and place.endswith("/weight"):
        return f"layers.{number}.{name}.weight"
    return _OUTSIDE.get(weight, "")


def part_decoder(spec: LlmSpec, part: str) -> Decoder:
    """Return a part under construction, with its outputs; what it is handed is called `x`."""
    wanted = {"precision": "fp32", "weights": "fp16", "group": 0, "host_work": False}
    decoder = Decoder(LlmSpec.model_validate(spec.model_dump() | wanted), part)
    editor = decoder.editor
    decoder.begin(part)
    if part == EMBEDDING:
        editor.input("token", (1, spec.new_tokens), DType.INT64)
        editor.outputs = [decoder.embedded()]
        return decoder
    x = editor.input("x", (1, spec.new_tokens, spec.hidden), DType.FP32)
    if part == OUTPUT:
        editor.outputs = [decoder.logits(x)]
        return decoder
    decoder.layer_inputs()
    count, chunk = spec.layers // spec.chunks, int(part.removeprefix("layers"))
    editor.outputs = [decoder.layers(x, range(chunk * count, (chunk + 1) * count))]
    decoder.write_back()
    return decoder


def part_model(spec: LlmSpec, part: str, weights: Mapping[str, Tensor]) -> Any:
    """Return a part as an `openvino.Model` of fixed shapes, with NITRO's names of inputs and results."""
    decoder = part_decoder(spec, part)
    model = model_of_graph(decoder.editor.finish(), values=partial(_value, spec, weights))
    for parameter in model.get_parameters():
        if parameter.get_friendly_name() == "position":
            parameter.set_friendly_name("freqs_cis")
            parameter.output(0).get_tensor().set_names({"freqs_cis"})
    caches = [f"{cache}_out" for cache, _, _ in decoder.kept] if spec.cache == "input" else []
    main = "logits" if part == OUTPUT else "x"
    for result, name in zip(model.get_results(), [main, *caches], strict=True):
        result.set_friendly_name(name)
        result.output(0).get_tensor().set_names({name})
    return packed(spec, model)


def _value(spec: LlmSpec, weights: Mapping[str, Tensor], constant: str) -> npt.NDArray[Any]:
    """Return the value of a constant of the graph.

    Rows of queries and keys change places: Hugging Face's file has the two features of a pair half a head
    apart, the rewritten model has them side by side.
    """
    source = published_name(constant)
    if source:
        value = weights[source].float()
        if source.endswith(("q_proj.weight", "k_proj.weight")):
            value = value.view(-1, 2, spec.head_width // 2, spec.hidden).transpose(1, 2).reshape(value.shape)
        return np.asarray(value)
    *_, around, place = constant.split("/")
    if place == "table":
        return rotary_angles(spec, 2 * spec.max_sequence).astype(np.float32)
    if place == "index":
        return np.asarray(around in ("imaginary", "sin"), np.int64)
    return np.asarray({"epsilon": EPSILON, "value": 1.0 / math.sqrt(spec.head_width)}[place], np.float32)


def packed(spec: LlmSpec, model: Any) -> Any:
    """Return the model with its weights packed as `spec` has it, by NNCF."""
    if spec.weights == "fp16":
        return model
    nncf = load_nncf(", and weights are packed with it")
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
        For another form than NITRO's, shapes that are not fixed, or a network in one piece.
    FileError
        Where folder or weights cannot be used.
    """
    if spec.form != "nitro" or spec.heads * spec.head_width != spec.hidden:
        allowed = "workload.form=nitro, and heads that are as wide together as `hidden`, to export"
        raise ConfigError(f"`{spec.form}`, {spec.heads} heads of {spec.head_width}", allowed=allowed)
    key = "shapes" if spec.shapes != "static" else "chunks"
    if key == "shapes" or not spec.chunks:
        allowed = "static shapes, in 1 or more chunks, to export"
        raise ConfigError(f"`{getattr(spec, key)}`", key=f"workload.{key}", allowed=allowed)
    held = None if weights is None else read_weights(weights, spec)
    models = folder / "model"
    if folder.is_dir() and any(one.name not in ("config.json", "model") for one in folder.iterdir()):
        raise FileError(str(folder), "holds other files", "give a folder that is empty or new")
    make_folder(models)
    for stale in models.glob("*"):
        stale.unlink()
    (folder / "config.json").write_text(spec.model_dump_json(indent=2) + "\n", encoding="utf-8")
    files = []
    for number, part in enumerate(spec.part_names):
        file = models / f"{number}.xml"
        values = made_up_weights(spec, part) if held is None else held
        save_model(part_model(spec, part, values), file, half=spec.precision == "fp16")
        tell(f"{file}: {part}")
        files.append(file)
        gc.collect()
    return files
