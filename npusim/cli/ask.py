"""Commands that ask about a network: estimate, compare, whatif, advise, map, stream, show."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import npusim
from npusim.cli.options import (
    DATA,
    ENGINE,
    GNN,
    HOW,
    OUTPUT,
    QUIET,
    SEED,
    SETTINGS,
    WORKLOAD,
    WRITTEN,
    Command,
    argument,
    complete_soc,
    complete_stack,
    complete_stacks,
    file_option,
    option,
    scenario_from,
)
from npusim.cli.output import Destination, Progress, file_target, write_html
from npusim.errors import ConfigError
from npusim.files import write_whole

if TYPE_CHECKING:
    from npusim.reporting.page import Page
    from npusim.studies.elasticity import Elasticity

_MOST_COMBINATIONS = 1_000
_PLACED = ("soc", "techniques", "settings", "shapes", "hint", "requests", "tiles")


def _estimate(values: dict[str, Any]) -> None:
    """Estimate, and show what the event engine's time line says."""
    destination = Destination(values["output"], values["form"])
    from npusim.engines.graph_files import WRITERS
    from npusim.mapping import FORMATS

    form = values["mapping_format"]
    saved = file_target(values["save_mapping"], "--save-mapping", (".yaml", ".yml"))
    if form and saved is None:
        raise ConfigError(f"`{form}`", file="--mapping-format", allowed="only with --save-mapping FILE")
    drawn = file_target(values["save_graph"], "--save-graph", tuple(WRITERS))
    if values["loops"] and not values["details"]:
        raise ConfigError("no --details", file="--loops", allowed="--details --loops")
    scenario = scenario_from(values, HOW).load()
    engine, details, advice = values["engine"], values["details"], values["advice"]
    for name, reason in {"trace": ", which has a time line", "advice": ""}.items():
        if values[name] and engine != "event":
            raise ConfigError(f"the {engine} engine", file=f"--{name}", allowed=f"--engine event{reason}")
    trace = file_target(values["trace"], "--trace", (".json", ".html"))
    every_tile, interval = values["every_tile"] or trace is not None, values["interval"] or None
    result = npusim.estimate(
        scenario,
        engine=engine,
        interval=interval,
        sustained=values["sustained"],
        split=values["split"],
        every_tile=every_tile,
    )
    if saved is not None:
        write_whole(saved, FORMATS[form or "npusim"](scenario.mapped).encode())
    if drawn is not None:
        write_whole(drawn, WRITERS[drawn.suffix](scenario.graph, result))
    if trace is not None and trace.suffix == ".html":
        from npusim.reporting.timeline import timeline_page

        write_html(trace, timeline_page(result.timeline).html)
    elif trace is not None:
        from npusim.engines.chrome_trace import chrome_trace

        write_whole(trace, chrome_trace(result.timeline).encode())

    def page() -> Page:
        from dataclasses import replace

        from npusim.mapping import loop_lines, product_nests
        from npusim.reporting.estimate import estimate_page
        from npusim.reporting.page import Lines

        sensitivities: Sequence[Elasticity] = ()
        if advice:
            from npusim.engines.event import event_estimate
            from npusim.studies.elasticity import elasticities

            sensitivities = elasticities(scenario, event_estimate)
        page = estimate_page(result, details, lambda: scenario.mapped, sensitivities)
        if not values["loops"]:
            return page
        lines = [line for nest in product_nests(scenario.mapped) for line in loop_lines(nest)]
        return replace(page, sections=[*page.sections, Lines(lines, "Loop nests")])

    destination.write(result, page)


ESTIMATE = Command(
    "npusim.api.asking:estimate",
    {
        **ENGINE,
        "every_tile": option(),
        "interval": option(default=False, panel=OUTPUT),
        "sustained": option(default=False, panel=OUTPUT),
        "split": option("N", int, min=2, max=16, show_default=False),
        "details": option(
            help="Also show the latency by cause, phase, unit and block, control flow, energy by part, DRAM "
            "traffic by kind and what would remove it, SRAM over time and, for each operator, tiling, split "
            "and mode, reads and writes of SRAM and DRAM, power, and the roofline. HTML always holds them.",
            default=False,
            panel=OUTPUT,
        ),
        "trace": file_option(
            "Write the event engine's time line: .json for Perfetto, .html for a Gantt chart."
        ),
        "advice": option(
            help="Event engine: also show the sensitivity to each resource (about nine more simulations).",
            default=False,
            panel=OUTPUT,
        ),
        "save_mapping": file_option(
            "Write how each operator is mapped: loop nests, what stays in SRAM, units.", "FILE.yaml"
        ),
        "save_graph": file_option(
            "Write the graph with the costs of each operator: .onnx, .graphml or .dot.", "FILE"
        ),
        "mapping_format": option(
            help="Format of --save-mapping; --mapping reads npusim's own. None: npusim",
            default=None,
            choices=("npusim", "timeloop", "accelforge", "zigzag"),
            panel=OUTPUT,
        ),
        "loops": option(
            help="With --details: the loop nest of each product, line by line.", default=False, panel=OUTPUT
        ),
        **WRITTEN,
    },
    fields=HOW,
    network=WORKLOAD,
    run=_estimate,
)

