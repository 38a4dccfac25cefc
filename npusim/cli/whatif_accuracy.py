"""``npusim whatif --accuracy``: beside what a stack gives, what it costs in right answers.

Like the column for mileage in a list of used cars: the price alone does not say what one gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.studies import WhatIf

__all__ = ["Accuracy", "refuse_unjudgeable", "with_accuracy"]

Accuracy = Annotated[
    bool,
    typer.Option(
        "--accuracy",
        help="Also train the model on its real data, found by --data, and say how many test nodes each stack "
        "classifies correctly. Needs the extra `gnn`.",
    ),
]
_MODEL_FILES = (".xml", ".onnx")


def refuse_unjudgeable(workload: str) -> None:
    """Refuse a model file: it holds no data set that its answers could be compared with."""
    if workload.endswith(_MODEL_FILES):
        raise ConfigError(
            f"the model file `{workload}`",
            file="--accuracy",
            allowed="a workload that npusim trains: a name from `npusim list workloads`, or a workload YAML",
        )


def with_accuracy(result: WhatIf, workload: str, settings: Sequence[str], data: Path | None) -> WhatIf:
    """Return a comparison with the accuracy of each stack, of one training.

    Parameters
    ----------
    result : WhatIf
        The comparison.
    workload : str
        Its workload.
    settings : sequence of str
        What ``--set`` was given; those of the workload count.
    data : Path or None
        Folder of the raw data sets.
    """
    from npusim.accuracy.judging import judge
    from npusim.cli.accuracy import progress
    from npusim.cli.inputs import split_settings

    found: dict[tuple[str, str], float] = {}
    points = {_of_workload(variant.at): None for variant in result.variants}
    with progress() as tell:
        for point in points:
            stacks = [v.techniques for v in result.variants if _of_workload(v.at) == point]
            of_workload, _ = split_settings([*settings, *point])
            report = judge([workload], stacks, data, overrides=of_workload, tell=tell)
            # The last of a stack's number formats is what the machine computes in.
            found |= {("".join(point), one.techniques): one.accuracy for one in report.results}
    variants = [
        variant.model_copy(
            update={"accuracy": found.get(("".join(_of_workload(variant.at)), variant.techniques))}
        )
        for variant in result.variants
    ]
    return result.model_copy(update={"variants": variants})


def _of_workload(at: dict[str, str]) -> tuple[str, ...]:
    """Return the settings of a point that change the model; 8 bits stand in the stack as quantgr."""
    own = {path: value for path, value in at.items() if path.startswith("workload.")}
    return tuple(f"{path}={value}" for path, value in own.items() if value != "int8")
