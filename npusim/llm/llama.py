"""Llama in PyTorch, rewritten for devices of fixed shapes as in NITRO (arXiv 2412.11053, section 3.3).

All inputs are tensors, the cache has a place for each token up to the longest sequence, a mask leaves out
unused places, and rotary embeddings are an input or a table. Weights have Hugging Face's names.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn import functional

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
    """Return the shape of each weight by its name."""
    width, narrow, wide = spec.hidden, spec.kv_heads * spec.head_width, spec.intermediate
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (spec.vocabulary, width)}
    for layer in range(spec.layers):
        place = f"layers.{layer}"
        shapes |= {
            f"{place}.self_attn.q_proj.weight": (width, width),
            f"{place}.self_attn.k_proj.weight": (narrow, width),
            f"{place}.self_attn.v_proj.weight": (narrow, width),
            f"{place}.self_attn.o_proj.weight": (width, width),
            f"{place}.mlp.gate_proj.weight": (wide, width),
            f"{place}.mlp.up_proj.weight": (wide, width),
            f"{place}.mlp.down_proj.weight": (width, wide),
            f"{place}.input_layernorm.weight": (width,),
            f"{place}.post_attention_layernorm.weight": (width,),
        }
    shapes["norm.weight"] = (width,)
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocabulary, width)
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
