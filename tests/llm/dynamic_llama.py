"""Llama in PyTorch as it was published, with a cache that grows: the twin of the rewritten model."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.llm.converting import EPSILON
from npusim.llm.spec import LlmSpec, rotary_angles


def angle_table(spec: LlmSpec, positions: int) -> Tensor:
    """Return cosine and sine of each position and pair of features, [positions, pairs, 2]."""
    return torch.from_numpy(rotary_angles(spec, positions)).float()


class DynamicLlama(nn.Module):
    """Llama as published: the cache grows by a token, and nothing is masked but what comes later.

    Features of a pair lie half a head apart (`rotate_half`), as in Hugging Face's implementation.
    """

    def __init__(self, spec: LlmSpec, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.spec, self.weights = spec, weights
        self.cache: list[tuple[Tensor, Tensor]] = []

    @torch.inference_mode()
    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [tokens, vocabulary] of what follows each of some new tokens [tokens]."""
        spec, weights = self.spec, self.weights
        count = len(tokens)
        past = self.cache[0][0].shape[1] if self.cache else 0
        angles = angle_table(spec, past + count)[past:]
        x = weights["embed_tokens.weight"][tokens]
        for layer in range(spec.layers):
            x = x + self._attention(self._norm(x, f"layers.{layer}.input_layernorm"), layer, angles, past)
            y = self._norm(x, f"layers.{layer}.post_attention_layernorm")
            gate, up = (self._product(y, f"layers.{layer}.mlp.{name}_proj") for name in ("gate", "up"))
            x = x + self._product(functional.silu(gate) * up, f"layers.{layer}.mlp.down_proj")
        head = "embed_tokens" if spec.tied else "lm_head"
        return self._product(self._norm(x, "norm"), head)

    def _product(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)
        return scaled * self.weights[f"{name}.weight"]

    def _attention(self, x: Tensor, layer: int, angles: Tensor, past: int) -> Tensor:
        spec = self.spec

        def heads(name: str, count: int) -> Tensor:
            found = self._product(x, f"layers.{layer}.self_attn.{name}_proj")
            return found.view(-1, count, spec.head_width).transpose(0, 1)

        query = _half_turned(heads("q", spec.heads), angles)
        key, value = _half_turned(heads("k", spec.kv_heads), angles), heads("v", spec.kv_heads)
        if past:
            before = self.cache[layer]
            key, value = torch.cat((before[0], key), dim=1), torch.cat((before[1], value), dim=1)
        self.cache[layer : layer + 1] = [(key, value)]
        shared = spec.heads // spec.kv_heads
        keys, values = (one.repeat_interleave(shared, dim=0) for one in (key, value))
        scores = query @ keys.transpose(1, 2) / math.sqrt(spec.head_width)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(past + 1)
        shares = functional.softmax(scores.masked_fill(later, -math.inf), dim=-1)
        found = (shares @ values).transpose(0, 1).reshape(len(x), -1)
        return self._product(found, f"layers.{layer}.self_attn.o_proj")


def _half_turned(x: Tensor, angles: Tensor) -> Tensor:
    """Turn features half a head apart of x [heads, tokens, width] by angles [tokens, width / 2, 2]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles[..., 0], angles[..., 1]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
