"""Comparison of technique stacks: the same network under one stack after another, on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from npusim.engines.analytical import estimate, mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import IllegalTechniqueError, InfeasibleError, NpusimError
from npusim.mapping import Mapped
from npusim.metrics import METRICS
from npusim.scenario import Scenario
from npusim.studies.comparison import Skipped, Untouched, Variant, WhatIf
from npusim.studies.document_head import RestsOn, head_of
from npusim.studies.elasticity import elasticities
from npusim.studies.uncertainty import SAMPLES, Draws, draw, method_of, rests_on
from npusim.studies.verdict import advice_of, conclusion_of, dominator_of, notes_of, uncertain_gains
from npusim.techniques import NONE, parse


def whatif(
    scenario: Scenario,
    stacks: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    alone: bool = False,
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
    advice = advice_of(tried, _rate_in_flight(on_best), best.throughput_per_s)
    return result.model_copy(update={"tried": tried, "conclusion": f"{result.conclusion} {advice}".strip()})


def compared(
    scenario: Scenario, stacks: Sequence[str], *, samples: int, seed: int, alone: bool = False
) -> tuple[WhatIf, Draws | None]:
    """Return a comparison without what more of the machine saves, and what was drawn: a row a variant."""
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
        _untouched(device, i, estimates, draws, rests[i]) for i, device in enumerate(hosts, len(mapped))
    ]
    notes = notes_of(scenario, of_stacks, variants, devices)
    if draws is not None:
        notes += [method_of(scenario.machine, samples, seed), *uncertain_gains(variants)]
    result = WhatIf(
        **head_of(base),
        baseline=base.techniques,
        devices=devices,
        over={},
        variants=variants,
        skipped=skipped,
        crossovers=[],
        notes=notes,
        conclusion=conclusion_of(variants, devices),
    )
    return result, draws


def _mapped(scenario: Scenario, stacks: Sequence[str]) -> tuple[list[Mapped], list[Skipped]]:
    """Map the network under each stack; return those that cannot be, too, and raise where none can."""
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
    """Return the inferences per second by the throughput hint; None where several are in flight anyway."""
    if scenario.run.requests > 1 or scenario.requests is not None:
        return None
    several = scenario.with_(hint="throughput")
    with suppress(InfeasibleError):
        return float(several.mapped.total["throughput_per_s"]) if several.run.requests > 1 else None
    return None


def step_from(stacks: Sequence[str], i: int) -> int | None:
    """Return the earlier stack that the i-th extends: its largest part, without what is last."""
    order = {str(step): place for place, step in enumerate(parse(stacks[i]))}
    parts = [set(map(str, parse(stack))) for stack in stacks[:i]]
    ranks = [
        (len(part), min(order[step] for step in set(order) - part), -j)
        for j, part in enumerate(parts)
        if part < set(order)
    ]
    return -max(ranks)[2] if ranks else None


def _untouched(
    device: str, i: int, estimates: Sequence[Estimate], draws: Draws | None, rests: RestsOn | None
) -> Untouched:
    e = estimates[i]
    return Untouched(
        device=device,
        **{name: getattr(e, name) for name in METRICS if name in Untouched.model_fields},
        latency_interval_s=None if draws is None else draws.latency_interval(i),
        speedup_throughput=e.throughput_per_s / estimates[0].throughput_per_s,
        speedup_interval=None if draws is None else draws.speedup_interval(i, 0),
        bound=e.bound,
        rests_on=rests,
    )


def _variant(i: int, estimates: Sequence[Estimate], draws: Draws | None, rests: RestsOn | None) -> Variant:
    e, base = estimates[i], estimates[0]
    before = step_from([each.techniques for each in estimates], i)
    previous = None if before is None else estimates[before]
    return Variant(
        techniques=e.techniques,
        stack=e.techniques,
        at={},
        **{name: getattr(e, name) for name in METRICS if name in Variant.model_fields},
        speedup_latency=base.latency_s / e.latency_s,
        speedup_throughput=e.throughput_per_s / base.throughput_per_s,
        speedup_interval=None if draws is None else draws.speedup_interval(i, 0),
        speedup_uncertain_by={} if draws is None else draws.sources(i, 0),
        latency_interval_s=None if draws is None else draws.latency_interval(i),
        rests_on=rests,
        step_from=None if previous is None else previous.techniques,
        step_speedup=None if previous is None else e.throughput_per_s / previous.throughput_per_s,
        step_interval=None if draws is None or before is None else draws.speedup_interval(i, before),
        step_uncertain_by={} if draws is None or before is None else draws.sources(i, before),
        bound=e.bound,
        launches=sum(part.launches for part in e.parts) or 1,
        compilation=e.compilation,
        kept_in_sram=e.provenance["kept_in_sram"],
        dominated_by=dominator_of(e, estimates),
    )
