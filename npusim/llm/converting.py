"""Conversion of Llama to OpenVINO, part by part, with states for the caches, as NITRO does.

    DIR/config.json         sizes, and how it was cut and stored
    DIR/model/0.xml ...     one model for each part, with its weights beside it

Inputs and outputs are called as in NITRO: `token`, `x`, `mask`, `freqs_cis`, `cache_k_0`, ..., `logits`
(arXiv 2412.11053, sections 3.4 and 3.5). One part is made, converted and saved before the next, so that no
more than its weights are in memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.errors import ConfigError, FileError
from npusim.frontends.openvino_ir import openvino, unreported
from npusim.frontends.openvino_write import save_model
from npusim.frontends.quantising import load_nncf
from npusim.llm.spec import LlmSpec, rotary_angles

EPSILON = 5e-5
"""Added to the mean square before the root; NITRO's, since fp16 holds no much smaller number."""
_SPREAD = 0.02
"""Standard deviation of made-up weights."""


def made_up_weights(spec: LlmSpec, only: Collection[str] = ()) -> dict[str, Tensor]:
    """Return random weights under Hugging Face's names, all or some; equal for equal names."""
    weights = {}
    for name, shape in weight_shapes(spec).items():
        if not only or name in only:
            generator = torch.Generator().manual_seed(crc32(name.encode()))
            mean = 1.0 if len(shape) == 1 else 0.0  # of a normalisation
            weights[name] = mean + torch.randn(shape, generator=generator) * _SPREAD
    return weights


