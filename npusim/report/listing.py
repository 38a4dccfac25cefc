"""A catalogue as a page for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.catalogues import Entry, Listing
from npusim.report.engineering import engineering
from npusim.report.terminal import grid

_UNIT_WORDS = {"npu.dpu": "DPU", "npu.dsp": "DSP", "cpu": "CPU", "gpu": "GPU"}


def listing_page(listing: Listing) -> RenderableType:
    """Return a catalogue for the terminal: a row per thing, operators by family."""
    if not listing.entries:
        return Text(f"npusim ships no {listing.catalogue}.")
    return _PAGES[listing.catalogue](listing.entries)


def _described(text_of: Callable[[Entry], Text], entries: Sequence[Entry]) -> Table:
    """Return names on the left and words on the right, for what needs a sentence."""
    table = grid()
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for entry in entries:
        table.add_row(entry["name"], text_of(entry))
    return table


def _soc_facts(entry: Entry) -> Text:
    facts = [f"{engineering(entry['dram_bytes_per_s'], 'B/s')} DRAM"]
    if "npu_tiles" in entry:
        facts = [
            f"{entry['npu_tiles']} tiles",
            engineering(entry["npu_clock_hz"], "Hz"),
            f"{entry['npu_int8_ops_per_s'] / 1e12:.1f} TOPS int8",
            f"{engineering(entry['npu_sram_bytes'], 'B')} SRAM",
            *facts,
        ]
    text = Text(entry["title"])
    text.append(f"\n{', '.join(facts)}", style="dim")
    text.append(f"\ndevices: {', '.join(entry['devices'])}", style="dim")
    return text


def _technique_facts(entry: Entry) -> Text:
    text = Text(entry["summary"])
    rules = [f"needs {entry['needs']}"] if entry["needs"] else []
    rules += [f"not with {other}" for other in entry["excludes"]]
    rules += [f"settings: {', '.join(entry['settings'])}"] if entry["settings"] else []
    text.append(f"\n{'; '.join(rules)}" if rules else "", style="dim")
    return text


def _workloads(entries: Sequence[Entry]) -> RenderableType:
    table = _headed("name", "kind", "input", "format", "operators", "MACs")
    own = {"name", "kind", "model", "precision", "description", "operators", "macs", "file"}
    for entry in entries:
        facts = ", ".join(str(value) for key, value in entry.items() if key not in own)
        words = (entry["kind"], facts, entry["precision"])
        macs = engineering(entry["macs"], "")
        table.add_row(Text(entry["name"], style="bold cyan"), *words, str(entry["operators"]), macs)
    table.columns[0].no_wrap = True
    for column in table.columns[4:]:
        column.justify = "right"
    return table


def _ops(entries: Sequence[Entry]) -> RenderableType:
    table = _headed("family", "units", "types")
    table.columns[2].overflow = "fold"
    for (family, units), members in groupby(entries, key=lambda entry: (entry["family"], entry["units"])):
        able = " ".join(_UNIT_WORDS[unit] for unit in units) or "free"
        names = ", ".join(entry["name"] for entry in members)
        table.add_row(Text(family, style="bold cyan"), able, names)
    note = (
        "The DPU runs of the elementwise types those that the SoC lists in dpu.eltwise_ops. A type that is "
        "not here is costed by the bytes it moves, with a warning. Free: the same bytes under another shape."
    )
    return Group(table, Text(), Text(note, style="dim"))


def _space_facts(entry: Entry) -> Text:
    text = Text(entry["title"])
    text.append(f"\n{entry['points']:,} points", style="dim")
    text.append(f"\n{', '.join(entry['axes'])}", style="dim")
    return text


def _headed(*headings: str) -> Table:
    table = grid()
    table.show_header, table.header_style = True, "dim"
    for heading in headings:
        table.add_column(heading)
    return table


_PAGES: Mapping[str, Callable[[Sequence[Entry]], RenderableType]] = {
    "socs": partial(_described, _soc_facts),
    "workloads": _workloads,
    "techniques": partial(_described, _technique_facts),
    "ops": _ops,
    "suites": partial(_described, lambda entry: Text(entry["title"])),
    "spaces": partial(_described, _space_facts),
}
