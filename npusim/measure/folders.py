"""Folders of exported models that other packages teach `npusim measure` to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import FileError
from npusim.plugins import Registry

if TYPE_CHECKING:
    from npusim.measure.suites import Item
    from npusim.measure.timing import TimedNetwork
    from npusim.scenario import Scenario


@dataclass(frozen=True)
class MeasuredFolder:
    """A kind of folder that `npusim measure FOLDER` runs."""

    name: str
    """What a message calls such a folder, such as "exported language model"."""
    make: str
    """Command that makes one."""
    holds: Callable[[Path], bool]
    """Whether a folder is of this kind."""
    rows: Callable[[Scenario, Path, str, int | None], tuple[Item, ...]]
    """Rows to measure, from what is asked, the folder, the hint and the number of requests."""
    load: Callable[[Path, str, Mapping[str, str]], tuple[Any, int]]
    """Returns the compiled network and its size in bytes, from folder, device and properties."""
    compiled: Callable[[Any], Any]
    """Returns OpenVINO's compiled model, which describes the device, from what `load` returned."""
    timed: Callable[[Item, Any], TimedNetwork]
    """Returns the network to time, from the row and what `load` returned."""


FOLDERS = Registry("npusim.measured_folders", "kind of folder", MeasuredFolder)
"""Every kind of folder by name."""


def folder_kind(folder: Path) -> MeasuredFolder:
    """Return the kind of a folder; a `FileError` where no package knows it."""
    for kind in FOLDERS.values():
        if kind.holds(folder):
            return kind
    names = " or ".join(kind.name for kind in FOLDERS.values())
    makers = " or ".join(kind.make for kind in FOLDERS.values())
    raise FileError(str(folder), f"is no {names}" if names else "holds no .xml files", f"make one: {makers}")
