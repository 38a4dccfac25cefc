"""The page of advice on a network: techniques, places to rewrite, the stack to try."""

from __future__ import annotations

from npusim.reporting.engineering import percent
from npusim.reporting.page import Page, Remark, document_page
from npusim.reporting.tables import FOLD, Column, Table, fields, grouped, marked
from npusim.reporting.terminal import LongName, conditions
from npusim.studies.advice import Advice, TechniqueAdvice
from npusim.studies.agreement import Agreement

_MEANING = (
    "gain: inferences a second of the stack over those without the technique; today: whether a model file "
    "can hold it."
)
_DEPLOYMENTS = (
    "all nodes: time for the answers of all nodes; memory, peak: DRAM in use while the network runs, and "
    "while it is compiled; same: share of answers that samples keep."
)


def advice_page(result: Advice) -> Page:
    """Return the page of advice; the conclusion is the last line."""
    without = [one for one in result.techniques if one.verdict == "refused"]
    refused = [
        reason if reason.startswith(group[0].technique) else f"{_names(group)}: {reason}"
        for reason, group in grouped(without, lambda one: one.reason).items()
    ]
    able = [one for one in result.techniques if one.verdict != "refused"]
    not_today = [f"{one.technique}: {one.reason}" for one in able if one.reason]
    numerics = [f"{one.technique}: {one.numerics}" for one in result.techniques if one.verdict == "gains"]
    return document_page(
        result,
        "",
        conditions(result),
        [_stacks(result), _techniques(result), _deployments(result), _buckets(result)],
        [
            Remark("Results", numerics, "cyan"),
            Remark("Answers", [agreement_line(one) for one in result.agreement], "cyan"),
            Remark("Written", [f"{result.file}: {result.today.techniques}"] if result.file else [], "cyan"),
            Remark("Run", [result.benchmark] if result.benchmark else [], "cyan"),
            Remark("Not advised", _impossible(result), "yellow"),
            Remark("Rewrite", _rewritings(result), "yellow"),
            Remark("Not yet", not_today, "yellow"),
            Remark("Refused", refused),
        ],
    )


def _names(group: list[TechniqueAdvice]) -> str:
    return ", ".join(one.technique for one in group)


def _stacks(result: Advice) -> Table:
    stacks = {"as it is": result.as_it_is, "today": result.today, "with a compiler": result.with_compiler}
    if result.with_compiler.techniques == result.today.techniques:
        del stacks["with a compiler"]
    base = result.as_it_is
    rows = [
        {
            **dict(variant),
            "stack": f"{label}: {variant.techniques}",
            "gain": None if base is None else variant.throughput_per_s / base.throughput_per_s,
            "gain_interval": None if base is None else variant.speedup_interval,
        }
        for label, variant in stacks.items()
        if variant is not None
    ]
    columns = fields(
        "stack, latency_s, throughput_per_s: rate, energy_j, gain: times, gain_interval, accuracy"
    )
    today = [row for row in rows if str(row["stack"]).startswith("today")]
    return Table(columns, rows, name="stacks", style=marked(*today))


def _techniques(result: Advice) -> Table:
    columns = (
        *fields("technique, gain, gain_interval, today"),
        Column("", "in the stack", lambda one: LongName(one.stack or ""), layout=FOLD),
    )
    rows = [one for one in result.techniques if one.stack is not None]
    gaining = [one for one in rows if one.verdict == "gains"]
    return Table(columns, rows, name="gains", caption=_MEANING, style=marked(*gaining))


def _deployments(result: Advice) -> Table:
    columns = fields(
        "graph, device, techniques, all_nodes_s, memory_bytes, compile_s, compile_peak_bytes: peak, "
        "same_answers: same"
    )
    possible = [each for each in result.deployments if not each.problem]
    return Table(columns, possible, name="deployments", caption=_DEPLOYMENTS)


def _buckets(result: Advice) -> Table:
    columns = (
        Column("", "nodes of each bucket", lambda row: ", ".join(f"{n:,}" for n in row.capacities)),
        *fields("techniques, latency_s: mean latency, padding, compile_s, memory_bytes"),
    )
    advised = [row for row in result.buckets if row.advised]
    return Table(columns, result.buckets, name="buckets", style=marked(*advised))


def _impossible(result: Advice) -> list[str]:
    """Return the ways that cannot be advised, by reason; a refused technique has its reason elsewhere."""
    refused = {one.technique for one in result.techniques if one.verdict == "refused"}
    problems = [one for one in result.deployments if one.problem]
    named = [one for one in problems if one.graph != "whole" or one.techniques not in refused]
    lines = []
    for problem, group in grouped(named, lambda one: one.problem).items():
        ways = [f"{one.graph} {one.device} {one.techniques}" if one.device else one.graph for one in group]
        lines.append(f"{', '.join(ways)}: {problem}")
    return lines


def _rewritings(result: Advice) -> list[str]:
    """Return a line for each kind of rewriting, at the place that takes most time."""
    lines = []
    for opens, places in grouped(result.rewritings, lambda advice: tuple(advice.opens)).items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        regions = dict.fromkeys(f"{p.phase} of {p.block} {percent(p.region_share)}" for p in places)
        where = f"{places[0].operator}{more} (of the time: {', '.join(regions)})"
        lines.append(f"{where}: {places[0].what}. It opens {', '.join(opens)}")
    return lines


def agreement_line(one: Agreement) -> str:
    """Return how the answers of a file agree with the original's, on one line."""
    half = "" if one.same_answers_fp16 is None else f" ({percent(one.same_answers_fp16)} in fp16)"
    errors = "; ".join(
        f"{on.inputs}: error {on.error:.2g}, 99 % {on.error_p99:.2g}, median {on.error_median:.2g}"
        for on in one.on
    )
    rounded = "" if one.rounded_products is None else f"; {one.rounded_products} products in 8 bits"
    rounded += "; weights in fp32" if one.weights == "fp32" else ""
    return (
        f"{one.stack}: {percent(one.same_answers)} of the rows answer the same{half}{rounded}; errors as a "
        f"share of the largest output, computed in {one.precision} as by default: {errors}; in fp32: "
        f"{one.error_fp32:.2g}"
    )