def weight_shapes(spec: LlmSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by its name, as the parts have them; a tied last layer has none."""
    with torch.device("meta"):  # no memory for the weights
        modules = [module for _, module, _ in _modules(spec)]
    shapes = {name: tuple(value.shape) for one in modules for name, value in one.state_dict().items()}
    if spec.tied:
        del shapes["lm_head.weight"]
    return shapes


def angle_table(spec: LlmSpec, positions: int) -> Tensor:
    """Return cosine and sine of each position and pair of features, [positions, pairs, 2]."""
    return torch.from_numpy(rotary_angles(spec, positions)).float()


class RmsNorm(nn.Module):
    """Normalisation by the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows of x [..., width] at a mean square of one, times the weight."""
        mean = x.pow(2).mean(-1, keepdim=True)
        return x / torch.sqrt(mean + EPSILON) * self.weight


class _Attention(nn.Module):
    """Attention over all places of the cache."""

    def __init__(self, spec: LlmSpec) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = spec.heads, spec.kv_heads, spec.head_width
        self.drops, self.masked = spec.shapes == "static", spec.shapes == "static" or spec.new_tokens > 1
        narrow = spec.kv_heads * spec.head_width
        for name, out in (("q", spec.hidden), ("k", narrow), ("v", narrow), ("o", spec.hidden)):
            setattr(self, f"{name}_proj", nn.Linear(spec.hidden, out, bias=False))

    def forward(
        self, x: Tensor, mask: Tensor, angles: Tensor, cache_k: Tensor, cache_v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result [1, tokens, hidden] and the caches [1, places, kv_heads, width] afterwards."""
        tokens = x.shape[1]
        query = _turned(self.q_proj(x).view(1, tokens, self.heads, self.width), angles)
        key = _turned(self.k_proj(x).view(1, tokens, self.kv_heads, self.width), angles)
        value = self.v_proj(x).view(1, tokens, self.kv_heads, self.width)
        first = tokens if self.drops else 0
        cache_k = torch.cat((cache_k[:, first:], key), dim=1)
        cache_v = torch.cat((cache_v[:, first:], value), dim=1)
        shared = self.heads // self.kv_heads
        keys, values = (_repeated(cache, shared).transpose(1, 2) for cache in (cache_k, cache_v))
        scores = query.transpose(1, 2) @ keys.transpose(2, 3) / math.sqrt(self.width)
        if self.masked:
            scores = scores + mask
        attended = functional.softmax(scores, dim=-1) @ values
        return self.o_proj(attended.transpose(1, 2).reshape(1, tokens, -1)), cache_k, cache_v


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """Turn neighbouring features of x [1, tokens, heads, width] by angles [tokens, width / 2, 2]."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    real, imaginary = pairs[..., 0], pairs[..., 1]
    cos, sin = (angles[..., i].view(1, x.shape[1], 1, -1) for i in (0, 1))
    turned = (real * cos - imaginary * sin, real * sin + imaginary * cos)
    return torch.stack(turned, dim=-1).flatten(-2)


def _repeated(x: Tensor, times: int) -> Tensor:
    """Repeat each head of x [1, places, heads, width]."""
    if times == 1:
        return x
    _, places, heads, width = x.shape
    each = x[:, :, :, None, :].expand(1, places, heads, times, width)
    return each.reshape(1, places, heads * times, width)


class _FeedForward(nn.Module):
    def __init__(self, spec: LlmSpec) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(spec.hidden, spec.intermediate, bias=False) for _ in "gu")
        self.down_proj = nn.Linear(spec.intermediate, spec.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class _Layer(nn.Module):
    def __init__(self, spec: LlmSpec) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(spec), _FeedForward(spec)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(spec.hidden), RmsNorm(spec.hidden)

    def forward(
        self, x: Tensor, mask: Tensor, angles: Tensor, cache_k: Tensor, cache_v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, cache_k, cache_v = self.self_attn(self.input_layernorm(x), mask, angles, cache_k, cache_v)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), cache_k, cache_v


class EmbeddingPart(nn.Module):
    """The first part: tokens [1, tokens] to features [1, tokens, hidden]."""

    def __init__(self, spec: LlmSpec) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocabulary, spec.hidden)

    def forward(self, token: Tensor) -> dict[str, Tensor]:
        """Look up the features of each token."""
        return {"x": self.embed_tokens(token)}


class LayersPart(nn.Module):
    """Decoder layers `first` to `first + count - 1`, static."""

    def __init__(self, spec: LlmSpec, first: int, count: int) -> None:
        super().__init__()
        self.places = range(first, first + count)
        self.layers = nn.ModuleDict({str(i): _Layer(spec) for i in self.places})
        self.table = angle_table(spec, 2 * spec.max_sequence) if spec.rope == "graph" else None

    def forward(
        self, x: Tensor, mask: Tensor, freqs_cis: Tensor, kv_caches: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return features and caches; `freqs_cis` are positions where the model has the table of angles."""
        angles = freqs_cis if self.table is None else self.table[freqs_cis]
        kept: dict[str, Tensor] = {}
        for i in self.places:
            names = f"cache_k_{i}", f"cache_v_{i}"
            x, *caches = self.layers[str(i)](x, mask, angles, *(kv_caches[name] for name in names))
            kept |= {f"{name}_out": cache for name, cache in zip(names, caches, strict=True)}
        return {"x": x, **kept}


class OutputPart(nn.Module):
    """The last part: features [1, tokens, hidden] to a score of each token that may follow."""

    def __init__(self, spec: LlmSpec) -> None:
        super().__init__()
        self.norm = RmsNorm(spec.hidden)
        self.lm_head = nn.Linear(spec.hidden, spec.vocabulary, bias=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Normalise, and multiply by the last layer's weight."""
        return {"logits": self.lm_head(self.norm(x))}


def load_part(part: nn.Module, spec: LlmSpec, weights: Mapping[str, Tensor]) -> nn.Module:
    """Give a part its weights.

    Rows of queries and keys change places: Hugging Face's file has the two features of a pair half a head
    apart, the rewritten model has them side by side.
    """
    own: dict[str, Tensor] = {}
    for name in part.state_dict():
        source = "embed_tokens.weight" if name == "lm_head.weight" and spec.tied else name
        value = weights[source].float()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            value = value.view(-1, 2, spec.head_width // 2, spec.hidden).transpose(1, 2).reshape(value.shape)
        own[name] = value
    part.load_state_dict(own)
    return part.eval()


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
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
        raise FileError(str(folder), problem, "give it another place") from None
    for stale in models.glob("*"):
        stale.unlink()
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
