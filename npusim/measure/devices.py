"""OpenVINO devices: which are present, and which one a user means."""

from __future__ import annotations

from typing import Any, Literal, cast

from npusim.errors import FileError, NpusimError

__all__ = ["DEVICES", "DeviceMissingError", "devices_found", "find_device", "kind_of", "load_openvino"]

DEVICES = ("NPU", "GPU", "CPU")
"""Classes of device, as OpenVINO writes them."""

_REMEDIES = {
    "NPU": "install the NPU driver (Linux: intel/linux-npu-driver; Windows: Intel NPU Driver) and see that "
    "you may use the device",
    "GPU": "install Intel's GPU driver with its OpenCL runtime",
}


class DeviceMissingError(NpusimError):
    """A device that OpenVINO does not find here.

    Parameters
    ----------
    wanted : str
        What was asked for.
    found : tuple of str
        Each device that is there, with its full name.
    """

    def __init__(self, wanted: str, found: tuple[str, ...]) -> None:
        self.wanted, self.found = wanted, found
        remedy = _REMEDIES.get(kind_of(wanted).upper())
        super().__init__(
            f"OpenVINO finds no device {wanted} here. Devices found: {'; '.join(found) or 'none'}"
            + (f". For {kind_of(wanted).upper()}: {remedy}" if remedy else "")
        )


def load_openvino() -> Any:
    """Return the module openvino, or say how to install it.

    Raises
    ------
    FileError
        Where it is not installed.
    """
    try:
        import openvino
    except ImportError:
        raise FileError(
            "openvino",
            "is not installed, and devices are measured with it",
            'install it: pip install "npusim[openvino]"',
        ) from None
    return openvino


def kind_of(device: str) -> Literal["npu", "gpu", "cpu"]:
    """Return the class of a device: gpu for GPU.1."""
    return cast('Literal["npu", "gpu", "cpu"]', device.partition(".")[0].lower())


def find_device(core: Any, wanted: str) -> str:
    """Return OpenVINO's name of the device that is meant.

    Parameters
    ----------
    core : openvino.Core
    wanted : str
        NPU, GPU or CPU, in any case, or one of several as OpenVINO numbers them: GPU.1.

    Returns
    -------
    str
        The name under which it compiles.

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
