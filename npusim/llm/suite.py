"""Time of a token of Llama on the three devices of a laptop, as NITRO measured it (arXiv 2412.11053)."""

from __future__ import annotations

from functools import cache

from npusim.scenario import Scenario
from npusim.validation.figures import Key, PathPredictor
from npusim.workloads import workload_names

SOC = "core-ultra-nitro"
_LENGTHS = (128, 2048)


@cache
def token_s(model: str, device: str, places: int = _LENGTHS[0], changes: tuple[str, ...] = ()) -> float:
    """Return the predicted time of a token (s), with changes to the data sheet as `--set` takes them.

    NITRO ran OpenVINO 2024.4, which uses fp32 on a CPU without fp16 arithmetic.
    """
    settings = [
        f"workload.max_sequence={places}",
        "workload.attention=separate",
        f"workload.precision={'fp32' if device == 'cpu' else 'fp16'}",
    ]
    scenario = Scenario(model, SOC, device=device, settings=[*settings, *changes])
    return float(scenario.mapped.total["latency_s"])


@cache
def measured_token_s(
    model: str, soc: str, device: str, precision: str, prompt: int, changes: tuple[str, ...] = ()
) -> float | None:
    """Return the time of a token of a model on a SoC's device (s); None: npusim builds no such model.

    Weights are packed in `precision`; the cache holds the prompt.
    """
    if model not in workload_names("llm"):
        return None
    settings = [f"workload.max_sequence={prompt}", f"workload.weights={precision}"]
    scenario = Scenario(model, soc, device=device, settings=[*settings, *changes])
    return float(scenario.mapped.total["latency_s"])


def predicted(key: Key) -> float:
    """Return the prediction of a figure, in its unit."""
    if key["quantity"] == "ms_per_token":
        return 1e3 * token_s(key["model"], key["device"])
    short_s, long_s = (token_s(key["model"], key["device"], places) for places in _LENGTHS)
    return long_s - short_s


FIGURES = PathPredictor(predicted)
