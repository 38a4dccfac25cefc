"""Element types, fixed shapes and settings of OpenVINO's nodes as npusim has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npusim.errors import UnfixedSizeError
from npusim.ops import DType, Settings

DTYPES = {
    "f64": DType.FP64,
    "f32": DType.FP32,
    "f16": DType.FP16,
    "bf16": DType.BF16,
    "i64": DType.INT64,
    "u64": DType.INT64,
    "i32": DType.INT32,
    "u32": DType.INT32,
    "i16": DType.INT16,
    "u16": DType.INT16,
    "i8": DType.INT8,
    "u8": DType.UINT8,
    "f8e4m3": DType.UINT8,
    "f8e5m2": DType.UINT8,
    "i4": DType.INT4,
    "u4": DType.UINT4,
    "nf4": DType.UINT4,
    "f4e2m1": DType.UINT4,
    "boolean": DType.BOOL,
}
"""OpenVINO's element types; formats npusim has no name for stand as the one of their size."""


def shape_of(output: Any) -> tuple[int, ...]:
    """Fixed shape of an output; a dimension bounded by an interval is taken at its upper end."""
    partial = output.get_partial_shape()
    node = output.get_node()
    if partial.rank.is_static:
        longest = tuple(d.get_max_length() for d in partial)
        if all(d >= 0 for d in longest):
            return tuple(int(d) for d in longest)
    raise UnfixedSizeError(node.get_friendly_name(), node.get_type_name(), str(partial))


def attributes_of(
    settings: Settings,
    kind: str,
    raw: Mapping[str, Any],
    rank: int,
    constant: Callable[[int], list[int] | None],
) -> dict[str, Any]:
    """Return an operator's settings as `Operator.attrs` names them.

    Parameters
    ----------
    rank : int
        Dimensions of the first input, to count negative axes from.
    constant : callable
        Returns the values of the constant at a port, or None where it is not known.
    """
    attrs = {key: _plain(raw[key]) for key in settings.attributes if key in raw}
    if isinstance(settings.axes, int):
        axes = constant(settings.axes)
    else:
        axes = [raw[settings.axes]] if settings.axes is not None and settings.axes in raw else None
    if axes is not None:
        attrs["axes"] = tuple(sorted(int(axis) % rank if rank else 0 for axis in axes))
    if kind == "Transpose":
        order = constant(1)
        attrs["order"] = tuple(order) if order else tuple(reversed(range(rank)))
    return attrs


def _plain(value: Any) -> Any:
    """Return an attribute in plain Python; OpenVINO hands lists of numbers over in types of its own."""
    return value if isinstance(value, bool | int | float | str) else tuple(int(v) for v in value)
