"""``npusim map``: which device should run which operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from npusim.cli import options as opt

if TYPE_CHECKING:
    from npusim.mapping import Granularity
    from npusim.scenario import Scenario
    from npusim.studies.map_front import Limits
    from npusim.studies.map_front_document import MapFront

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim map gcn-cora
  npusim map gat-cora --techniques effop --devices npu,cpu --minimise energy
  npusim map vig-s --granularity block
  npusim map sage-max-cora --hint throughput --format json
  npusim map magnas-vig --minimise latency,energy --devices npu,gpu --max-transitions 4
  npusim map vit --minimise latency,energy --dvfs --max-power 5W -o front.html
  npusim measure gcn-cora --device CPU -o cpu.json && npusim map gcn-cora --profile cpu.json
"""


_BOTH = "latency,energy"


def _front(flags: str, help: str, **settings: Any) -> Any:
    return opt.option(flags, help, panel=f"Front of {_BOTH}", **{"show_default": False, **settings})


_Minimise = Annotated[
    str,
    opt.option(
        "--minimise",
        "What the placement is to make least; with both, every placement of a chain of blocks that no "
        "other beats in both.",
        choices=("latency", "energy", _BOTH),
    ),
]
Devices = Annotated[
    str | None,
    opt.option(
        "--devices LIST",
        "Devices to choose from, parted by commas.",
        default="all there are",
        autocompletion=lambda: ["npu,cpu,gpu", "npu,cpu", "npu,gpu", "cpu,gpu"],
        show_default=False,
    ),
]
_Profile = Annotated[
    list[Path] | None,
    opt.option(
        "--profile FILE",
        "Measured times of this network's operators on a device, from `npusim measure WORKLOAD`: they "
        "replace the model's. Repeatable: a file for each device.",
        show_default=False,
    ),
]
_Granularity = Annotated[
    str | None,
    opt.option(
        "--granularity",
        "What is placed as one.",
        choices=("operator", "layer", "block"),
        default="operator; block with two objectives",
        show_default=False,
    ),
]
Mapping = Annotated[
    str | None,
    _front(
        "--mapping STRING",
        "Cost this placement too: a letter a block; of a Vision GNN stem, graphers, FFNs and head, such as "
        "G/GGGG/DDDD/G. A letter is the first of its device's name that no other has (G gpu, D dla; of dsa_k "
        "and dsa_y K and Y); the answer's second line says which is which.",
    ),
]
Dvfs = Annotated[bool, _front("--dvfs", "Try every combination of operating points.")]
MaxLatency = Annotated[str | None, _front("--max-latency TIME", "At most, such as 20ms.")]
MaxEnergy = Annotated[str | None, _front("--max-energy ENERGY", "At most, such as 100mJ.")]
MaxPower = Annotated[str | None, _front("--max-power POWER", "Mean of the package, such as 5W.")]
MaxTransitions = Annotated[
    int | None, _front("--max-transitions K", "How often work may pass to another device.", min=0)
]
MaxShare = Annotated[
    list[str] | None,
    _front("--max-share DEVICE=SHARE", "Share of the blocks on a device, such as gpu=0.5. Repeatable."),
]
Exponents = Annotated[
    str,
    _front(
        "--exponents E,L",
        "Exponents of energy and latency in the product that picks one.",
        show_default=True,
    ),
]


_Method = Annotated[
    str | None,
    _front(
        "--method",
        "How placements are found.",
        choices=("exact", "nsga2", "random"),
        default="exact for chains of blocks, nsga2 for other networks",
    ),
]
_Evaluations = Annotated[
    int, _front("--evaluations N", "Placements that a search costs.", min=1, show_default=True)
]
_Seed = Annotated[int, _front("--seed N", "Of a search.", min=0, show_default=True)]


