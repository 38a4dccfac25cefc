"""Commands that ask about a network: estimate, compare, whatif, advise, map, stream, show."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.cli.options import (
    DATA,
    ENGINE,
    GNN,
    HOW,
    OUTPUT,
    SEED,
    WORKLOAD,
    WRITTEN,
    Command,
    argument,
    complete_stack,
    complete_stacks,
    option,
    scenario_from,
)
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.engines import Estimate
    from npusim.reporting.page import Page
    from npusim.scenario import Scenario

_MOST_COMBINATIONS = 1_000
_PLACED = ("soc", "techniques", "settings", "shapes", "hint", "requests", "tiles")


def _estimate(values: dict[str, Any]) -> None:
    """Estimate, and show what the event engine's time line says."""
    from npusim.cli.output import Destination

    destination = Destination(values["output"], values["form"])
    scenario = scenario_from(values, HOW).load()
    engine, details = values["engine"], values["details"]
    trace_file = _trace_file(values["trace"], engine)
    _refuse_engine({"--interval": values["interval"]}, engine, "analytical")
    _refuse_engine({"--advice": values["advice"], "--every-tile": values["every_tile"]}, engine, "event")
    if engine == "event":
        from npusim.engines.event import event_estimate

        simulated = event_estimate(scenario, values["every_tile"] or trace_file is not None)
        if trace_file is not None:
            _write_trace(trace_file, simulated)
        destination.write(simulated, lambda: _event_page(simulated, scenario, details, values["advice"]))
        return

    from npusim.api.asking import estimate

    result = estimate(scenario, interval=values["interval"] or None)

    def page() -> Page:
        from npusim.reporting.estimate import estimate_page

        return estimate_page(result, details, lambda: scenario.mapped)

    destination.write(result, page)


def _trace_file(path: Path | None, engine: str) -> Path | None:
    """Refuse a trace that cannot be made before the work begins."""
    from npusim.cli.output import file_target

    if path is not None and engine != "event":
        allowed = "--engine event, which has a time line"
        raise ConfigError(f"the {engine} engine", file="--trace", allowed=allowed)
    return file_target(path, "--trace", (".json", ".html"))


def _refuse_engine(options: dict[str, bool], engine: str, needed: str) -> None:
    """Refuse options that the other engine has."""
    for name, is_set in options.items():
        if is_set and engine != needed:
            raise ConfigError(f"the {engine} engine", file=name, allowed=f"--engine {needed}")


def _write_trace(path: Path, result: Estimate) -> None:
    from npusim.files import write_whole

    if path.suffix == ".html":
        from npusim.cli.output import write_html
        from npusim.reporting.timeline import timeline_page

        write_html(path, timeline_page(result.timeline).html)
    else:
        from npusim.engines.chrome_trace import chrome_trace

        write_whole(path, chrome_trace(result.timeline).encode())


def _event_page(result: Estimate, scenario: Scenario, details: bool, advice: bool) -> Page:
    """Return the estimate with its time line, and the sensitivity to each resource."""
    from npusim.engines.event import event_estimate
    from npusim.reporting.estimate import estimate_page
    from npusim.studies.elasticity import elasticities

    sensitivities = elasticities(scenario, event_estimate) if advice else ()
    return estimate_page(result, details, lambda: scenario.mapped, sensitivities)


