"""Llama in PyTorch as NITRO rewrites it, converted by OpenVINO: the twin of the graph that is built."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from dynamic_llama import angle_table
from torch import Tensor, nn
from torch.nn import functional

from npusim.frontends.openvino_ir import openvino, unreported
from npusim.llm.converting import EPSILON, packed
from npusim.llm.spec import LlmSpec


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


_OUT = "_out"
"""What NITRO adds to the name of a cache that a model returns."""


def converted_parts(spec: LlmSpec) -> Iterator[tuple[str, Any]]:
    """Yield name and `openvino.Model` of each part, with made-up weights, caches as `spec.cache` has them."""
    for name, module, example in _modules(spec):
        for weight in module.parameters():
            nn.init.uniform_(weight, -0.2, 0.2)  # a converter leaves out factors of 1
        yield name, _converted(spec, name, module.eval(), example)


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


def _converted(spec: LlmSpec, part: str, module: nn.Module, example: dict[str, Any]) -> Any:
    ov = openvino("language models are converted with it")
    with unreported(), torch.no_grad():
        model = ov.convert_model(module, example_input=example)
    caches: dict[str, Any] = example.get("kv_caches", {})
    shapes = {name: list(value.shape) for name, value in {**example, **caches}.items() if name != "kv_caches"}
    parameters = {parameter.get_friendly_name(): parameter for parameter in model.get_parameters()}
    for name in ("kv_caches", *(key for key in parameters if key not in shapes)):
        if name in parameters:
            model.remove_parameter(parameters.pop(name))
    model.reshape({name: shapes[name] for name in parameters})
    results = _named_results(
        model, [*(f"{name}{_OUT}" for name in caches)], "logits" if part == "output" else "x"
    )
    if spec.cache == "state" and caches:
        _make_stateful(ov, model, parameters, results, caches)
    return packed(spec, model)


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
