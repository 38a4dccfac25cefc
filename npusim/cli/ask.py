"""Commands that ask about a network: estimate, compare, whatif, advise, map, stream, show."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import npusim
from npusim.cli import options
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

    form = values["mapping_format"]
    saved = file_target(values["save_mapping"], "--save-mapping", (".yaml", ".yml"))
    if form and saved is None:
        raise ConfigError(f"`{form}`", file="--mapping-format", allowed="only with --save-mapping FILE")
    drawn = file_target(values["save_graph"], "--save-graph", tuple(WRITERS))
    if values["loops"] and not values["details"]:
        raise ConfigError("no --details", file="--loops", allowed="--details --loops")
    scenario = options.scenario_from(values, options.HOW).load()
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
        from npusim.mapping import FORMATS

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
        from npusim.reporting.estimate import estimate_page

        sensitivities: Sequence[Elasticity] = ()
        if advice:
            from npusim.engines.event import event_estimate
            from npusim.studies.elasticity import elasticities

            sensitivities = elasticities(scenario, event_estimate)
        page = estimate_page(result, details, lambda: scenario.mapped, sensitivities)
        if not values["loops"]:
            return page
        from dataclasses import replace

        from npusim.mapping import loop_lines, product_nests
        from npusim.reporting.page import Lines

        lines = [line for nest in product_nests(scenario.mapped) for line in loop_lines(nest)]
        return replace(page, sections=[*page.sections, Lines(lines, "Loop nests")])

    destination.write(result, page)


ESTIMATE = options.Command(
    "npusim.api.asking:estimate",
    {
        **options.ENGINE,
        "every_tile": options.option(),
        "interval": options.option(default=False, panel=options.OUTPUT),
        "sustained": options.option(default=False, panel=options.OUTPUT),
        "split": options.option("N", int, min=2, max=16, show_default=False),
        "details": options.option(
            help="Also show the latency by cause, phase, unit and block, control flow, energy by part, DRAM "
            "traffic by kind and what would remove it, SRAM over time and, for each operator, tiling, split "
            "and mode, reads and writes of SRAM and DRAM, power, and the roofline. HTML always holds them.",
            default=False,
            panel=options.OUTPUT,
        ),
        "trace": options.file_option(
            "Write the event engine's time line: .json for Perfetto, .html for a Gantt chart."
        ),
        "advice": options.option(
            help="Event engine: also show the sensitivity to each resource (about nine more simulations).",
            default=False,
            panel=options.OUTPUT,
        ),
        "save_mapping": options.file_option(
            "Write how each operator is mapped: loop nests, what stays in SRAM, units.", "FILE.yaml"
        ),
        "save_graph": options.file_option(
            "Write the graph with the costs of each operator: .onnx, .graphml or .dot.", "FILE"
        ),
        "mapping_format": options.option(
            help="Format of --save-mapping; --mapping reads npusim's own. None: npusim",
            default=None,
            choices=("npusim", "timeloop", "accelforge", "zigzag"),
            panel=options.OUTPUT,
        ),
        "loops": options.option(
            help="With --details: the loop nest of each product, line by line.",
            default=False,
            panel=options.OUTPUT,
        ),
        **options.WRITTEN,
    },
    fields=options.HOW,
    network=options.WORKLOAD,
    run=_estimate,
)

COMPARE = options.Command(
    "npusim.api.asking:compare",
    {
        "what": options.argument("A B ...", many=True, default=...),
        **options.ENGINE,
        "interval": options.option(
            "--interval/--no-interval", bool, show_default=False, panel=options.OUTPUT
        ),
        **options.WRITTEN,
    },
    fields=options.HOW,
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


WHATIF = options.Command(
    "npusim.api.asking:whatif",
    {
        "stacks": options.option("--stack LIST", autocompletion=options.complete_stacks),
        "over": options.option("PATH=V1,V2,...", many=True),
        **options.SEED,
        "html": options.file_option("Also write the waterfall, or the charts of --over, as one HTML file."),
        "scheduler": options.option(),
        "accuracy": options.option(),
        **options.DATA,
        **options.WRITTEN,
    },
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles", "device", "swap_operands", "first"),
    network=options.WORKLOAD,
    counted="",
    adapt=lambda values: values.update(over=parse_over(values["over"] or ())),
)

ADVISE = options.Command(
    "npusim.api.asking:advise",
    {
        "values": options.option("FILE.npz", Path, show_default=False),
        "export": options.option("FILE.xml", Path, panel=options.OUTPUT),
        "calibration": options.option("FILE.npz", Path, show_default=False),
        **options.DATA,
        "keep_answers": options.option("SHARE", min=0.0, max=1.0),
        "sizes": options.option("LIST|FILE", show_default=False),
        **options.SEED,
        **options.WRITTEN,
    },
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles"),
    network=options.WORKLOAD,
    page="npusim.reporting.advice:advice_page",
)

_PANEL = "Front of latency,energy"
_FRONT: dict[str, Any] = {"panel": _PANEL, "show_default": False}
DEVICES = {
    "devices": options.option(
        "LIST",
        show_default=False,
        autocompletion=lambda: ["npu,cpu,gpu", "npu,cpu", "npu,gpu", "cpu,gpu"],
    )
}
LIMITS = {
    "dvfs": options.option(**_FRONT),
    "max_latency": options.option("TIME", **_FRONT),
    "max_energy": options.option("ENERGY", **_FRONT),
    "max_power": options.option("POWER", **_FRONT),
    "max_transitions": options.option("K", int, min=0, **_FRONT),
    "max_share": options.option("DEVICE=SHARE", many=True, **_FRONT),
}
MAPPING = {"mapping": options.option("STRING", **_FRONT)}
EXPONENTS = {"exponents": options.option("E,L", panel=_PANEL)}
MAP = options.Command(
    "npusim.api.planning:map",
    {
        "minimise": options.option(),
        **DEVICES,
        "profiles": options.option("--profile FILE", Path, many=True, show_default=False),
        "granularity": options.option(show_default=False),
        **MAPPING,
        "split": options.option("N", int, min=2, max=16, show_default=False),
        **LIMITS,
        **EXPONENTS,
        "method": options.option(**_FRONT),
        "evaluations": options.option("N", min=1, panel=_PANEL),
        "seed": options.option("N", min=0, panel=_PANEL),
        **options.WRITTEN,
    },
    fields=_PLACED,
    network=options.WORKLOAD,
    counted="settings",
)

_STORED = "Batches with stored hidden features"


def _events(values: dict[str, Any]) -> None:
    values["updates"] = values.pop("events") or values["updates"]


STREAM = options.Command(
    "npusim.api.planning:stream",
    {
        "updates": options.option("N", min=1, max=100_000),
        "seed": options.option("N", min=0),
        "mix": options.option("EVENT=W,..."),
        "events": options.file_option(
            "CSV with update, event, count instead of a generated stream.", panel=None
        ),
        "capacity": options.option("N", int, min=1, max=10**9),
        "kept": options.option("N,N,..."),
        "batch": options.option("N", int, min=1),
        "accuracy": options.option(),
        **options.DATA,
        "inferences": options.option("K", min=1),
        "rates": options.option("U,R", show_default=False),
        "roots": options.option("N,N,...", panel=_STORED),
        "stored": options.option("SHARE,...", panel=_STORED),
        "age": options.option("N", int, min=0, panel=_STORED),
        "renew": options.option("N", int, min=1, panel=_STORED),
        "store": options.option("FILE", Path, panel=_STORED),
        **options.WRITTEN,
    },
    fields=("soc", "techniques", "settings", "hint", "requests", "tiles"),
    network=options.GNN,
    counted="estimates",
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
MIX = options.Command(
    "npusim.api.planning:mix",
    {
        "streams": options.argument(
            "STREAM...|FILE.yaml",
            list[str],
            help="A scenario file, or streams such as yolov8n:30/s,deadline=33ms (docs/mix.md).",
        ),
        "soc": options.option("NAME|FILE", autocompletion=options.complete_soc),
        "settings": options.SETTINGS,
        "scheduler": options.option("NAME"),
        "duration": options.option("TIME"),
        "requests": options.option("N", int, min=100, max=100_000_000),
        "seed": options.option("N", int, min=0),
        "find_rate": options.option("STREAM"),
        "over": options.option("PATH=V1,V2,...", many=True, panel=_DESIGNS),
        "changes": options.option(panel=_DESIGNS),
        "placements": options.option(panel=_DESIGNS),
        "minimise": options.option("LIST", panel=_DESIGNS),
        "judged": options.option("STREAM", panel=_DESIGNS, show_default=False),
        **options.QUIET,
        "trace": options.file_option("Write the times of service as a trace for Perfetto.", "FILE.json"),
        **options.WRITTEN,
    },
    run=_mix,
)


def _show(values: dict[str, Any]) -> None:
    from npusim.graph import graph_difference
    from npusim.reporting.graph_difference import difference_page
    from npusim.techniques import apply

    destination = Destination(values["output"], values["form"])
    scenario = options.scenario_from(values, ("techniques", "settings", "shapes"))
    graphs = scenario.graph, apply(scenario.baseline, values["after"])
    difference = graph_difference(*graphs)
    destination.write(difference, lambda: difference_page(difference, graphs))


SHOW = options.Command(
    "npusim.api.asking:show",
    {"after": options.option("STACK", autocompletion=options.complete_stack), **options.WRITTEN},
    fields=("techniques", "settings", "shapes"),
    network=options.WORKLOAD,
    run=_show,
)
