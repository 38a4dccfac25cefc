"""Lessons in a real browser that reaches this machine alone: pictures follow sliders, exercises answer.

Skipped where Playwright, a Chromium or the extra `learn` is missing.
"""

import json
import shlex
import threading
from collections.abc import Callable
from importlib import import_module
from queue import Queue
from typing import Any

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")
pytest.importorskip("anywidget", reason="lessons need the extra `learn`")

from npusim.cli.program import run
from npusim.course.catalogue import lessons
from npusim.course.server import serve

pytestmark = pytest.mark.usefixtures("own_main")
NAMES = [lesson.name for lesson in lessons()]
QUICK = "mac_grid"
"""The lesson that every run of the tests opens; the others are opened by the slow tests."""
TOKEN = ["", ""]
"""Address of the server, and the query that opens it."""
_PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def address() -> str:
    """Return the address of a server that runs until the tests end."""
    said: Queue[tuple[str, str]] = Queue()
    threading.Thread(target=serve, args=(0, lambda *words: said.put(words)), daemon=True).start()
    TOKEN[:] = said.get(timeout=300)
    return TOKEN[0]


@pytest.fixture(scope="module")
def browser(chromium: Callable[..., Any]) -> Any:
    return chromium("--no-sandbox")


def opened(browser: Any, url: str, width: int = 1280) -> Any:
    """Open a page; what it asks others for is refused and noted, as is every error in its console."""
    page = browser.new_page(viewport={"width": width, "height": 1400})
    page.set_default_timeout(_PATIENCE_MS)
    page.complaints = []

    def answer(route: Any) -> None:
        if "://127.0.0.1:" in route.request.url:
            route.continue_()
        else:
            page.complaints.append(route.request.url)
            route.abort()

    page.route(lambda target: target.startswith(("http", "ws")), answer)
    page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(url + TOKEN[1])
    page.wait_for_selector("[data-drawn]")
    return page


def drawn(page: Any) -> int:
    """Return how often pictures were drawn."""
    places = page.locator("[data-drawn]")
    return sum(int(places.nth(k).get_attribute("data-drawn") or 0) for k in range(places.count()))


def expect(page: Any, holds: Any) -> None:
    """Wait until something holds."""
    for _ in range(_PATIENCE_MS // 50):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it never came to hold")


def take(browser: Any, address: str, name: str) -> None:
    """Take a lesson as a visitor would: guess, move a slider, answer wrongly and then rightly."""
    page = opened(browser, f"{address}lessons/{name}/")
    slider = page.locator("[role=slider]").first
    assert slider.get_attribute("data-disabled") is not None, "the slider moves before the guess"
    page.get_by_role("radio").first.click()
    expect(page, lambda: slider.get_attribute("data-disabled") is None)
    page.wait_for_timeout(500)
    before, text = drawn(page), page.locator(".katex").all_inner_texts()
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page, lambda: drawn(page) > before and page.locator(".katex").all_inner_texts() != text)
    module = next(page.module for page in lessons() if page.name == name)
    right = import_module(module).LESSON.exercise.right
    answer = page.get_by_placeholder("a number")
    for given, verdict in ((right * 3 + 7, "Not yet"), (right, "Right.")):
        answer.fill(f"{given:.7g}")
        answer.press("Enter")
        page.get_by_text(verdict, exact=False).first.wait_for()
    assert page.complaints == []
    page.close()


def test_a_lesson_is_taken(browser: Any, address: str) -> None:
    take(browser, address, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != QUICK])
def test_every_other_lesson_is_taken(browser: Any, address: str, name: str) -> None:
    take(browser, address, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_fits_a_telephone(browser: Any, address: str, name: str) -> None:
    page = opened(browser, f"{address}lessons/{name}/", 390)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for formula in page.locator(".katex-display").all():
        assert formula.evaluate("e => e.scrollWidth <= e.clientWidth"), formula.inner_text()
    assert page.complaints == []
    page.close()


@pytest.mark.slow
def test_two_tabs_do_not_disturb_each_other(browser: Any, address: str) -> None:
    tabs = [opened(browser, f"{address}lessons/mac_grid/") for _ in range(2)]
    radios = [tab.get_by_role("radio") for tab in tabs]
    radios[0].nth(0).click()
    tabs[0].get_by_text("Not quite").first.wait_for()
    assert radios[1].nth(0).get_attribute("aria-checked") == "false"
    radios[1].nth(1).click()
    tabs[1].get_by_text("Yes.").first.wait_for()
    assert tabs[0].get_by_text("Yes.").count() == 0
    for tab in tabs:
        assert tab.complaints == []
        tab.close()


@pytest.mark.slow
def test_the_command_of_the_explorer_reproduces_its_latency(
    browser: Any, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    page = opened(browser, f"{address}explorer/")
    slider = page.locator("[role=slider]").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    command = page.locator("code").filter(has_text="npusim estimate").first
    expect(page, lambda: "--set" in command.inner_text())
    page.wait_for_timeout(500)
    shown = page.get_by_text("Design A as a command").first.locator("..").inner_text()
    capfd.readouterr()
    assert run([*shlex.split(command.inner_text())[1:], "--format", "json"]) == 0
    assert repr(json.loads(capfd.readouterr().out)["latency_s"]) in shown
    assert page.complaints == []
    page.close()
