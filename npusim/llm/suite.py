"""Time of a token of Llama on the three devices of a laptop, as NITRO measured it (arXiv 2412.11053)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npusim.scenario import Scenario
from npusim.validation.evidence import Evidence
from npusim.validation.figures import read_keyed
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine

SOC = "core-ultra-nitro"
_TIMES, _GROWTH = "nitro.ms_per_token", "nitro.increase_s_per_token_seq128_to_2048_llama3_8b"
_MODELS, _DEVICES = ("llama3.2-1b", "llama3.2-3b", "llama3-8b"), ("cpu", "gpu", "npu")
_LENGTHS = (128, 2048)


class Key(NamedTuple):
    """What a figure is of."""

    quantity: str
    model: str
    device: str


def parse_key(path: str) -> Key | None:
    """Return what a figure of this path is of; None where the suite does not know it."""
    for model in _MODELS:
        for device in _DEVICES:
            if path == f"{_TIMES}.{model}.{device}":
                return Key("ms_per_token", model, device)
    device = path.removeprefix(f"{_GROWTH}.")
    return Key("increase_s", "llama3-8b", device) if device in _DEVICES else None


def settings_of(device: str, places: int) -> list[str]:
    """Return how NITRO ran a model: OpenVINO 2024.4, which a CPU without fp16 arithmetic runs in fp32."""
    precision = "fp32" if device == "cpu" else "fp16"
    return [
        f"workload.max_sequence={places}",
        "workload.attention=separate",
        f"workload.precision={precision}",
    ]


@cache
def token_s(model: str, device: str, places: int = _LENGTHS[0], changes: tuple[str, ...] = ()) -> float:
    """Return the predicted time of a token (s), with changes to the data sheet as `--set` takes them."""
    settings = [*settings_of(device, places), *changes]
    return float(Scenario(model, SOC, device=device, settings=settings).mapped.total["latency_s"])


def predicted(key: Key) -> float:
    """Return the prediction of a figure, in its unit."""
    if key.quantity == "ms_per_token":
        return 1e3 * token_s(key.model, key.device)
    short, long = (token_s(key.model, key.device, places) for places in _LENGTHS)
    return long - short


class _Nitro:
    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows with their predictions; see `npusim.validation.evidence.Predictor`."""
        assert path is not None, "published figures are a file"
        figures, notes = read_keyed(path, lambda name: parse_key(name) is not None, (_TIMES, _GROWTH))
        keys = [key for one in figures if (key := parse_key(one.id)) is not None]
        return Evidence(
            ids=[one.id for one in figures],
            columns={name: np.array([getattr(k, name) for k in keys], object) for name in Key._fields},
            measured=np.array([one.value for one in figures]),
            predicted=np.array([predicted(key) for key in keys]),
            unit="",
            dimensions=("model", "device"),
            notes=notes,
        )


FIGURES = _Nitro()
"""NITRO's figures, by their path in the file."""
