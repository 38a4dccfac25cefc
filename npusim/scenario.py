"""How a network is run on a SoC: the settings of a user, made definite."""

from __future__ import annotations

from typing import get_args

from npusim.arch import Soc
from npusim.errors import NpusimError, UnknownNameError
from npusim.mapping import Run
from npusim.mapping.placement import DeviceChoice

__all__ = ["resolve_run"]

_HINTS = ("latency", "throughput")


def resolve_run(
    soc: Soc,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | None = None,
    device: str = "auto",
    swap_operands: bool = False,
) -> Run:
    """Make a performance hint definite on a SoC.

    Parameters
    ----------
    soc : Soc
    hint : {"latency", "throughput"}
        One inference at a time on the SoC's tiles for latency, or several in flight on its tiles for
        throughput.
    requests : int, optional
        Inferences in flight; None: the SoC's default for the hint, without an NPU one, and one a core for
        throughput.
    tiles : int, optional
        Tiles an inference is compiled for; None: the SoC's default for the hint, without an NPU none.
    device : {"auto", "npu", "cpu", "gpu"}
    swap_operands : bool

    Raises
    ------
    UnknownNameError
        For another hint or device.
    NpusimError
        For a device that the SoC lacks, a number of tiles that the NPU has not, or fewer than one request.
    """
    if hint not in _HINTS:
        raise UnknownNameError("performance hint", hint, _HINTS)
    if device not in get_args(DeviceChoice):
        raise UnknownNameError("device", device, get_args(DeviceChoice))
    if requests is not None and requests < 1:
        raise NpusimError(f"--requests: found {requests}; allowed: a whole number of at least 1")
    if device != "auto" and not soc.has(device):
        raise NpusimError(f"--device: {soc.name} has no {device.upper()}; allowed: {_devices(soc)}")
    if not soc.has("npu"):
        if tiles:
            raise NpusimError(f"--tiles: found {tiles}, but {soc.name} has no NPU; leave it out")
        streams = 1 if hint == "latency" else _streams(soc, device)
        return Run(hint, requests or streams, 0, device)  # type: ignore[arg-type]  # checked above
    physical = int(soc.npu.tiles)
    if tiles is not None and not 1 <= tiles <= physical:
        raise NpusimError(f"--tiles: found {tiles}; allowed: 1 to {physical}, the tiles of {soc.name}'s NPU")
    in_flight = requests if requests is not None else int(getattr(soc.npu.inflight_requests, hint))
    used = tiles if tiles is not None else min(physical, int(getattr(soc.npu.tiles_for, hint)))
    return Run(hint, in_flight, used, device, swap_operands)  # type: ignore[arg-type]  # checked above


def _devices(soc: Soc) -> str:
    return ", ".join(["auto", *(kind for kind in ("npu", "cpu", "gpu") if soc.has(kind))])


def _streams(soc: Soc, device: str) -> int:
    """Inferences that keep all cores busy."""
    kind = soc.main_kind if device == "auto" else device
    return int(soc.gpu.cores if kind == "gpu" else soc.cpu.cores)
