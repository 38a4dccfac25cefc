"""JSON documents that npusim writes: schema, rule for numbers, reading and writing."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from npusim.config.json_files import as_model, read_json
from npusim.errors import ConfigError, nearest, shown
from npusim.files import write_whole


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
