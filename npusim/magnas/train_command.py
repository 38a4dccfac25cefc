"""``npusim magnas train``: one set of weights for every architecture of a space, and its scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from npusim.cli import options as opt

if TYPE_CHECKING:
    from npusim.magnas.spec import VisionGnnSpec

TRAIN_EXAMPLES = """
[dim]Examples[/dim]
  npusim magnas train -o digits
  npusim magnas train --epochs 30 --alone 8 -o digits
  npusim magnas train flowers --workload magnas-vig --epochs 150 --batch 320 -o supernet
  npusim magnas train -o digits --resume
"""


def _space(flags: str, help: str) -> Any:
    return opt.option(flags, help, panel="Space of architectures", show_default=True)


def _recipe(flags: str, help: str, **settings: Any) -> Any:
    return opt.option(flags, help, panel="How it is trained", **settings)


_Images = Annotated[
    str, opt.argument("[IMAGES]", "digits (scikit-learn's), or a folder of a folder a class.")
]
_Directory = Annotated[
    Path, opt.option("--output -o DIR", "New directory for checkpoint and scores.", show_default=False)
]
_Backbone = Annotated[str, opt.option("--workload NAME|FILE", "Backbone, a workload of kind vision-gnn.")]
_Depths = Annotated[str, _space("--depths LIST", "Blocks of a superblock.")]
_Operators = Annotated[str, _space("--operators LIST", "Graph operators.")]
_Widths = Annotated[
    str, _space("--widths LIST", "Hidden features of feed-forward networks, in % of the channels.")
]
_Epochs = Annotated[int, _recipe("--epochs N", "Epochs.", min=1, max=100_000)]
_Batch = Annotated[int, _recipe("--batch N", "Images of a step.", min=2, max=100_000)]
_Balanced = Annotated[
    int, _recipe("--balanced N", "Random subnets of a step beside largest and smallest.", min=0, max=64)
]
_Rate = Annotated[float, _recipe("--learning-rate X", "Of the first step.", min=0.0, max=1.0)]
_Decay = Annotated[float, _recipe("--weight-decay X", "Of all weights.", min=0.0, max=1.0)]
_Dropout = Annotated[float, _recipe("--dropout SHARE", "In the classifier.", min=0.0, max=0.9)]
_Distillation = Annotated[
    float, _recipe("--distillation SHARE", "What subnets learn from a teacher.", min=0.0, max=1.0)
]
_Shift = Annotated[
    float, _recipe("--shift SHARE", "Most that images are moved, of their side.", min=0.0, max=0.5)
]
_Teacher = Annotated[
    Path | None,
    _recipe(
        "--teacher DIR",
        "A supernet trained earlier on the same classes.",
        default="the largest subnet of each step",
        show_default=False,
    ),
]
_Held = Annotated[
    float,
    opt.option(
        "--held SHARE", "Images that training does not see: half score, half test.", min=0.05, max=0.9
    ),
]
_Scored = Annotated[
    int, opt.option("--scored N", "Random subnets that are scored afterwards.", min=0, max=100_000)
]
_Alone = Annotated[
    int,
    opt.option("--alone N", "So many of these are trained alone too, to compare the order.", min=0, max=1000),
]
Seed = Annotated[int, opt.option("--seed S", "The same seed gives the same.", min=0)]


def train(
    images: _Images = "digits",
    output: _Directory = Path("supernet"),
    workload: _Backbone = "magnas-digits",
    settings: opt.Settings = None,
    depths: _Depths = "2,3,4",
    operators: _Operators = "max_relative,edgeconv,graphsage,gin",
    widths: _Widths = "30,60,100",
    epochs: _Epochs = 14,
    batch: _Batch = 32,
    balanced: _Balanced = 2,
    learning_rate: _Rate = 0.003,
    weight_decay: _Decay = 0.05,
    dropout: _Dropout = 0.2,
    distillation: _Distillation = 0.5,
    shift: _Shift = 0.1,
    teacher: _Teacher = None,
    held: _Held = 0.5,
    scored: _Scored = 24,
    alone: _Alone = 0,
    seed: Seed = 0,
    resume: opt.Resume = False,
    quiet: opt.Quiet = False,
    form: opt.Format = None,
) -> None:
    """Train a supernet on images: one set of weights for every architecture of the space.

    Sandwich rule: each step trains the largest and the smallest subnet, each with one operator throughout,
    and random ones between, which also learn from the largest. Subnets are scored on images that training
    did not see. The digits take about 3 minutes on one core. Needs the extra `gnn`.
    """
    from npusim.cli.output import Destination
    from npusim.cli.progress import Progress, Stopper

    destination = Destination(None, form)
    space = _space_of(depths, operators, widths)
    backbone = _backbone(workload, settings)

    from npusim.magnas.checkpoint import Task, read_checkpoint
    from npusim.magnas.training import Recipe, run_training

    recipe = Recipe(epochs, batch, balanced, learning_rate, weight_decay, dropout, distillation, shift, seed)
    taught_by = None if teacher is None else read_checkpoint(teacher)
    task = Task(
        workload, backbone, space, images, held, recipe, "" if taught_by is None else taught_by.fingerprint
    )
    stopper = Stopper("finishing the epoch")
    with Progress("epochs", quiet) as progress, stopper.listening():
        found = run_training(
            task,
            output.expanduser(),
            teacher=taught_by,
            scored=scored,
            alone=alone,
            resume=resume,
            tell=progress.share,
            stop=stopper,
        )

    from npusim.magnas.page import training_page

    destination.write(lambda: training_page(found), found)


def _space_of(depths: str, operators: str, widths: str) -> Any:
    """Return the space of architectures that options say."""
    from npusim.errors import ConfigError, UnknownNameError
    from npusim.magnas.space import LETTERS, ArchitectureSpace

    def numbers(option: str, text: str, most: int) -> tuple[int, ...]:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdigit() and 1 <= int(part) <= most for part in parts):
            raise ConfigError(
                f"`{text}`", file=option, allowed=f"whole numbers of 1 to {most} parted by commas"
            )
        return tuple(sorted({int(part) for part in parts}))

    named = [name.strip() for name in operators.split(",")]
    for name in named:
        if name not in LETTERS:
            raise UnknownNameError("graph operator", name, LETTERS)
    return ArchitectureSpace(
        depths=numbers("--depths", depths, 64),
        operators=tuple(name for name in LETTERS if name in named),
        widths_percent=numbers("--widths", widths, 1000),
    )


def _backbone(workload: str, settings: list[str] | None) -> VisionGnnSpec:
    """Return the specification of a backbone; refuse settings of a SoC."""
    from npusim.errors import ConfigError
    from npusim.scenario import split_settings

    of_workload, of_soc = split_settings(settings or ())
    if of_soc:
        raise ConfigError(
            f"`{'.'.join(of_soc[0].path)}`",
            file=of_soc[0].origin,
            allowed="settings of the workload, such as workload.channels=80: training knows no machine",
        )
    return spec_of(workload, of_workload)


def spec_of(workload: str, settings: Any) -> VisionGnnSpec:
    """Return the specification of a backbone; refuse workloads of other kinds."""
    from npusim.errors import ConfigError
    from npusim.magnas.spec import VisionGnnSpec
    from npusim.workloads import load_spec, workload_names

    spec = load_spec(workload, settings)
    if not isinstance(spec, VisionGnnSpec):
        known = ", ".join(workload_names("vision-gnn"))
        raise ConfigError(
            f"`{workload}`, a workload of kind {spec.kind}",
            allowed=f"one of kind vision-gnn, such as {known}",
        )
    return spec
