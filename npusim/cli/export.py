"""``npusim export``: a workload's real model, trained, as a file that OpenVINO runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.options import Data, GnnName, Settings, TechniqueStack, option
from npusim.errors import ConfigError

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim export gcn-cora --data planetoid -o gcn.xml
  npusim export gat-cora --data planetoid -t stagr+effop -o gat.xml
"""


@app.command(epilog=_EXAMPLES)
def export(
    workload: GnnName,
    output: Annotated[
        Path,
        option(
            "--output -o FILE",
            "The .xml file to write; the weights go to the .bin file beside it.",
            show_default=False,
        ),
    ],
    data: Data = None,
    techniques: TechniqueStack = "none",
    settings: Settings = None,
) -> None:
    """Train a workload's model on its real data and save it as OpenVINO IR.

    Takes seconds; needs the extra `gnn`. `npusim estimate` reads the file, and a laptop's NPU runs it.
    """
    from npusim.scenario import split_settings

    _, of_soc = split_settings(settings or ())
    if of_soc:
        raise ConfigError(
            f"`{'.'.join(of_soc[0].path)}`",
            file=of_soc[0].origin,
            allowed="settings of the workload, such as workload.hidden=128: a model file knows no machine",
        )

    from npusim.accuracy.export import export_model

    done = export_model(
        workload, techniques, data, output.expanduser(), tuple(setting for setting in settings or ())
    )
    typer.echo(
        f"{done.path}: {done.workload} with {done.techniques}, {done.operators} operators, "
        f"test accuracy {done.test_accuracy:.1%}"
    )
