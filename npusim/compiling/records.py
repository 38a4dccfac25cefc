"""Records of compiled code: one class declares type, unit and meaning of each column.

    class Buffer:
        used_bytes: Bytes
        \"\"\"Bytes in use.\"\"\"

`dtype_of` makes its numpy dtype, `fields_of` describes its columns. A class without a base is never
instantiated; it annotates the rows of a table for the type checker. A NamedTuple can be a row and a value.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping
from functools import cache
from operator import itemgetter
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from npusim.config.loading import field_descriptions, texts_under_fields
from npusim.units import Kind

Bytes = Annotated[float, "B"]
BytesPerSecond = Annotated[float, "B/s"]
Cycles = Annotated[float, "cycles"]
Elements = Annotated[float, "elements"]
Hertz = Annotated[float, "Hz"]
Joules = Annotated[float, "J"]
Number = Annotated[float, ""]
"""A count or a ratio."""
PerSecond = Annotated[float, "1/s"]
Seconds = Annotated[float, "s"]
Share = Annotated[float, "share"]
"""0 to 1."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Vector = Floats
"""Several numbers of a length: ``Annotated[Vector, 3, "B"]``."""
Volts = Annotated[float, "V"]
Watts = Annotated[float, "W"]

_Record = TypeVar("_Record", bound=type)
_PLAIN = {float: np.dtype("f8"), int: np.dtype("i8")}


class Field(NamedTuple):
    """One column of a record."""

    dtype: Any
    unit: str
    """Empty for counts and ratios, and for records within a record."""
    meaning: str


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type behind an annotation, and the annotation's details."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    plain, *details = get_args(hint)
    return plain, tuple(details)


def _numpy(hint: Any) -> Any:
    plain, details = _parts(hint)
    if plain in _PLAIN:
        return _PLAIN[plain]
    if plain == Vector:
        length = next(part for part in details if isinstance(part, int))
        return np.dtype((np.float64, (length,)))
    return dtype_of(plain)


def dtype_of(record: type) -> Any:
    """Return the numpy dtype of a record: its columns in the order of their declaration, a base's first."""
    return rows_of([(n, _numpy(hint)) for n, hint in get_type_hints(record, include_extras=True).items()])


class _RowType(type):
    """The class of classes of rows, so that these can be sent to other processes."""


@cache
def _row_type(names: tuple[str, ...]) -> type:
    def column(name: str) -> property:
        return property(itemgetter(name), lambda row, value: row.__setitem__(name, value))

    return _RowType("Row", (np.void,), {name: column(name) for name in names})


def _remake(row: Any) -> tuple[Any, tuple[tuple[str, ...]]]:
    return _row_type, (tuple(name for name, column in vars(row).items() if isinstance(column, property)),)


copyreg.pickle(_RowType, _remake)


def rows_of(columns: list[tuple[str, Any]]) -> Any:
    """Return the numpy dtype of rows whose columns are attributes in plain Python as in compiled code."""
    return np.dtype((_row_type(tuple(name for name, _ in columns)), columns))


def with_attributes(result: Any) -> Any:
    """Return what compiled code returned; arrays of records, alone or in a named tuple, have attributes."""
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(with_attributes, result))
    if isinstance(result, np.ndarray) and result.dtype.names:
        return result.view(np.dtype((_row_type(result.dtype.names), result.dtype)))
    return result


class _Number(NamedTuple):
    """A number of the data sheet."""

    section: type[BaseModel]
    name: str


def _number(section: Any, name: str) -> Any:
    """Return the annotation of a column with a number of the data sheet."""
    kinds = (kind.unit for kind in section.model_fields[name].metadata if isinstance(kind, Kind))
    return Annotated[float, next(kinds, ""), _Number(section, name)]


def columns_at(sheet: type[BaseModel], paths: Mapping[str, str]) -> Callable[[_Record], _Record]:
    """Declare columns, each with the number at a dotted path of a data sheet (`fill_at`)."""

    def declare(record: _Record) -> _Record:
        for column, path in paths.items():
            *sections, name = path.split(".")
            owner: Any = sheet
            for section in sections:
                owner = owner.model_fields[section].annotation
            record.__annotations__[column] = _number(owner, name)
        return record

    return declare


def fill_at(row: Any, paths: Mapping[str, str], sheet: BaseModel) -> None:
    """Fill columns with the numbers at dotted paths of a data sheet; a missing number changes nothing."""
    for column, path in paths.items():
        number: Any = sheet
        for name in path.split("."):
            number = getattr(number, name, None)
        if number is not None:
            row[column] = number


def fields_of(record: type) -> dict[str, Field]:
    """Return each column of a record: its dtype, unit and meaning."""
    texts = {name: text for part in reversed(record.__mro__) for name, text in texts_under_fields(part)}
    fields = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        details = _parts(hint)[1]
        unit, *meaning = [part for part in details if isinstance(part, str)] or [""]
        meaning += [
            field_descriptions(part.section)[part.name] for part in details if isinstance(part, _Number)
        ]
        fields[name] = Field(_numpy(hint), unit, meaning[0] if meaning else texts.get(name, ""))
    return fields
