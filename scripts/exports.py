"""Table of exports: each module advised, exported, and its file run as a user would.

python scripts/exports.py                  # the convolutions of PyTorch Geometric
python scripts/exports.py models.py gin    # functions of a file that return (module, inputs); default: ALL
    python scripts/exports.py - GCNConv        # some of the convolutions
"""

from __future__ import annotations

import argparse
import runpy
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import conv

import npusim

_NODES, _EDGES, _IN, _OUT = 40, 160, 16, 8
Case = tuple[nn.Module, dict[str, Any]]


def _mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))


class _OfTensors(nn.Module):
    """A layer of dictionaries that takes a tensor an argument."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layer({"n": x}, {("n", "to", "n"): edge_index})["n"]


def _convolutions() -> Mapping[str, tuple[Callable[[], nn.Module], str]]:
    """Return a maker and the names of the inputs, where they are not (16, 8) and x, edge_index."""
    width, own = (_IN, _OUT), {}
    own["ChebConv"] = lambda: conv.ChebConv(*width, 3), ""
    own["GravNetConv"] = lambda: conv.GravNetConv(*width, 3, 4, 5), "x"
    own["GatedGraphConv"] = lambda: conv.GatedGraphConv(_IN, 2), ""
    own["AGNNConv"] = conv.AGNNConv, ""
    own["SimpleConv"] = conv.SimpleConv, ""
    own["LGConv"] = conv.LGConv, ""
    own["WLConv"] = conv.WLConv, "labels edge_index"
    own["WLConvContinuous"] = conv.WLConvContinuous, ""
    own["GINConv"] = lambda: conv.GINConv(_mlp(*width)), ""
    own["GINEConv"] = lambda: conv.GINEConv(_mlp(*width), edge_dim=3), "x edge_index edge_attr"
    own["SSGConv"] = lambda: conv.SSGConv(*width, alpha=0.1, K=2), ""
    own["APPNP"] = lambda: conv.APPNP(3, 0.1), ""
    own["SignedConv"] = lambda: conv.SignedConv(*width, first_aggr=True), "x edge_index edge_index2"
    own["DNAConv"] = lambda: conv.DNAConv(_IN), "layers edge_index"
    own["PointNetConv"] = lambda: conv.PointNetConv(_mlp(_IN + 3, _OUT)), "x pos edge_index"
    own["PPFConv"] = lambda: conv.PPFConv(_mlp(_IN + 4, _OUT)), "x pos normal edge_index"
    own["GMMConv"] = lambda: conv.GMMConv(*width, dim=3, kernel_size=2), "x edge_index edge_attr"
    own["SplineConv"] = lambda: conv.SplineConv(*width, dim=3, kernel_size=2), "x edge_index edge_attr"
    own["NNConv"] = lambda: conv.NNConv(*width, _mlp(3, _IN * _OUT)), "x edge_index edge_attr"
    own["CGConv"] = lambda: conv.CGConv(_IN, 3), "x edge_index edge_attr"
    own["EdgeConv"] = lambda: conv.EdgeConv(_mlp(2 * _IN, _OUT)), ""
    own["DynamicEdgeConv"] = lambda: conv.DynamicEdgeConv(_mlp(2 * _IN, _OUT), k=5), "x"
    own["XConv"] = lambda: conv.XConv(*width, dim=3, kernel_size=5), "x pos"
    own["PointTransformerConv"] = lambda: conv.PointTransformerConv(*width), "x pos edge_index"
    own["PNAConv"] = (
        lambda: conv.PNAConv(
            *width, ["mean", "max", "std"], ["identity", "amplification"], torch.ones(9).long()
        ),
        "",
    )
    own["GCN2Conv"] = lambda: conv.GCN2Conv(_IN, 0.1), "x x_0 edge_index"
    own["PANConv"] = lambda: conv.PANConv(*width, 2), ""
    own["FAConv"] = lambda: conv.FAConv(_IN), "x x_0 edge_index"
    own["PDNConv"] = lambda: conv.PDNConv(*width, 3, 8), "x edge_index edge_attr"
    own["HEATConv"] = (
        lambda: conv.HEATConv(*width, 3, 4, 5, 3, 6),
        "x edge_index node_type edge_type edge_attr",
    )
    own["PointGNNConv"] = (
        lambda: conv.PointGNNConv(_mlp(_IN, 3), _mlp(_IN + 3, _IN), _mlp(_IN, _IN)),
        "x pos edge_index",
    )
    own["GPSConv"] = lambda: conv.GPSConv(_IN, conv.GCNConv(_IN, _IN)), ""
    own["AntiSymmetricConv"] = lambda: conv.AntiSymmetricConv(_IN), ""
    own["DirGNNConv"] = lambda: conv.DirGNNConv(conv.SAGEConv(*width)), ""
    own["MeshCNNConv"] = lambda: conv.MeshCNNConv(*width), "x mesh"
    own["EGConv"] = lambda: conv.EGConv(*width), ""
    for name in ("RGCNConv", "FastRGCNConv", "RGATConv"):
        own[name] = partial(getattr(conv, name), *width, 4), "x edge_index edge_type"
    metadata = (["n"], [("n", "to", "n")])
    own["HGTConv"] = lambda: _OfTensors(conv.HGTConv(*width, metadata)), ""
    own["HANConv"] = lambda: _OfTensors(conv.HANConv(*width, metadata)), ""
    own["HeteroConv"] = lambda: _OfTensors(conv.HeteroConv({("n", "to", "n"): conv.SAGEConv(*width)})), ""
    return own


_NOT_LAYERS = ("MessagePassing", "FusedGATConv", "CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv")
"""A base class, and layers for CUDA alone."""


def _inputs() -> dict[str, Any]:
    ends = torch.randint(0, _NODES, (2, _EDGES))
    ends = torch.cat(
        [ends[:, ends[0] != ends[1]], torch.stack([torch.arange(_NODES), torch.arange(_NODES).roll(1)])], 1
    )
    count = ends.shape[1]
    return {
        "x": torch.rand(_NODES, _IN),
        "x_0": torch.rand(_NODES, _IN),
        "layers": torch.rand(_NODES, 3, _IN),
        "labels": torch.randint(0, 5, (_NODES,)),
        "pos": torch.rand(_NODES, 3),
        "normal": nn.functional.normalize(torch.rand(_NODES, 3)),
        "edge_index": ends,
        "edge_index2": ends.flip(1),
        "mesh": torch.stack(
            [torch.arange(_NODES).repeat_interleave(4), torch.randint(0, _NODES, (4 * _NODES,))]
        ).flip(0),
        "edge_attr": torch.rand(count, 3),
        "edge_type": torch.randint(0, 4, (count,)),
        "node_type": torch.randint(0, 3, (_NODES,)),
    }


def convolutions() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield each convolution of PyTorch Geometric with its inputs."""
    special = _convolutions()
    for name in conv.__all__:
        if name in _NOT_LAYERS:
            continue
        make, names = special.get(name, (partial(getattr(conv, name), _IN, _OUT), ""))

        def case(make: Callable[[], nn.Module] = make, names: str = names) -> Case:
            torch.manual_seed(0)
            inputs = _inputs()
            return make().eval(), {key: inputs[key] for key in (names or "x edge_index").split()}

        yield name, case


