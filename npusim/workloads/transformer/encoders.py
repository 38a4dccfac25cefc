"""BERT (Devlin et al., 2019) and ViT (Dosovitskiy et al., 2021): encoders of transformer layers."""

from __future__ import annotations

from npusim.graph import Graph
from npusim.ops import DType, Role
from npusim.workloads.network import Network
from npusim.workloads.transformer.spec import TransformerSpec

_PARTS = ("query", "key", "value")


def build_bert(spec: TransformerSpec, name: str) -> Graph:
    """Build BERT for question answering: normalisation behind each block, attention masked."""
    net = Network(name, spec.model, spec.precision)
    editor, tokens = net.editor, (spec.batch, spec.sequence)
    words, kinds, attended = (
        editor.input(what, tokens, DType.INT64) for what in ("input_ids", "token_type_ids", "attention_mask")
    )
    editor.region = "embeddings"
    table = net.constant("embeddings/words/table", (spec.vocabulary, spec.hidden), Role.WEIGHT)
    x = editor.gather(table, words, "embeddings/words")
    table = net.constant("embeddings/kinds/table", (2, spec.hidden), Role.WEIGHT)
    x = editor.eltwise("Add", x, editor.gather(table, kinds, "embeddings/kinds"), "embeddings/add_kinds")
    positions = net.constant("embeddings/positions", (1, spec.sequence, spec.hidden), Role.WEIGHT)
    x = editor.eltwise("Add", x, positions, "embeddings/add_positions")
    x = net.normalised(x, "embeddings/norm")
    mask = _mask(net, attended)
    for layer in range(spec.layers):
        place = f"layer{layer}"
        y = _attention(net, x, spec.heads, f"{place}/attention", mask)
        x = net.normalised(editor.eltwise("Add", y, x, f"{place}/attention/add"), f"{place}/attention/norm")
        y = _feed_forward(net, x, f"{place}/feed")
        x = net.normalised(editor.eltwise("Add", y, x, f"{place}/feed/add"), f"{place}/feed/norm")
    return net.finish(net.linear(x, spec.outputs, "head/scores", to_float=True))


def _mask(net: Network, attended: str) -> str:
    """Return what is added to scores, [N, 1, 1, S]: 0 for a token, the lowest number for padding."""
    editor, place = net.editor, "mask"
    editor.region = place
    batch, tokens = net.shape(attended)
    x = editor.op("Convert", (attended,), (batch, tokens), net.dtype, f"{place}/convert")
    x = editor.reshape(x, (batch, 1, 1, tokens), f"{place}/unsqueeze", "Unsqueeze")
    x = editor.eltwise("Subtract", net.constant(f"{place}/one", (1, 1, 1, 1)), x, f"{place}/subtract")
    return net.scaled(x, f"{place}/multiply", (1, 1, 1, 1))


def _attention(net: Network, x: str, heads: int, name: str, mask: str) -> str:
    """Attention with three products for query, key and value, [N, S, hidden]."""
    parts = [_heads(net, net.linear(x, net.shape(x)[-1], f"{name}/{what}"), heads) for what in _PARTS]
    return _attended(net, parts, name, mask)


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
        scores = net.editor.eltwise("Add", scores, mask, f"{name}/scores/mask")
    weights = net.editor.unary("Softmax", scores, f"{name}/softmax", axes=(3,))
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
    editor, batch = net.editor, spec.batch
    x = net.image(batch, spec.image, spec.image)
    x = net.convolution(x, spec.hidden, "embeddings", spec.patch, spec.patch, to_float=True, valid=True)
    patches = spec.sequence - 1
    x = net.reshape(x, (batch, spec.hidden, patches), "embeddings/flatten")
    x = net.transpose(x, (0, 2, 1), "embeddings/transpose")
    first = net.constant("embeddings/class", (batch, 1, spec.hidden), Role.WEIGHT)
    x = net.concat((first, x), "embeddings/concat", to_float=True)
    positions = net.constant("embeddings/positions", (1, spec.sequence, spec.hidden), Role.WEIGHT)
    x = editor.eltwise("Add", x, positions, "embeddings/add_positions")
    for layer in range(spec.layers):
        place = f"layer{layer}"
        y = net.normalised(x, f"{place}/attention/norm")
        y = _attended(net, _fused_heads(net, y, spec.heads, f"{place}/attention"), f"{place}/attention")
        x = editor.eltwise("Add", x, y, f"{place}/attention/add")
        y = _feed_forward(net, net.normalised(x, f"{place}/feed/norm"), f"{place}/feed")
        x = editor.eltwise("Add", x, y, f"{place}/feed/add")
    x = net.normalised(x, "head/norm")
    x = editor.gather(x, editor.constant("head/index", (), DType.INT32), "head/class_token", axis=1)
    return net.finish(net.linear(x, spec.outputs, "head/classes", to_float=True))


def _fused_heads(net: Network, x: str, heads: int, name: str) -> list[str]:
    """Return query, key and value of one product, each [N, heads, S, hidden / heads]."""
    batch, tokens, width = net.shape(x)
    x = net.linear(x, 3 * width, f"{name}/qkv")
    x = net.reshape(x, (batch, tokens, 3, heads, width // heads), f"{name}/split_heads")
    x = net.transpose(x, (2, 0, 3, 1, 4), f"{name}/heads_first")
    shape = (batch, heads, tokens, width // heads)
    parts = net.split(x, (1, 1, 1), f"{name}/split", axis=0)
    return [
        net.editor.reshape(part, shape, f"{name}/{what}", "Squeeze")
        for part, what in zip(parts, _PARTS, strict=True)
    ]