ESTIMATE = Command(
    "npusim.api.asking:estimate",
    {
        **ENGINE,
        "every_tile": option(),
        "interval": option(default=False, panel=OUTPUT),
        "details": option(
            help="Also show time by phase, unit and block, control flow, energy by part and, for each "
            "operator, tiling, split and mode, reads and writes of SRAM and DRAM, power, and the roofline. "
            "JSON and HTML always hold them.",
            default=False,
            panel=OUTPUT,
        ),
        "trace": option(
            "FILE",
            Path,
            help="Write the event engine's time line: .json for Perfetto, .html for a Gantt chart.",
            default=None,
            panel=OUTPUT,
        ),
        "advice": option(
            help="Event engine: also show the sensitivity to each resource (about nine more simulations).",
            default=False,
            panel=OUTPUT,
        ),
        **WRITTEN,
    },
    """
npusim estimate gcn-cora
npusim estimate gat-cora --techniques stagr+effop+quantgr --hint throughput
npusim estimate gcn-cora --set npu.tiles=4 --set workload.hidden=128
npusim estimate gcn-cora --techniques stagr --engine event --trace run.json --advice
npusim estimate my_model.xml --soc core-ultra-series1 --format json
npusim estimate my_model.onnx --shape 'input=[1,3,224,224]' -o result.json
npusim estimate gcn-cora --techniques stagr --details
npusim estimate gcn-cora --techniques stagr -o page.html
""",
    fields=HOW,
    network=WORKLOAD,
    run=_estimate,
)

