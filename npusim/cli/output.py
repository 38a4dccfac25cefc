"""Where a result goes, in which form (terminal, pipe or file; table or JSON), and progress."""

from __future__ import annotations

import codecs
import io
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from npusim.errors import ConfigError, FileError, printable
from npusim.files import refuse_unwritable, write_whole

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from npusim.documents import Document

_STAND_INS = dict(zip("█▉▊▋▌▍▎▏─━╭╮╰╯░▒▓│┃µ×²↓↑…→–", "#####|||------..%||ux2v^~>-", strict=True))
_HANDLER = "npusim.stand_in"
_LATE_CONTROL = re.compile(r"[\x7f-\x9f]")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks, one character by one, so that columns stay in line."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in text), error.end


def tolerant(*streams: TextIO) -> None:
    """Make text streams replace what their encoding lacks instead of failing."""
    codecs.register_error(_HANDLER, _stand_in)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def reopen_closed() -> None:
    """Put something in the place of a closed standard stream, so that no file gets its number.

    What is written to a closed standard output is an error; what is said on a closed standard error is lost.
    """
    modes = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for number, (name, mode) in enumerate(modes.items()):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, mode)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


_EVERY_S = 5.0
"""Where standard error is no terminal, a line this often (s)."""
_COLUMNS = range(20, 1001)
"""Widths of a terminal that a table can be laid out for."""


def forget_odd_width() -> None:
    """Take `COLUMNS` for unset where it is no width of a terminal, as 0 is none."""
    width = os.environ.get("COLUMNS", "")
    if width and not (width.isascii() and width.isdigit() and len(width) < 9 and int(width) in _COLUMNS):
        del os.environ["COLUMNS"]


COMMAND_LINE = ContextVar("COMMAND_LINE", default="npusim")
"""The command line that is run, for pages to name."""
OUTPUTS: ContextVar[tuple[Path, ...]] = ContextVar("OUTPUTS", default=())
"""Files that this command is to write."""
RESULTS: ContextVar[list[tuple[Document, Callable[[], RenderableType] | None]] | None]
RESULTS = ContextVar("RESULTS", default=None)
"""Where results go, with what makes their HTML page, while `npusim report` runs a command; None: as asked."""
HTML_ENDINGS = (".html", ".htm")
_FILE_COLUMNS = 100
"""Width of a table in a file, where no terminal says how wide it is."""
_FORMS = dict.fromkeys(HTML_ENDINGS, "html") | {".json": "json", ".parquet": "parquet"}
_FORMS |= dict.fromkeys(("", ".txt", ".log", ".md"), "table")
"""Form of a result by the ending of its file."""


class Destination:
    """Where one command's result goes.

    Parameters
    ----------
    path : Path or None
        The file of ``-o``; None or ``-`` is standard output.
    form : str or None
        ``table`` or ``json``; None lets the file's ending decide (.json, .html), and is a table otherwise.

    Raises
    ------
    ConfigError
        Where no writer knows the file's ending.
    FileError
        Where the file cannot be written; told before the work begins, not after it.
    """

    def __init__(self, path: Path | None, form: str | None) -> None:
        self.path = None if path is None or str(path) == "-" else path.expanduser()
        self.form = form or _FORMS.get("" if path is None else path.suffix, "")
        if self.path is not None:
            if not self.form and not self.path.is_dir():
                allowed = "a file that ends in .json, .html (page), .parquet or .txt (table), or --format"
                raise ConfigError(f"`{self.path.name}`", file="--output", allowed=allowed)
            _refuse_used(self.path)
            refuse_unwritable(self.path)

    def write(self, document: Document, page: Callable[[], RenderableType] | None = None) -> None:
        """Write the page that rich prints, the document as JSON, or the HTML page.

        Pages of other packages for this document stand below npusim's own.

        Parameters
        ----------
        page : callable, optional
            Returns the page; default: the registered one of the document's kind.
        """
        results = RESULTS.get()
        if results is not None:
            results.append((document, page))
            if self.path is None:
                return
        if self.form == "json":
            self.write_json(document.to_json())
        elif self.form == "parquet" and self.path is not None:
            write_whole(self.path, document.to_parquet())
        elif self.form == "html":
            write_page(self.path, document, page() if page else None)
        else:
            from npusim.reporting.page import document_page
            from npusim.reporting.pages import own_page, with_supplements

            own = page() if page is not None else own_page(document) or document_page(document)
            whole = with_supplements(own, document)
            if self.path is None:
                _print_page(whole)
            else:
                self._write_text(_page_as_text(whole))

    def write_json(self, text: str) -> None:
        """Write JSON."""
        # Beyond ASCII's, which JSON escapes, there are control characters that some terminals obey.
        self._write_text(_LATE_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")

    def _write_text(self, text: str) -> None:
        if self.path is not None:
            write_whole(self.path, text.encode())
        else:
            with standard_output() as stream:
                # JSON is UTF-8, whatever the terminal's encoding.
                stream.buffer.write(text.encode())


def file_target(path: Path | None, option: str, endings: tuple[str, ...] = ()) -> Path | None:
    """Return where a file goes, or refuse it before the work begins.

    Parameters
    ----------
    endings : tuple of str
        How its name may end; any where empty.
    """
    if path is None:
        return None
    if endings and path.suffix not in endings:
        allowed = f"a file that ends in {' or '.join(endings)}"
        raise ConfigError(f"`{path.name}`", file=option, allowed=allowed)
    _refuse_used(path.expanduser())
    refuse_unwritable(path.expanduser())
    return path.expanduser()


def _refuse_used(path: Path) -> None:
    """Refuse an output that the command line names a second time: as another output, or as an input."""
    if path.exists() and not path.is_file():
        return
    words = (word.rpartition("=")[2] for word in shlex.split(COMMAND_LINE.get()))
    there = path.is_file()
    is_input = sum(there and os.path.isfile(word) and path.samefile(word) for word in words) > 1
    if is_input or path.resolve() in OUTPUTS.get():
        problem = "is another output, or an input, of this command"
        raise FileError(str(path), problem, "name another file for the output")
    OUTPUTS.set((*OUTPUTS.get(), path.resolve()))


def write_html(path: Path | None, html: Callable[[str], str]) -> None:
    """Write a page that is made from the command line that asked for it; nothing without a path."""
    if path is not None:
        write_whole(path, html(COMMAND_LINE.get()).encode())


def write_page(path: Path | None, document: Document, page: RenderableType | None = None) -> None:
    """Write the HTML page of a result; nothing without a path."""
    from npusim.reporting.pages import html_of

    write_html(path, lambda command: html_of(document, command, page))


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


class _Printable:
    """A page whose names and texts cannot send a terminal anything but colours."""

    def __init__(self, page: RenderableType) -> None:
        self.page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in console.render(self.page, options):
            yield Segment(text if control else printable(text), style, control)


def _console(**settings: Any) -> Console:
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False, **settings)


