"""Where a result goes, and in which form: terminal, pipe or file; table or JSON.

Like a notary: a document is handed over whole or not at all, and nothing that lies on the desk already is
torn up for a draft.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from npusim.errors import FileError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Destination", "forget_output", "standard_output", "write_whole"]

_FILE_COLUMNS = 100
"""Width of a table in a file, where no terminal says how wide it is."""


class Destination:
    """Where one command's result goes.

    Parameters
    ----------
    path : Path or None
        The file of ``-o``; None or ``-`` is standard output.
    form : str or None
        ``table`` or ``json``; None lets the file's ending decide, and is a table otherwise.

    Raises
    ------
    FileError
        Where the file cannot be written; told before the work begins, not after it.
    """

    def __init__(self, path: Path | None, form: str | None) -> None:
        self.path = None if path is None or str(path) == "-" else path.expanduser()
        self.is_json = form == "json" or (form is None and path is not None and path.suffix == ".json")
        if self.path is not None:
            _refuse_unwritable(self.path)

    def write(self, page: Callable[[], RenderableType], document: Callable[[], str]) -> None:
        """Write a result in the form asked for; the other form is never made.

        Parameters
        ----------
        page : callable
            Makes what rich prints.
        document : callable
            Makes the JSON text.
        """
        if self.is_json:
            self.write_document(document)
        elif self.path is None:
            _print_page(page())
        else:
            self._write_text(_page_as_text(page()))

    def write_document(self, document: Callable[[], str]) -> None:
        """Write a result that has no form but JSON."""
        self._write_text(document() + "\n")

    def _write_text(self, text: str) -> None:
        if self.path is not None:
            write_whole(self.path, text.encode())
        else:
            with standard_output() as stream:
                # JSON is UTF-8, whatever the terminal's encoding.
                stream.buffer.write(text.encode())


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Lend standard output, flushed before and after, and say so where it cannot be written to.

    Raises
    ------
    FileError
        For example where it is a file on a full disk.
    """
    try:
        sys.stdout.flush()
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_output()
        reason = error.strerror or str(error)
        raise FileError(
            "standard output", f"cannot be written to ({reason})", "give it another place"
        ) from None


def forget_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not complain again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that at every moment it holds either what it held before or all of the new content.

    Parameters
    ----------
    path : Path
        The file; a pipe or device is written to, not replaced.
    content : bytes
        All of it.

    Raises
    ------
    FileError
        Where it cannot be written, for example because the disk is full.
    """
    _refuse_unwritable(path)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(str(path), f"cannot be written ({error.strerror})", "nothing was changed") from None


def _replace(path: Path, content: bytes) -> None:
    """Write beside the file first, then take its place: renaming is one step."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
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


def _refuse_unwritable(path: Path) -> None:
    if path.is_dir():
        raise FileError(str(path), "is a directory", f"name a file in it, such as {path / 'estimate.json'}")
    if not path.parent.is_dir():
        raise FileError(str(path), f"there is no directory {path.parent}", "create it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise FileError(str(path), "is write-protected", "choose another name or change its permissions")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise FileError(str(path), "its directory is write-protected", "choose another one")


def _print_page(page: RenderableType) -> None:
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    with standard_output() as stream:
        if console.is_terminal:
            console.print(page)
        else:
            stream.write(_page_as_text(page, console.width))


def _page_as_text(page: RenderableType, columns: int = _FILE_COLUMNS) -> str:
    """Return a page without colours and without blanks at the ends of lines."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=columns, color_system=None, highlight=False, emoji=False).print(page)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
