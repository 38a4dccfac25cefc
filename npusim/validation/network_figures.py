"""Whole networks as OpenVINO publishes them: throughput and latency by platform, device and precision."""

from __future__ import annotations

import math
from pathlib import Path

from npusim.config.tables import Choice, Column, MaybeNumber, Text, Word, csv_records, read_table
from npusim.files import read_text
from npusim.locate import resource
from npusim.validation.measured_networks import MeasuredNetworks, MeasuredRow, definitions
from npusim.workloads import workload_published_as

FIGURES, HOST_FIGURES = "openvino_published.csv", "openvino_published_hosts.csv"
"""Figures of NPUs; of CPU and GPU, read after them unless a user names a file."""
_LATENCY = "latency_ms_sync_int8"
_PRECISIONS = ("fp16", "int8")
_FRAMES = "FPS"


def published_rows(path: Path) -> tuple[list[MeasuredRow], list[str]]:
    """Return the numbers of tables that can be predicted, and a note for each network that cannot.

    A column `device` or `npu` names the device. The shipped table of NPUs has that of the hosts after it.
    """
    shipped = resource("validate", "figures", FIGURES)
    parts = [_read(file) for file in ([path, shipped.with_name(HOST_FIGURES)] if path == shipped else [path])]
    return [row for rows, _ in parts for row in rows], [note for _, notes in parts for note in notes]


def _read(path: Path) -> tuple[list[MeasuredRow], list[str]]:
    _, header = next(csv_records(read_text(path), str(path)), (1, []))
    device: Column = Choice("device", ("npu", "cpu", "gpu")) if "device" in header else Word("npu")
    columns: list[Column] = [Text("platform"), device, Text("model"), Text("precision")]
    columns += [MaybeNumber("throughput"), Choice("throughput_unit", (_FRAMES, "tok/s", ""))]
    columns += [MaybeNumber(_LATENCY)] + ([Text("note")] if "note" in header else [])
    table, rows, notes = read_table(path, columns), list[MeasuredRow](), list[str]()
    for line, values in table.rows():
        platform, network, precision = values["platform"], values["model"], values["precision"]
        unit, workload = str(values[device.name]).lower(), workload_published_as(network)
        soc, note = definitions().soc(platform), str(values.get("note", ""))
        reasons = {
            f"there is no data sheet of {platform}": soc is None,
            "a token is no inference of it": values["throughput_unit"] not in (_FRAMES, ""),
            f"precisions are {', '.join(_PRECISIONS)}": precision not in _PRECISIONS,
            "npusim builds no such network": workload is None,
        }
        if any(reasons.values()) or soc is None or workload is None:
            why = next(reason for reason, holds in reasons.items() if holds)
            notes.append(f"{path.name}: left out {network} ({precision}): {why}")
            continue
        reason = definitions().reason(platform, workload) or (note if "anomalous" in note.lower() else "")
        run = (soc, "npu" if unit.startswith("npu") else unit, workload, precision)
        for hint, value in (("throughput", values["throughput"]), ("latency", 1e-3 * values[_LATENCY])):
            if not math.isnan(value):
                is_time = hint == "latency"
                rows.append(MeasuredRow(line, platform, *run, hint, value, is_time, reason=reason))
    return rows, notes


PUBLISHED = MeasuredNetworks(read=published_rows, intervals=False)
"""Throughput and latency of whole networks on NPU, CPU and GPU."""
