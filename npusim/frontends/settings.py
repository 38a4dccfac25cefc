"""Operands of OpenVINO operators that are settings, and their names in `Operator.attrs`.

An axis, an order or a target shape that is known when the model is compiled moves no data at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["SETTING_PORTS", "attributes_of"]

SETTING_PORTS: Mapping[str, frozenset[int]] = {
    "Reshape": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Unsqueeze": frozenset({1}),
    "Transpose": frozenset({1}),
    "Gather": frozenset({2}),
    "ScatterElementsUpdate": frozenset({3}),
    "ScatterUpdate": frozenset({3}),
    "Broadcast": frozenset({1, 2}),
    "Tile": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "StridedSlice": frozenset({1, 2, 3}),
    "Split": frozenset({1}),
    "VariadicSplit": frozenset({1, 2}),
    "Pad": frozenset({1, 2}),
    "Roll": frozenset({1, 2}),
    "TopK": frozenset({1}),
    "CumSum": frozenset({1}),
    "MVN": frozenset({1}),
    "NormalizeL2": frozenset({1}),
    "OneHot": frozenset({1, 2, 3}),
    "Range": frozenset({0, 1, 2}),
    "Eye": frozenset({0, 1, 2, 3}),
    **{
        name: frozenset({1})
        for name in (
            "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
            "ReduceLogicalOr", "ReduceLogicalAnd",
        )
    },
}  # fmt: skip
"""Ports that carry a setting, by type; such an operand leaves the inputs when it is a constant."""

_AXES_PORT = {
    "Gather": 2,
    "ScatterElementsUpdate": 3,
    "ScatterUpdate": 3,
    "Split": 1,
    "VariadicSplit": 1,
    "CumSum": 1,
    "MVN": 1,
    "NormalizeL2": 1,
}
_COPIED = (
    "strides",
    "pads_begin",
    "pads_end",
    "dilations",
    "transpose_a",
    "transpose_b",
    "reduction",
    "keep_dims",
    "mode",
    "alpha",
)
_LISTS = frozenset({"strides", "pads_begin", "pads_end", "dilations", "kernel"})


def attributes_of(
    type_: str, raw: Mapping[str, Any], rank: int, constant: Callable[[int], list[int] | None]
) -> dict[str, Any]:
    """Return npusim's settings of an operator.

    Parameters
    ----------
    type_ : str
        OpenVINO operation name.
    raw : mapping
        The attributes as the file has them.
    rank : int
        Dimensions of the first input, to count negative axes from.
    constant : callable
        Returns the values of the constant at a port, or None where it is not known.

    Returns
    -------
    dict
        Settings as `Operator.attrs` names them.
    """
    settings = {key: _plain(key, raw[key]) for key in _COPIED if key in raw}
    if "kernel" in raw:
        settings["kernel"] = _plain("kernel", raw["kernel"])
    port = 1 if type_.startswith("Reduce") else _AXES_PORT.get(type_)
    axes = constant(port) if port is not None else [raw["axis"]] if "axis" in raw else None
    if axes is not None:
        settings["axes"] = tuple(sorted(int(axis) % rank if rank else 0 for axis in axes))
    if type_ == "Transpose":
        order = constant(1)
        settings["order"] = tuple(order) if order else tuple(reversed(range(rank)))
    return settings


def _plain(key: str, value: Any) -> Any:
    return tuple(int(v) for v in value) if key in _LISTS else value
