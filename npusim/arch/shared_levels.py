"""Memory levels that several devices of a SoC share: each stands once, and devices name it."""

from __future__ import annotations

from collections.abc import Mapping

from npusim.arch.levels import OUTER_LEVELS, OuterLevel
from npusim.arch.npu import Npu
from npusim.errors import nearest
from npusim.units import refuse


def outer_levels(device: Npu, shared: Mapping[str, OuterLevel]) -> dict[str, OuterLevel]:
    """Return a device's own levels, the nearest first, and outside them the one that it shares."""
    found = dict(device.levels)
    if device.shared_level is not None:
        found[device.shared_level] = shared[device.shared_level]
    return found


def refuse_wrong_levels(shared: Mapping[str, OuterLevel], devices: Mapping[str, Npu]) -> None:
    """Refuse, inside a validator, a shared level that is not there, that nobody reads, or one too many.

    Parameters
    ----------
    shared : mapping
        The SoC's levels.
    devices : mapping
        Array devices by name.
    """
    for name, device in devices.items():
        wanted, at = device.shared_level, f"devices.{name}.shared_level"
        if wanted is None:
            continue
        if wanted not in shared:
            known = ", ".join(shared) or "none: the SoC has no `levels`"
            refuse(f"the level `{wanted}`", known, nearest(wanted, shared), at=at)
        if wanted in device.levels:
            refuse(f"`{wanted}`, a level of its own, too", "another name for one of them", at=at)
        if len(device.levels) >= OUTER_LEVELS:
            refuse(f"{len(device.levels) + 1} levels", f"at most {OUTER_LEVELS}, this one included", at=at)
    read = {device.shared_level for device in devices.values()}
    for name in shared:
        if name not in read:
            able = f"of {', '.join(devices)}" if devices else "no NPU or accelerator is there"
            allowed = f"one that a device names as its `shared_level` ({able})"
            refuse("a level that nobody reads", allowed, at=f"levels.{name}")