COMPARE = Command(
    "npusim.api.asking:compare",
    {"what": argument("A B ...", many=True, default=...), **ENGINE, **WRITTEN},
    """
npusim compare gcn-cora stagr stagr+quantgr
npusim compare gcn-cora core-ultra-series1 core-ultra-series2 --techniques stagr
npusim compare gcn-cora gat-cora --hint throughput
npusim compare before.onnx after.onnx -o comparison.html
npusim compare monday.json today.json      (written by npusim estimate -o)
""",
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
        if not equals or not path or not all(values):
            allowed = "PATH=V1,V2,... such as npu.sram.per_tile=1MiB,2MiB"
            raise ConfigError(f"`{text}`", file="--over", allowed=allowed)
        if path in axes or len(set(values)) < len(values):
            what = f"the path `{path}`" if path in axes else f"a value in `{text}`"
            raise ConfigError(f"{what} a second time", file="--over", allowed="each path and each value once")
        axes[path] = values
    combinations = prod(len(values) for values in axes.values())
    if combinations > _MOST_COMBINATIONS:
        allowed = f"at most {_MOST_COMBINATIONS:,}; `npusim sweep` evaluates more"
        raise ConfigError(f"{combinations:,} combinations", file="--over", allowed=allowed)
    return axes


def _over(values: dict[str, Any]) -> None:
    values["over"] = parse_over(values["over"] or ())


WHATIF = Command(
    "npusim.api.asking:whatif",
    {
        "stacks": option("--stack LIST", autocompletion=complete_stacks),
        "over": option("PATH=V1,V2,...", many=True),
        **SEED,
        "html": option(
            "FILE",
            Path,
            help="Also write the waterfall, or the charts of --over, as one HTML file.",
            default=None,
            panel=OUTPUT,
        ),
        "accuracy": option(),
        **DATA,
        **WRITTEN,
    },
    """
npusim whatif gcn-cora
npusim whatif gcn-cora --hint throughput --tiles 4 --stack paper --html waterfall.html
npusim whatif gat-cora --stack stagr,stagr+quantgr,stagr+effop+quantgr
npusim whatif gcn-cora --set npu.sparsity.decompress_activations=true
npusim whatif gcn-cora --stack symg,cacheg,symg+cacheg --over npu.sram.per_tile=1MiB,2MiB,4MiB
""",
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles", "device", "swap_operands"),
    network=WORKLOAD,
    counted="",
    adapt=_over,
)

ADVISE = Command(
    "npusim.api.asking:advise",
    {
        "values": option("FILE.npz", Path, show_default=False),
        "export": option("FILE.xml", Path, panel=OUTPUT),
        **DATA,
        "keep_answers": option("SHARE", min=0.0, max=1.0),
        **SEED,
        **WRITTEN,
    },
    """
npusim advise gat-cora
npusim advise gcn-cora --data planetoid               # train it, and say what the stacks cost in accuracy
npusim advise model.py:net --soc core-ultra-series1   # net: (torch module, example inputs), or a function
npusim advise model.py:net --export rewritten.xml     # the stack to try, with the module's own numbers
npusim advise model.onnx --values inputs.npz --export rewritten.xml
""",
    fields=("soc", "settings", "shapes", "hint", "requests", "tiles"),
    network=WORKLOAD,
    page="npusim.reporting.advice:advice_page",
)

_FRONT: dict[str, Any] = {"panel": "Front of latency,energy", "show_default": False}
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
EXPONENTS = {"exponents": option("E,L", panel=_FRONT["panel"])}
MAP = Command(
    "npusim.api.planning:map",
    {
        "minimise": option(),
        **DEVICES,
        "profiles": option("--profile FILE", Path, many=True, show_default=False),
        "granularity": option(show_default=False),
        **MAPPING,
        **LIMITS,
        **EXPONENTS,
        "method": option(**_FRONT),
        "evaluations": option("N", min=1, panel=_FRONT["panel"]),
        "seed": option("N", min=0, panel=_FRONT["panel"]),
        **WRITTEN,
    },
    """
npusim map gcn-cora
npusim map gat-cora --techniques effop --devices npu,cpu --minimise energy
npusim map vig-s --granularity block
npusim map sage-max-cora --hint throughput --format json
npusim map magnas-vig --minimise latency,energy --devices npu,gpu --max-transitions 4
npusim map vit --minimise latency,energy --dvfs --max-power 5W -o front.html
npusim measure gcn-cora --device CPU -o cpu.json && npusim map gcn-cora --profile cpu.json
""",
    fields=_PLACED,
    network=WORKLOAD,
    counted="settings",
)

_STORED = "Batches with stored hidden features"


def _events(values: dict[str, Any]) -> None:
    events = values.pop("events")
    values["updates"] = values["updates"] if events is None else events


STREAM = Command(
    "npusim.api.planning:stream",
    {
        "updates": option("N", min=1, max=100_000),
        "seed": option("N", min=0),
        "mix": option("EVENT=W,..."),
        "events": option(
            "FILE", Path, help="CSV with update, event, count instead of a generated stream.", default=None
        ),
        "capacity": option("N", int, min=1, max=10**9),
        "kept": option("N,N,..."),
        "batch": option("N", int, min=1),
        "accuracy": option(),
        **DATA,
        "inferences": option("K", min=1),
        "roots": option("N,N,...", panel=_STORED),
        "stored": option("SHARE,...", panel=_STORED),
        "age": option("N", int, min=0, panel=_STORED),
        "renew": option("N", int, min=1, panel=_STORED),
        "store": option("FILE", Path, panel=_STORED),
        **WRITTEN,
    },
    """
npusim stream gcn-cora
npusim stream gcn-cora --capacity 3000 --updates 500 --inferences 10
npusim stream gat-cora --mix add_node=1,add_edge=9 --techniques effop --format json
npusim stream gcn-cora --events changes.csv --set toolchain.compile_fixed=5s
npusim stream gcn-cora --kept 2800,2900,3000 --batch 500 -o page.html
npusim stream gcn-cora --batch 500 --accuracy --data planetoid
npusim stream sage-concat-cora --roots 32,64,128,256,512 --renew 10 --accuracy --data planetoid
""",
    fields=("soc", "techniques", "settings", "hint", "requests", "tiles"),
    network=GNN,
    adapt=_events,
)


def _show(values: dict[str, Any]) -> None:
    from npusim.api.asking import graphs_of
    from npusim.cli.output import Destination
    from npusim.graph import graph_difference
    from npusim.reporting.graph_difference import difference_page

    destination = Destination(values["output"], values["form"])
    graphs = graphs_of(scenario_from(values, ("techniques", "settings", "shapes")), values["after"])
    difference = graph_difference(*graphs)
    destination.write(difference, lambda: difference_page(difference, graphs))


SHOW = Command(
    "npusim.api.asking:show",
    {"after": option("STACK", autocompletion=complete_stack), **WRITTEN},
    """
npusim show gcn-cora --after stagr
npusim show gat-cora --techniques stagr --after stagr+quantgr+grax1
npusim show gcn-cora --after stagr+symg -o graphs.html
""",
    fields=("techniques", "settings", "shapes"),
    network=WORKLOAD,
    run=_show,
)
