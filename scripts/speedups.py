"""Predicted and measured speed-up of exported models on this CPU, and of forms written by hand.

    python scripts/speedups.py models.py                    # all functions of ALL
    python scripts/speedups.py tests/gnn_forms.py gin rgcn --soc fitted.yaml --fp32

`fitted.yaml` holds this processor's rates, from the operators that the networks rest on (two minutes each):

    npusim measure --for tests/gnn_forms.py:gin --device CPU --processor-time -o gin.json
    npusim calibrate generic-cpu -m gin.json rgcn.json -o fitted.yaml

Each function returns (module, inputs); `gin_by_hand`, where the file has it, the best form that a person
writes. Original, export and that form run by turns in OpenVINO, f32, on one thread; times are medians of this
process's processor time. The exported stack is the one that `advise` names for the NPU, with --fp32 without
its 8-bit techniques; "share" is the part of the hand-written form's speed that it reaches.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import openvino

from npusim.frontends.pyg import as_arrays, convert
from npusim.frontends.valued import valued_module
from npusim.scenario import Scenario
from npusim.studies.advice import advise
from npusim.studies.agreement import NumericalRewriting
from npusim.techniques import Stack, parse

_LEAST_TURNS, _MOST_TURNS = 3, 40
_ONE_CORE = ["cpu.cores=1"]


def _run(model: Any, values: Mapping[str, Any]) -> Callable[[], float]:
    """Return a function that runs a model once and returns the processor time (s)."""
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    for name, value in values.items():  # once: the copy of inputs is Python's, not the network's
        request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(value)))
    request.infer(share_outputs=True)

    def timed() -> float:
        start = time.process_time()
        request.infer(share_outputs=True)
        return time.process_time() - start

    return timed


def measured(runs: tuple[Callable[[], float], ...], seconds: float) -> list[float]:
    """Return the median time of each run (s), by turns."""
    times: list[list[float]] = [[] for _ in runs]
    until = time.monotonic() + seconds
    while len(times[0]) < _LEAST_TURNS or (time.monotonic() < until and len(times[0]) < _MOST_TURNS):
        for readings, run in zip(times, runs, strict=True):
            readings.append(run())
    return [median(readings) for readings in times]


def row(
    name: str, module: Any, inputs: Any, by_hand: Any, soc: str, seconds: float, fp32: bool
) -> tuple[float, float] | None:
    """Print a row of the table, and return both speed-ups; None where nothing is exported."""
    network = valued_module(module, inputs, name)
    numbers = NumericalRewriting(network)
    stack = advise(Scenario(network.graph), judge=numbers.judge, samples=0).today.techniques
    if fp32:
        stack = str(Stack(tuple(entry for entry in parse(stack) if entry.technique.precision is None)))
    if stack == "none":
        print(f"| {name} | none | | | | | | | | |", flush=True)
        return None
    models = [numbers.model(each) for each in ("none", stack)]
    graphs = [numbers.graph(each) for each in ("none", stack)]
    values = [network.fed(graph, model) for graph, model in zip(graphs, models, strict=True)]
    runs = list(map(_run, models, values))
    if by_hand is not None:
        form, tensors = by_hand()
        runs.append(_run(convert(form, tensors), as_arrays(tensors)))
    plain, export, *hand = measured(tuple(runs), seconds)
    # The file of quantgr takes floating-point inputs, which its own operators round.
    in_file = stack.replace("quantgr", "quantgr:inputs=cpu")
    expected = [
        Scenario(network.graph, soc, each, device="cpu", settings=_ONE_CORE).mapped.total["throughput_per_s"]
        for each in ("none", in_file)
    ]
    speedup, predicted = plain / export, float(expected[1] / expected[0])
    times = f"{plain * 1e3:.3g} | {export * 1e3:.3g} | {1e3 / expected[0]:.3g} | {1e3 / expected[1]:.3g}"
    share = f"{hand[0] * 1e3:.3g} | {hand[0] / export:.0%}" if hand else "|"
    print(f"| {name} | {stack} | {times} | {speedup:.2f} | {predicted:.2f} | {share} |", flush=True)
    return predicted, speedup


def main(words: list[str]) -> None:
    """Print the table and how far predictions are off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--soc", default="generic-cpu")
    parser.add_argument("--fp32", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0)
    chosen = parser.parse_args(words)
    space = runpy.run_path(chosen.file)
    names = chosen.names or [function.__name__ for function in space["ALL"]]
    columns = ("measured (ms)", "export", "predicted (ms)", "export", "speed-up", "predicted")
    print("|", " | ".join(("network", "stack", *columns, "by hand (ms)", "share")), "|")
    print("| --- | --- |" + " ---: |" * (len(columns) + 2))
    pairs = []
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                by_hand = space.get(f"{name}_by_hand")
                pair = row(name, *space[name](), by_hand, chosen.soc, chosen.seconds, chosen.fp32)
        except Exception as error:  # whatever a module raises: it is the row's result
            print(f"| {name} | {type(error).__name__}: {str(error).splitlines()[0][:80]} |", flush=True)
            continue
        pairs += [pair] if pair is not None else []
    errors = sorted(abs(predicted / speedup - 1.0) for predicted, speedup in pairs)
    same = sum((predicted > 1.0) == (speedup > 1.0) for predicted, speedup in pairs)
    print(f"\n{len(pairs)} exports; same direction: {same}; median error {median(errors):.0%}")


if __name__ == "__main__":
    main(sys.argv[1:])
