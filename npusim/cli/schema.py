"""``npusim schema``: the JSON schema of what npusim reads and writes."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Annotated

import typer

from npusim.cli.options import Output, argument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

FILES = {
    "soc": "npusim.arch:Soc",
    "workload": "npusim.workloads:workload_file",
    "dataset": "npusim.workloads:DatasetStatistics",
    "stacks": "npusim.techniques.named_stacks:NamedStacks",
    "toolchain": "npusim.arch.toolchain:Toolchain",
    "suite": "npusim.validation:Suite",
    "space": "npusim.explore:Space",
    "measurement-suite": "npusim.measure.suites:MeasurementSuite",
}
"""Module and model, or function that returns the model, of each kind of file that npusim reads."""

DOCUMENTS = {
    "estimate": "npusim.engines:Estimate",
    "compare": "npusim.studies.side_by_side:Comparison",
    "whatif": "npusim.studies:WhatIf",
    "advise": "npusim.studies.advice:Advice",
    "map": "npusim.studies.placement_document:Placement",
    "map-front": "npusim.studies.map_front_document:MapFront",
    "llm": "npusim.studies.language:LanguageModels",
    "stream": "npusim.studies.stream:Followed",
    "validate": "npusim.validation:Validation",
    "trace-diff": "npusim.measure.trace_diff:TraceDiff",
    "accuracy": "npusim.accuracy.document:AccuracyReport",
    "prune": "npusim.accuracy.pruning_document:PruningReport",
    "magnas-training": "npusim.magnas.document:SupernetTraining",
    "magnas-scores": "npusim.magnas.stored_scores:SubnetScores",
    "magnas-figures": "npusim.validation.magnas_mapping_document:MappingFigures",
    "magnas-search": "npusim.explore.architecture_document:ArchitectureSearch",
    "sweep": "npusim.explore:SweepResult",
    "query": "npusim.explore.query:Answer",
    "pareto": "npusim.explore.fronts:Front",
    "search": "npusim.explore.search:SearchResult",
    "calibration": "npusim.calibrate.device.report:CalibrationReport",
    "list": "npusim.catalogues:Listing",
    "measurement": "npusim.measure:Measurement",
    "parameters": "npusim.validation.unmeasured:Unmeasured",
}
"""Module and model of each kind of document that npusim writes."""

MODELS = FILES | DOCUMENTS


@app.command(
    epilog="\n[dim]Examples[/dim]\n  npusim schema soc\n  npusim schema estimate -o estimate.schema.json"
)
def schema(
    name: Annotated[
        str,
        argument(
            "NAME",
            f"A file that npusim reads ({', '.join(FILES)}) or a document that it writes "
            f"({', '.join(DOCUMENTS)}).",
            kind="schema",
            choices=tuple(MODELS),
        ),
    ],
    output: Output = None,
) -> None:
    """Print the JSON schema of a file or document: every key with its meaning, unit and bounds."""
    from npusim.cli.output import Destination
    from npusim.config import schema_of

    destination = Destination(output, "json")
    module, model = MODELS[name].split(":")
    named = getattr(import_module(module), model)
    found = schema_of(named if isinstance(named, type) else named())
    destination.write_document(lambda: json.dumps(found, indent=2, ensure_ascii=False))
