"""``npusim export``: a workload's real model, a trained GNN or a language model, for OpenVINO."""

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
  npusim export llama-tiny -o tiny
  npusim export llama3.2-1b --weights model_weights.pth --set workload.weights=int8 -o llama
"""


@app.command(epilog=_EXAMPLES)
def export(
    workload: GnnName,
    output: Annotated[
        Path,
        option(
            "--output -o FILE",
            "The .xml file to write, with the .bin file beside it; of a language model the folder.",
            show_default=False,
        ),
    ],
    data: Data = None,
    weights: Annotated[
        Path | None,
        option(
            "--weights FILE",
            "Weights of a language model: a file of torch.save, named as Hugging Face does; none: random.",
        ),
    ] = None,
    techniques: TechniqueStack = "none",
    settings: Settings = None,
) -> None:
    """Save a workload's real model as OpenVINO IR: a trained GNN, or a language model in parts.

    Needs the extra `gnn`. `npusim estimate` reads the files, and a laptop's NPU runs them.
    """
    from npusim.scenario import split_settings

    _, of_soc = split_settings(settings or ())
    if of_soc:
        raise ConfigError(
            f"`{'.'.join(of_soc[0].path)}`",
            file=of_soc[0].origin,
            allowed="settings of the workload, such as workload.hidden=128: a model file knows no machine",
        )

    from npusim.workloads import KINDS, load_spec

    of_workload = tuple(setting for setting in settings or ())
    spec = None if workload.endswith((".xml", ".onnx")) else load_spec(workload, of_workload)
    write = None if spec is None else KINDS[spec.kind].export
    if write is not None:
        if techniques != "none" or data is not None:
            key = "--techniques" if techniques != "none" else "--data"
            raise ConfigError("a value", file=key, allowed="none for a language model")
        write(spec, output.expanduser(), weights, typer.echo)
        return
    if weights is not None:
        raise ConfigError("a file", file="--weights", allowed="only for a workload of kind llm")

    from npusim.accuracy.export import export_model

    done = export_model(workload, techniques, data, output.expanduser(), of_workload)
    typer.echo(
        f"{done.path}: {done.workload} with {done.techniques}, {done.operators} operators, "
        f"test accuracy {done.test_accuracy:.1%}"
    )
