"""Number formats: bits of an element, and the MAC rate it runs at."""

from __future__ import annotations

from enum import StrEnum

from npusim.errors import UnknownNameError

_BITS = {
    "fp64": 64,
    "fp32": 32,
    "fp16": 16,
    "bf16": 16,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
    "uint4": 4,
    "bool": 8,
}


class DType(StrEnum):
    """An element format, by the short name used everywhere in npusim."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    UINT4 = "uint4"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Bits an element takes in memory (a boolean is stored as a byte)."""
        return _BITS[self._value_]  # without the descriptor behind `value`: asked for millions of times

    @property
    def bytes(self) -> float:
        """Bytes an element takes in memory (int4: 0.5)."""
        return self.bits / 8

    @property
    def is_float(self) -> bool:
        """Whether the format is a floating-point one."""
        return self.value.startswith(("fp", "bf"))

    @classmethod
    def parse(cls, name: str) -> DType:
        """Return the dtype called `name`, or raise an `UnknownNameError` that names the nearest one."""
        try:
            return cls(name.lower())
        except ValueError:
            raise UnknownNameError("dtype", name, [d.value for d in cls]) from None
