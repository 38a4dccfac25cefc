"""A catalogue on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from npusim.catalogues import Entry, Listing
from npusim.reporting.engineering import engineering, quantity, worded
from npusim.reporting.tables import grouped
from npusim.reporting.terminal import grid
from npusim.workloads.spec import variants

_SENTENCES = ("title", "summary", "description")
"""Fields that stand by themselves, before all others."""
_RATES = {"_bytes_per_s": "B/s", "_ops_per_s": "OP/s", "_hz": "Hz"}
"""Units by the end of a key, where that of a metric would not do."""
_NOTES = {
    "ops": "The DPU runs only the elementwise types that the SoC lists in dpu.eltwise_ops. An operator of "
    "another type is costed by the bytes it moves, with a warning. No unit: a view, the same bytes under "
    "another shape.",
    "workloads": "Also by the names of timm, torchvision and Ultralytics: ",
}
"""What stands below a catalogue."""


def listing_page(listing: Listing) -> RenderableType:
    """Return a catalogue for the terminal: entries alike but for their name share a row."""
    if not listing.entries:
        return Text(f"npusim ships no {listing.catalogue}.")
    table = grid()
    table.add_column(style="bold cyan", overflow="fold", max_width=36)
    table.add_column(overflow="fold")
    for (sentence, facts), entries in grouped(listing.entries, _described).items():
        about = Text("\n".join(filter(None, (sentence, facts))))
        about.stylize("dim", len(sentence) if sentence else 0)
        table.add_row(Text(", ".join(entry["name"] for entry in entries)), about)
    note = _NOTES.get(listing.catalogue)
    if note is not None:
        more = ", ".join(sorted(variants())) if listing.catalogue == "workloads" else ""
        table.add_row(Text("note", style="dim"), Text(note + more, style="dim"))
    return table


def _described(entry: Entry) -> tuple[str, str]:
    """Return what an entry is, and its facts."""
    facts = [_fact(key, value) for key, value in entry.items() if key not in ("name", "file", *_SENTENCES)]
    return " ".join(entry[key] for key in _SENTENCES if key in entry), ", ".join(filter(None, facts))


def _fact(key: str, value: Any) -> str:
    """Return a field in words: its name and value, or its name alone where it is a switch that is on."""
    if isinstance(value, bool) or not value:
        return worded(key) if value else ""
    if isinstance(value, int | float):
        end = next((end for end in _RATES if key.endswith(end)), None)
        shown = quantity(key, value) if end is None else engineering(value, _RATES[end])
        return f"{worded(key.removesuffix(end or ''))} {shown}"
    if isinstance(value, str):
        return f"{worded(key)} {value}"
    return f"{worded(key)}: {' '.join(map(str, value))}"
