"""Networks, SoCs or technique stacks side by side: totals with ratios, and operator by operator."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from npusim.arch import Soc, soc_names
from npusim.documents import Document, Part
from npusim.engines.document_head import Interval, Techniques
from npusim.engines.estimate import EnergyByPart, Estimate, OperatorCost
from npusim.errors import ConfigError, UnknownNameError
from npusim.files import read_text
from npusim.metrics import METRICS
from npusim.scenario import Scenario, name_of
from npusim.techniques import NONE, Stack, technique_names
from npusim.workloads import is_workload, workload_names

Kind = Literal["network", "soc", "techniques", "estimate"]
_KINDS: dict[Kind, str] = {
    "network": "networks",
    "soc": "SoCs",
    "techniques": "technique stacks",
    "estimate": "estimates",
}
_SOC_FILE = re.compile(r"^\s*[\"']?(?:schema[\"']?:\s*[\"']?npusim\.soc/|extends[\"']?:)", re.MULTILINE)


class ComparedOperator(Part):
    """One operator, by its name, in all runs."""

    name: str
    """Name in the graphs."""
    type: str
    """OpenVINO operation name."""
    runs: list[OperatorCost | None]
    """What it costs in each run, in their order; null where the run has no such operator by itself."""
    fused_into: list[str | None]
    """Operator that it is fused into, in each run; null where it is fused into none."""
    ratios: list[float | None]
    """Latency over that of the first run; null where one of the two is missing or takes no time."""


class ComparedRun(Part):
    """One of the things that are compared."""

    name: str
    """As it was given."""
    workload: str
    """Name of the network."""
    soc: str
    """Name of the SoC."""
    techniques: Techniques
    engine: str
    """Engine that made the estimate."""
    hint: str
    """Performance hint."""
    requests: int
    """Inferences in flight."""
    tiles: int
    """NPU tiles that an inference uses."""
    precision: str
    """Formats of its products."""
    bound: str
    """The unit that is busy the largest share of the time."""
    launch_s: float = 0.0
    """Time of the runtime before a device starts, in s; a part of the latency of one request."""
    figures: dict[str, float]
    """Metrics by name, in SI units, as the estimate has them."""
    intervals: dict[str, Interval] = Field(default_factory=dict)
    """90 % intervals of metrics by name, where the estimate has them."""
    energy: EnergyByPart
    """Energy by part."""
    ratios: dict[str, float | None]
    """Each metric over that of the first run; null where that is 0."""
    alone: list[str]
    """Operators that no other run has, by themselves or fused."""
    alone_s: float
    """Sum of their latencies, in s."""


class Comparison(Document):
    """Runs side by side; SI units throughout."""

    schema_: Literal["npusim.compare/1"] = Field("npusim.compare/1", alias="schema")
    differ_in: Kind
    """What differs from run to run."""
    runs: list[ComparedRun]
    """The first is what the others are compared with."""
    operators: list[ComparedOperator]
    """Operators that take time in a run, in order of execution of the first run that has them."""
    notes: list[str]
    """What the estimates rest on, and warn of."""


def compare(
    what: Sequence[Any],
    options: Mapping[str, Any],
    estimate: Callable[[Scenario], Estimate],
) -> Comparison:
    """Compare networks, SoCs, technique stacks, scenarios or finished estimates.

    Parameters
    ----------
    what : sequence
        Networks, SoCs and stacks, by name, file or as objects: several of one kind, and at most one of each
        other kind, which holds for all. Or scenarios, estimates and files of estimates (.json).
    options : mapping
        Further fields of `Scenario`; `soc` and `techniques` hold where `what` names none.
    estimate : callable
        Returns the estimate of a scenario.

    Raises
    ------
    ConfigError
        Where not exactly one kind of thing differs, something stands twice, or there is no network.
    UnknownNameError
        For a name that is neither network, SoC nor stack.
    """
    groups: dict[Kind, list[Any]] = {kind: [] for kind in _KINDS}
    for thing in what:
        groups[kind_of(thing)].append(thing)
    kind = _differing(groups)
    _refuse_twice(groups, options)
    names = [_name(thing, i) for i, thing in enumerate(groups[kind], start=1)]
    if kind == "estimate":
        loaded = [_loaded(thing) for thing in groups[kind]]
    else:
        common = dict(options) | {other: things[0] for other, things in groups.items() if things}
        loaded = [Scenario(**(common | {kind: thing})).load() for thing in groups[kind]]
    estimates = [estimate(run) if isinstance(run, Scenario) else run for run in loaded]
    return _compared(kind, list(zip(names, estimates, strict=True)))


def kind_of(thing: Any) -> Kind:
    """Return what something that is compared is."""
    if isinstance(thing, Soc):
        return "soc"
    if isinstance(thing, Stack):
        return "techniques"
    if isinstance(thing, Estimate | Scenario):
        return "estimate"
    if not isinstance(thing, str | Path):
        return "network"
    text = str(thing)
    ending = Path(text).suffix
    if ending in (".yaml", ".yml"):
        return "soc" if _SOC_FILE.search(read_text(Path(text).expanduser())) else "network"
    if ending == ".json":
        return "estimate"
    if text in soc_names():
        return "soc"
    if ending in (".xml", ".onnx") or is_workload(text):
        return "network"
    if "+" in text or text.partition(":")[0] in (NONE, *technique_names()):
        return "techniques"
    known = [*workload_names(), *soc_names(), NONE, *technique_names()]
    files = "or a file: .yaml, .xml, .onnx, or .json of `npusim estimate`"
    raise UnknownNameError("network, SoC or technique stack", text, known, files)


def _differing(groups: Mapping[Kind, Sequence[Any]]) -> Kind:
    """Return the kind of which there are several."""
    several = [kind for kind, things in groups.items() if len(things) > 1]
    counts = " and ".join(f"{len(groups[kind])} {_KINDS[kind]}" for kind in several)
    if groups["estimate"] and any(things for kind, things in groups.items() if kind != "estimate"):
        raise ConfigError("estimates beside names", allowed="estimates only, or names and files to estimate")
    if len(several) != 1:
        raise ConfigError(
            counts or "nothing that differs",
            allowed="two or more of one kind (networks, SoCs, technique stacks, or estimates); one of "
            "another holds for all, such as `npusim compare gcn-cora stagr stagr+quantgr`",
        )
    if not groups["network"] and not groups["estimate"]:
        raise ConfigError(counts, allowed="a network beside them, such as gcn-cora")
    return several[0]


def _refuse_twice(groups: Mapping[Kind, Sequence[Any]], options: Mapping[str, Any]) -> None:
    """Refuse a thing that is named a second time, or both as an argument and by an option."""
    for kind, things in groups.items():
        texts = [str(thing) for thing in things if isinstance(thing, str | Path)]
        for text in texts:
            if texts.count(text) > 1:
                raise ConfigError(f"`{text}` a second time", allowed="each of them once")
        if things and kind in options:
            given = f"`{options[kind]}` beside {', '.join(texts) or _KINDS[kind]}"
            allowed = f"{_KINDS[kind]} as arguments, or by the option"
            raise ConfigError(given, file=f"--{kind}", allowed=allowed)


def _loaded(thing: str | Path | Scenario | Estimate) -> Scenario | Estimate:
    if isinstance(thing, str | Path):
        return Estimate.read(thing, "npusim estimate")
    return thing.load() if isinstance(thing, Scenario) else thing


def _name(thing: Any, number: int) -> str:
    """Return the name of a run."""
    if isinstance(thing, str | Path | Stack):
        return str(thing)
    if isinstance(thing, Soc):
        return thing.name
    return f"run {number}" if isinstance(thing, Estimate | Scenario) else name_of(thing)


def _compared(kind: Kind, runs: Sequence[tuple[str, Estimate]]) -> Comparison:
    operators = [{o.name: o for o in e.operators if o.latency_s > 0.0} for _, e in runs]
    hosts = [{name: o.name for o in e.operators for name in o.fused} for _, e in runs]
    notes = dict.fromkeys(note for _, e in runs for note in [*e.warnings, *e.provenance.get("notes", [])])
    runs_by_operator = Counter(
        name for pair in zip(operators, hosts, strict=True) for name in {**pair[0], **pair[1]}
    )
    rows = []
    for (name, e), own in zip(runs, operators, strict=True):
        rows.append(_run(name, e, runs[0][1], [o for o in own.values() if runs_by_operator[o.name] == 1]))
    return Comparison(
        differ_in=kind,
        runs=rows,
        operators=[_operator(name, operators, hosts) for name in dict.fromkeys(chain(*operators))],
        notes=list(notes),
    )


def _run(name: str, e: Estimate, first: Estimate, alone: Sequence[OperatorCost]) -> ComparedRun:
    metrics = [metric for metric in METRICS if metric in Estimate.model_fields]
    shared = {*ComparedRun.model_fields} & {*Estimate.model_fields, "bound"}
    return ComparedRun(
        name=name,
        **{field: getattr(e, field) for field in shared - {"intervals"}},
        intervals=e.all_intervals,
        figures={metric: getattr(e, metric) for metric in metrics},
        ratios={metric: _ratio(getattr(e, metric), getattr(first, metric)) for metric in metrics},
        alone=[o.name for o in alone],
        alone_s=sum(o.latency_s for o in alone),
    )


def _operator(
    name: str, operators: Sequence[Mapping[str, OperatorCost]], hosts: Sequence[Mapping[str, str]]
) -> ComparedOperator:
    """Return one operator in all runs; `hosts` names the operator that each fused one is part of."""
    costs = [own.get(name) for own in operators]
    first = costs[0].latency_s if costs[0] is not None else 0.0
    return ComparedOperator(
        name=name,
        type=next(o.type for o in costs if o is not None),
        runs=costs,
        fused_into=[fused.get(name) for fused in hosts],
        ratios=[None if o is None else _ratio(o.latency_s, first) for o in costs],
    )


def _ratio(value: float, first: float) -> float | None:
    return value / first if first > 0.0 else None
