"""Number formats as data: `configs/formats.yaml`."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from npusim.config import Section, load_model
from npusim.errors import ConfigError
from npusim.locate import resource
from npusim.ops.sparsity import parse_sparsity


class NumberFormat(Section):
    """What an element of a tensor takes, and how a grid without a rate of its own multiplies it."""

    title: str
    """What it is, in words."""
    kind: Literal["float", "integer", "boolean"]
    """Kind of numbers: which operators may compute in it."""
    bits: int = Field(ge=1, le=64)
    """Bits of an element in memory, without the scale of its block."""
    block: int = Field(default=1, ge=1, le=65536)
    """Elements that share a scale, along memory; the last block of a tensor may be shorter."""
    scale_bits: int = Field(default=0, ge=0, le=64)
    """Bits of the scale of a block. Absent: none."""
    floating: tuple[PositiveInt, PositiveFloat] | None = None
    """Bits of the exponent of an element, and its largest value. Absent: an integer, or a binary fraction."""
    computed_in: list[str]
    """Formats in which a grid computes it, by preference."""
    source: str
    """Where the format is defined."""

    @property
    def stored_bits(self) -> float:
        """Bits of an element and its share of a scale, in full blocks."""
        return self.bits + self.scale_bits / self.block


class FormatFile(Section):
    """Number formats by name: `configs/formats.yaml`."""

    formats: dict[str, NumberFormat]
    """Format of each name that data sheets and workloads use."""


FORMATS = load_model(resource("configs", "formats.yaml"), FormatFile).formats
"""Number formats by name."""


if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]
    """Name of a number format."""


_STORAGE = {name: (form.bits / 8, form.block, form.scale_bits / 8) for name, form in FORMATS.items()}


def dense_bytes(elements: int, name: str) -> float:
    """Return the bytes of elements of a format, with the scale of every block, the last one included."""
    item_bytes, block, scale_bytes = _STORAGE[name]
    return elements * item_bytes + (-(-elements // block) * scale_bytes if scale_bytes else 0.0)


_WIDE_BITS = 16


@dataclass(frozen=True)
class Formats:
    """Formats and zeros of the operands of a network's products; None: as the network is built."""

    weights: str | None = None
    activations: str | None = None
    weight_sparsity: str | None = None
    """Pattern or density, as `npusim.ops.sparsity.parse_sparsity` reads it."""
    activation_density: float | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether activations have fewer than 16 bits."""
        return self.activations is not None and FORMATS[self.activations].bits < _WIDE_BITS

    def check(self) -> None:
        """Raise a `ConfigError` for formats that no product has, or weights wider than activations."""
        for key, name in (("weights", self.weights), ("activations", self.activations)):
            products = [each for each, form in FORMATS.items() if form.computed_in]
            if name is not None and name not in products:
                raise ConfigError(
                    f"`{name}`", key=key, allowed=f"a format of products: {', '.join(products)}"
                )
        if self.weight_sparsity is not None:
            parse_sparsity(self.weight_sparsity)
        widest = FORMATS[self.activations].bits if self.activations is not None else math.inf
        if self.weights is not None and FORMATS[self.weights].bits > widest:
            found = f"weights in {self.weights} and activations in {self.activations}"
            raise ConfigError(found, key="weights", allowed="weights of at most the activations' bits")
