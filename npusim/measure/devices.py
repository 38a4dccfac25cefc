"""OpenVINO devices: which are present, which one a user means, and its compile settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from npusim.errors import ConfigError, NpusimError
from npusim.frontends.openvino_ir import openvino

DEVICES = ("NPU", "GPU", "CPU")
"""Classes of device, as OpenVINO writes them."""

_REMEDIES = {
    "NPU": "install the NPU driver (Linux: intel/linux-npu-driver; Windows: Intel NPU Driver) and see that "
    "you may use the device",
    "GPU": "install Intel's GPU driver with its OpenCL runtime",
}

PRECISIONS = ("f32", "bf16", "f16")
"""Formats of floating point that a device may compute in, as OpenVINO writes them."""

_TILES, _THREADS = "NPU_TILES", "INFERENCE_NUM_THREADS"


class DeviceMissingError(NpusimError):
    """A device that OpenVINO does not find here."""

    def __init__(self, wanted: str, found: tuple[str, ...]) -> None:
        self.wanted, self.found = wanted, found
        remedy = _REMEDIES.get(kind_of(wanted).upper())
        super().__init__(
            f"OpenVINO finds no device {wanted} here. Devices found: {'; '.join(found) or 'none'}"
            + (f". For {kind_of(wanted).upper()}: {remedy}" if remedy else "")
        )


def load_openvino() -> Any:
    """Return the module openvino, or say how to install it."""
    return openvino("devices are measured with it")


def kind_of(device: str) -> Literal["npu", "gpu", "cpu"]:
    """Return the class of a device: gpu for GPU.1."""
    return cast('Literal["npu", "gpu", "cpu"]', device.partition(".")[0].lower())


def find_device(core: Any, wanted: str) -> str:
    """Return OpenVINO's name of the device that is meant.

    Parameters
    ----------
    wanted : str
        NPU, GPU or CPU, in any case, or one of several as OpenVINO numbers them: GPU.1.

    Raises
    ------
    DeviceMissingError
        Where it is not there; the message lists those that are.
    """
    there = list(core.available_devices)
    meant = wanted.upper()
    for name in there:
        if name == meant or name == f"{meant}.0":
            return str(name)
    if meant in DEVICES:
        of_class = [name for name in there if name.partition(".")[0] == meant]
        if of_class:
            return str(of_class[0])
    raise DeviceMissingError(meant, devices_found(core))


def devices_found(core: Any) -> tuple[str, ...]:
    """Return the devices that OpenVINO finds, each with its full name."""
    return tuple(f"{name} ({core.get_property(name, 'FULL_DEVICE_NAME')})" for name in core.available_devices)


@dataclass(frozen=True)
class Setting:
    """How all networks of a measurement are compiled.

    The format is always set: a CPU that knows bf16 computes an fp32 model in bf16 unless told otherwise.
    """

    device: str
    """OpenVINO's name."""
    precision: str
    """Format of floating point asked for."""
    tiles: int | None
    """Tiles of an NPU; None leaves it to the compiler."""
    supported: frozenset[str]
    """Properties that the device takes."""
    one_thread: bool = False
    """Whether a CPU computes with one thread."""

    @classmethod
    def of(
        cls, core: Any, device: str, precision: str | None, tiles: int | None, one_thread: bool = False
    ) -> Setting:
        """Return the setting for a device: f32 on a CPU, f16 elsewhere, unless asked otherwise.

        Raises
        ------
        ConfigError
            For tiles on a device that has none, one thread of a device that is no CPU.
        """
        supported = frozenset(core.get_property(device, "SUPPORTED_PROPERTIES"))
        if tiles is not None and _TILES not in supported:
            raise ConfigError(
                f"`{tiles}`", file="--tiles", allowed=f"tiles of an NPU; {device} has none that can be chosen"
            )
        if one_thread and kind_of(device) != "cpu":
            allowed = "with --device CPU: no other device works in processor time"
            raise ConfigError(f"device {device}", file="--processor-time", allowed=allowed)
        chosen = precision or ("f32" if kind_of(device) == "cpu" else "f16")
        return cls(device, chosen, tiles, supported, one_thread)

    @property
    def kind(self) -> str:
        """Class of device: npu, gpu, cpu."""
        return kind_of(self.device)

    def properties(self, hint: str, requests: int | None, profiling: bool) -> dict[str, str]:
        """Return what OpenVINO is told when it compiles.

        Parameters
        ----------
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
        if self.one_thread:
            told[_THREADS] = "1"
        return told
