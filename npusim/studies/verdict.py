"""What a comparison says in words: conclusion, notes, dominated stacks.

Every sentence follows from the numbers of the estimates and the switches of the SoC.
"""

from __future__ import annotations

from collections.abc import Sequence

from npusim.engines.estimate import Estimate
from npusim.ops import Annotation, Role, Storage, stored_bytes
from npusim.rounding import factor, factors, last_digit
from npusim.scenario import Scenario
from npusim.studies.comparison import Untouched, Variant
from npusim.studies.document_head import RestsOn
from npusim.studies.elasticity import Elasticity
from npusim.techniques import BASE, NONE, apply, get, parse, technique_names, technique_with

_LEAST_SAVING = 0.005
"""Least share of the time whose saving is reported."""
_MOST_NAMED = 3
"""Resources that the conclusion names with what they save."""
_SAME = 1e-9
"""Relative difference below which two figures count as equal."""


def dominator_of(e: Estimate, others: Sequence[Estimate]) -> str | None:
    """Return the fastest stack that makes `e` pointless, or None.

    It is at least as good in time, energy and DRAM traffic and better in one, gives the same results, and
    does not merely add to the stack of `e`.
    """
    names = _names(e.techniques)
    alternatives = [
        o
        for o in others
        if not _names(o.techniques) >= names and _inexact(_names(o.techniques)) == _inexact(names)
    ]
    better = [o for o in alternatives if _dominates(o, e)]
    return min(better, key=lambda o: 1.0 / o.throughput_per_s).techniques if better else None


def _names(stack: str | None) -> set[str]:
    return set(parse(stack).names)


def _inexact(names: set[str]) -> set[str]:
    return {name for name in names if not get(name).exact}


def _dominates(a: Estimate, b: Estimate) -> bool:
    figures = ((1.0 / e.throughput_per_s, e.latency_s, e.energy_j, e.dram_bytes) for e in (a, b))
    pairs = list(zip(*figures, strict=True))
    return all(x <= y * (1 + _SAME) for x, y in pairs) and any(x < y * (1 - _SAME) for x, y in pairs)


def conclusion_of(variants: Sequence[Variant], devices: Sequence[Untouched]) -> str:
    """Return a sentence: the best stack, the best that runs today, against the baseline and a host."""
    base, best = variants[0], max(variants, key=_rate)
    today = max((v for v in variants if not _is_what_if(v)), key=_rate, default=best)
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


def _is_what_if(v: Variant) -> bool:
    """Return whether nobody offers a technique of a stack today, or not on a host that runs it."""
    on_host = not v.bound.startswith("npu")
    return any(get(name).what_if or (on_host and get(name).host_note) for name in _names(v.techniques))


def _gain(v: Variant) -> str:
    return factor(v.speedup_throughput, last_digit(v.speedup_interval))


def advice_of(tried: Sequence[Elasticity], in_flight: float | None, rate: float) -> str:
    """Say what more of each resource saved in the simulations that had it.

    Parameters
    ----------
    tried : sequence of Elasticity
        The most helpful first.
    in_flight : float or None
        Inferences per second with several requests in flight; None: not tried.
    rate : float
        Inferences per second as they are.
    """
    helpful = [e for e in tried[:_MOST_NAMED] if e.gain >= _LEAST_SAVING]
    savings = [f"{e.more:.0%} {_more(e.resource)} saves {e.gain:.1%}" for e in helpful]
    if in_flight is not None and in_flight > (1.0 + _LEAST_SAVING) * rate:
        gain = f"{in_flight / rate:.2g}x the rate"
        savings.append(f"several requests in flight (--hint throughput) give {gain}")
    idle = [_more(e.resource) for e in tried if abs(e.gain) < _LEAST_SAVING]
    if idle:
        savings.append(f"{', '.join(idle)}: nothing")
    return f"Tried: {'; '.join(savings)}." if savings else ""


def _more(resource: str) -> str:
    return resource if resource.startswith("shorter") else f"more {resource}"


