"""Operating points by name: what `DEVICE.operating_point=NAME` and `operating_point=NAME` set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npusim.config import Override
from npusim.errors import ConfigError, nearest
from npusim.units import refuse


def refuse_unknown_points(points: Mapping[str, Mapping[str, str]], sections: Mapping[str, Any]) -> None:
    """Refuse, inside a validator, a named setting of points that some device lacks.

    Parameters
    ----------
    points : mapping
        Of each name the point of each device.
    sections : mapping
        Devices, and DRAM, by name.
    """
    for name, chosen in points.items():
        for device, point in chosen.items():
            at = f"operating_points.{name}.{device}"
            if device not in sections:
                refuse(f"the device `{device}`", ", ".join(sections), nearest(device, sections), at=at)
            known = sections[device].operating_points
            if point not in known:
                has = ", ".join(known) or f"none: {device} has no operating points"
                refuse(f"the operating point `{point}`, which {device} lacks", has, nearest(point, known), at)


def known_point(override: Override, points: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    """Return what an operating point of the value's name sets."""
    if override.value not in points:
        name = str(override.value)
        raise ConfigError(
            f"the unknown operating point `{name}`",
            file=override.origin,
            allowed=", ".join(points) if points else f"none: {owner} has no operating points",
            suggestion=nearest(name, points),
        )
    found: Mapping[str, Any] = points[override.value]
    return found


def set_operating_point(override: Override, path: tuple[str, ...], data: Any) -> list[Override]:
    """Return the settings of an operating point of one device, or of DRAM, at `path`."""
    section = data[path[0]] if len(path) == 1 else data[path[0]][path[1]]
    owner = "DRAM" if path == ("dram",) else "the device"
    point = known_point(override, section.get("operating_points") or {}, owner)
    # An NPU has two clocks; every other device has one.
    places = {"dpu_clock": ("dpu", "clock")}
    found = [override.at((*path, *places.get(name, (name,))), value) for name, value in point.items()]
    if section.get("sustained_clock_share") is not None:
        found.append(override.at((*path, "sustained_clock_share"), None))
    return found
