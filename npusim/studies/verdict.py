"""What a comparison says in words: conclusion, notes, dominated stacks.

Every sentence follows from the numbers of the estimates and the switches of the SoC.
"""

from __future__ import annotations

from collections.abc import Sequence

from npusim.arch import Soc
from npusim.engines.estimate import Estimate
from npusim.graph import Graph
from npusim.ops import Annotation, Role, Storage, stored_bytes
from npusim.studies.comparison import Variant
from npusim.techniques import Technique, apply, get, parse, technique_names, technique_with

_CURE = {
    "npu.dma": "fewer bytes or more DRAM bandwidth would help, more MACs would not",
    "npu.dpu": "more MACs or a higher DPU clock would help, more DRAM bandwidth would not",
    "npu.dsp": "more or faster DSPs, or operators that the MAC grid can run, would help",
    "cpu": "a faster CPU or less preprocessing would help",
    "gpu": "a faster GPU would help",
}
_SAME = 1e-9
"""Relative difference below which two figures count as equal."""


def dominator_of(e: Estimate, others: Sequence[Estimate]) -> str | None:
    """Return a stack that makes `e` pointless, or None; of several the fastest.

    It is at least as good in time, energy and DRAM traffic and better in one, gives the same results, and
    does not merely add to the stack of `e`.
    """
    better = [o for o in others if _is_alternative(o, e) and _dominates(o, e)]
    return min(better, key=_interval_s).techniques if better else None


def _is_alternative(o: Estimate, e: Estimate) -> bool:
    mine, theirs = set(_names(e)), set(_names(o))
    return not theirs >= mine and _inexact(mine) == _inexact(theirs)


def _inexact(names: set[str]) -> set[str]:
    return {name for name in names if not get(name).exact}


def _interval_s(e: Estimate) -> float:
    return 1.0 / e.throughput_per_s


def _figures(e: Estimate) -> tuple[float, ...]:
    return (_interval_s(e), e.latency_s, e.energy_j, e.dram_bytes)


def _dominates(a: Estimate, b: Estimate) -> bool:
    pairs = list(zip(_figures(a), _figures(b), strict=True))
    return all(x <= y * (1 + _SAME) for x, y in pairs) and any(x < y * (1 - _SAME) for x, y in pairs)


def conclusion_of(soc: Soc, estimates: Sequence[Estimate]) -> str:
    """Return one sentence: the best stack, by how much, and what bounds it."""
    best = min(estimates, key=_interval_s)
    gain = best.throughput_per_s / estimates[0].throughput_per_s
    name, use = best.bound, best.units[best.bound]
    if best.requests == 1 and _launch_s(soc, best) > use.busy_s:
        launch = _launch_s(soc, best)
        why = (
            f"launching it ({launch * 1e3:.2f} of {best.latency_s * 1e3:.2f} ms): several requests in flight "
            f"(--hint throughput) would help, a faster {soc.main_kind.upper()} hardly"
        )
    elif name == "npu.dma":
        moved = f"{best.dram_bytes / 1e6:.1f} MB of DRAM traffic"
        why = f"DMA, busy {use.utilisation:.0%} of the time with {moved}: {_CURE[name]}"
    else:
        why = (
            f"the {name.removeprefix('npu.').upper()}, busy {use.utilisation:.0%} of the time: {_CURE[name]}"
        )
    return f"Best: {best.techniques}, {gain:.2f}x {estimates[0].techniques}, bound by {why}."


def _launch_s(soc: Soc, e: Estimate) -> float:
    """Time of an inference that its operators do not account for: calls of the runtime."""
    return (
        e.latency_s - sum(o.latency_s for o in e.operators)
        if e.requests == 1
        else float(soc.npu.launch_overhead if soc.has("npu") else 0.0)
    )


def notes_of(graph: Graph, soc: Soc, estimates: Sequence[Estimate]) -> list[str]:
    """Return caveats of a row: unmeasured numbers, and what compressed storage would give."""
    notes = list(dict.fromkeys(note for e in estimates for note in e.provenance["notes"]))
    symmetric = [e for e in estimates if _triangle().name in _names(e)]
    if symmetric:
        notes.append(_triangle_against_zvc(graph, soc, symmetric[0]))
    return notes


def _triangle() -> Technique:
    return technique_with(annotation=Annotation.TRIANGLE)


def _names(e: Estimate) -> list[str]:
    return list(parse(e.techniques).names)


def _triangle_against_zvc(graph: Graph, soc: Soc, e: Estimate) -> str:
    """Compare the two ways to store the aggregation matrix, and say what the hardware can use of them."""
    norm = next(t for t in apply(graph, e.techniques).with_role(Role.NORM) if t.storage is Storage.TRIANGLE)
    packed = stored_bytes(norm.elements, norm.dtype, Storage.ZVC, norm.density, norm.shape[-1])
    triangle, compressed = _triangle().name, technique_with(annotation=Annotation.COMPRESSED).name
    text = (
        f"the norm matrix takes {norm.bytes / 1e6:.2f} MB dense, "
        f"{norm.stored_bytes / 1e6:.2f} MB as a triangle ({triangle}), {packed / 1e6:.2f} MB with a bitmap "
        f"({compressed})"
    )
    if not soc.has("npu"):
        return text
    if soc.npu.sparsity.decompress_activations:
        return (
            text
            + f": with npu.sparsity.decompress_activations {compressed} moves the least, and {triangle} is "
            "dominated by it"
        )
    return text + (
        f"; this SoC cannot decompress activations, so {compressed} saves no traffic here: "
        "--set npu.sparsity.decompress_activations=true shows what it would save"
    )


def rests_on(variants: Sequence[Variant]) -> list[str]:
    """Say which number of the data sheet the gain of each what-if is most uncertain by."""
    found = []
    for technique in [name for name in technique_names() if get(name).what_if]:
        for v in variants:
            added = set(parse(v.techniques).names) - set(parse(v.step_from).names)
            if added == {technique} and v.step_interval is not None and v.step_uncertain_by:
                low, high = v.step_interval
                number, share = next(iter(v.step_uncertain_by.items()))
                gain = f"{v.step_speedup:.2f}x ({low:.2f} to {high:.2f})"
                why = f"uncertain most by {number} ({share:.0%} of the variance)"
                found.append(f"{technique} on {v.step_from} gives {gain}, {why}")
                break
    return found
