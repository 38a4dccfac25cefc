"""What a comparison says in words: conclusion, notes, dominated stacks.

Every sentence follows from the numbers of the estimates and the switches of the SoC.
"""

from __future__ import annotations

from collections.abc import Sequence

from npusim.arch import Soc
from npusim.engines.estimate import Estimate
from npusim.graph import Graph
from npusim.ops import Annotation, Role, Storage, stored_bytes
from npusim.rounding import factor, factors, last_digit
from npusim.studies.comparison import RestsOn, Untouched, Variant
from npusim.studies.elasticity import Elasticity
from npusim.techniques import BASE, NONE, Technique, apply, get, parse, technique_names, technique_with

_TELLS = 0.005
"""Least share of the time whose saving is told."""
_MOST_TOLD = 3
"""Resources that the conclusion names with what they save."""
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


def conclusion_of(variants: Sequence[Variant], devices: Sequence[Untouched]) -> str:
    """Return a sentence: the best stack, the best that runs today, against the baseline and a host."""
    base, best = variants[0], max(variants, key=_rate)
    today = max((v for v in variants if not _what_ifs(v)), key=_rate, default=best)
    parts = [f"Best: {best.techniques}" + (f", {_gain(best)} {base.techniques}" if best is not base else "")]
    if today is not best:
        gain = f" ({_gain(today)})" if today is not base else ""
        parts.append(f"of what runs today {today.techniques}{gain}")
    host = max((d for d in devices if d.device != "npu"), key=_rate, default=None)
    if host is not None and len(devices) > 1:
        ratio = _rate(today) / _rate(host)
        parts.append(f"which is {ratio:.2g}x the untouched network on the {host.device.upper()}")
    return f"{', '.join(parts)}."


def _rate(row: Variant | Untouched) -> float:
    return row.throughput_per_s


def _what_ifs(v: Variant) -> list[str]:
    """Return the techniques of a stack that nobody offers today, or not on a host that runs it."""
    techniques = [get(name) for name in parse(v.techniques).names]
    on_host = not v.bound.startswith("npu")
    return [t.name for t in techniques if t.what_if or (on_host and t.host_note)]


def _gain(v: Variant) -> str:
    return factor(v.speedup_throughput, last_digit(v.speedup_interval))


def advice_of(tried: Sequence[Elasticity], in_flight: float | None, rate: float) -> str:
    """Say what more of each resource saved when it was tried.

    Parameters
    ----------
    tried : sequence of Elasticity
        The most helpful first.
    in_flight : float or None
        Inferences per second with several requests in flight; None: not tried.
    rate : float
        Inferences per second as they are.
    """
    helpful = [e for e in tried[:_MOST_TOLD] if e.gain >= _TELLS]
    told = [f"{e.more:.0%} {_more(e.resource)} saves {e.gain:.1%}" for e in helpful]
    if in_flight is not None and in_flight > (1.0 + _TELLS) * rate:
        told.append(f"several requests in flight (--hint throughput) give {in_flight / rate:.2g}x the rate")
    idle = [_more(e.resource) for e in tried if abs(e.gain) < _TELLS]
    if idle:
        told.append(f"{', '.join(idle)}: nothing")
    return f"Tried: {'; '.join(told)}." if told else ""


def _more(resource: str) -> str:
    return resource if resource.startswith("shorter") else f"more {resource}"


def forms_note(baseline: str, devices: Sequence[Untouched]) -> list[str]:
    """Say why the network out of the box and the baseline differ; nothing where they are the same."""
    if baseline != BASE or not devices:
        return []
    return [
        f"{NONE}: as exported, what follows from the edges is derived in each inference (gather, scatter, "
        f"select); {BASE}: it comes ready-made from the CPU, as in GraNNite's baselines (suite granite)"
    ]


def single_numbers(variants: Sequence[Variant], devices: Sequence[Untouched]) -> list[str]:
    """Say of which times one uncertain number carries more than half, a sentence for each number."""
    shown = [d for d in devices if d.device != "npu" or NONE not in {v.techniques for v in variants}]
    rows = [(f"{NONE} on the {d.device.upper()}", d.rests_on) for d in shown]
    rows += [(v.techniques, v.rests_on) for v in variants]
    found: dict[str, list[tuple[str, RestsOn]]] = {}
    for name, on in rows:
        if on is not None:
            found.setdefault(on.number, []).append((name, on))
    lines = []
    for same in found.values():
        on = same[0][1]
        names = ", ".join(name for name, _ in same)
        lines.append(
            f"more than half of the time of {names} is one number: {on.number} = {on.value} "
            f"(+-{on.uncertainty:.0%}; {on.source})"
        )
    return lines


def notes_of(graph: Graph, soc: Soc, estimates: Sequence[Estimate]) -> list[str]:
    """Return caveats of a row: unmeasured numbers, and what compressed storage would give."""
    notes = list(dict.fromkeys(note for e in estimates for note in [*e.warnings, *e.provenance["notes"]]))
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


def uncertain_gains(variants: Sequence[Variant]) -> list[str]:
    """Say which number of the data sheet the gain of each what-if is most uncertain by."""
    found = []
    for technique in [name for name in technique_names() if get(name).what_if]:
        for v in variants:
            added = set(parse(v.techniques).names) - set(parse(v.step_from).names)
            if added == {technique} and v.step_interval is not None and v.step_uncertain_by:
                number, share = next(iter(v.step_uncertain_by.items()))
                step = factor(v.step_speedup or 1.0, last_digit(v.step_interval))
                gain = f"{step} ({factors(v.step_interval)})"
                why = f"uncertain most by {number} ({share:.0%} of the variance)"
                found.append(f"{technique} on {v.step_from} gives {gain}, {why}")
                break
    return found
