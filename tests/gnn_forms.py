"""Networks of PyTorch Geometric, and the fastest forms of them that are known to be written by hand."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import EdgeConv, GCNConv, GINConv, RGCNConv, TransformerConv, global_add_pool
from torch_geometric.nn.models.schnet import CFConv, GaussianSmearing, ShiftedSoftplus

Case = tuple[nn.Module, dict[str, torch.Tensor]]


class Layers(nn.Module):
    """Layers that take features, edges and further inputs, with ReLUs between them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, ends: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, ends, *more).relu()
        return self.layers[-1](x, ends, *more)


def perceptron(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    steps = [(nn.Linear(a, b), activation()) for a, b in pairwise(widths)]
    return nn.Sequential(*[part for step in steps for part in step][:-1])


def edges(nodes: int, count: int, symmetric: bool = True) -> torch.Tensor:
    ends = torch.randint(0, nodes, (2, count // 2 if symmetric else count))
    ends = ends[:, ends[0] != ends[1]]
    return torch.cat([ends, ends.flip(0)], 1).unique(dim=1) if symmetric else ends


def molecules(graphs: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return edges and the graph of each node: chains with two further bonds, of various lengths."""
    parts, graph_of, first = [], [], 0
    for graph in range(graphs):
        size = int(torch.randint(nodes - 8, nodes + 9, ()))
        chain = torch.arange(first, first + size - 1)
        ends = torch.cat([torch.stack([chain, chain + 1]), first + torch.randint(0, size, (2, 2))], 1)
        parts.append(torch.cat([ends, ends.flip(0)], 1).unique(dim=1))
        graph_of.append(torch.full((size,), graph))
        first += size
    return torch.cat(parts, 1), torch.cat(graph_of)


class Pooled(nn.Module):
    def __init__(self, graphs: int) -> None:
        super().__init__()
        self.graphs = graphs
        self.body = Layers(*(GINConv(perceptron(width, 64, 64), train_eps=True) for width in (32, 64, 64)))
        self.head = perceptron(64, 64, 10)

    def forward(self, atoms: torch.Tensor, bonds: torch.Tensor, molecule: torch.Tensor) -> torch.Tensor:
        return self.head(global_add_pool(self.body(atoms, bonds).relu(), molecule, size=self.graphs))


def gin(graphs: int = 128, nodes: int = 25) -> Case:
    ends, graph_of = molecules(graphs, nodes)
    return Pooled(graphs), {"atoms": torch.rand(len(graph_of), 32), "bonds": ends, "molecule": graph_of}


class DenseGin(nn.Module):
    """The batch is handed in as blocks, two graphs a block."""

    def __init__(self, blocks: int, size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(perceptron(width, 64, 64) for width in (32, 64, 64))
        self.head = perceptron(64, 64, 10)
        self.register_buffer("adjacency", (torch.rand(blocks, size, size) < 0.1).float())
        self.register_buffer("pooling", torch.ones(blocks, 2, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(self.adjacency @ x).relu()
        return self.head(self.pooling @ x)


def gin_by_hand() -> Case:
    return DenseGin(51, 64), {"x": torch.rand(51, 64, 32)}


def transformer(nodes: int = 5000, count: int = 30000) -> Case:
    layers = TransformerConv(64, 16, heads=4, beta=True), TransformerConv(64, 10, heads=1)
    return Layers(*layers), {"x": torch.rand(nodes, 64), "ends": edges(nodes, count)}


class Attention(nn.Module):
    """Masked attention of all pairs (slots 0), or over neighbours in slots."""

    def __init__(self, nodes: int, slots: int, width: int, heads: int, gated: bool) -> None:
        super().__init__()
        self.heads, self.width, self.gated, self.slots = heads, width, gated, slots
        self.parts = nn.ModuleList(nn.Linear(64, heads * width) for _ in range(4))
        self.gate = nn.Linear(3 * heads * width, 1)
        columns = slots or nodes
        self.register_buffer("mask", torch.where(torch.rand(nodes, columns) < 0.1, 0.0, -1e4))
        self.register_buffer("index", torch.randint(0, nodes, (nodes, max(1, slots))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape, scale = (x.shape[0], self.heads, self.width), self.width**-0.5
        query, key, value = (part(x).view(shape) for part in self.parts[:3])
        if self.slots:
            scores = (query[:, None] * key[self.index]).sum(-1) * scale + self.mask[:, :, None]
            y = (torch.softmax(scores, 1)[..., None] * value[self.index]).sum(1)
        else:
            query, key, value = (part.transpose(0, 1) for part in (query * scale, key, value))
            scores = torch.softmax(query @ key.transpose(1, 2) + self.mask, -1)
            y = (scores @ value).transpose(0, 1)
        y, own = y.reshape(x.shape[0], -1), self.parts[3](x)
        if not self.gated:
            return y + own
        gate = torch.sigmoid(self.gate(torch.cat([y, own, y - own], 1)))
        return gate * own + (1 - gate) * y


def transformer_by_hand(nodes: int = 5000, slots: int = 18) -> Case:
    layers = Attention(nodes, slots, 16, 4, True), nn.ReLU(), Attention(nodes, slots, 10, 1, False)
    return nn.Sequential(*layers), {"x": torch.rand(nodes, 64)}


class Relations(Layers):
    def forward(self, x: torch.Tensor, links: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return super().forward(x, links, kind)


def rgcn(nodes: int = 4000, count: int = 20000) -> Case:
    ends = edges(nodes, count, symmetric=False)
    layers = RGCNConv(64, 32, 5, num_bases=3), RGCNConv(32, 8, 5)
    kinds = torch.randint(0, 5, ends.shape[1:])
    return Relations(*layers), {"x": torch.rand(nodes, 64), "links": ends, "kind": kinds}


class SlotsOfRelations(nn.Module):
    """All relations' weights first, then all their neighbours in the same slots."""

    def __init__(self, nodes: int, slots: int) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(64, 32), nn.Linear(32, 8)])
        self.all = nn.ModuleList([nn.Linear(64, 160), nn.Linear(32, 40)])
        self.register_buffer("index", torch.randint(0, 5 * nodes, (nodes, slots)))
        self.register_buffer("weight", torch.rand(nodes, slots, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for own, every in zip(self.own, self.all, strict=True):
            rows = every(x).view(5 * x.shape[0], -1)
            x = (own(x) + (rows[self.index] * self.weight).sum(1)).relu()
        return x


def rgcn_by_hand() -> Case:
    return SlotsOfRelations(4000, 16), {"x": torch.rand(4000, 64)}


def edgeconv(nodes: int = 2000, count: int = 16000) -> Case:
    layers = EdgeConv(perceptron(32, 32, 32)), EdgeConv(perceptron(64, 32, 10), aggr="mean")
    return Layers(*layers), {"x": torch.rand(nodes, 16), "ends": edges(nodes, count)}


class SlotsOfEdges(nn.Module):
    """Messages along the edges, gathered to slots: a maximum, then a mean."""

    def __init__(self, nodes: int, count: int, slots: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([perceptron(32, 32, 32), perceptron(64, 32, 10)])
        self.register_buffer("ends", torch.randint(0, nodes, (2, count)))
        self.register_buffer("index", torch.randint(0, count, (nodes, slots)))
        self.register_buffer("weight", torch.rand(nodes, slots, 1))

    def messages(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        own, other = x[self.ends[1]], x[self.ends[0]]
        return layer(torch.cat([own, other - own], -1))[self.index]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.messages(self.layers[0], x).amax(1).relu()
        return (self.messages(self.layers[1], x) * self.weight).sum(1)


def edgeconv_by_hand() -> Case:
    return SlotsOfEdges(2000, 15950, 20), {"x": torch.rand(2000, 16)}


class SchNet(nn.Module):
    """Filters of distances; `slots` [N, K] of messages for sums by hand."""

    def __init__(self, graphs: int, nodes: int = 0, count: int = 0, slots: int = 0) -> None:
        super().__init__()
        self.graphs, self.slots, self.smear = graphs, slots, GaussianSmearing(0.0, 10.0, 50)
        self.embed, self.out = nn.Embedding(20, 64), perceptron(64, 32, 1, activation=ShiftedSoftplus)
        filters = (perceptron(50, 64, 64, activation=ShiftedSoftplus) for _ in range(3))
        self.layers = nn.ModuleList(CFConv(64, 64, 64, each, 10.0) for each in filters)
        if slots:
            self.register_buffer("index", torch.randint(0, count, (nodes, slots)))
            self.register_buffer("weight", torch.ones(nodes, slots, 1) * 0.5)
            self.register_buffer("pooling", torch.rand(graphs, nodes))

    def forward(self, kind: torch.Tensor, place: torch.Tensor, bonds: Any, molecule: Any) -> torch.Tensor:
        distance = (place[bonds[0]] - place[bonds[1]]).norm(dim=-1)
        x, smeared = self.embed(kind), self.smear(distance)
        for layer in self.layers:
            if self.slots:
                decay = 0.5 * (torch.cos(distance * (torch.pi / 10.0)) + 1.0)
                rows = layer.lin1(x)[bonds[0]] * (layer.nn(smeared) * decay[:, None])
                x = x + layer.lin2((rows[self.index] * self.weight).sum(1))
            else:
                x = x + layer(x, bonds, distance, smeared)
        x = self.out(x)
        return self.pooling @ x if self.slots else global_add_pool(x, molecule, size=self.graphs)


def schnet(graphs: int = 64, nodes: int = 20) -> Case:
    ends, graph_of = molecules(graphs, nodes)
    kinds = torch.randint(0, 20, graph_of.shape)
    features = {"kind": kinds, "place": 5 * torch.rand(len(graph_of), 3)}
    return SchNet(graphs), features | {"bonds": ends, "molecule": graph_of}


def schnet_by_hand() -> Case:
    _, inputs = schnet()
    nodes, count = len(inputs["kind"]), inputs["bonds"].shape[1]
    return SchNet(64, nodes, count, 5), inputs


def large(nodes: int, count: int) -> Case:
    """Return two GCN layers on random edges whose targets crowd at low numbers; nobody writes it by hand."""
    torch.manual_seed(0)
    sources, targets = torch.randint(0, nodes, (count,)), (nodes * torch.rand(count) ** 2).long()
    inputs = {"x": torch.rand(nodes, 128), "edge_index": torch.stack([sources, targets])}
    return Layers(GCNConv(128, 128), GCNConv(128, 40)).eval(), inputs


def hundred_thousand() -> Case:
    return large(100_000, 1_000_000)


def million() -> Case:
    return large(1_000_000, 5_000_000)
