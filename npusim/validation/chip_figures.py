"""Published figures of chips with a MAC array: Eyeriss' layers of AlexNet, NVDLA's rates of ResNet-50."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npusim.arch import load_soc
from npusim.config.tables import Choice, Text, read_table
from npusim.errors import ConfigError
from npusim.graph import Editor, Graph
from npusim.ops import DType
from npusim.scenario import Scenario
from npusim.validation.evidence import Evidence
from npusim.validation.peer_figures import MaybeNumber
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine

_SOCS = {"eyeriss": ("eyeriss", "eyeriss"), "nvdla": ("nvdla-large", "dla")}
"""Data sheet of each chip, and the device on it."""
_LAYER = ("batch", "in_c", "size", "out_c", "kernel", "stride", "pad", "groups", "pe_energy_share")
_CONFIGURATION = ("kernels", "channels", "buffer_kib", "dram_gb_s")
_LARGEST_MACS, _POST_PROCESSED, _NARROWEST_BYTES = 2048, 16, 8


def _convolution(row: Mapping[str, Any]) -> Graph:
    """Return one group of a convolution as a network."""
    batch, in_c, size, out_c, kernel, stride, pad = (int(row[name]) for name in _LAYER[:7])
    editor, out = Editor("layer"), (size + 2 * pad - kernel) // stride + 1
    image = editor.input("image", (batch, in_c, size, size), DType.FP16)
    weights = editor.constant("weights", (out_c, in_c, kernel, kernel), DType.FP16)
    result = editor.op(
        "Convolution",
        (image, weights),
        (batch, out_c, out, out),
        DType.FP16,
        "conv",
        strides=(stride, stride),
    )
    editor.outputs.append(result)
    return editor.finish()


def _of_layer(row: Mapping[str, Any]) -> float:
    """Return the time (s) of a layer, or the power (W) of the chip without DRAM."""
    name, device = _SOCS[row["chip"]]
    total = Scenario(_convolution(row), name, device=device).mapped.total
    if row["quantity"] == "time":
        return float(total["latency_s"] * row["groups"])
    on_chip = total["energy_j"] - total["dram_j"] - total["mac_j"] * (1.0 - row["pe_energy_share"])
    return float(on_chip / total["latency_s"])


def _of_network(row: Mapping[str, Any]) -> float:
    """Return the rate (1/s) of ResNet-50; buses are as wide as what a MAC unit takes in a cycle."""
    name, device = _SOCS[row["chip"]]
    kernels, channels = int(row["kernels"]), int(row["channels"])
    wide = max(_NARROWEST_BYTES, channels)
    slower = _LARGEST_MACS // (kernels * channels)
    settings = {
        f"{device}.dpu.array.axes.kernels": kernels,
        f"{device}.dpu.array.axes.channels": channels,
        f"{device}.sram.per_tile": f"{row['buffer_kib']:g} KiB",
        f"{device}.sram.word": f"{channels} B",
        f"{device}.dma.width": f"{wide} B/cycle",
        f"{device}.dsp.kernels.sdp.reference_lanes": _POST_PROCESSED * slower,
        "dram.bandwidth": f"{row['dram_gb_s']:g} GB/s",
    }
    soc = load_soc(name, settings)
    total = Scenario("resnet-50", soc, device=device, settings=["workload.precision=int8"]).mapped.total
    return 1.0 / float(total["latency_s"])


class ChipFigures:
    """Predicts published figures of chips on their data sheets."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows of a file with their predictions; see `npusim.validation.evidence.Predictor`."""
        assert path is not None, "figures of chips are a table"
        words = [Choice("chip", tuple(_SOCS)), Text("name"), Choice("quantity", ("time", "power", "rate"))]
        numbers = [MaybeNumber(name) for name in ("measured", *_LAYER, *_CONFIGURATION)]
        table = read_table(path, [*words, *numbers])
        rows, predicted = [], []
        for place, line in enumerate(table.lines):
            row: dict[str, Any] = {name: values[place] for name, values in table.columns.items()}
            is_network = row["quantity"] == "rate"
            needed = _CONFIGURATION if is_network else _LAYER[: 9 if row["quantity"] == "power" else 8]
            for name in ("measured", *needed):
                if np.isnan(row[name]):
                    raise ConfigError("nothing", file=table.file, line=line, key=name, allowed="a number")
            rows.append(row | {"line": line})
            predicted.append(_of_network(row) if is_network else _of_layer(row))
        return Evidence(
            ids=[f"{row['line']} {row['name']}: {row['quantity']}" for row in rows],
            columns={
                name: np.array([row[name] for row in rows], object) for name in ("chip", "name", "quantity")
            },
            measured=np.array([row["measured"] for row in rows]),
            predicted=np.array(predicted),
            unit="",
            dimensions=("chip", "name", "quantity"),
            notes=[],
        )


CHIPS = ChipFigures()
"""Times and powers of Eyeriss' layers, rates of NVDLA's configurations."""
