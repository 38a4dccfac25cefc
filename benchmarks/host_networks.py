"""PyG networks of no suite on this machine's CPU, measured by processor time, beside `generic-cpu`.

    python benchmarks/host_networks.py [CLOCK]

A row per network and number of threads: processor time of the busiest thread, least of several inferences
(other programs lengthen the wall clock, hardly this), what npusim says for as many cores at CLOCK (default
2.6GHz), and the ratio.
"""

import sys
import time
from itertools import pairwise
from pathlib import Path

import openvino as ov
import torch
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

import npusim
from npusim.frontends.pyg import convert

NODES, EDGES, FEATURES, HIDDEN, CLASSES, RUNS = 5000, 60_000, 128, 256, 40, 10


class Network(torch.nn.Module):
    """Layers of PyG with ReLU between them."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return self.layers[-1](x, edge_index)


def sage(aggregation: str) -> Network:
    widths = (FEATURES, HIDDEN, HIDDEN, CLASSES)
    return Network(*(SAGEConv(a, b, aggr=aggregation) for a, b in pairwise(widths)))


NETWORKS = {
    "SAGE mean, 3 layers": lambda: sage("mean"),
    "SAGE max, 3 layers": lambda: sage("max"),
    "GCN, 2 layers": lambda: Network(GCNConv(FEATURES, HIDDEN), GCNConv(HIDDEN, CLASSES)),
    "GIN, 2 layers": lambda: Network(
        GINConv(torch.nn.Linear(FEATURES, HIDDEN)), GINConv(torch.nn.Linear(HIDDEN, CLASSES))
    ),
}


def busy_s() -> dict[str, float]:
    """Return the processor time of each thread of this process (s)."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return {str(file): int(file.read_text().split()[0]) / 1e9 for file in files}


def measured_s(model: ov.Model, values: list, threads: int) -> float:
    """Return the processor time of the busiest thread in one inference (s)."""
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
    request.infer(values)
    found = []
    for _ in range(RUNS):
        before = busy_s()
        request.infer()
        time.sleep(0.001)
        found.append(max(now - before.get(thread, 0.0) for thread, now in busy_s().items()))
    return min(found)


def main() -> None:
    clock = sys.argv[1] if len(sys.argv) > 1 else "2.6GHz"
    draw = torch.Generator().manual_seed(1)
    inputs = {
        "x": torch.rand(NODES, FEATURES, generator=draw),
        "edge_index": torch.randint(0, NODES, (2, EDGES), generator=draw),
    }
    print(
        "| network | threads | measured, ms | generic-cpu, ms | ratio |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for name, make in NETWORKS.items():
        module = make()
        model = convert(module, inputs)
        graph = npusim.from_pyg(module, inputs, precision=None)
        for threads in (1, 2):
            seconds = measured_s(model, [value.numpy() for value in inputs.values()], threads)
            settings = [f"cpu.cores={threads}", f"cpu.clock={clock}"]
            said = npusim.estimate(graph, "generic-cpu", settings=settings).latency_s
            print(f"| {name} | {threads} | {1e3 * seconds:.0f} | {1e3 * said:.0f} | {said / seconds:.2f} |")


if __name__ == "__main__":
    main()
