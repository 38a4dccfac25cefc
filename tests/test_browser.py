"""Every kind of page in a real browser: no error, nothing that leads off the page, tables that hold the JSON.

Skipped where Playwright or a Chromium is missing; the browser reaches no network.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from npusim.cli.running import run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OFFLINE = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost", "--disable-gpu")

TABLES = """() => [...document.querySelectorAll(".data")].map((one) => {
  const value = (cell) => cell.dataset.value === undefined ? cell.textContent
    : cell.dataset.value === "" ? null : JSON.parse(cell.dataset.value);
  const [head, ...rows] = one.querySelector("table").rows;
  return { id: one.id, keys: [...head.cells].map((cell) => cell.dataset.key || ""),
           rows: rows.map((row) => [...row.cells].map(value)) };
})"""
LINKS = """() => ["href", "src", "action", "formaction", "data", "srcset", "poster"].flatMap((name) =>
  [...document.querySelectorAll(`[${name}]`)].map((one) => one.getAttribute(name)))"""

PAGES: dict[str, list[str]] = {
    "estimate": ["estimate", "gcn-cora", "-t", "stagr"],
    "whatif": ["whatif", "gcn-cora", "--stack", "stagr,stagr+quantgr,stagr+symg"],
    "over": ["whatif", "gcn-cora", "--stack", "stagr,quantgr", "--over", "npu.tiles=2,4"],
    "map": ["map", "gcn-cora"],
    "stream": ["stream", "gcn-cora", "--updates", "20"],
    "list": ["list", "techniques"],
}
"""Command of each page; all of them write the same document as JSON."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(OFFLINE))
        yield started
        started.close()


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
    for table in view.evaluate(TABLES):
        if not any(table["keys"]) or table["id"] not in document:
            continue
        expected = records(document[table["id"]])[: len(table["rows"])]
        assert len(table["rows"]) == min(len(expected), len(document[table["id"]]))
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


def assert_leads_nowhere(view: Any) -> None:
    """No element has an address of anything but a place in the page."""
    assert all(link.startswith(("#", "data:", "blob:")) for link in view.evaluate(LINKS))
    said = view.evaluate("[...document.querySelectorAll('[data-title]')].map((one) => one.dataset.title)")
    assert not [words for words in said if "cloud" in words.lower() or "share" in words.lower()]


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_opens_without_error_leads_nowhere_and_holds_the_json(
    kind: str, opened: Callable[..., Any], tmp_path: Path
) -> None:
    page, data = tmp_path / f"{kind}.html", tmp_path / f"{kind}.json"
    assert run([*PAGES[kind], "-o", str(page)]) == 0
    assert run([*PAGES[kind], "-o", str(data)]) == 0
    view = opened(page)
    assert_leads_nowhere(view)
    assert_tables_hold(view, json.loads(data.read_text()))
    view.set_viewport_size({"width": 390, "height": 800})
    view.wait_for_function("document.documentElement.scrollWidth <= 390")  # plots follow a little later
    assert view.complaints == []
    view.close()
