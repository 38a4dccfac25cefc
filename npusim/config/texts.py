"""Text files as they come from a disk, and the records of a CSV file by their line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from npusim.errors import ConfigError, FileError
from npusim.files import MOST_BYTES, read_bounded


def read_text(
    path: Path,
    *,
    missing: Callable[[], str] = lambda: "check the path",
    directory: str = "name a file in it",
    encodings: Sequence[str] = ("utf-8-sig",),
    most: int = MOST_BYTES,
) -> str:
    """Return the text of a file.

    Parameters
    ----------
    missing : callable, optional
        Says what to do where there is no such file.
    directory : str, optional
        What to do where it is a directory.
    most : int, optional
        Most bytes that it may hold.

    Raises
    ------
    FileError
        Where it is missing, a directory, a device, too large, unreadable, or in no such encoding.
    """
    try:
        return decoded(read_bounded(path, most), str(path), encodings)
    except FileNotFoundError:
        raise FileError(str(path), "no such file", missing()) from None
    except IsADirectoryError:
        raise FileError(str(path), "is a directory", directory) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(str(path), f"cannot be read ({reason})", "check its name and permissions") from None


def decoded(data: bytes, file: str, encodings: Sequence[str] = ("utf-8-sig",)) -> str:
    """Return the text that bytes stand for; parameters and errors as for `read_text`."""
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            failed = error
    line = data.count(b"\n", 0, failed.start) + 1
    place = f"byte {failed.start}, in line {line}, is not text"
    raise FileError(file, "is not UTF-8", f"{place}; save the file as UTF-8")


def csv_records(text: str, file: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield (line it begins on, fields) of each record of a CSV text that is not blank.

    Raises
    ------
    ConfigError
        Where a quote is not closed; it names the line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    before = 0
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            allowed = "comma-separated values, quotes closed"
            raise ConfigError(f"broken CSV ({error})", file=file, line=before + 1, allowed=allowed) from None
        line, before = before + 1, reader.line_num
        if any(field.strip() for field in record):
            yield line, [field.strip() for field in record]