@app.command(name="map", epilog=_EXAMPLES)
def map_(
    workload: opt.WorkloadName,
    soc: opt.SocName = opt.DEFAULT_SOC,
    techniques: opt.TechniqueStack = "none",
    minimise: _Minimise = "latency",
    devices: Devices = None,
    profile: _Profile = None,
    granularity: _Granularity = None,
    mapping: Mapping = None,
    dvfs: Dvfs = False,
    max_latency: MaxLatency = None,
    max_energy: MaxEnergy = None,
    max_power: MaxPower = None,
    max_transitions: MaxTransitions = None,
    max_share: MaxShare = None,
    exponents: Exponents = "1,1",
    method: _Method = None,
    evaluations: _Evaluations = 5000,
    seed: _Seed = 0,
    settings: opt.Settings = None,
    shapes: opt.Shapes = None,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Place a network over NPU, CPU and GPU at the least latency or energy.

    Counts what every operator costs on each device, the launches, and transfers between devices; the table
    shows what a split after each operator would cost. With several inferences in flight, latency means the
    time between two of them. With --minimise latency,energy the answer is a front within the limits: of a
    chain of blocks exact, by dynamic programming over blocks and devices; of other networks by NSGA-II.
    """
    from npusim.cli.inputs import scenario_of
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    scenario = scenario_of(workload, soc, techniques, settings, shapes, hint, requests, tiles)

    named = None if devices is None else [name.strip().lower() for name in devices.split(",")]
    limits = {
        "max-latency": max_latency, "max-energy": max_energy, "max-power": max_power,
        "max-transitions": max_transitions, "max-share": max_share,
    }  # fmt: skip
    if minimise == _BOTH:
        _refuse({"profile": profile}, f"one objective, not --minimise {_BOTH}")
        how = dict(method=method, granularity=granularity or "block", evaluations=evaluations, seed=seed)
        found = _front_of(scenario, named, limits, dvfs, exponents, mapping, how)

        from npusim.report.placement import map_front_page

        destination.write(lambda: map_front_page(found), found)
        return
    _refuse({**limits, "dvfs": dvfs, "mapping": mapping, "method": method}, f"--minimise {_BOTH}")

    from npusim.api import place

    result = place(
        scenario,
        minimise="energy" if minimise == "energy" else "latency",
        devices=named,
        profiles=profile or (),
        granularity=cast("Granularity", granularity or "operator"),
    )

    from npusim.report.placement import placement_page

    destination.write(lambda: placement_page(result), result)


def _refuse(given: dict[str, Any], allowed: str) -> None:
    """Refuse options that go with the other kind of answer."""
    from npusim.errors import ConfigError

    for name, value in given.items():
        if value not in (None, False):
            raise ConfigError(f"`--{name}`", allowed=f"it goes with {allowed}")


def _front_of(
    scenario: Scenario,
    devices: list[str] | None,
    limits: dict[str, Any],
    dvfs: bool,
    exponents: str,
    mapping: str | None,
    how: dict[str, Any],
) -> MapFront:
    from npusim.cli.progress import Progress
    from npusim.studies.evolved_mapping import Budget
    from npusim.studies.map_front import map_front

    kept = limits_of(limits)
    powers = _numbers(exponents)
    with Progress("settings") as progress:
        return map_front(
            scenario,
            devices=devices,
            limits=kept,
            operating_points=dvfs,
            exponents=powers,
            mapping=mapping,
            method=how["method"],
            granularity=how["granularity"],
            budget=Budget(evaluations=how["evaluations"], seed=how["seed"]),
            tell=progress,
        )


def limits_of(given: dict[str, Any]) -> Limits:
    """Return the limits that options say, by their names."""
    from npusim.studies.map_front import Limits
    from npusim.units import Duration, Energy, Power

    return Limits(
        _amount("max-latency", given["max-latency"], Duration),
        _amount("max-energy", given["max-energy"], Energy),
        _amount("max-power", given["max-power"], Power),
        given["max-transitions"],
        dict(_share(text) for text in given["max-share"] or ()),
    )


def _amount(option: str, text: str | None, of: Any) -> float | None:
    """Return what an option with a unit says, in SI units."""
    from pydantic import TypeAdapter, ValidationError

    from npusim.errors import ConfigError

    if text is None:
        return None
    try:
        return float(TypeAdapter(of).validate_python(text))
    except ValidationError as error:
        raise ConfigError(f"`{text}`", file=f"--{option}", allowed=of.__metadata__[0].allowed) from error


def _share(text: str) -> tuple[str, float]:
    """Return device and share of `gpu=0.5`."""
    from npusim.errors import ConfigError

    device, _, share = text.partition("=")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"`{text}`", file="--max-share", allowed="DEVICE=SHARE, a share of 0 to 1")
    return device.strip().lower(), value


def _numbers(text: str) -> tuple[float, float]:
    """Return two exponents, neither below 0."""
    from npusim.errors import ConfigError

    try:
        energy, latency = (float(part) for part in text.split(","))
    except ValueError:
        energy = latency = -1.0
    if not (0.0 <= energy < 100.0 and 0.0 <= latency < 100.0):
        raise ConfigError(f"`{text}`", file="--exponents", allowed="two numbers from 0 to 100, such as 1,1")
    return energy, latency
