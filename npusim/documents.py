"""JSON documents that npusim writes: schema, rule for numbers, reading, writing, tables, display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from npusim.config.json_files import as_model, read_json
from npusim.errors import ConfigError, FileError, UnknownNameError, nearest, shown
from npusim.files import write_whole

FrameKind = Literal["pandas", "polars"]
"""Libraries of data frames."""
_SHOWN_BY = "npusim.report.notebook"
"""Module that shows documents; by its name, for it stands above this one."""


class Part(BaseModel):
    """A frozen part of a document without unknown keys; the text under a field is its description.

    JSON has neither NaN nor infinity, so no field of a document takes one: a figure that may be missing is
    optional, and null where it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Document(Part):
    """A whole document.

    A subclass states its schema once, with the version that changes when a field is renamed or removed::

        schema_: Literal["npusim.NAME/1"] = Field("npusim.NAME/1", alias="schema")
    """

    MAIN_TABLE: ClassVar[str] = ""
    """Field that holds the main one of its tables; empty: the first list of records."""

    @classmethod
    def schema_name(cls) -> str:
        """Return name and version of the schema, such as ``npusim.estimate/1``."""
        return str(cls.model_fields["schema_"].default)

    def to_json(self) -> str:
        """Return the document as JSON; keys in the order of the fields, SI units."""
        return self.model_dump_json(by_alias=True, indent=2)

    def write(self, path: Path) -> None:
        """Write the document into a file, whole or not at all; FileError where that fails."""
        write_whole(path, f"{self.to_json()}\n".encode())

    def __repr__(self) -> str:
        return str(import_module(_SHOWN_BY).text_of(self))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return str(import_module(_SHOWN_BY).html_of(self))

    @classmethod
    def tables(cls) -> tuple[str, ...]:
        """Return the names of the document's tables: its fields that hold records, the main one first."""
        lists, by_name = [], []
        for name, field in cls.model_fields.items():
            outer, inner = get_origin(field.annotation), get_args(field.annotation)
            items = [one for one in inner if isinstance(get_origin(one) or one, type)]
            holds_records = bool(items) and issubclass(get_origin(items[-1]) or items[-1], (Part, dict))
            if holds_records and outer in (list, tuple):
                lists.append(name)
            elif holds_records and outer is dict:
                by_name.append(name)
        return tuple(sorted((*lists, *by_name), key=lambda name: name != cls.MAIN_TABLE))

    def records(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return one of the document's tables as records with named columns; SI units, as in the fields.

        Parameters
        ----------
        table : str, optional
            A name of `tables`; default: the first. What has a name as its key gets a column `name`.

        Raises
        ------
        UnknownNameError
            Where the document has no such table.

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
        held = getattr(self, chosen)
        rows = [{"name": name, **dict(one)} for name, one in held.items()] if isinstance(held, dict) else held
        return [dict(_flat(row)) for row in rows]

    def to_frame(self, table: str | None = None, kind: str = "pandas") -> Any:
        """Return one of the document's tables as a data frame.

        Parameters
        ----------
        table : str, optional
            A name of `tables`; default: the first. The name of a library may stand first, too.
        kind : {"pandas", "polars"}
            Library of the frame; both are optional.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame

        Raises
        ------
        UnknownNameError
            Where the document has no such table, or there is no such library.
        FileError
            Where the library is not installed.

        Examples
        --------
        >>> import npusim
        >>> estimate = npusim.estimate("gcn-cora", techniques="stagr")
        >>> list(estimate.to_frame("units")["name"])[:2]
        ['npu.dpu', 'npu.dsp']
        """
        libraries = get_args(FrameKind)
        if table is not None and table in libraries:
            table, kind = (None if kind in libraries else kind), table
        if kind not in libraries:
            raise UnknownNameError("kind of data frame", kind, libraries)
        try:
            library = import_module(kind)
        except ImportError:
            remedy = 'install it: pip install "npusim[frames]"; `records()` needs neither'
            raise FileError(kind, "is not installed", remedy) from None
        options = {"infer_schema_length": None, "strict": False} if kind == "polars" else {}
        return library.DataFrame(self.records(table), **options)

    @classmethod
    def read(cls, path: str | Path, origin: str) -> Self:
        """Read a document from a file.

        Parameters
        ----------
        path : str or Path
            The file.
        origin : str
            What writes such files, for messages.

        Raises
        ------
        FileError
            Where the file is missing, a directory or not UTF-8.
        ConfigError
            Where it is empty, cut off, of another schema or version, or a value is not allowed; the message
            names the line, the key, the value and what is allowed.
        """
        file = read_json(Path(path))
        cls._refuse_other_schemas(file.data, file.name, f"a file of {origin} (schema {cls.schema_name()})")
        return as_model(file, cls)

    @classmethod
    def _refuse_other_schemas(cls, data: object, name: str, remedy: str) -> None:
        if not isinstance(data, dict):
            raise ConfigError(shown(data), file=name, line=1, allowed=remedy)
        schema = data.get("schema")
        if schema is None:
            meant = nearest("schema", [key for key in data if key not in cls.model_fields])
            found = f"no key `schema`{f' but `{meant}`' if meant else ''}"
            raise ConfigError(found, file=name, line=1, allowed=remedy)
        if schema != cls.schema_name():
            newer = isinstance(schema, str) and schema.startswith(cls.schema_name().partition("/")[0] + "/")
            found = shown(schema) + (", which another version of npusim wrote" if newer else "")
            raise ConfigError(found, file=name, key="schema", allowed=remedy)


def _flat(row: Part | Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the columns of a record; parts and settings inside it become columns with dots."""
    for name, value in row.items() if isinstance(row, Mapping) else row:
        settings = isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
        if isinstance(value, Part) or settings:
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Part):
            yield f"{prefix}{name}", [one.model_dump(mode="json") for one in value]
        else:
            yield f"{prefix}{name}", value