def _print_page(page: RenderableType) -> None:
    console = _console()
    with standard_output() as stream:
        if console.is_terminal:
            console.print(_Printable(page))
        else:
            stream.write(_page_as_text(page, console.width))


def _page_as_text(page: RenderableType, columns: int = _FILE_COLUMNS) -> str:
    """Return a page without colours and without blanks at the ends of lines."""
    text = io.StringIO()
    _console(file=text, width=columns, color_system=None).print(_Printable(page))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def say(text: str, *, on_error: bool = False, start: str = "") -> None:
    """Print lines beside the result: names in them are data, and cannot send a terminal anything.

    Parameters
    ----------
    on_error : bool
        Print on standard error; where nobody listens there, nothing happens.
    start : str
        What comes first, such as "error:".
    """
    line = f"{start} {printable(text)}".lstrip()
    if not on_error:
        print(line, flush=True)
        return
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Progress on standard error: a bar on a terminal, else a line every few seconds.

    Parameters
    ----------
    counted : str
        What is counted, such as points.
    quiet : bool
        Show nothing.
    lines : bool
        Print lines where standard error is no terminal.
    rate : bool
        Show how many a second.
    """

    def __init__(
        self, counted: str = "", quiet: bool = False, *, lines: bool = True, rate: bool = False
    ) -> None:
        self.counted, self.rate = counted, rate
        self._lines = lines and not quiet
        self._bar: Any = _bar() if sys.stderr.isatty() and not quiet else None
        self.total = 0.0  # the total of the last call
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Progress:
        """Show it."""
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, count="")
        return self

    def __exit__(self, *error: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: float, total: float, what: str = "") -> None:
        """Show the work done, the total, and the present step."""
        self.total = total
        count = f"{done:.0%}" if total == 1.0 else f"{int(done):,} of {total:,} {self.counted}".rstrip()
        now = time.monotonic()
        if self.rate:
            count += f", {done / max(now - self._began, 1e-9):,.0f}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=what, count=count)
        elif self._lines and now - self._said > _EVERY_S:
            self._said = now
            left = f", {(now - self._began) * (total / done - 1.0):.0f} s left" if done else ""
            say(f"{count}{left}{f': {what}' if what else ''}", on_error=True)


def _bar() -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.description}", style="dim", markup=False),
        console=_console(stderr=True),
        transient=True,
    )


class Stopper:
    """Graceful stop: the first Ctrl-C asks the work to end, the second ends it at once.

    Parameters
    ----------
    reply : str
        What is said to the first.
    """

    def __init__(self, reply: str) -> None:
        self.wanted, self.reply = False, reply

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.wanted

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to Ctrl-C and to a request to terminate while the body runs."""

        def hear(number: int, frame: FrameType | None) -> None:
            if self.wanted:
                raise KeyboardInterrupt
            self.wanted = True
            say(f"{self.reply}; once more ends at once", on_error=True)

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
