"""ViG and PyramidViG (Han et al., 2022) with MaGNAS's graph operators, as OpenVINO has them."""

from __future__ import annotations

from npusim.graph import Graph
from npusim.magnas.spec import HEAD_CHANNELS, MIXED_GROUPS, Stage, VisionGnnSpec
from npusim.ops import DType
from npusim.workloads.network import Network, window


def build_vig(spec: VisionGnnSpec, name: str) -> Graph:
    """Build a network of four superblocks; stem, graphers, feed-forward networks and head are its blocks."""
    net = Network(name, spec.model, spec.precision)
    stages = spec.stages
    x = _stem(net, net.image(spec.batch, spec.image, spec.image), spec)
    block = 0
    for i, stage in enumerate(stages):
        if i and stage.size < stages[i - 1].size:
            x = net.convolution(x, stage.channels, f"downsample{i}", 3, 2, to_float=True)
        for knn in stage.knn:
            x = _Grapher(net, stage, knn, f"grapher{block}").build(x, spec.model == "pyramid-vig")
            if stage.ffn_hidden:
                x = _feed_forward(net, x, stage.ffn_hidden, f"ffn{block}")
            block += 1
    x = net.mean_pool(x, "head/pool")
    x = net.convolution(x, HEAD_CHANNELS, "head/hidden", activation="Gelu", to_float=True)
    x = net.convolution(x, spec.classes, "head/classes", to_float=True)
    x = net.reshape(x, (spec.batch, spec.classes), "head/squeeze")
    for operator in list(net.operators.values()):  # stem and head are one block each
        first = operator.name.partition("/")[0]
        if first in ("stem", "head"):
            net.change_operator(operator.name, region=first)
    return net.finished(x)


def _stem(net: Network, x: str, spec: VisionGnnSpec) -> str:
    """Make nodes of an image: 3x3 convolutions, the last of stride 1, and position embeddings."""
    first, widths = spec.channels[0], spec.stem_channels
    for i, width in enumerate(widths):
        x = net.convolution(x, width, f"stem/conv{i}", 3, 2, "Gelu", to_float=True)
    x = net.convolution(x, first, f"stem/conv{len(widths)}", 3, bias=False, to_float=True)
    positions = net.constant("stem/positions", (1, *net.shape(x)[1:]))  # and the bias
    return net.eltwise("Add", x, positions, "stem/add_positions")


def _feed_forward(net: Network, x: str, hidden: int, name: str) -> str:
    y = net.convolution(x, hidden, f"{name}/widen", activation="Gelu", to_float=True)
    y = net.convolution(y, net.shape(x)[1], f"{name}/narrow", to_float=True)
    return net.eltwise("Add", y, x, f"{name}/add")


