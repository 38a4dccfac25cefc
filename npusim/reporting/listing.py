"""A catalogue on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from npusim.catalogues import Entry, Listing
from npusim.reporting.engineering import Amount, engineering
from npusim.reporting.page import FOLD, Column, Table, fields
from npusim.reporting.terminal import drawn_table, grid
from npusim.workloads.variants import variants

_UNIT_WORDS = {"npu.dpu": "DPU", "npu.dsp": "DSP", "cpu": "CPU", "gpu": "GPU"}
_NAME = {"style": "bold cyan"}
# Keys of a workload that have a column of their own, or none.
_OWN_KEYS = {"name", "kind", "model", "precision", "description", "operators", "macs", "file"}
_OF_OPERATORS = (
    "The DPU runs only the elementwise types that the SoC lists in dpu.eltwise_ops. An operator of another "
    "type is costed by the bytes it moves, with a warning. Free: a view, the same bytes under another shape."
)


def listing_page(listing: Listing) -> RenderableType:
    """Return a catalogue for the terminal: one row for each entry, operators by family."""
    if not listing.entries:
        return Text(f"npusim ships no {listing.catalogue}.")
    return _PAGES[listing.catalogue](listing.entries)


def _described(lines_of: Callable[[Entry], Sequence[str]], entries: Sequence[Entry]) -> RenderableType:
    """Return names on the left, on the right a description with dim facts below it."""
    table = grid()
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for entry in entries:
        first, *facts = filter(None, lines_of(entry))
        table.add_row(entry["name"], Text(first).append("".join(f"\n{fact}" for fact in facts), style="dim"))
    return table


def _soc_lines(entry: Entry) -> Sequence[str]:
    sustained = engineering(entry["dram_bytes_per_s"], "B/s")
    facts = [f"{sustained} DRAM"]
    if "dram_peak_bytes_per_s" in entry:
        facts = [f"{engineering(entry['dram_peak_bytes_per_s'], 'B/s')} DRAM, {sustained} sustained"]
    if "npu_tiles" in entry:
        facts = [
            f"{entry['npu_tiles']} tiles",
            engineering(entry["npu_clock_hz"], "Hz"),
            f"{entry['npu_int8_ops_per_s'] / 1e12:.1f} TOPS int8",
            f"{engineering(entry['npu_sram_bytes'], 'B')} SRAM",
            *facts,
        ]
    return entry["title"], ", ".join(facts), f"devices: {', '.join(entry['devices'])}"


def _technique_lines(entry: Entry) -> Sequence[str]:
    rules = [f"needs {entry['needs']}"] if entry["needs"] else []
    rules += [f"not with {other}" for other in entry["excludes"]]
    rules += [f"settings: {', '.join(entry['settings'])}"] if entry["settings"] else []
    return entry["summary"], "; ".join(rules)


def _input(entry: Entry) -> str:
    return ", ".join(str(value) for key, value in entry.items() if key not in _OWN_KEYS)


def _workloads(entries: Sequence[Entry]) -> RenderableType:
    columns = (
        Column("name", layout={**_NAME, "no_wrap": True}),
        Column("kind", layout=FOLD),
        Column("", "input", _input, layout=FOLD),
        Column("precision", layout=FOLD),
        Column("operators"),
        Column("", "MACs", lambda entry: Amount(entry["macs"])),
    )
    families = f"Also by the names of timm, torchvision and Ultralytics: {', '.join(sorted(variants()))}"
    return Group(drawn_table(Table(columns, entries)), Text(), Text(families, style="dim"))


def _ops(entries: Sequence[Entry]) -> RenderableType:
    columns = (
        Column("family", layout=_NAME),
        *fields("units, types", layout=FOLD),
    )
    families = groupby(entries, key=lambda entry: (entry["family"], entry["units"]))
    rows = [
        {
            "family": family,
            "units": " ".join(_UNIT_WORDS[unit] for unit in units) or "free",
            "types": ", ".join(entry["name"] for entry in members),
        }
        for (family, units), members in families
    ]
    return Group(drawn_table(Table(columns, rows)), Text(), Text(_OF_OPERATORS, style="dim"))


def _space_lines(entry: Entry) -> Sequence[str]:
    return entry["title"], f"{entry['points']:,} points", ", ".join(entry["axes"])


def _format_lines(entry: Entry) -> Sequence[str]:
    scale = f", {entry['scale_bits']} for the scale of {entry['block']}" if entry["scale_bits"] else ""
    return [entry["title"], f"{entry['bits']} bits{scale}; {entry['source']}"]


_PAGES: Mapping[str, Callable[[Sequence[Entry]], RenderableType]] = {
    "socs": partial(_described, _soc_lines),
    "workloads": _workloads,
    "techniques": partial(_described, _technique_lines),
    "ops": _ops,
    "suites": partial(_described, lambda entry: [entry["title"]]),
    "spaces": partial(_described, _space_lines),
    "schedulers": partial(_described, lambda entry: [entry["summary"]]),
    "formats": partial(_described, _format_lines),
    "plugins": partial(_described, lambda entry: [entry["package"], entry["group"], entry["object"]]),
}
