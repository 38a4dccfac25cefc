"""Check of lab 7: a stack of techniques, bytes of another graph, and a graph that takes 10 ms."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from npusim.course.machine import estimate, gnn

WHAT_IFS = ("symg", "cacheg")


def check_stack(stack: str) -> Iterator[tuple[bool, str, str]]:
    fiction = [name for name in WHAT_IFS if name in stack.lower()]
    yield (
        not fiction,
        f"`{stack}` runs on hardware of today",
        f"{', '.join(fiction)}: no hardware does that yet",
    )
    exported, rewritten = (estimate("gcn-cora", techniques=each) for each in ("none", stack))
    gain = exported.latency_s / rewritten.latency_s
    hint = "first make the sums a product, then make its bytes fewer"
    yield gain >= 70, f"{gain:.1f} times as fast, at least 70", hint
    energy_mj = 1e3 * rewritten.energy_j
    hint = "nearly all entries of the matrix are zero: which technique does not multiply them?"
    yield energy_mj <= 1.8, f"{energy_mj:.3f} mJ, at most 1.8", hint


def check_bytes(citeseer_mb: float) -> Iterator[tuple[bool, str, str]]:
    cost = estimate("gcn-citeseer", techniques="stagr+quantgr")
    ratio = citeseer_mb / (cost.dram_bytes / 1e6)
    hint = "count the matrix, N x N, once per layer, and the features, N x 3703; compute Cora's figure so as a check"
    if 1.8 < ratio < 2.3:
        hint = "that is fp16: quantgr stores a byte per number"
    elif ratio < 0.9:
        hint = "some bytes are missing: the matrix is read by each of two layers, the features by the first"
    yield 0.9 <= ratio <= 1.1, f"{citeseer_mb:.1f} MB are within 10 % of the model", hint


def check_nodes(nodes: Annotated[int, Field(ge=100, le=100_000)]) -> Iterator[tuple[bool, str, str]]:
    latency_ms = 1e3 * estimate(gnn("gcn", nodes, 4), techniques="stagr+quantgr").latency_s
    hint = "the matrix has N x N entries: twice the nodes take four times as long, once the launch is small"
    yield 9 <= latency_ms <= 10, f"{nodes:,} nodes take {latency_ms:.2f} ms, between 9 and 10", hint