COMPARE = Command(
    "npusim.api.asking:compare",
    {
        "what": argument("A B ...", many=True, default=...),
        **ENGINE,
        "interval": option("--interval/--no-interval", bool, show_default=False, panel=OUTPUT),
        **WRITTEN,
    },
    fields=HOW,
    positional="what",
)


def parse_over(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each setting that is varied: ``npu.tiles=2,4`` and the like.

    Raises
    ------
    ConfigError
        Where a text is no ``PATH=V1,V2,...``, or a path or a value stands twice.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        path, equals, listed = (part.strip() for part in text.partition("="))
        values = [value.strip() for value in listed.split(",")]
        problem, allowed = "", "each path and each value once"
        if not equals or not path or not all(values):
            problem, allowed = f"`{text}`", "PATH=V1,V2,... such as npu.sram.per_tile=1MiB,2MiB"
        elif path in axes:
            problem = f"the path `{path}` a second time"
        elif len(set(values)) < len(values):
            problem = f"a value in `{text}` a second time"
        if problem:
            raise ConfigError(problem, file="--over", allowed=allowed)
        axes[path] = values
    combinations = prod(len(values) for values in axes.values())
    if combinations > _MOST_COMBINATIONS:
        allowed = f"at most {_MOST_COMBINATIONS:,}; `npusim sweep` evaluates more"
        raise ConfigError(f"{combinations:,} combinations", file="--over", allowed=allowed)
    return axes


WHATIF = Command(
    "npusim.api.asking:whatif",
    {
        "stacks": option("--stack LIST", autocompletion=complete_stacks),
        "over": option("PATH=V1,V2,...", many=True),
        **SEED,
        "html": file_option("Also write the waterfall, or the charts of --over, as one HTML file."),
        "scheduler": option(),
        "accuracy": option(),
        **DATA,
        **WRITTEN,
    },
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles", "device", "swap_operands", "first"),
    network=WORKLOAD,
    counted="",
    adapt=lambda values: values.update(over=parse_over(values["over"] or ())),
)

ADVISE = Command(
    "npusim.api.asking:advise",
    {
        "values": option("FILE.npz", Path, show_default=False),
        "export": option("FILE.xml", Path, panel=OUTPUT),
        "calibration": option("FILE.npz", Path, show_default=False),
        **DATA,
        "keep_answers": option("SHARE", min=0.0, max=1.0),
        **SEED,
        **WRITTEN,
    },
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles"),
    network=WORKLOAD,
    page="npusim.reporting.advice:advice_page",
)

_PANEL = "Front of latency,energy"
_FRONT: dict[str, Any] = {"panel": _PANEL, "show_default": False}
DEVICES = {
    "devices": option(
        "LIST",
        show_default=False,
        autocompletion=lambda: ["npu,cpu,gpu", "npu,cpu", "npu,gpu", "cpu,gpu"],
    )
}
LIMITS = {
    "dvfs": option(**_FRONT),
    "max_latency": option("TIME", **_FRONT),
    "max_energy": option("ENERGY", **_FRONT),
    "max_power": option("POWER", **_FRONT),
    "max_transitions": option("K", int, min=0, **_FRONT),
    "max_share": option("DEVICE=SHARE", many=True, **_FRONT),
}
MAPPING = {"mapping": option("STRING", **_FRONT)}
EXPONENTS = {"exponents": option("E,L", panel=_PANEL)}
MAP = Command(
    "npusim.api.planning:map",
    {
        "minimise": option(),
        **DEVICES,
        "profiles": option("--profile FILE", Path, many=True, show_default=False),
        "granularity": option(show_default=False),
        **MAPPING,
        "split": option("N", int, min=2, max=16, show_default=False),
        **LIMITS,
        **EXPONENTS,
        "method": option(**_FRONT),
        "evaluations": option("N", min=1, panel=_PANEL),
        "seed": option("N", min=0, panel=_PANEL),
        **WRITTEN,
    },
    fields=_PLACED,
    network=WORKLOAD,
    counted="settings",
)

_STORED = "Batches with stored hidden features"


def _events(values: dict[str, Any]) -> None:
    values["updates"] = values.pop("events") or values["updates"]


STREAM = Command(
    "npusim.api.planning:stream",
    {
        "updates": option("N", min=1, max=100_000),
        "seed": option("N", min=0),
        "mix": option("EVENT=W,..."),
        "events": file_option("CSV with update, event, count instead of a generated stream.", panel=None),
        "capacity": option("N", int, min=1, max=10**9),
        "kept": option("N,N,..."),
        "batch": option("N", int, min=1),
        "accuracy": option(),
        **DATA,
        "inferences": option("K", min=1),
        "rates": option("U,R", show_default=False),
        "roots": option("N,N,...", panel=_STORED),
        "stored": option("SHARE,...", panel=_STORED),
        "age": option("N", int, min=0, panel=_STORED),
        "renew": option("N", int, min=1, panel=_STORED),
        "store": option("FILE", Path, panel=_STORED),
        **WRITTEN,
    },
    fields=("soc", "techniques", "settings", "hint", "requests", "tiles"),
    network=GNN,
    adapt=_events,
)


def _mix(values: dict[str, Any]) -> None:
    destination = Destination(values.pop("output"), values.pop("form"))
    trace = file_target(values.pop("trace"), "--trace", (".json",))
    quiet, values["over"] = values.pop("quiet"), parse_over(values["over"] or ())
    if trace is not None and (values["over"] or values["changes"] or values["placements"]):
        raise ConfigError("`--trace`", file="mix", allowed="one design: no --over, --changes, --placements")
    with Progress("designs", quiet) as progress:
        result = npusim.mix(*values.pop("streams"), progress=progress, **values)
    if trace is not None:
        from npusim.engines.chrome_trace import spans_trace
        from npusim.system.document import MixResult

        assert isinstance(result, MixResult)  # several designs with a trace are refused above
        tracks = [(s.device, f"{s.stream} {s.number}", s.stream, s.begin_s, s.end_s) for s in result.spans]
        write_whole(trace, spans_trace(tracks).encode())
    destination.write(result)


_DESIGNS = "Several designs"
MIX = Command(
    "npusim.api.planning:mix",
    {
        "streams": argument(
            "STREAM...|FILE.yaml",
            list[str],
            help="A scenario file, or streams such as yolov8n:30/s,deadline=33ms (docs/mix.md).",
        ),
        "soc": option("NAME|FILE", autocompletion=complete_soc),
        "settings": SETTINGS,
        "scheduler": option("NAME"),
        "duration": option("TIME"),
        "requests": option("N", int, min=100, max=100_000_000),
        "seed": option("N", int, min=0),
        "find_rate": option("STREAM"),
        "over": option("PATH=V1,V2,...", many=True, panel=_DESIGNS),
        "changes": option(panel=_DESIGNS),
        "placements": option(panel=_DESIGNS),
        "minimise": option("LIST", panel=_DESIGNS),
        "judged": option("STREAM", panel=_DESIGNS, show_default=False),
        **QUIET,
        "trace": file_option("Write the times of service as a trace for Perfetto.", "FILE.json"),
        **WRITTEN,
    },
    run=_mix,
)


def _show(values: dict[str, Any]) -> None:
    from npusim.graph import graph_difference
    from npusim.reporting.graph_difference import difference_page
    from npusim.techniques import apply

    destination = Destination(values["output"], values["form"])
    scenario = scenario_from(values, ("techniques", "settings", "shapes"))
    graphs = scenario.graph, apply(scenario.baseline, values["after"])
    difference = graph_difference(*graphs)
    destination.write(difference, lambda: difference_page(difference, graphs))


SHOW = Command(
    "npusim.api.asking:show",
    {"after": option("STACK", autocompletion=complete_stack), **WRITTEN},
    fields=("techniques", "settings", "shapes"),
    network=WORKLOAD,
    run=_show,
)