def row(name: str, case: Callable[[], Case], folder: Path) -> dict[str, str]:
    """Return how far a module comes: import, estimate, advice, export, and how its file answers."""
    cells, step = {"name": name}, "built"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, inputs = case()
            step = "estimate"
            cells["latency"] = f"{npusim.estimate(module, inputs=inputs).latency_s * 1e3:.3g} ms"
            step = "advice"
            advice = npusim.advise(module, inputs=inputs, samples=0)
            cells["stack"] = advice.today.techniques
            step = "export"
            if not (advice.agreement and advice.agreement[-1].kept):
                npusim.advise(module, inputs=inputs, samples=0, export=folder / f"{name}.xml")
            last = advice.agreement[-1]
            cells |= {"fp32": f"{last.error_fp32:.1e}", last.precision: f"{last.error:.1e}"}
            cells |= {
                "default": last.precision,
                "error": f"{last.error:.1e}",
                "same": f"{last.same_answers:.1%}",
            }
            half = f" ({last.same_answers_fp16:.1%})" if last.same_answers_fp16 is not None else ""
            cells["same"] += half
    except Exception as error:  # whatever a module raises: it is the row's result
        cells["refused"] = f"{step}: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return cells


def main(words: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", help="a Python file with functions that return (module, inputs)")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(words)
    cases = [case for case in convolutions() if not given.names or case[0] in given.names]
    if given.file not in (None, "-"):
        space = runpy.run_path(given.file)
        names = given.names or [function.__name__ for function in space["ALL"]]
        cases = [(name, space[name]) for name in names]
    passed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases:
            cells = row(name, case, Path(folder))
            passed += "refused" not in cells
            print(
                " | ".join(
                    cells.get(key, "")
                    for key in ("name", "latency", "stack", "fp32", "default", "error", "same", "refused")
                ),
                flush=True,
            )
    print(f"{passed} of {len(cases)} exported")


if __name__ == "__main__":
    main(sys.argv[1:])
