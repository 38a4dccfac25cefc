"""``npusim learn``: lessons about how an NPU works, in the browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.options import argument, option

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim learn
  npusim learn roofline
  npusim learn explorer
  npusim learn --port 8080 --no-browser
"""


@app.command(epilog=_EXAMPLES)
def learn(
    lesson: Annotated[
        str | None, argument("[LESSON]", "Name or number of a lesson to open, or `explorer`; none: the list.")
    ] = None,
    port: Annotated[int, option("--port N", "Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 0,
    data: Annotated[
        Path | None,
        option("--data DIR", "Folder of real data sets (cora/raw/ind.cora.x ...), shown in lesson 6."),
    ] = None,
    no_browser: Annotated[bool, option("--no-browser", "Print the address and open nothing.")] = False,
) -> None:
    """Open lessons: the MAC grid, rooflines, GNNs on NPUs, sparsity, fronts, language models and more.

    Pages come from this machine alone and are shown to this machine alone. Ctrl-C ends the server.
    """
    from npusim.errors import UnknownNameError
    from npusim.learn.catalogue import lessons

    known = {one.name: one for one in lessons()}
    by_number = {str(one.number): one.name for one in lessons()}
    name = by_number.get(lesson or "", lesson)
    if name not in (None, "explorer", *known):
        raise UnknownNameError("lesson", str(name), ["explorer", *known])
    if data is not None:
        from npusim.accuracy.planetoid import read_planetoid
        from npusim.locate import DATA_VARIABLE

        read_planetoid("cora", data)
        os.environ[DATA_VARIABLE] = str(data)
    from npusim.learn.server import serve

    def ready(address: str) -> None:
        opened = address
        if name is not None:
            opened += "explorer/" if name == "explorer" else f"lessons/{name}/"
        typer.echo(f"Lessons at {opened}  (Ctrl-C ends)")
        if not no_browser:
            import webbrowser

            webbrowser.open(opened)

    serve(port, ready)
