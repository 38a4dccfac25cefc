"""Comparison of technique stacks: the same network under one stack after another, on one machine."""

from __future__ import annotations

from collections.abc import Sequence

from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.mapping import Mapped
from npusim.metrics import METRICS
from npusim.scenario import Scenario
from npusim.studies.comparison import Skipped, Variant, WhatIf
from npusim.studies.uncertainty import SAMPLES, Draws, draw, method_of
from npusim.studies.verdict import conclusion_of, dominator_of, notes_of, rests_on
from npusim.techniques import parse


def whatif(scenario: Scenario, stacks: Sequence[str], *, samples: int = SAMPLES, seed: int = 0) -> WhatIf:
    """Estimate a network under several technique stacks.

    Parameters
    ----------
    scenario : Scenario
        Its own techniques are not looked at.
    stacks : sequence of str
        Technique stacks; the first that can be applied is the baseline.
    samples : int
        Machines drawn from the data sheet's uncertainties for the intervals; 0: no intervals.
    seed : int
        Seed of these draws.

    Raises
    ------
    IllegalTechniqueError
        When no stack can be applied; the message gives the first reason.
    InfeasibleError
        When those that can be applied do not fit into the SRAM; the first is told.

    Examples
    --------
    >>> whatif(Scenario("gcn-cora"), ["stagr", "stagr+symg"], samples=0).variants[1].step_from
    'stagr'
    """
    scenario.load()
    soc = scenario.machine
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
    estimates = [mapped_estimate(one) for one in mapped]
    draws = draw(mapped, samples, seed) if samples else None
    base = estimates[0]
    variants = [_variant(i, estimates, draws) for i in range(len(estimates))]
    notes = notes_of(scenario.baseline, soc, estimates)
    if draws is not None:
        notes += [method_of(soc, samples, seed), *rests_on(variants)]
    return WhatIf(
        workload=base.workload,
        soc=base.soc,
        hint=base.hint,
        requests=base.requests,
        tiles=base.tiles,
        npu_tiles=base.npu_tiles,
        contexts=base.contexts,
        baseline=base.techniques,
        over={},
        variants=variants,
        skipped=skipped,
        crossovers=[],
        notes=notes,
        conclusion=conclusion_of(soc, estimates),
    )


def step_from(stacks: Sequence[str], i: int) -> int | None:
    """Return the earlier stack that the i-th extends: its largest part, without what is last."""
    mine = parse(stacks[i])
    order = {str(step): place for place, step in enumerate(mine)}
    best: tuple[int, int] | None = None
    found = None
    for j in range(i):
        part = set(map(str, parse(stacks[j])))
        if part < set(order):
            rank = (len(part), min(order[step] for step in set(order) - part))
            if best is None or rank > best:
                best, found = rank, j
    return found


def _variant(i: int, estimates: Sequence[Estimate], draws: Draws | None) -> Variant:
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
        step_from=None if previous is None else previous.techniques,
        step_speedup=None if previous is None else e.throughput_per_s / previous.throughput_per_s,
        step_interval=None if draws is None or before is None else draws.speedup_interval(i, before),
        step_uncertain_by={} if draws is None or before is None else draws.sources(i, before),
        bound=e.bound,
        kept_in_sram=e.provenance["kept_in_sram"],
        dominated_by=dominator_of(e, estimates),
    )
