"""Who runs what a device cannot: the chain of fallbacks of a SoC's devices."""

from __future__ import annotations

from collections.abc import Mapping

from npusim.errors import nearest
from npusim.units import refuse


def refuse_wrong_fallbacks(fallbacks: Mapping[str, str | None]) -> None:
    """Refuse, inside a validator, a fallback that is no device, or that leads back to where it began.

    Parameters
    ----------
    fallbacks : mapping
        Of each device the one that runs what it cannot; None: there is none.
    """
    for name, wanted in fallbacks.items():
        at = f"devices.{name}.fallback"
        if wanted is None:
            continue
        if wanted not in fallbacks:
            refuse(f"the device `{wanted}`", ", ".join(fallbacks), nearest(wanted, fallbacks), at=at)
        if wanted == name:
            others = ", ".join(other for other in fallbacks if other != name) or "no fallback"
            refuse(f"`{wanted}`, the device itself", f"another device: {others}", at=at)
    for name in fallbacks:
        passed, following = [name], fallbacks[name]
        while following is not None:
            if following in passed:
                circle = " -> ".join([*passed, following])
                refuse(circle, "fallbacks that end", at=f"devices.{name}.fallback")
            passed.append(following)
            following = fallbacks[following]
