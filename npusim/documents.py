"""JSON documents that npusim writes: schema, reading, writing, tables, display."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from npusim.config.loading import as_model
from npusim.config.reading import read_json
from npusim.config.tables import most_of
from npusim.errors import ConfigError, UnknownNameError, nearest, shown
from npusim.files import optional_module, parquet_bytes, write_whole
from npusim.metrics import METRICS, unit_of
from npusim.plugins import Registry

FrameKind = Literal["pandas", "polars"]


@dataclass(frozen=True)
class Display:
    """A way to show documents in a console and in a notebook."""

    name: str
    text_of: Callable[[Any], str]
    html_of: Callable[[Any], str]
    page_of: Callable[[Any], str]
    """Returns what the command prints, as text."""


DISPLAYS = Registry("npusim.displays", "display of documents", Display)
"""Ways to show documents; the first one is used."""


class Part(BaseModel):
    """A frozen part of a document without unknown keys; the text under a field is its description.

    JSON has neither NaN nor infinity, so no field takes one: a figure that may be missing is optional.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True
    )


class Document(Part):
    """A whole document.

    A subclass declares its schema; the version changes when a field is renamed or removed::

        schema_: Literal["npusim.NAME/1"] = Field("npusim.NAME/1", alias="schema")
    """

    MAIN_TABLE: ClassVar[str] = ""
    """Field that holds the main table; empty: the first list of records."""

    schema_: str = Field("", alias="schema")
    """Version of this document."""

    @classmethod
    def schema_name(cls) -> str:
        """Return name and version of the schema, such as ``npusim.estimate/1``."""
        return str(cls.model_fields["schema_"].default)

    def to_json(self) -> str:
        """Return the document as JSON, in the order of the fields and in SI units."""
        return self.model_dump_json(by_alias=True, indent=2)

    def write(self, path: Path) -> None:
        """Write the document into a file, whole or not at all; a `FileError` if that fails."""
        write_whole(path, f"{self.to_json()}\n".encode())

    def __repr__(self) -> str:
        display = next(iter(DISPLAYS.values()), None)
        return super().__repr__() if display is None else display.text_of(self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        display = next(iter(DISPLAYS.values()), None)
        return f"<pre>{escape(repr(self))}</pre>" if display is None else display.html_of(self)

    @classmethod
    def tables(cls) -> tuple[str, ...]:
        """Return the names of the tables, the fields that hold records; the main one comes first."""
        lists, by_name = [], []
        for name, field in cls.model_fields.items():
            outer, inner = get_origin(field.annotation), get_args(field.annotation)
            items = [item for item in inner if isinstance(get_origin(item) or item, type)]
            holds_records = bool(items) and issubclass(get_origin(items[-1]) or items[-1], (Part, dict))
            if holds_records and outer in (list, tuple):
                lists.append(name)
            elif holds_records and outer is dict:
                by_name.append(name)
        return tuple(sorted((*lists, *by_name), key=lambda name: name != cls.MAIN_TABLE))

    def records(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return a table of the document (default: the first of `tables`) as records, in SI units.

        Records with a name as their key get a column `name`.

        Examples
        --------
        >>> import npusim
        >>> estimate = npusim.estimate("gcn-cora", techniques="stagr")
        >>> estimate.records()[0]["unit"], estimate.tables()
        ('npu.dpu', ('operators', 'parts', 'units'))
        """
        names = self.tables()
        chosen = table if table is not None else next(iter(names), "")
        if chosen not in names:
            raise UnknownNameError(f"table of {type(self).__name__}", chosen, names)
        rows = getattr(self, chosen)
        if isinstance(rows, dict):
            rows = [{"name": name, **dict(row)} for name, row in rows.items()]
        return [dict(_flat(row)) for row in rows]

    def to_frame(self, table: str | None = None, kind: str = "pandas") -> Any:
        """Return one of the document's tables as a data frame of pandas or polars; both are optional.

        The name of a library may also stand in place of `table`. An `UnknownNameError` refuses other tables
        and libraries; a `FileError` says that the library is not installed.

        Examples
        --------
        >>> import npusim
        >>> estimate = npusim.estimate("gcn-cora", techniques="stagr")
        >>> list(estimate.to_frame("units")["name"])[:2]
        ['npu.dpu', 'npu.dsp']
        """
        libraries = get_args(FrameKind)
        if table is not None and table in libraries:
            other = None if kind in libraries else kind
            kind, table = table, other
        if kind not in libraries:
            raise UnknownNameError("kind of data frame", kind, libraries)
        library = optional_module(kind, '"npusim[frames]"; `records()` needs neither')
        options = {"infer_schema_length": None, "strict": False} if kind == "polars" else {}
        return library.DataFrame(self.records(table), **options)

    def to_parquet(self, table: str | None = None) -> bytes:
        """Return a table of the document (default: the first of `tables`) as the content of a Parquet file.

        Each column of numbers carries its `unit`, `1` for a count or a share. The file's metadata hold the
        whole document as JSON under `npusim.document`.
        """
        import pyarrow as pa  # slow to import

        rows, fields, columns = self.records(table), [], []
        for name in dict.fromkeys(name for row in rows for name in row):
            column = pa.array([row.get(name) for row in rows])
            is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
            if not pa.types.is_null(column.type):
                metadata = {"unit": unit_of(name) or "1"} if is_number else None
                fields.append(pa.field(name, column.type, metadata=metadata))
                columns.append(column)
        return parquet_bytes(pa.table(columns, pa.schema(fields, {"npusim.document": self.to_json()})))

    @classmethod
    def read(cls, path: str | Path, origin: str) -> Self:
        """Read a document from a file; `origin`, the command that writes such files, is for messages.

        A `FileError` says that the file cannot be read, a `ConfigError` that it is empty, cut off, of another
        schema or version, or holds a value that is not allowed.
        """
        file = read_json(Path(path))
        refused = partial(
            ConfigError, file=file.name, allowed=f"a file of {origin} (schema {cls.schema_name()})"
        )
        if not isinstance(file.data, dict):
            raise refused(shown(file.data), line=1)
        schema = file.data.get("schema")
        if schema is None:
            meant = nearest("schema", [key for key in file.data if key not in cls.model_fields])
            raise refused(f"no key `schema`{f' but `{meant}`' if meant else ''}", line=1)
        if schema != cls.schema_name():
            newer = isinstance(schema, str) and schema.startswith(cls.schema_name().partition("/")[0] + "/")
            raise refused(
                shown(schema) + (", which another version of npusim wrote" if newer else ""), key="schema"
            )
        _refuse_impossible(file.data, file.name)
        return as_model(file, cls)


def _refuse_impossible(value: Any, file: str, key: str = "") -> None:
    """Refuse figures that nothing physical has: negative metrics, and numbers beyond `most_of`."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_impossible(inner, file, f"{key}.{name}".lstrip("."))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        name = key.rpartition(".")[2]
        most = most_of(name)
        least = 0.0 if name in METRICS else -most
        if not least <= value <= most:
            raise ConfigError(
                f"`{value:g}`", file=file, key=key, allowed=f"a finite number from {least:g} to {most:g}"
            )


def _flat(row: Part | Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the columns of a record; its parts and mappings of texts or parts become columns with dots."""
    for name, value in row.items() if isinstance(row, Mapping) else row:
        is_mapping = isinstance(value, Mapping) and all(isinstance(i, str | Part) for i in value.values())
        if isinstance(value, Part) or is_mapping:
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Part) for item in value):
            yield f"{prefix}{name}", [item and item.model_dump(mode="json") for item in value]
        else:
            yield f"{prefix}{name}", value
