"""Reads files up to a stated size; writes a file whole or not at all."""

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from npusim.errors import FileError

MOST_BYTES = 64 << 20
"""Most bytes of a file that is read into memory; binary models have bounds of their own."""

MOST_UNPACKED_BYTES = 4 << 30
"""Most bytes that an archive of arrays holds."""

OPEN_PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""How the names of pipes begin that the shell opened."""
_PIPED: dict[str, bytes] = {}
"""What pipes held, by path: a pipe is read once."""


def read_bounded(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file, or of a pipe that the shell opened (`/dev/stdin`, `<(...)`).

    A device, or a pipe that nobody may ever write to, is not opened.

    Raises
    ------
    FileError
        If it is not a regular file, or holds more than `most` bytes.
    OSError, ValueError
        As `Path.stat` and `open` raise them.
    """
    kind, name = path.stat().st_mode, str(path)
    if name in _PIPED:
        return _PIPED[name]
    is_piped = stat.S_ISFIFO(kind) and name.startswith(OPEN_PIPES)
    if not is_piped and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise FileError(str(path), "is no regular file", "name a file on a disk")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise FileError(str(path), "is too large", f"at most {most >> 20} MiB are read")
    if is_piped:
        _PIPED[name] = content
    return content


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file of any size, read piece by piece; errors as `read_bounded`."""
    if not path.is_file() and path.exists() and not path.is_dir():
        raise FileError(str(path), "is no regular file", "name a file on a disk")
    import hashlib  # not what every command needs

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_arrays(path: Path, remedy: str) -> dict[str, Any]:
    """Return the arrays of an `.npz` file by name.

    Raises
    ------
    FileError
        Where it is no such file, holds objects, or unpacks to more than `MOST_UNPACKED_BYTES`.
    """
    import zipfile

    import numpy as np

    try:
        if not path.is_file():
            raise ValueError("no regular file")
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_UNPACKED_BYTES:
            raise ValueError(
                f"unpacks to {unpacked:,} bytes; at most {MOST_UNPACKED_BYTES >> 30} GiB are read"
            )
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except MemoryError:
        raise
    except Exception as error:  # zip, its codecs and numpy raise errors of many kinds
        raise FileError(str(path), f"is no .npz file of arrays ({error})", remedy) from None


def read_text(
    path: Path,
    *,
    missing: Callable[[], str] = lambda: "check the path",
    directory: str = "name a file in it",
    encodings: Sequence[str] = ("utf-8-sig",),
    most: int = MOST_BYTES,
) -> str:
    """Return the text of a file.

    `missing` returns what to do if there is no such file, `directory` says what to do if it is a directory. A
    `FileError` says that it is missing, a directory, a device, larger than `most` bytes, unreadable, or not
    in one of the encodings.
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
    """Return bytes as text; parameters and errors as for `read_text`."""
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            failed = error
    line = data.count(b"\n", 0, failed.start) + 1
    place = f"byte {failed.start}, in line {line}, is not text"
    raise FileError(file, "is not UTF-8", f"{place}; save the file as UTF-8")


def optional_module(name: str, install: str, why: str = "") -> Any:
    """Return a module of an optional library; a `FileError` says how to install it, and what needs it."""
    try:
        return import_module(name)
    except ImportError:
        remedy = f"install it: pip install {install}"
        raise FileError(name, f"is not installed{why}", remedy) from None


def parquet_bytes(table: Any) -> bytes:
    """Return an Arrow table as the content of a Parquet file; the same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # slow to import

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def write_whole(path: Path, content: bytes, *, remedy: str = "nothing was changed") -> None:
    """Replace a file in one step: it always holds the old content or all of the new one.

    A pipe or device is written to, not replaced. A `FileError`, which ends with `remedy`, says why it cannot
    be written, for example because the disk is full.
    """
    refuse_unwritable(path)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(str(path), f"cannot be written ({error.strerror})", remedy) from None


def make_folder(path: Path) -> None:
    """Make a folder where it is missing; FileError where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
        raise FileError(str(path), problem, "give it another place") from None


def refuse_unwritable(path: Path) -> None:
    """Raise a `FileError` for a directory, a missing folder or missing permissions."""
    if path.is_dir():
        raise FileError(str(path), "is a directory", f"name a file in it, such as {path / 'estimate.json'}")
    if not path.parent.is_dir():
        raise FileError(str(path), f"there is no directory {path.parent}", "create it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise FileError(str(path), "is write-protected", "choose another name or change its permissions")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise FileError(str(path), "its directory is write-protected", "choose another one")


def _replace(path: Path, content: bytes) -> None:
    """Write a draft in the same folder, then rename it, which is one step."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".draft", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(draft, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~mask)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
