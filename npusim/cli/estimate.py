"""``npusim estimate``: what one inference of a network costs on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as opt

if TYPE_CHECKING:
    from npusim.engines import Estimate
    from npusim.report.page import Page
    from npusim.scenario import Scenario

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim estimate gcn-cora
  npusim estimate gat-cora --techniques stagr+effop+quantgr --hint throughput
  npusim estimate gcn-cora --set npu.tiles=4 --set workload.hidden=128
  npusim estimate gcn-cora --techniques stagr --engine event --trace run.json --advice
  npusim estimate my_model.xml --soc core-ultra-series1 --format json
  npusim estimate my_model.onnx --shape 'input=\\[1,3,224,224]' -o result.json
  npusim estimate gcn-cora --techniques stagr --details
  npusim estimate gcn-cora --techniques stagr -o page.html
"""

Interval = Annotated[
    bool,
    opt.option(
        "--interval",
        "Find the 90 % interval of the latency from the data sheet's uncertainties. A SoC that was "
        "fitted to measurements always gets one.",
        panel=opt.OUTPUT,
    ),
]
Details = Annotated[
    bool,
    opt.option(
        "--details",
        "Also show time by phase, unit and block, control flow, energy by part and, for each operator, "
        "tiling, split and mode, reads and writes of SRAM and DRAM, power, and the roofline. JSON and HTML "
        "always hold them.",
        panel=opt.OUTPUT,
    ),
]
TraceFile = Annotated[
    Path | None,
    opt.option(
        "--trace FILE",
        "Write the event engine's time line: .json for Perfetto, .html for a Gantt chart.",
        panel=opt.OUTPUT,
    ),
]

EveryTile = Annotated[
    bool,
    opt.option(
        "--every-tile",
        "Event engine: act out each of a loop's equal steps. Else some are, and the period that they come to "
        "is repeated; --trace acts out all.",
    ),
]
Advice = Annotated[
    bool,
    opt.option(
        "--advice",
        "Event engine: also show what a little more of each resource would save, found by acting the "
        "network out again on some nine machines.",
        panel=opt.OUTPUT,
    ),
]


@app.command(epilog=_EXAMPLES)
def estimate(
    workload: opt.WorkloadName,
    soc: opt.SocName = opt.DEFAULT_SOC,
    techniques: opt.TechniqueStack = "none",
    settings: opt.Settings = None,
    shapes: opt.Shapes = None,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    device: opt.Device = "auto",
    swap_operands: opt.SwapOperands = "none",
    engine: opt.Engine = "analytical",
    every_tile: EveryTile = False,
    interval: Interval = False,
    details: Details = False,
    trace: TraceFile = None,
    advice: Advice = False,
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Estimate latency, throughput, energy and memory traffic of a network."""
    from npusim.cli.inputs import scenario_of
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    scenario = scenario_of(
        workload, soc, techniques, settings, shapes, hint, requests, tiles, device, swap_operands
    )

    trace_file = _trace_file(trace, engine)
    _refuse_interval(interval, engine)
    _refuse_event_only({"--advice": advice, "--every-tile": every_tile}, engine)

    if engine == "event":
        from npusim.engines.event import event_estimate

        result = event_estimate(scenario, every_tile or trace_file is not None)
        if trace_file is not None:
            _write_trace(trace_file, result)
        destination.write(lambda: _event_page(result, scenario, details, advice), result)
        return

    from npusim.api import estimate as one_estimate

    result = one_estimate(scenario, interval=interval or None)

    def page() -> Page:
        from npusim.report.estimate import estimate_page

        return estimate_page(result, details, lambda: scenario.mapped)

    destination.write(page, result)


def _trace_file(path: Path | None, engine: str) -> Path | None:
    """Refuse a trace that cannot be made before the work begins."""
    from npusim.cli.output import file_target
    from npusim.errors import ConfigError

    if path is not None and engine != "event":
        raise ConfigError(
            f"the {engine} engine", file="--trace", allowed="--engine event, which has a time line"
        )
    return file_target(path, "--trace", (".json", ".html"))


def _refuse_interval(wanted: bool, engine: str) -> None:
    """Refuse an interval of the event engine: simulating a hundred machines would take minutes."""
    from npusim.errors import ConfigError

    if wanted and engine != "analytical":
        raise ConfigError(f"the {engine} engine", file="--interval", allowed="--engine analytical")


def _refuse_event_only(wanted: dict[str, bool], engine: str) -> None:
    """Refuse what the analytical engine has not got: it simulates no tiles; `npusim whatif` gives advice."""
    from npusim.errors import ConfigError

    for option, given in wanted.items():
        if given and engine != "event":
            raise ConfigError(f"the {engine} engine", file=option, allowed="--engine event")


def _write_trace(path: Path, result: Estimate) -> None:
    from npusim.files import write_whole

    if path.suffix == ".html":
        from npusim.cli.output import write_html
        from npusim.report.timeline import timeline_page

        write_html(path, timeline_page(result.timeline).html)
    else:
        from npusim.engines.chrome_trace import chrome_trace

        write_whole(path, chrome_trace(result.timeline).encode())


def _event_page(result: Estimate, scenario: Scenario, details: bool, advice: bool) -> Page:
    """Return the estimate with its time line, and what would help (found by re-running)."""
    from npusim.engines.event import event_estimate
    from npusim.report.estimate import estimate_page
    from npusim.studies.elasticity import elasticities

    helpful = elasticities(scenario, event_estimate) if advice else ()
    return estimate_page(result, details, lambda: scenario.mapped, helpful)
