"""Comparison of technique stacks: the same network under one stack after another, on one machine.

Every sentence of the conclusion and notes follows from numbers of the estimates and switches of the SoC.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from npusim.documents import Part
from npusim.engines.analytical import estimate, mapped_estimate
from npusim.engines.document_head import RestsOn, head_of
from npusim.engines.estimate import Estimate
from npusim.errors import IllegalTechniqueError, InfeasibleError, NpusimError
from npusim.mapping import Mapped
from npusim.metrics import METRICS, SAMPLES
from npusim.ops import Annotation, Role, Storage, stored_bytes
from npusim.rounding import factor, factors, last_digit
from npusim.scenario import Scenario
from npusim.studies.comparison import Skipped, Untouched, Variant, WhatIf
from npusim.studies.elasticity import Elasticity, PerfectScheduler, elasticities, perfect_scheduler
from npusim.studies.uncertainty import Draws, draw, method_of, rests_on
from npusim.techniques import BASE, NONE, apply, get, parse, technique_names, technique_with

_LEAST_SAVING = 0.005
"""Least share of the time whose saving is reported."""
_MOST_NAMED = 3
"""Resources that the conclusion names with what they save."""
_SAME = 1e-9
"""Relative difference below which two figures count as equal."""


def whatif(
    scenario: Scenario,
    stacks: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    alone: bool = False,
    is_scheduled: bool = False,
) -> WhatIf:
    """Estimate a network under several technique stacks.

    Parameters
    ----------
    scenario : Scenario
        Its own techniques are ignored.
    stacks : sequence of str
        Technique stacks; the first that can be applied is the baseline.
    samples, seed : int
        Machines drawn from the data sheet's uncertainties for the intervals (0: none), and their seed.
    alone : bool
        Stacks alone: neither the untouched network on each device nor what more of the machine would save.
    is_scheduled : bool
        Also the best stack under a perfect scheduler.

    Raises
    ------
    IllegalTechniqueError
        When no stack can be applied; the message gives the first reason.
    InfeasibleError
        When those that can be applied do not fit into the SRAM; the message names the first.

    Examples
    --------
    >>> whatif(Scenario("gcn-cora"), ["stagr", "stagr+symg"], samples=0).variants[1].step_from
    'stagr'
    """
    result, _ = compared(scenario, stacks, samples=samples, seed=seed, alone=alone)
    if alone:
        return result
    best = max(result.variants, key=lambda variant: variant.throughput_per_s)
    on_best = scenario.with_(techniques=best.techniques)
    tried = elasticities(on_best, estimate)
    scheduler = perfect_scheduler(on_best) if is_scheduled else None
    advice = _advice_of(tried, _rate_in_flight(on_best), best.throughput_per_s, scheduler)
    conclusion = f"{result.conclusion} {advice}".strip()
    return result.model_copy(update={"tried": tried, "scheduler": scheduler, "conclusion": conclusion})


def compared(
    scenario: Scenario, stacks: Sequence[str], *, samples: int, seed: int, alone: bool = False
) -> tuple[WhatIf, Draws | None]:
    """Return a comparison of stacks without sensitivities, and the draws: one row per variant or device."""
    scenario.load()
    mapped, skipped = _mapped(scenario, stacks)
    hosts = {} if alone else _on_devices(scenario)
    graphs = [*mapped, *hosts.values()]
    estimates = [mapped_estimate(graph) for graph in graphs]
    base, of_stacks = estimates[0], estimates[: len(mapped)]
    draws = draw(graphs, samples, seed) if samples else None
    rests = [None if draws is None else rests_on(graph, draws, i) for i, graph in enumerate(graphs)]
    variants = [_variant(i, of_stacks, draws, rests[i]) for i in range(len(mapped))]
    devices = [
        Untouched(device=device, **_figures(Untouched, i, estimates, draws, rests[i]))
        for i, device in enumerate(hosts, len(mapped))
    ]
    notes = _notes_of(scenario, of_stacks, variants, devices)
    if draws is not None:
        notes += [method_of(scenario.machine, samples, seed), *_uncertain_gains(variants)]
    result = WhatIf(
        **head_of(base),
        baseline=base.techniques,
        devices=devices,
        over={},
        variants=variants,
        skipped=skipped,
        crossovers=[],
        notes=notes,
        conclusion=_conclusion_of(variants, devices),
    )
    return result, draws


def _mapped(scenario: Scenario, stacks: Sequence[str]) -> tuple[list[Mapped], list[Skipped]]:
    """Map the network under each stack; return mapped graphs and skipped stacks, or raise if all fail."""
    mapped: list[Mapped] = []
    skipped: list[Skipped] = []
    too_large: InfeasibleError | None = None
    for stack in dict.fromkeys(stacks):
        try:
            mapped.append(scenario.with_(techniques=stack).mapped)
        except IllegalTechniqueError as error:
            skipped.append(Skipped(techniques=stack, reason=error.reason))
        except InfeasibleError as error:
            too_large = too_large or error
            skipped.append(Skipped(techniques=stack, reason=str(error)))
    if not mapped:
        raise too_large or IllegalTechniqueError(skipped[0].techniques, skipped[0].reason)
    return mapped, skipped


def _on_devices(scenario: Scenario) -> dict[str, Mapped]:
    """Map the network without techniques to each device that can run it, the NPU last."""
    mapped = {}
    for device in (*scenario.machine.hosts, *scenario.machine.array_devices):
        with suppress(NpusimError):
            mapped[device] = scenario.with_(techniques=NONE, device=device).mapped
    return mapped


def _rate_in_flight(scenario: Scenario) -> float | None:
    """Return the inferences per second under the throughput hint; None where it changes nothing."""
    if scenario.run.requests > 1 or scenario.requests is not None:
        return None
    several = scenario.with_(hint="throughput")
    with suppress(InfeasibleError):
        return float(several.mapped.total["throughput_per_s"]) if several.run.requests > 1 else None
    return None


def step_from(stacks: Sequence[str], i: int) -> int | None:
    """Return the earlier stack that the i-th extends: the largest subset, without its last techniques."""
    order = {str(step): place for place, step in enumerate(parse(stacks[i]))}
    parts = [set(map(str, parse(stack))) for stack in stacks[:i]]
    ranks = [
        (len(part), min(order[step] for step in set(order) - part), -j)
        for j, part in enumerate(parts)
        if part < set(order)
    ]
    return -max(ranks)[2] if ranks else None


def _figures(
    row: type[Part], i: int, estimates: Sequence[Estimate], draws: Draws | None, rests: RestsOn | None
) -> dict[str, Any]:
    """Return what a stack and the untouched network both have: metrics, speed-up, intervals, bound."""
    e = estimates[i]
    return {
        **{name: getattr(e, name) for name in METRICS if name in row.model_fields},
        "latency_interval_s": None if draws is None else draws.latency_interval(i),
        "energy_interval_j": None if draws is None else draws.metric_interval("energy_j", i),
        "speedup_throughput": e.throughput_per_s / estimates[0].throughput_per_s,
        "speedup_interval": None if draws is None else draws.speedup_interval(i, 0),
        "bound": e.bound,
        "rests_on": rests,
    }


def _variant(i: int, estimates: Sequence[Estimate], draws: Draws | None, rests: RestsOn | None) -> Variant:
    e = estimates[i]
    before = step_from([each.techniques for each in estimates], i)
    previous = None if before is None else estimates[before]
    return Variant(
        techniques=e.techniques,
        stack=e.techniques,
        at={},
        **_figures(Variant, i, estimates, draws, rests),
        dram=e.dram,
        speedup_latency=estimates[0].latency_s / e.latency_s,
        speedup_uncertain_by={} if draws is None else draws.sources(i, 0),
        step_from=None if previous is None else previous.techniques,
        step_speedup=None if previous is None else e.throughput_per_s / previous.throughput_per_s,
        step_interval=None if draws is None or before is None else draws.speedup_interval(i, before),
        step_uncertain_by={} if draws is None or before is None else draws.sources(i, before),
        launch_s=e.launch_s,
        launches=sum(part.launches for part in e.parts) or 1,
        compilation=e.compilation,
        kept_in_sram=e.provenance["kept_in_sram"],
        dominated_by=_dominator_of(e, estimates),
    )


def _dominator_of(e: Estimate, others: Sequence[Estimate]) -> str | None:
    """Return the fastest stack that dominates `e`, gives the same results and does not extend its stack."""
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


def _conclusion_of(variants: Sequence[Variant], devices: Sequence[Untouched]) -> str:
    """Return a sentence: the best stack, the best that runs today, against the baseline and a host."""
    base, best = variants[0], max(variants, key=_rate)
    today = max((v for v in variants if not _is_what_if(v)), key=_rate, default=best)
    against = f", {_gain(best)} as fast as {base.techniques}" if best is not base else ""
    parts = [f"Best: {best.techniques}{against}"]
    if today is not best:
        gain = f" ({_gain(today)})" if today is not base else ""
        parts.append(f"best today: {today.techniques}{gain}")
    host = max((d for d in devices if d.device != "npu"), key=_rate, default=None)
    if host is not None and len(devices) > 1:
        ratio = _rate(today) / _rate(host)
        parts[-1] += f", {ratio:.2g}x as fast as the untouched network on the {host.device.upper()}"
    return f"{'; '.join(parts)}."


def _rate(row: Variant | Untouched) -> float:
    return row.throughput_per_s


def _is_what_if(v: Variant) -> bool:
    """Return whether a technique of a stack is not available today on the device that runs it."""
    on_host = not v.bound.startswith("npu")
    return any(get(name).what_if or (on_host and get(name).host_note) for name in _names(v.techniques))


def _gain(v: Variant) -> str:
    return factor(v.speedup_throughput, last_digit(v.speedup_interval))


def _advice_of(
    tried: Sequence[Elasticity], in_flight: float | None, rate: float, scheduler: PerfectScheduler | None
) -> str:
    """Return a sentence on the time that more of each resource, requests or a better compiler save."""
    helpful = [e for e in tried[:_MOST_NAMED] if e.gain >= _LEAST_SAVING]
    savings = [f"{e.more:.0%} {_more(e.resource)} saves {e.gain:.1%}" for e in helpful]
    if in_flight is not None and in_flight > (1.0 + _LEAST_SAVING) * rate:
        gain = f"{in_flight / rate:.2g}x the rate"
        savings.append(f"several requests in flight (--hint throughput) give {gain}")
    if scheduler is not None and scheduler.gain >= _LEAST_SAVING:
        savings.append(
            f"a perfect scheduler ({', '.join(scheduler.settings)}) saves {scheduler.gain:.1%}, "
            f"and none can save more than {scheduler.least_gain:.0%}"
        )
    idle = [_more(e.resource) for e in tried if abs(e.gain) < _LEAST_SAVING]
    if idle:
        savings.append(f"{', '.join(idle)}: nothing")
    return f"Tried: {'; '.join(savings)}." if savings else ""


def _more(resource: str) -> str:
    return resource if resource.startswith("shorter") else f"more {resource}"


def _notes_of(
    scenario: Scenario,
    estimates: Sequence[Estimate],
    variants: Sequence[Variant],
    devices: Sequence[Untouched],
) -> list[str]:
    """Return the caveats of a comparison: forms of the network, uncertain numbers, compressed storage."""
    notes = []
    if variants[0].techniques == BASE and devices:
        notes.append(
            f"{NONE}: as exported, what follows from the edges is derived in each inference (gather, "
            f"scatter, select); {BASE}: it comes ready-made from the CPU, one step beyond GraNNite's "
            "baseline (--stack paper)"
        )
    notes += _single_numbers(variants, devices)
    notes += dict.fromkeys(note for e in estimates for note in [*e.warnings, *e.provenance["notes"]])
    triangle = technique_with(annotation=Annotation.TRIANGLE).name
    symmetric = [e for e in estimates if triangle in _names(e.techniques)]
    return [*notes, *(_triangle_against_zvc(scenario, e, triangle) for e in symmetric[:1])]


def _single_numbers(variants: Sequence[Variant], devices: Sequence[Untouched]) -> list[str]:
    """Return a sentence per uncertain number that carries more than half of some time."""
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
    """Return a sentence on the two ways to store the aggregation matrix, and the hardware's limits."""
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


def _uncertain_gains(variants: Sequence[Variant]) -> list[str]:
    """Return a sentence per what-if: its gain, and the number that makes the gain most uncertain."""
    lines = []
    for technique in [name for name in technique_names() if get(name).what_if]:
        for v in variants:
            added = _names(v.techniques) - _names(v.step_from)
            if added == {technique} and v.step_uncertain_by and (interval := factors(v.step_interval)):
                number, share = next(iter(v.step_uncertain_by.items()))
                step = factor(v.step_speedup or 1.0, last_digit(v.step_interval))
                why = f"uncertain most by {number} ({share:.0%} of the variance)"
                lines.append(f"{technique} on {v.step_from} gives {step} ({interval}), {why}")
                break
    return lines
