"""Compile settings of a network: hint, floating-point format, tiles, profiling.

The format is always set: a CPU that knows bf16 computes an fp32 model in bf16 unless told otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.errors import ConfigError
from npusim.measure.devices import kind_of

__all__ = ["PRECISIONS", "Setting"]

PRECISIONS = ("f32", "bf16", "f16")
"""Formats of floating point that a device may compute in, as OpenVINO writes them."""

_TILES = "NPU_TILES"


@dataclass(frozen=True)
class Setting:
    """How all networks of a measurement are compiled.

    Attributes
    ----------
    device : str
        OpenVINO's name.
    precision : str
        Format of floating point asked for.
    tiles : int or None
        Tiles of an NPU; None leaves it to the compiler.
    supported : frozenset of str
        Properties that the device takes.
    """

    device: str
    precision: str
    tiles: int | None
    supported: frozenset[str]

    @classmethod
    def of(cls, core: Any, device: str, precision: str | None, tiles: int | None) -> Setting:
        """Return the setting for a device: f32 on a CPU, f16 elsewhere, unless asked otherwise.

        Raises
        ------
        ConfigError
            For tiles on a device that has none.
        """
        supported = frozenset(core.get_property(device, "SUPPORTED_PROPERTIES"))
        if tiles is not None and _TILES not in supported:
            raise ConfigError(
                f"`{tiles}`", file="--tiles", allowed=f"tiles of an NPU; {device} has none that can be chosen"
            )
        chosen = precision or ("f32" if kind_of(device) == "cpu" else "f16")
        return cls(device, chosen, tiles, supported)

    @property
    def kind(self) -> str:
        """Class of device: npu, gpu, cpu."""
        return kind_of(self.device)

    def properties(self, hint: str, requests: int | None, profiling: bool) -> dict[str, str]:
        """Return what OpenVINO is told when it compiles.

        Parameters
        ----------
        hint : str
            latency or throughput.
        requests : int or None
            Inferences in flight; None leaves it to the device.
        profiling : bool
            Whether the device counts each operator's time, which slows it down.
        """
        told = {"PERFORMANCE_HINT": hint.upper(), "PERF_COUNT": "YES" if profiling else "NO"}
        if "INFERENCE_PRECISION_HINT" in self.supported:
            told["INFERENCE_PRECISION_HINT"] = self.precision
        if requests is not None and "PERFORMANCE_HINT_NUM_REQUESTS" in self.supported:
            told["PERFORMANCE_HINT_NUM_REQUESTS"] = str(requests)
        if self.tiles is not None:
            told[_TILES] = str(self.tiles)
        return told
