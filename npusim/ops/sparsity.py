"""Regular sparsity: patterns of zeros, the bits of their index, and the wait for the fullest lane."""

import math
import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from npusim.errors import ConfigError
from npusim.units import refuse

_PATTERN = r"(?:(?P<kept>[1-9]\d{0,2}):(?P<group>[1-9]\d{0,2})|block:(?P<block>[1-9]\d{0,4})|channel)"
_PLAIN = re.sub(r"\?P<\w+>", "", _PATTERN)


def _checked(name: str) -> str:
    """Refuse a pattern that keeps more elements than there are."""
    match = re.fullmatch(_PATTERN, name)
    if match and match["kept"] and int(match["kept"]) > int(match["group"]):
        refuse(f"`{name}`", "at most as many elements as the group has")
    return name


PatternName = Annotated[str, StringConstraints(pattern=f"^{_PLAIN}$"), AfterValidator(_checked)]
"""Name of a pattern: N:M (N of M elements in a row), block:LENGTH, channel (whole output channels)."""


def parse_sparsity(text: str) -> tuple[str, float]:
    """Return pattern and density of a text: `2:4`, `block:16@0.25`, `channel@0.5` or `0.3` (no pattern).

    A `ConfigError` refuses another text.
    """
    name, has_share, share = text.rpartition("@")
    match = re.fullmatch(_PATTERN, name if has_share else text)
    try:
        density = float(share)
    except ValueError:
        density = math.nan
    if match and match["kept"] and not has_share:
        density = int(match["kept"]) / int(match["group"])
    elif match and match["kept"]:
        density = math.nan
    if (has_share and not match) or not 0.0 < density <= 1.0:
        allowed = "2:4, block:16@0.25, channel@0.5 or 0.3: a pattern, a share of non-zeros above 0, to 1"
        raise ConfigError(f"`{text}`", file="--set workload.weight_sparsity", allowed=allowed)
    return match[0] if match else "", density


def index_bits(pattern: str, elements: int, channels: int, density: float) -> float:
    """Return the bits that say where the non-zeros of a tensor lie, by its elements and output channels.

    N:M: the place in its group of every kept element (2:4: 2 bits); block: a bit for each block; channel: a
    bit for each channel; without a pattern: a bit for each element.
    """
    match = re.fullmatch(_PATTERN, pattern)
    if match is None:
        return float(elements)
    if match["group"]:
        return elements * density * math.ceil(math.log2(int(match["group"])))
    return float(-(-elements // int(match["block"])) if match["block"] else channels)


def kept_share(pattern: str, density: float, reduction: float, lanes: int) -> float:
    """Return the cycles of a product over those of dense operands, where zeros of a pattern are skipped.

    N:M and whole channels leave each lane the same work. Lanes of blocks wait for the fullest: the expected
    maximum over independent lanes of a binomial of `reduction / block` blocks.
    """
    match = re.fullmatch(_PATTERN, pattern)
    blocks = math.ceil(reduction / int(match["block"])) if match and match["block"] else 0
    if not blocks or density >= 1.0:
        return density
    log_kept, log_empty = math.log(density), math.log1p(-density)
    at_most = most = 0.0
    for kept in range(blocks):
        ways = math.lgamma(blocks + 1) - math.lgamma(kept + 1) - math.lgamma(blocks - kept + 1)
        at_most = min(1.0, at_most + math.exp(ways + kept * log_kept + (blocks - kept) * log_empty))
        most += 1.0 - at_most**lanes
    return max(density, most / blocks)