def notes_of(
    scenario: Scenario,
    estimates: Sequence[Estimate],
    variants: Sequence[Variant],
    devices: Sequence[Untouched],
) -> list[str]:
    """Return the caveats of a comparison.

    Why the network out of the box and the baseline differ, times that are mostly one uncertain number,
    numbers that were not measured, and what compressed storage would give.
    """
    notes = []
    if variants[0].techniques == BASE and devices:
        notes.append(
            f"{NONE}: as exported, what follows from the edges is derived in each inference (gather, "
            f"scatter, select); {BASE}: it comes ready-made from the CPU, as in GraNNite's baselines "
            "(suite granite)"
        )
    notes += _single_numbers(variants, devices)
    notes += dict.fromkeys(note for e in estimates for note in [*e.warnings, *e.provenance["notes"]])
    triangle = technique_with(annotation=Annotation.TRIANGLE).name
    symmetric = [e for e in estimates if triangle in _names(e.techniques)]
    return [*notes, *(_triangle_against_zvc(scenario, e, triangle) for e in symmetric[:1])]


def _single_numbers(variants: Sequence[Variant], devices: Sequence[Untouched]) -> list[str]:
    """Return which times one uncertain number carries more than half of, a sentence for each number."""
    shown = [d for d in devices if d.device != "npu" or NONE not in {v.techniques for v in variants}]
    rows = [(f"{NONE} on the {d.device.upper()}", d.rests_on) for d in shown]
    rows += [(v.techniques, v.rests_on) for v in variants]
    by_number: dict[str, tuple[RestsOn, list[str]]] = {}
    for name, number in rows:
        if number is not None:
            by_number.setdefault(number.number, (number, []))[1].append(name)
    return [
        f"more than half of the time of {', '.join(names)} is one number: {number.number} = {number.value} "
        f"(+-{number.uncertainty:.0%}; {number.source})"
        for number, names in by_number.values()
    ]


def _triangle_against_zvc(scenario: Scenario, e: Estimate, triangle: str) -> str:
    """Compare the two ways to store the aggregation matrix, and say what the hardware can use of them."""
    norms = apply(scenario.baseline, e.techniques).with_role(Role.NORM)
    norm, soc = next(t for t in norms if t.storage is Storage.TRIANGLE), scenario.machine
    packed = stored_bytes(norm.elements, norm.dtype, Storage.ZVC, norm.density, norm.shape[-1])
    compressed = technique_with(annotation=Annotation.COMPRESSED).name
    text = (
        f"the norm matrix takes {norm.bytes / 1e6:.2f} MB dense, "
        f"{norm.stored_bytes / 1e6:.2f} MB as a triangle ({triangle}), {packed / 1e6:.2f} MB with a bitmap "
        f"({compressed})"
    )
    if not soc.has("npu"):
        return text
    setting = "npu.sparsity.decompress_activations"
    if soc.npu.sparsity.decompress_activations:
        return f"{text}: with {setting} {compressed} moves the least, and {triangle} is dominated by it"
    return (
        f"{text}; this SoC cannot decompress activations, so {compressed} saves no traffic here: "
        f"--set {setting}=true shows what it would save"
    )


def uncertain_gains(variants: Sequence[Variant]) -> list[str]:
    """Say which number of the data sheet the gain of each what-if is most uncertain by."""
    lines = []
    for technique in [name for name in technique_names() if get(name).what_if]:
        for v in variants:
            added = _names(v.techniques) - _names(v.step_from)
            if added == {technique} and v.step_interval is not None and v.step_uncertain_by:
                number, share = next(iter(v.step_uncertain_by.items()))
                step = factor(v.step_speedup or 1.0, last_digit(v.step_interval))
                gain = f"{step} ({factors(v.step_interval)})"
                why = f"uncertain most by {number} ({share:.0%} of the variance)"
                lines.append(f"{technique} on {v.step_from} gives {gain}, {why}")
                break
    return lines
