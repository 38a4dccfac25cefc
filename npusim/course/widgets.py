"""Widgets of the explorer: a figure that follows a design, and a slider."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import marimo as mo
import traitlets
from marimo._runtime.commands import UpdateUIElementCommand
from marimo._runtime.utils import set_ui_element_request_manager as waiting_moves

from npusim.course.drawings import alternative
from npusim.course.lesson import Drawing, Slider, drawing_spec
from npusim.course.pages import script
from npusim.errors import NpusimError

_EMPTY = json.dumps({"data": [], "layout": {"height": 1}, "config": {}})


class _Widget(anywidget.AnyWidget):
    """A figure as JSON; `figure.js` draws it and follows its changes."""

    _esm = script("figure.js")
    spec = traitlets.Unicode(_EMPTY).tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    is_waiting = traitlets.Bool(True).tag(sync=True)


class _Player(_Widget):
    """A product step by step as JSON; `steps.js` draws it."""

    _esm = script("steps.js")


class Figure:
    """A place on a page that shows a drawing, and another one after a slider has moved.

    One cell creates it and ends in `figure.place`; the cell that reads the slider calls `show`.
    """

    def __init__(self, height: int = 360, is_player: bool = False) -> None:
        """Take the height in pixels, and whether it shows a machine step by step, not a plotly figure."""
        self._widget = _Player(spec="") if is_player else _Widget()
        self._empty = self._widget.spec
        self._height = height
        self.place = mo.ui.anywidget(self._widget)

    def show(self, drawing: Drawing, height: int = 0) -> None:
        """Show a drawing in place of the last one; `height` (pixels) replaces the own height."""
        self._widget.label = alternative(drawing)
        self._widget.spec = drawing_spec(drawing, height or self._height)
        self._widget.is_waiting = False

    def wait(self) -> None:
        """Say that the next figure is being prepared, if it takes long."""
        self._widget.is_waiting = True

    def clear(self) -> None:
        """Take the figure away: what it showed no longer holds."""
        self._widget.spec, self._widget.is_waiting = self._empty, False


def shown(figures: Sequence[Figure], draw: Callable[[], Any]) -> Any:
    """Return what `draw` returns after it has drawn figures; if npusim refuses, clear them and say why."""
    for figure in figures:
        figure.wait()
    try:
        return draw()
    except Exception as error:
        for figure in figures:
            figure.clear()
        if not isinstance(error, NpusimError):
            raise
        return mo.callout(mo.plain_text(str(error)), kind="warn")


def slider(wanted: Slider) -> Any:
    """Return a slider of the page."""
    steps = list(wanted.values)
    return mo.ui.slider(steps=steps, value=wanted.value, label=wanted.label, show_value=True)


def apart(moves: Sequence[UpdateUIElementCommand]) -> list[UpdateUIElementCommand]:
    """Return the last move of each slider as a command of its own.

    marimo 0.25 joins the moves that wait while a page calculates, and of those in one `mo.ui.dictionary` all
    but one are lost: a slider would stand where the model does not.
    """
    latest = {slider: value for move in moves for slider, value in move.ids_and_values}
    return [
        UpdateUIElementCommand(object_ids=[slider], values=[value], request=moves[-1].request)
        for slider, value in latest.items()
    ]


def keep_every_move() -> None:
    """Have marimo process waiting moves by `apart`."""
    waiting_moves._merge_ui_commands = apart
