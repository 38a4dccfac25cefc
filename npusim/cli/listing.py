"""``npusim list``: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

import typer

from npusim.cli.options import Format, Output, argument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_KINDS = ("socs", "workloads", "techniques", "ops", "suites", "spaces")


@app.command(epilog="\n[dim]Examples[/dim]\n  npusim list techniques\n  npusim list socs --format json")
def list_(
    what: Annotated[
        str,
        argument(
            "WHAT",
            "socs: machines; workloads: networks by name; techniques; ops: operator types; "
            "suites: published figures to check against; spaces: designs to sweep.",
            kind="catalogue",
            choices=_KINDS,
        ),
    ],
    form: Format = None,
    output: Output = None,
) -> None:
    """List machines, workloads, techniques, operators, validation suites or design spaces."""
    from npusim.cli.output import Destination

    destination = Destination(output, form)

    from npusim.catalogues import listing

    found = listing(what)

    from npusim.report.listing import listing_page

    destination.write(lambda: listing_page(found), found)
