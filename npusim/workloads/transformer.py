"""BERT (Devlin et al., 2019) and ViT (Dosovitskiy et al., 2021): encoders as a kind of workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from npusim.graph import Graph
from npusim.ops import DType, Role
from npusim.units import refuse
from npusim.workloads.network import Network
from npusim.workloads.spec import WorkloadKind, WorkloadSpec, default_of_model

_POSITIONS = 512
"""Longest sequence that BERT has position embeddings for."""


def _of_model(bert_base: int, bert_large: int, vit: int) -> Any:
    return default_of_model({"bert-base": bert_base, "bert-large": bert_large, "vit": vit})


def _tokens(data: dict[str, Any]) -> int:
    """Return the default of `sequence`: of vit, its patches and one token of the class."""
    if data["model"] == "vit":
        return int((data["image"] // data["patch"]) ** 2 + 1)
    return 384 if data["model"] == "bert-large" else 128


class TransformerSpec(WorkloadSpec):
    """An encoder of transformer layers."""

    kind: Literal["transformer"]
    """Transformers."""
    model: Literal["bert-base", "bert-large", "vit"]
    """The network: bert-base and bert-large score tokens as answers to a question; vit classifies images."""
    precision: Literal["fp16", "bf16", "fp32", "int8"] = "fp16"
    """Format of its tensors; `int8`: products multiply bytes, softmax, GELU and normalisations stay fp16."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    """Texts or images of one inference."""
    layers: Annotated[int, Field(ge=1, le=200)] = _of_model(12, 24, 12)
    """Layers. Default: 12, bert-large 24."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = _of_model(768, 1024, 768)
    """Features of a token; the feed-forward network is four times as wide. Default: 768, bert-large 1024."""
    heads: Annotated[int, Field(ge=1, le=1024)] = _of_model(12, 16, 12)
    """Attention heads. Default: 12, bert-large 16."""
    image: Annotated[int, Field(ge=1, le=8192)] = 224
    """Height and width of vit's images."""
    patch: Annotated[int, Field(ge=1, le=1024)] = 16
    """Height and width of vit's patches."""
    sequence: Annotated[int, Field(ge=1, le=65536, validate_default=True, default_factory=_tokens)]
    """Tokens of a text. Default: 128, bert-large 384; of vit its patches and one token of the class, 197."""
    vocabulary: Annotated[int, Field(ge=0, le=10_000_000)] = _of_model(28996, 30522, 0)
    """Rows of the table of word embeddings. Default: 28996 (bert-base), 30522 (bert-large); vit has none."""
    outputs: Annotated[int, Field(ge=1, le=100_000)] = _of_model(2, 2, 1000)
    """Scores of a token (bert, default 2: start and end of the answer) or of an image (vit, 1000 classes)."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> TransformerSpec:
        if self.hidden % self.heads:
            refuse(f"`{self.hidden}`", f"a multiple of heads, which is {self.heads}", at="hidden")
        for key in ("image", "patch"):
            if self.model != "vit" and key in self.model_fields_set:
                allowed = f"no {key}: {self.model} reads no images, only vit does"
                refuse(f"`{getattr(self, key)}`", allowed, at=key)
        if self.model == "vit":
            if self.image % self.patch:
                refuse(f"`{self.image}`", f"a multiple of patch, which is {self.patch}", at="image")
            tokens = (self.image // self.patch) ** 2 + 1
            if self.sequence != tokens:
                refuse(f"`{self.sequence}`", f"{tokens}, which image and patch make", at="sequence")
        elif self.sequence > _POSITIONS:
            refuse(f"`{self.sequence}`", f"at most the {_POSITIONS} positions of {self.model}", at="sequence")
        elif not self.vocabulary:
            refuse(f"`{self.vocabulary}`", f"at least 1 for {self.model}", at="vocabulary")
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """Shape of the input."""
        size = f"3x{self.image}x{self.image}" if self.model == "vit" else f"{self.sequence}"
        return {"input": f"{self.batch}x{size}"}


_PARTS = ("query", "key", "value")


def build_bert(spec: TransformerSpec, name: str) -> Graph:
    """Build BERT for question answering: normalisation behind each block, attention masked."""
    net = Network(name, spec.model, spec.precision)
    tokens = (spec.batch, spec.sequence)
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    words, kinds, attended = (net.input(name, tokens, DType.INT64) for name in inputs)
    net.region = "embeddings"
    table = net.constant("embeddings/words/table", (spec.vocabulary, spec.hidden), role=Role.WEIGHT)
    x = net.gather(table, words, "embeddings/words")
    table = net.constant("embeddings/kinds/table", (2, spec.hidden), role=Role.WEIGHT)
    x = net.eltwise("Add", x, net.gather(table, kinds, "embeddings/kinds"), "embeddings/add_kinds")
    positions = net.constant("embeddings/positions", (1, spec.sequence, spec.hidden), role=Role.WEIGHT)
    x = net.eltwise("Add", x, positions, "embeddings/add_positions")
    x = net.normalised(x, "embeddings/norm")
    mask = _mask(net, attended)
    for layer in range(spec.layers):
        place = f"layer{layer}"
        linear = (net.linear(x, spec.hidden, f"{place}/attention/{part}") for part in _PARTS)
        parts = [_heads(net, part, spec.heads) for part in linear]
        y = _attended(net, parts, f"{place}/attention", mask)
        x = net.normalised(net.eltwise("Add", y, x, f"{place}/attention/add"), f"{place}/attention/norm")
        y = _feed_forward(net, x, f"{place}/feed")
        x = net.normalised(net.eltwise("Add", y, x, f"{place}/feed/add"), f"{place}/feed/norm")
    return net.finished(net.linear(x, spec.outputs, "head/scores", to_float=True))


def _mask(net: Network, attended: str) -> str:
    """Return what is added to scores, [N, 1, 1, S]: 0 for a token, the lowest number for padding."""
    place = net.region = "mask"
    batch, tokens = net.shape(attended)
    x = net.op("Convert", (attended,), (batch, tokens), net.dtype, f"{place}/convert")
    x = net.reshape(x, (batch, 1, 1, tokens), f"{place}/unsqueeze", "Unsqueeze")
    x = net.eltwise("Subtract", net.constant(f"{place}/one", (1, 1, 1, 1)), x, f"{place}/subtract")
    return net.scaled(x, f"{place}/multiply", (1, 1, 1, 1))


def _heads(net: Network, x: str, heads: int) -> str:
    """Return [N, S, hidden] as [N, heads, S, hidden / heads]."""
    batch, tokens, width = net.shape(x)
    x = net.reshape(x, (batch, tokens, heads, width // heads), f"{x}/split_heads")
    return net.transpose(x, (0, 2, 1, 3), f"{x}/heads_first")


def _attended(net: Network, parts: list[str], name: str, mask: str | None = None) -> str:
    """Weigh values by the softmax of scaled scores and project: MatMul, Multiply, (Add,) Softmax, MatMul."""
    query, key, value = parts
    batch, heads, tokens, width = net.shape(query)
    scores = net.product(query, key, f"{name}/scores", transpose_b=True, to_float=True)
    scores = net.scaled(scores, f"{name}/scores/scale", (1, 1, 1, 1))
    if mask is not None:
        scores = net.eltwise("Add", scores, mask, f"{name}/scores/mask")
    weights = net.unary("Softmax", scores, f"{name}/softmax", axes=(3,))
    x = net.product(weights, value, f"{name}/values")
    x = net.transpose(x, (0, 2, 1, 3), f"{name}/heads_last")
    x = net.reshape(x, (batch, tokens, heads * width), f"{name}/join_heads")
    return net.linear(x, heads * width, f"{name}/project", to_float=True)


def _feed_forward(net: Network, x: str, name: str) -> str:
    width = net.shape(x)[-1]
    x = net.linear(x, 4 * width, f"{name}/widen", to_float=True)
    x = net.activation("Gelu", x, f"{name}/widen")
    return net.linear(x, width, f"{name}/narrow", to_float=True)


def build_vit(spec: TransformerSpec, name: str) -> Graph:
    """Build ViT: patches by a convolution, normalisation before each block, the class token's scores."""
    net = Network(name, spec.model, spec.precision)
    batch = spec.batch
    x = net.image(batch, spec.image, spec.image)
    x = net.convolution(x, spec.hidden, "embeddings", spec.patch, spec.patch, to_float=True, valid=True)
    patches = spec.sequence - 1
    x = net.reshape(x, (batch, spec.hidden, patches), "embeddings/flatten")
    x = net.transpose(x, (0, 2, 1), "embeddings/transpose")
    first = net.constant("embeddings/class", (batch, 1, spec.hidden), role=Role.WEIGHT)
    x = net.joined((first, x), "embeddings/concat", to_float=True)
    positions = net.constant("embeddings/positions", (1, spec.sequence, spec.hidden), role=Role.WEIGHT)
    x = net.eltwise("Add", x, positions, "embeddings/add_positions")
    for layer in range(spec.layers):
        place = f"layer{layer}"
        y = net.normalised(x, f"{place}/attention/norm")
        y = _attended(net, _fused_heads(net, y, spec.heads, f"{place}/attention"), f"{place}/attention")
        x = net.eltwise("Add", x, y, f"{place}/attention/add")
        y = _feed_forward(net, net.normalised(x, f"{place}/feed/norm"), f"{place}/feed")
        x = net.eltwise("Add", x, y, f"{place}/feed/add")
    x = net.normalised(x, "head/norm")
    x = net.gather(x, net.constant("head/index", (), DType.INT32), "head/class_token", axis=1)
    return net.finished(net.linear(x, spec.outputs, "head/classes", to_float=True))


def _fused_heads(net: Network, x: str, heads: int, name: str) -> list[str]:
    """Return query, key and value of one product, each [N, heads, S, hidden / heads]."""
    batch, tokens, width = net.shape(x)
    x = net.linear(x, 3 * width, f"{name}/qkv")
    x = net.reshape(x, (batch, tokens, 3, heads, width // heads), f"{name}/split_heads")
    x = net.transpose(x, (2, 0, 3, 1, 4), f"{name}/heads_first")
    shape = (batch, heads, tokens, width // heads)
    parts = zip(net.split(x, (1, 1, 1), f"{name}/split", axis=0), _PARTS, strict=True)
    return [net.reshape(part, shape, f"{name}/{what}", "Squeeze") for part, what in parts]


def _build(spec: TransformerSpec, name: str, _: Path) -> Graph:
    return (build_vit if spec.model == "vit" else build_bert)(spec, name)


TRANSFORMER = WorkloadKind("transformer", "encoders of texts and images", TransformerSpec, _build)
