"""Reads files of strangers up to a stated size; writes a file whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from npusim.errors import FileError

MOST_BYTES = 64 << 20
"""Most bytes of a file that is read into memory as a whole; binary models have bounds of their own."""


def read_bounded(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file; a device or a pipe, which may never end, is not opened.

    Parameters
    ----------
    most : int
        Most bytes that it may hold.

    Raises
    ------
    FileError
        Where it is no regular file, or holds more.
    OSError, ValueError
        As `Path.stat` and `open` raise them.
    """
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise FileError(str(path), "is no regular file", "name a file on a disk")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise FileError(str(path), "is too large", f"at most {most >> 20} MiB are read")
    return content


def write_whole(path: Path, content: bytes, *, remedy: str = "nothing was changed") -> None:
    """Write a file so that at every moment it holds either what it held before or all of the new content.

    Parameters
    ----------
    path : Path
        The file; a pipe or device is written to, not replaced.
    content : bytes
        All of it.
    remedy : str
        What the message of a failure ends with.

    Raises
    ------
    FileError
        Where it cannot be written, for example because the disk is full.
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


def refuse_unwritable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work for it begins.

    Raises
    ------
    FileError
        For a directory, a missing folder, missing permissions.
    """
    if path.is_dir():
        raise FileError(str(path), "is a directory", f"name a file in it, such as {path / 'estimate.json'}")
    if not path.parent.is_dir():
        raise FileError(str(path), f"there is no directory {path.parent}", "create it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise FileError(str(path), "is write-protected", "choose another name or change its permissions")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise FileError(str(path), "its directory is write-protected", "choose another one")


def _replace(path: Path, content: bytes) -> None:
    """Write a draft beside the file, then rename it, which is one step."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".draft", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, _mode_of(path))
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _mode_of(path: Path) -> int:
    """Return the permissions of the file that is replaced, or those a new file gets."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
