"""Commands that ask about a network: estimate, compare, whatif, advise, map, mix, stream, show."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import npusim
from npusim.cli import options
from npusim.cli.options import OUTPUT, Command, option
from npusim.cli.output import Destination, Progress, file_target, write_html
from npusim.errors import ConfigError
from npusim.files import write_whole

if TYPE_CHECKING:
    from npusim.reporting.page import Page
    from npusim.studies.elasticity import Elasticity

_MOST_COMBINATIONS = 1_000
_PLACED = ("soc", "techniques", "settings", "shapes", "hint", "requests", "tiles")


def _estimate(values: dict[str, Any]) -> None:
    """Estimate, and show what the event engine's time line says.

    Parameters
    ----------
    details : bool
        Also show the latency by cause, phase, unit and block, control flow, energy by part, DRAM traffic by
        kind and what would remove it, SRAM over time and, for each operator, tiling, split and mode, reads
        and writes of SRAM and DRAM, power, and the roofline. HTML always holds them.
    trace : Path, optional
        Write the event engine's time line: .json for Perfetto, .html for a Gantt chart.
    advice : bool
        Event engine: also show the sensitivity to each resource (about nine more simulations).
    save_mapping : Path, optional
        Write how each operator is mapped: loop nests, what stays in SRAM, units.
    save_graph : Path, optional
        Write the graph with the costs of each operator: .onnx, .graphml or .dot.
    mapping_format : {"npusim", "timeloop", "accelforge", "zigzag"}, optional
        Format of --save-mapping; --mapping reads npusim's own. None: npusim
    loops : bool
        With --details: the loop nest of each product, line by line.
    """
    destination = Destination(values["output"], values["form"])
    from npusim.engines.graph_files import WRITERS

    form, engine = values["mapping_format"], values["engine"]
    saved = file_target(values["save_mapping"], "--save-mapping", (".yaml", ".yml"))
    drawn = file_target(values["save_graph"], "--save-graph", tuple(WRITERS))
    scenario = options.scenario_from(values, options.HOW)
    if form and saved is None:
        raise ConfigError(f"`{form}`", file="--mapping-format", allowed="only with --save-mapping FILE")
    if values["loops"] and not values["details"]:
        raise ConfigError("no --details", file="--loops", allowed="--details --loops")
    scenario.load()
    for name, reason in {"trace": ", which has a time line", "advice": ""}.items():
        if values[name] and engine != "event":
            raise ConfigError(f"the {engine} engine", file=f"--{name}", allowed=f"--engine event{reason}")
    trace = file_target(values["trace"], "--trace", (".json", ".html"))
    result = npusim.estimate(
        scenario,
        engine=engine,
        interval=values["interval"] or None,
        sustained=values["sustained"],
        split=values["split"],
        every_tile=values["every_tile"] or trace is not None,
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
        if values["advice"]:
            from npusim.engines.event import event_estimate
            from npusim.studies.elasticity import elasticities

            sensitivities = elasticities(scenario, event_estimate)
        page = estimate_page(result, values["details"], lambda: scenario.mapped, sensitivities)
        if not values["loops"]:
            return page
        from dataclasses import replace

        from npusim.mapping import loop_lines, product_nests
        from npusim.reporting.page import Lines

        lines = [line for nest in product_nests(scenario.mapped) for line in loop_lines(nest)]
        return replace(page, sections=[*page.sections, Lines(lines, "Loop nests")])

    destination.write(result, page)


ESTIMATE = Command(
    "npusim.api.asking:estimate",
    {
        **options.ENGINE,
        **options.by_name("every_tile split"),
        **options.by_name("interval", OUTPUT, default=False),
        **options.by_name("sustained details trace=FILE advice save_mapping=FILE.yaml", OUTPUT),
        **options.by_name("save_graph=FILE mapping_format loops", OUTPUT),
        **options.WRITTEN,
    },
    fields=options.HOW,
    network=options.WORKLOAD,
    run=_estimate,
)

COMPARE = Command(
    "npusim.api.asking:compare",
    {
        "what": options.argument("A B ...", many=True, default=...),
        **options.ENGINE,
        **options.by_name("interval", OUTPUT),
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

    def parsed(text: str) -> tuple[str, list[str]]:
        path, _, listed = (part.strip() for part in text.partition("="))
        values = [value.strip() for value in listed.split(",")]
        if not path or not all(values):
            allowed = "PATH=V1,V2,... such as npu.sram.per_tile=1MiB,2MiB"
            raise ConfigError(f"`{text}`", file="--over", allowed=allowed)
        if len(set(values)) < len(values):
            found = f"a value in `{text}` a second time"
            raise ConfigError(found, file="--over", allowed="each path and each value once")
        return path, values

    axes = options.each_once(map(parsed, texts), "--over", "path")
    combinations = prod(map(len, axes.values()))
    if combinations > _MOST_COMBINATIONS:
        allowed = f"at most {_MOST_COMBINATIONS:,}; `npusim sweep` evaluates more"
        raise ConfigError(f"{combinations:,} combinations", file="--over", allowed=allowed)
    return axes


def _over(values: dict[str, Any]) -> None:
    """Read the values of --over.

    Parameters
    ----------
    html : Path, optional
        Also write the waterfall, or the charts of --over, as one HTML file.
    """
    values["over"] = parse_over(values["over"] or ())


WHATIF = Command(
    "npusim.api.asking:whatif",
    {
        "stacks": option("--stack LIST", autocompletion=options.complete_stacks),
        **options.by_name("over=PATH=V1,V2,... seed scheduler accuracy data=DIR"),
        **options.by_name("html=FILE", OUTPUT),
        **options.WRITTEN,
    },
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles", "device", "swap_operands", "first"),
    network=options.WORKLOAD,
    counted="",
    adapt=_over,
)

ADVISE = Command(
    "npusim.api.asking:advise",
    {
        **options.by_name("values=FILE.npz calibration=FILE.npz data=DIR keep_answers sizes=LIST|FILE seed"),
        **options.by_name("export=FILE.xml", OUTPUT),
        **options.WRITTEN,
    },
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles"),
    network=options.WORKLOAD,
    page="npusim.reporting.advice:advice_page",
)

_PANEL = "Front of latency,energy"
_USUAL_DEVICES = ["npu,cpu,gpu", "npu,cpu", "npu,gpu", "cpu,gpu"]
DEVICES = options.by_name("devices=LIST", autocompletion=lambda: _USUAL_DEVICES)
_LIMITS = "dvfs max_latency=TIME max_energy=ENERGY max_power=POWER max_transitions max_share=DEVICE=SHARE"
LIMITS = options.by_name(_LIMITS, _PANEL)
MAPPING = options.by_name("mapping", _PANEL)
EXPONENTS = options.by_name("exponents=E,L", _PANEL)
MAP = Command(
    "npusim.api.planning:map",
    {
        **options.by_name("minimise granularity split"),
        **DEVICES,
        "profiles": option("--profile FILE"),
        **MAPPING,
        **LIMITS,
        **EXPONENTS,
        **options.by_name("method evaluations seed", _PANEL),
        **options.WRITTEN,
    },
    fields=_PLACED,
    network=options.WORKLOAD,
    counted="settings",
)

_STORED = "Batches with stored hidden features"


def _events(values: dict[str, Any]) -> None:
    """Take a file of events in the place of a length.

    Parameters
    ----------
    events : Path, optional
        CSV with update, event, count instead of a generated stream.
    """
    values["updates"] = values.pop("events") or values["updates"]


STREAM = Command(
    "npusim.api.planning:stream",
    {
        "updates": option("N", int, min=1, max=100_000),
        **options.by_name("seed mix=EVENT=W,... events=FILE capacity kept=N,N,... batch accuracy data=DIR"),
        **options.by_name("inferences rates=U,R"),
        **options.by_name("roots=N,N,... stored=SHARE,... age renew store=FILE", _STORED),
        **options.WRITTEN,
    },
    fields=("soc", "techniques", "settings", "hint", "requests", "tiles"),
    network=options.GNN,
    counted="estimates",
    adapt=_events,
)


def _mix(values: dict[str, Any]) -> None:
    """Simulate, and write the times of service of a single design.

    Parameters
    ----------
    trace : Path, optional
        Write the times of service as a trace for Perfetto.
    """
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
        "streams": options.argument(
            "STREAM...|FILE.yaml",
            many=True,
            default=...,
            help="A scenario file, or streams such as yolov8n:30/s,deadline=33ms (docs/mix.md).",
        ),
        "soc": option("NAME|FILE", autocompletion=options.complete_soc),
        "settings": options.SETTINGS,
        **options.by_name("scheduler duration=TIME requests seed find_rate=STREAM"),
        **options.by_name("over=PATH=V1,V2,... changes placements minimise=LIST judged=STREAM", _DESIGNS),
        **options.QUIET,
        **options.by_name("trace=FILE.json", OUTPUT),
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


SHOW = Command(
    "npusim.api.planning:show",
    {"after": option("STACK", autocompletion=options.complete_stack), **options.WRITTEN},
    fields=("techniques", "settings", "shapes"),
    network=options.WORKLOAD,
    run=_show,
)
