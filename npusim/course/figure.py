"""Plotly figures on a page of marimo: drawn by this server's own library, updated in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anywidget
import marimo as mo
import plotly.graph_objects as go
import traitlets

from npusim.reporting.html import FONT

_EMPTY = {"data": [], "layout": {"height": 1}, "config": {}}
_CONFIG = {"displayModeBar": False, "responsive": True}


class _Drawn(anywidget.AnyWidget):
    """A figure as JSON; `figure.js` draws it and follows its changes."""

    _esm = Path(__file__).with_name("figure.js")
    spec = traitlets.Unicode(json.dumps(_EMPTY)).tag(sync=True)


class Figure:
    """A place on the page that shows a plotly figure, and another one when a slider has moved.

    Make it in one cell, whose last line is `figure.place`, and call `show` in the cell that reads the
    slider: the page then changes the picture where it stands.
    """

    def __init__(self, height: int = 360) -> None:
        """Take the height in pixels."""
        self._drawn = _Drawn()
        self._height = height
        self.place = mo.ui.anywidget(self._drawn)

    def show(self, figure: go.Figure, **layout: Any) -> None:
        """Show a figure in place of what is shown; `layout` goes over its own layout."""
        figure.update_layout(
            height=self._height,
            font={"family": FONT, "size": 13},
            template="plotly_white",
            margin={"l": 10, "r": 10, "t": 30, "b": 40},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
            separators=". ",
        )
        figure.update_layout(**layout)
        figure.update_xaxes(automargin=True, ticklabelstandoff=4)
        figure.update_yaxes(automargin=True, ticklabelstandoff=4)
        self._drawn.spec = json.dumps({**json.loads(figure.to_json()), "config": _CONFIG})