class _Grapher:
    """One grapher: nearest neighbours by features, a graph operator, products before and behind."""

    def __init__(self, net: Network, stage: Stage, knn: int, name: str) -> None:
        self.net, self.stage, self.knn, self.name = net, stage, knn, name
        self.nodes = stage.size**2
        self.candidates = (stage.size // stage.reduction) ** 2

    def build(self, x: str, positions: bool) -> str:
        """Add it to features [N, C, H, W]."""
        net, name, channels = self.net, self.name, self.stage.channels
        y = net.convolution(x, channels, f"{name}/pre", to_float=True) if self.stage.preprocess else x
        pooled = y
        if self.stage.reduction > 1:
            pooled = self._mean(y)
        net.region = f"{name}/neighbours"
        own, others = self._rows(y, "own"), None
        if pooled != y:
            others = self._rows(pooled, "others")
        near = self._nearest(own, others or own, positions)
        mixed = self._operator(y, own, others or own, near)
        y = net.convolution(mixed, channels, f"{name}/post", to_float=True)
        return net.eltwise("Add", y, x, f"{name}/add")

    def _mean(self, x: str) -> str:
        """Average squares of nodes."""
        net, step = self.net, self.stage.reduction
        batch, channels, height, width = net.shape(x)
        shape, name = (batch, channels, height // step, width // step), f"{self.name}/mean"
        net.region = f"{self.name}/neighbours"
        return net.op("AvgPool", (x,), shape, net.dtype, name, kernel=(step, step), **window(step))

    def _rows(self, x: str, what: str) -> str:
        """Return a map [N, C, H, W] as rows of nodes [N, H W, C]."""
        net = self.net
        batch, channels, height, width = net.shape(x)
        flat = net.reshape(x, (batch, channels, height * width), f"{self.name}/{what}/flat")
        return net.transpose(flat, (0, 2, 1), f"{self.name}/{what}/rows")

    def _normalised(self, rows: str, what: str) -> str:
        """Divide each row by its length."""
        net, name = self.net, f"{self.name}/{what}"
        length = net.reduce("ReduceL2", rows, (2,), f"{name}/length", keep_dims=True)
        least = net.constant(f"{name}/least", (1, 1, 1))
        length = net.eltwise("Maximum", length, least, f"{name}/clamp")
        return net.eltwise("Divide", rows, length, f"{name}/normalised")

    def _squares(self, rows: str, what: str) -> str:
        """Return the squared length of each row, [N, rows, 1]."""
        net, name = self.net, f"{self.name}/{what}"
        squares = net.eltwise("Multiply", rows, rows, f"{name}/square")
        return net.reduce("ReduceSum", squares, (2,), f"{name}/squares", keep_dims=True)

    def _nearest(self, own: str, others: str, positions: bool) -> str:
        """Return the neighbours' places in each image, [N, nodes, knn], by squared distances."""
        net, name, shared = self.net, self.name, own == others
        a = self._normalised(own, "own")
        b = a if shared else self._normalised(others, "others")
        squares = self._squares(a, "own")
        product = net.product(a, b, f"{name}/distances", transpose_b=True, to_float=True)
        net.region = f"{name}/neighbours"
        product = net.scaled(product, f"{name}/distances/twice", (1, 1, 1))
        distances = net.eltwise("Add", squares, product, f"{name}/distances/own")
        other = squares if shared else self._squares(b, "others")
        batch = net.shape(own)[0]
        other = net.reshape(other, (batch, 1, self.candidates), f"{name}/distances/turned")
        distances = net.eltwise("Add", distances, other, f"{name}/distances/others")
        if positions:
            embedded = net.constant(f"{name}/relative_positions", (1, self.nodes, self.candidates))
            distances = net.eltwise("Add", distances, embedded, f"{name}/distances/positions")
        nearer = net.scaled(distances, f"{name}/distances/negative", ())
        taken, step = self.knn * self.stage.dilation, self.stage.dilation
        shape = (batch, self.nodes, taken)
        near = net.op("TopK", (nearer,), shape, DType.INT64, f"{name}/topk", axes=(2,))
        if step > 1:
            near = net.op("Slice", (near,), (batch, self.nodes, self.knn), DType.INT64, f"{name}/dilated")
        if batch > 1:
            bases = net.constant(f"{name}/bases", (batch, 1, 1), DType.INT64)
            near = net.eltwise("Add", near, bases, f"{name}/rows")
        return near

    def _table(self, rows: str) -> str:
        """Return the rows of all images as one table."""
        batch, count, channels = self.net.shape(rows)
        return self.net.reshape(rows, (batch * count, channels), f"{rows}/table")

    def _gathered(self, table: str, places: str, what: str) -> str:
        """Fetch rows of nodes, [N, nodes, knn, C]."""
        net, name, channels = self.net, f"{self.name}/{what}", self.stage.channels
        found = net.gather(table, places, f"{name}/gather")
        batch = net.shape(places)[0] // (self.nodes * self.knn)
        return net.reshape(found, (batch, self.nodes, self.knn, channels), f"{name}/split")

    def _channels_first(self, x: str, what: str) -> str:
        return self.net.transpose(x, (0, 3, 1, 2), f"{self.name}/{what}/channels_first")

    def _operator(self, y: str, own: str, others: str, near: str) -> str:
        """Take in the neighbours, [N, 2 C, H, W]."""
        net, name, stage = self.net, self.name, self.stage
        batch, size, width = net.shape(y)[0], stage.size, stage.channels
        table = self._table(own)
        candidates = table if others == own else self._table(others)
        places = net.reshape(near, (batch * self.nodes * self.knn,), f"{name}/places")
        neighbours = self._gathered(candidates, places, "neighbours")
        if stage.operator != "gin":
            neighbours = self._channels_first(neighbours, "neighbours")
        if stage.operator == "gin":
            total = net.reduce("ReduceSum", neighbours, (2,), f"{name}/sum", keep_dims=True)
            total = self._channels_first(total, "sum")
            weighed = net.scaled(self._column(y), f"{name}/weighed", (1,) * 4)
            x = net.eltwise("Add", weighed, total, f"{name}/together")
        elif stage.operator == "graphsage":
            x = net.convolution(
                neighbours, width, f"{name}/transform", groups=MIXED_GROUPS, activation="Gelu", to_float=True
            )
            x = net.joined((self._column(y), self._largest(x)), f"{name}/both", to_float=True)
        elif stage.operator == "edgeconv":
            centres = self._centres(table)
            offsets = net.eltwise("Subtract", neighbours, centres, f"{name}/offsets")
            x = net.joined((centres, offsets), f"{name}/edges", to_float=True)
        else:
            offsets = net.eltwise("Subtract", neighbours, self._centres(table), f"{name}/offsets")
            x = self._interleaved(y, self._largest(offsets))
        mixed = f"{name}/mix"
        x = net.convolution(x, 2 * width, mixed, groups=MIXED_GROUPS, activation="Gelu", to_float=True)
        if stage.operator == "edgeconv":
            x = self._largest(x)
        return net.reshape(x, (batch, 2 * width, size, size), f"{name}/map")

    def _centres(self, table: str) -> str:
        """Return each node's own features once for each neighbour."""
        shape = (self.net.shape(table)[0] * self.knn,)
        places = self.net.constant(f"{self.name}/centres/which", shape, DType.INT32)
        return self._channels_first(self._gathered(table, places, "centres"), "centres")

    def _largest(self, x: str) -> str:
        return self.net.reduce("ReduceMax", x, (3,), f"{self.name}/largest", keep_dims=True)

    def _column(self, y: str) -> str:
        """Return a map as [N, C, nodes, 1]."""
        batch, width = self.net.shape(y)[:2]
        return self.net.reshape(y, (batch, width, self.nodes, 1), f"{self.name}/column")

    def _interleaved(self, y: str, taken: str) -> str:
        """Lay one channel of the nodes and one of what they took in by turns, [N, 2 C, nodes, 1]."""
        net, name = self.net, self.name
        batch, width = net.shape(y)[:2]
        shape = (batch, width, 1, self.nodes, 1)
        parts = [net.reshape(x, shape, f"{name}/{what}") for x, what in ((y, "node"), (taken, "taken"))]
        both = net.joined(parts, f"{name}/both", axis=2, to_float=True)
        return net.reshape(both, (batch, 2 * width, self.nodes, 1), f"{name}/columns")
