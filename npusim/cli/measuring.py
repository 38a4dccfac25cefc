"""What `npusim measure` shows and hears while it runs, and what it makes of the words it was given.

Like the timekeeper's table: a board that says who runs, a bell that ends the day, and a list of entries.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.cli.exploring import Stopper
from npusim.errors import ConfigError, NpusimError

if TYPE_CHECKING:
    from npusim.measure.document import ModelRef

__all__ = ["Board", "InterruptedMeasurementError", "measured_model", "row_name"]

_MODEL_FILES = (".xml", ".onnx")
_WORKLOAD_FILES = (".yaml", ".yml")
_EVERY_S = 5.0
"""Where standard error is no terminal, a line this often (s)."""


class InterruptedMeasurementError(NpusimError):
    """Ctrl-C in a measurement; says what became of it."""

    exit_status = 130


class Board:
    """Progress on standard error: how many rows are done, what runs, how long it may take.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self._bar: Any = None
        self._said = time.monotonic()

    def __enter__(self) -> Board:
        """Show it."""
        if not self.quiet and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, rows="")
        return self

    def __exit__(self, *error: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: float, total: int, what: str) -> None:
        """Show how many rows are done of how many, and what runs."""
        rows = f"{int(done)} of {total} rows"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=what, rows=rows)
        elif not self.quiet and time.monotonic() - self._said > _EVERY_S:
            self._said = time.monotonic()
            print(f"{rows}: {what}", file=sys.stderr, flush=True)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.fields[rows]}"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", style="dim"),
        console=Console(stderr=True),
        transient=True,
    )


def stopper() -> Stopper:
    """Return what hears Ctrl-C."""
    return Stopper("finishing this repetition")


def measured_model(workload: str, techniques: str, settings: list[str]) -> tuple[ModelRef, dict[str, Path]]:
    """Return what the user named as a row names it, and where its file lies.

    Parameters
    ----------
    workload : str
        A workload's name or YAML file, or a model file.
    techniques : str
        Stack to apply to a workload.
    settings : list of str
        What ``--set`` was given.

    Raises
    ------
    ConfigError
        For techniques or settings on a model file, or settings of a SoC.
    """
    from npusim.cli.inputs import split_settings
    from npusim.measure.document import Workload

    path = Path(workload).expanduser()
    if path.suffix in _MODEL_FILES:
        for option, given in (("--techniques", techniques != "none"), ("--set", bool(settings))):
            if given:
                found = f"{option} with the model file `{path.name}`"
                raise ConfigError(found, allowed="a model file as it is; a workload takes techniques")
        return _model_file(path)
    _, of_soc = split_settings(settings)
    if of_soc:
        found = f"`{'.'.join(of_soc[0].path)}`"
        raise ConfigError(found, file="--set", allowed="workload.KEY=VALUE: the device is what it is")
    from npusim.techniques import parse

    is_file = path.suffix in _WORKLOAD_FILES
    ref = Workload(
        workload=path.name if is_file else workload,
        techniques=str(parse(techniques)),
        settings=dict(_key_and_value(setting) for setting in settings),
    )
    return ref, {path.name: path} if is_file else {}


def _key_and_value(setting: str) -> tuple[str, str]:
    key, _, value = setting.partition("=")
    return key.strip().removeprefix("workload."), value.strip()


def _model_file(path: Path) -> tuple[ModelRef, dict[str, Path]]:
    """Return a model file by its name and content; its folders are not kept."""
    import hashlib

    from npusim.errors import ModelFileError
    from npusim.measure.document import ModelFile

    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read ({error.strerror})", "check the path") from None
    return ModelFile(name=path.name, sha256=digest), {path.name: path}


def row_name(ref: ModelRef, hint: str) -> str:
    """Return what a row is called, as in suites: gcn-cora,hidden=128:stagr@throughput."""
    from npusim.measure.document import Workload

    name = str(getattr(ref, "name", "network"))
    if isinstance(ref, Workload):
        settings = (f"{key}={value}" for key, value in ref.settings.items())
        name = f"{','.join([ref.workload, *settings])}:{ref.techniques}"
    return name if hint == "latency" else f"{name}@{hint}"
