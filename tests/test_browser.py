"""Every kind of page in a real browser: no error, nothing that leads off the page, tables that hold the JSON.

Skipped where Playwright or a Chromium is missing; the browser reaches no network.
"""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npusim.engines.chrome_trace import chrome_trace
from npusim.engines.event import event_estimate
from npusim.scenario import Scenario

_SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "screenshots.py"
_SPEC = importlib.util.spec_from_file_location("screenshots", _SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
screenshots = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(screenshots)
"""The script that makes the pictures in docs: every kind of page with the command that writes it."""

TABLES = """() => [...document.querySelectorAll(".data")].map((one) => {
  const value = (cell) => cell.dataset.value === undefined ? cell.textContent
    : cell.dataset.value === "" ? null : JSON.parse(cell.dataset.value);
  const [head, ...rows] = one.querySelector("table").rows;
  return { id: one.id, keys: [...head.cells].map((cell) => cell.dataset.key || ""),
           rows: rows.map((row) => [...row.cells].map(value)) };
})"""
UNSEEN = """() => [...document.querySelectorAll(".wide:not(.rest)")].flatMap((wide) => {
  const tables = [wide], below = () => tables.at(-1).nextElementSibling;
  while (below()?.classList.contains("rest")) tables.push(below());
  const heads = tables.map((one) => [...one.querySelectorAll("thead tr > *")]);
  return heads[0].filter((_, k) => heads.every((cells) => cells[k].hidden)).map((cell) => cell.textContent);
})"""
"""Columns that no table of a page shows."""
LINKS = """() => ["href", "src", "action", "formaction", "data", "srcset", "poster"].flatMap((name) =>
  [...document.querySelectorAll(`[${name}]`)].map((one) => one.getAttribute(name)))"""


@pytest.fixture(scope="session")
def browser(chromium: Callable[..., Any]) -> Any:
    """Return a browser that reaches no network."""
    return chromium(*screenshots.OFFLINE)


@pytest.fixture(scope="session")
def folder(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the commands of the pages read."""
    found: Path = tmp_path_factory.mktemp("pages")
    screenshots.prepared(found)
    return found


@pytest.fixture(scope="session")
def opened(browser: Any) -> Callable[..., Any]:
    """Open a file at some width; whatever the browser complains of or asks for is an error."""

    def open_(path: Path, width: int = 1280) -> Any:
        view = browser.new_page(viewport={"width": width, "height": 900})
        view.complaints = []
        view.on("console", lambda m: view.complaints.append(m.text) if m.type == "error" else None)
        view.on("pageerror", lambda error: view.complaints.append(str(error)))
        view.on(
            "request",
            lambda asked: None if asked.url.startswith("file:") else view.complaints.append(asked.url),
        )
        view.goto(path.as_uri())
        return view

    return open_


def records(value: Any) -> list[dict[str, Any]]:
    """Return a list of a JSON document as flat records, parts as `part.key`."""

    def flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        found = {}
        for key, one in record.items():
            found |= flat(one, f"{prefix}{key}.") if isinstance(one, dict) and one else {prefix + key: one}
        return found

    if isinstance(value, dict):
        value = [{"name": name, **one} for name, one in value.items()]
    return [flat(record) for record in value]


def assert_tables_hold(view: Any, document: dict[str, Any]) -> None:
    """Compare every table that names its place in the document with what stands there."""
    compared = 0
    if stands_in := document.get("stands_in"):
        kept = [row for i, row in enumerate(document["rows"]) if stands_in[i] == i]
        document = {**document, "rows": kept}
    for table in view.evaluate(TABLES):
        place: Any = document
        for key in table["id"].split("."):
            place = place[int(key)] if isinstance(place, list) else (place or {}).get(key)
        if not any(table["keys"]) or place is None:
            continue
        expected = records(place)[: len(table["rows"])]
        assert len(table["rows"]) == len(expected) > 0
        for shown, record in zip(table["rows"], expected, strict=True):
            for key, value in zip(table["keys"], shown, strict=True):
                if not key:
                    continue
                wanted = record.get(key)
                if isinstance(wanted, bool):
                    wanted = "yes" if wanted else "no"
                elif isinstance(wanted, list) and not all(isinstance(v, int | float) for v in wanted or [""]):
                    continue  # shown in words
                assert value == wanted or (value in ("", None) and wanted in (None, "", {})), (
                    table["id"],
                    key,
                )
                compared += 1
    assert compared > 0


TRACE_PROCESSOR = """async (text) => {
  const engine = await import("devtools://devtools/bundled/models/trace/trace.js");
  const model = engine.TraceModel.Model.createWithAllHandlers();
  await model.parse(JSON.parse(text).traceEvents, { metadata: {}, isFreshRecording: false });
  const { Renderer, Meta } = model.parsedTrace().data;
  const threads = [...Renderer.processes].flatMap(([pid, one]) => [...one.threads].map(([tid, thread]) => ({
    process: Meta.processNames.get(pid).args.name, name: thread.name, slices: thread.entries.length,
    outermost: thread.tree.roots.size ?? thread.tree.roots.length,
    busy_us: thread.entries.reduce((sum, slice) => sum + slice.dur, 0) })));
  const slices = [...Renderer.processes.values()].flatMap((one) =>
    [...one.threads.values()].flatMap((thread) => thread.entries));
  return { threads, length_us: Math.max(...slices.map((slice) => slice.ts + slice.dur)) };
}"""
"""Queries of the trace processor in Chromium's developer tools, which knows nothing of npusim."""

QUICK = "estimate"
"""The kind of page that every run of the tests opens; the others are opened by the slow tests."""


@pytest.mark.slow
def test_a_trace_processor_finds_our_units_slices_and_totals(browser: Any) -> None:
    line = event_estimate(Scenario("gcn-cora", techniques="stagr")).timeline
    view = browser.new_page()
    try:
        view.goto("devtools://devtools/bundled/devtools_app.html")
        found = view.evaluate(TRACE_PROCESSOR, chrome_trace(line))
    except Exception as error:  # a browser without developer tools, or with others
        pytest.skip(f"no trace processor in this browser: {error}")
    finally:
        view.close()
    threads = {one["name"]: one for one in found["threads"] if one["process"] != "Layers"}
    spent, names = line.end - line.start, [line.track(int(row)) for row in line.working]
    assert set(threads) == set(names)
    for name, thread in threads.items():
        rows = [row for row, own in zip(line.working, names, strict=True) if own == name]
        assert thread["slices"] == thread["outermost"] == len(rows)  # none is lost in another one
        assert thread["busy_us"] == pytest.approx(1e6 * spent[rows].sum(), rel=1e-4, abs=1e-3 * len(rows))
    layers = [one for one in found["threads"] if one["process"] == "Layers"]
    assert all(one["slices"] == one["outermost"] for one in layers)
    assert sum(one["slices"] for one in layers) == len(set(line.operator[line.working]) - {-1})
    assert found["length_us"] == pytest.approx(1e6 * line.makespan_s, rel=1e-6)


@pytest.mark.slow
def test_two_runs_stand_one_above_the_other_on_one_scale(opened: Callable[..., Any], folder: Path) -> None:
    view = opened(screenshots.write_page("trace-diff", folder))
    screenshots.quietly(f"{screenshots.PAGES['trace-diff']} -o trace-diff.json", folder)
    document = json.loads((folder / "trace-diff.json").read_text())
    drawn = view.evaluate("document.querySelector('.js-plotly-plot').data.map((one) => [...one.y])")
    assert {track.rpartition(", ")[2] for trace in drawn for track in trace} == {"first", "second"}
    scatter = next(one for one in document["alone"] if one["name"] == "layer0/aggregate/scatter")
    assert scatter["latency_s"] > 0.5 * document["measured_s"]
    assert document["first"] in view.title() and document["second"] in view.title()
    view.close()


def assert_leads_nowhere(view: Any) -> None:
    """No element has an address of anything but a place in the page."""
    assert all(link.startswith(("#", "data:", "blob:")) for link in view.evaluate(LINKS))
    said = view.evaluate("[...document.querySelectorAll('[data-title]')].map((one) => one.dataset.title)")
    assert not [words for words in said if "cloud" in words.lower() or "share" in words.lower()]


def check_page(kind: str, opened: Callable[..., Any], folder: Path) -> None:
    """Open a page: no error, nothing leads off it, tables hold the JSON, a telephone is wide enough."""
    view = opened(screenshots.write_page(kind, folder))
    assert_leads_nowhere(view)
    assert kind in ("measure", "search", "accuracy") or "npusim" in view.inner_text("code >> nth=-1")
    if kind in screenshots.PAGES:
        screenshots.quietly(f"{screenshots.PAGES[kind]} -o {kind}.json", folder)
        assert_tables_hold(view, json.loads((folder / f"{kind}.json").read_text()))
    view.set_viewport_size({"width": 390, "height": 800})
    view.wait_for_function("document.documentElement.scrollWidth <= 390")  # plots follow a little later
    assert view.complaints == []
    view.close()


def test_a_page_opens_without_error_leads_nowhere_and_holds_the_json(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    check_page(QUICK, opened, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind in (*screenshots.PAGES, *screenshots.OTHERS) if kind != QUICK]
)
def test_every_other_page_opens_without_error_leads_nowhere_and_holds_the_json(
    kind: str, opened: Callable[..., Any], folder: Path
) -> None:
    check_page(kind, opened, folder)


def check_access(
    kind: str, opened: Callable[..., Any], folder: Path, inaccessible: Callable[..., Any]
) -> None:
    """Look for what axe-core forbids, figures without a text, and columns that only scrolling shows."""
    page = folder / f"{kind}.html"
    view = opened(page if page.exists() else screenshots.write_page(kind, folder))
    view.wait_for_timeout(200)
    assert inaccessible(view) == []
    assert view.locator("main h1").count() == 1
    assert kind == "list" or len(view.inner_text(".verdict").split()) > 1
    pictures = view.locator(".js-plotly-plot")
    texts = [each.get_attribute("aria-label") for each in view.locator("[role=figure]").all()]
    assert len(texts) == pictures.count() and all(re.search("Lines across|[0-9]", text) for text in texts)
    wide = "[...document.querySelectorAll('.wide:has(table)')]"
    assert view.evaluate(f"{wide}.every((one) => one.scrollWidth <= one.clientWidth)")
    assert view.evaluate(UNSEEN) == []
    assert view.complaints == []
    view.close()


def test_a_page_is_for_everybody(
    opened: Callable[..., Any], tmp_path: Path, inaccessible: Callable[..., Any]
) -> None:
    check_access(QUICK, opened, tmp_path, inaccessible)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind in (*screenshots.PAGES, *screenshots.OTHERS) if kind != QUICK]
)
def test_every_other_page_is_for_everybody(
    kind: str, opened: Callable[..., Any], folder: Path, inaccessible: Callable[..., Any]
) -> None:
    check_access(kind, opened, folder, inaccessible)


@pytest.mark.slow
def test_a_table_is_saved_as_csv_with_raw_values(opened: Callable[..., Any], folder: Path) -> None:
    view = opened(screenshots.write_page("whatif", folder))
    with view.expect_download() as download:
        view.click("button.csv")
    head, first, *_ = Path(download.value.path()).read_text().splitlines()
    assert head.startswith("stack,latency (s),")
    screenshots.quietly(f"{screenshots.PAGES['whatif']} -o whatif.json", folder)
    variant = json.loads((folder / "whatif.json").read_text())["variants"][0]
    assert first.split(",")[:2] == [variant["techniques"], json.dumps(variant["latency_s"])]
    view.close()


@pytest.mark.slow
def test_a_name_of_the_legend_hides_what_it_stands_for(opened: Callable[..., Any], folder: Path) -> None:
    view = opened(screenshots.write_page("map", folder))
    button = view.locator(".legend button").first
    traces = json.loads(button.get_attribute("data-traces"))
    button.click()
    hidden = view.evaluate("""() => document.querySelector(".legend button.off").closest(".picture")
      .querySelector(".js-plotly-plot").data.map((one) => one.visible)""")
    assert all(hidden[i] == "legendonly" for i in traces)
    view.close()
