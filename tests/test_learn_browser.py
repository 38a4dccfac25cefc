"""Lessons in a real browser that reaches this machine alone: pictures follow sliders, exercises answer.

Skipped where Playwright, a Chromium or the extra `learn` is missing.
"""

import json
import re
import shlex
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from npusim.cli.program import run
from npusim.course.catalogue import lessons
from npusim.course.drawings import alternative, critical_bars
from npusim.course.explorer import KNOBS, Design
from npusim.course.server import serve
from npusim.course.words import OWN, VARIABLE, words
from npusim.errors import FileError
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, last_digit
from npusim.reporting.html import UNIT_COLOURS

pytestmark = pytest.mark.usefixtures("own_main")
NAMES = [lesson.name for lesson in lessons()]
QUICK = "mac_grid"
"""The lesson that every run of the tests opens; the others are opened by the slow tests."""
TOKEN = ["", ""]
"""Address of the server, and the query that opens it."""
FORMULA = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_PATIENCE_MS = 120_000
_MOST_TABS = 120
SLIDER = "input[type=range]"
KNOB = ".designs input[type=range]"
"""Sliders of the explorer's designs."""
_MOST_STEPS = 24
"""Positions up to which a slider is walked to its middle, key by key."""


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


def opened(browser: Any, url: str, width: int = 1280, waits: bool = True) -> Any:
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
    if waits:
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


def place(page: Any, thumb: Any, values: Sequence[float], to: int, is_next: bool = False) -> None:
    """Move a slider's thumb to a position, from an end or from the one before, and hear it say its value."""
    thumb.focus()
    if not is_next:
        page.keyboard.press("End" if to == len(values) - 1 else "Home")
    for _ in range(1 if is_next else to if to < len(values) - 1 else 0):
        page.keyboard.press("ArrowRight")
    said = str(int(values[to])) if float(values[to]).is_integer() else repr(float(values[to]))
    expect(page, lambda: thumb.get_attribute("aria-valuetext") == said)


def reads_well(page: Any) -> None:
    """Look for errors in the text of a page, and for what a screen reader needs."""
    text = " ".join(page.locator("body").inner_text().split())
    assert "error" not in text.lower().replace("rms error", ""), text
    assert "nan" not in text.split() and page.locator(".katex-error").count() == 0
    assert page.locator("main, [role=main]").count() == 1
    preparing = page.get_by_text(re.compile("Preparing the model|Calculating …")).locator("visible=true")
    expect(page, lambda: preparing.count() == 0)  # pictures below may still be drawn


def agrees(page: Any, markdown: str) -> bool:
    """Tell whether a page shows the formulas and the numbers of a text of the model."""
    formulas = [" ".join(each.split()) for each in FORMULA.findall(markdown)]
    shown = {" ".join(each.split()) for each in page.locator("annotation").all_text_contents()}
    words = page.locator("body").inner_text()
    numbers = re.findall(r"\d(?:[\d.,]*\d)?", re.sub(r"\$[^$]+\$|`[^`]+`", "", FORMULA.sub("", markdown)))
    return shown.issuperset(formulas) and all(number in words for number in numbers)


def walk(page: Any, lesson: Any, every: bool = False) -> None:
    """Move every slider to its ends and its middle, or to every position, and read the page each time."""
    thumbs, first = page.locator(".sliders input"), 0
    state = [{name: each.value for name, each in one.sliders.items()} for one in lesson.pictures]
    for number, picture in enumerate(lesson.pictures):
        image = page.locator("[data-drawn]").nth(number)
        for name, slider in picture.sliders.items():
            values, is_range = list(slider.values), isinstance(slider.value, tuple)
            if isinstance(slider.value, str):
                continue
            last = len(values) - 1
            stops = [0, last] if is_range or last > _MOST_STEPS else [last, 0, last // 2]
            for stop in range(last + 1) if every and not is_range else stops:
                end = int(is_range and stop == last)
                pair = list(state[number][name]) if is_range else []
                pair[end : end + 1] = [values[stop]]
                state[number][name] = tuple(pair) if is_range else values[stop]
                # Before the page does: a random search may not run twice at a time.
                drawing, text = picture.show(**state[number])
                shown = alternative(drawing)
                place(page, thumbs.nth(first + end), values, stop, is_next=every and 0 < stop < last)
                expect(page, lambda image=image, shown=shown: image.get_attribute("aria-label") == shown)
                expect(page, lambda text=text: agrees(page, text))
                reads_well(page)
            first += 1 + is_range


BARE = """() => [...document.querySelectorAll("math :is(math, semantics, mrow, mtd, mstyle, mfrac)")]
  .flatMap((each) => [...each.childNodes].filter((node) => node.nodeType === 3).map(() => each.outerHTML))"""
"""Elements of formulas that hold text which no browser shows."""


def take(browser: Any, address: str, name: str) -> None:
    """Take a lesson as a visitor would: guess, move a slider, answer wrongly and then rightly."""
    page = opened(browser, f"{address}lessons/{name}/")
    slider = page.locator(".sliders input").first
    assert slider.is_disabled(), "the slider moves before the guess"
    page.get_by_role("radio").first.click()
    expect(page, slider.is_enabled)
    body = page.locator("body")
    before, text = drawn(page), body.inner_text()
    slider.focus()
    at_end = slider.input_value() == slider.get_attribute("max")
    page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
    expect(page, lambda: drawn(page) > before and body.inner_text() != text)
    lesson = module_of(name).LESSON
    walk(page, lesson)
    assert page.evaluate(BARE) == [], "a browser leaves bare text of a formula out"
    right = lesson.exercise.right
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


def module_of(name: str) -> Any:
    return import_module(next(page.module for page in lessons() if page.name == name))


def guessed(browser: Any, address: str, name: str) -> Any:
    """Open a lesson and guess, so that its sliders move."""
    page = opened(browser, f"{address}lessons/{name}/")
    page.get_by_role("radio").first.click()
    expect(page, page.locator(".sliders input").first.is_enabled)
    return page


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_right_at_every_position(browser: Any, address: str, name: str) -> None:
    page = guessed(browser, address, name)
    walk(page, module_of(name).LESSON, every=True)
    assert page.complaints == []
    page.close()


FOCUS = """() => {
  let one = document.activeElement;
  while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
  if (!one || one === document.body) return null;
  const box = one.getBoundingClientRect(), style = (each) => getComputedStyle(each);
  const ring = (each) => style(each).outlineStyle !== "none" || style(each).boxShadow !== "none";
  return { role: one.getAttribute("role") || (one.type === "range" ? "range" : one.localName),
           seen: box.width > 0 && box.height > 0,
           ring: ring(one) || ring(one.parentElement),
           name: one.getAttribute("aria-label") || one.textContent };
}"""
"""What has the keyboard's focus, and whether that can be seen."""


def check_access(page: Any, least: int, inaccessible: Callable[..., Any]) -> None:
    """Look for what axe-core forbids, and walk a page by the key Tab: all of it is reached, nothing traps."""
    assert [one for one in inaccessible(page) if one.startswith(("serious", "critical"))] == []
    page.locator("a").first.focus()
    reached = []
    for _ in range(_MOST_TABS):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        if focus is None:
            break
        assert focus["seen"] and focus["ring"], focus
        reached.append(focus["role"])
    assert len(reached) < _MOST_TABS, "the focus does not leave the page"
    sliders = page.locator(SLIDER).count()
    assert reached.count("slider") + reached.count("range") == sliders >= least
    page.close()


def test_a_lesson_is_for_everybody(browser: Any, address: str, inaccessible: Callable[..., Any]) -> None:
    page = guessed(browser, address, QUICK)
    before = drawn(page)
    expect(page, lambda: page.locator(".updatemenu-button").count() == 1)
    page.emulate_media(reduced_motion="reduce")
    page.locator(".sliders input").first.press("ArrowRight")
    expect(page, lambda: drawn(page) > before and page.locator(".updatemenu-button").count() == 0)
    check_access(page, 1, inaccessible)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "explorer", *(name for name in NAMES if name != QUICK)])
def test_every_other_page_of_the_course_is_for_everybody(
    browser: Any, address: str, name: str, inaccessible: Callable[..., Any]
) -> None:
    if name in NAMES:
        check_access(guessed(browser, address, name), 1, inaccessible)
        return
    page = opened(browser, f"{address}{name and f'{name}/'}", waits=bool(name))
    if name:
        page.wait_for_selector("body[data-ready]")
    check_access(page, 0, inaccessible)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_fits_a_telephone(browser: Any, address: str, name: str) -> None:
    page = opened(browser, f"{address}lessons/{name}/", 390)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for formula in page.locator("div.arithmatex").all():
        assert formula.evaluate("e => e.scrollWidth <= e.clientWidth"), formula.inner_text()
    assert page.complaints == []
    page.close()


AROUND = (
    "h2, button, legend, .progress, .said, .verdict, .key, .exercise, "
    ".designs label, .steps label, main > p > a"
)
"""Texts around a lesson, and in the explorer."""


def test_words_around_lessons_stand_in_one_file(
    browser: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, own = tmp_path / "words.json", json.loads(OWN.read_text("utf-8"))
    other.write_text(json.dumps({name: f"‹{text}›" for name, text in own.items()} | {"language": "de"}))
    monkeypatch.setenv(VARIABLE, str(other))
    words.cache_clear()
    try:
        page = guessed(browser, address, "machine_steps")
        answer = page.get_by_role("textbox")
        for typed in ("nothing", "1e9", "-1e9"):
            answer.fill(typed)
            answer.press("Enter")
            assert "‹" in page.locator(".checked").inner_text()
        explorer = opened(browser, f"{address}explorer/")
        explorer.wait_for_selector("code")
        for each in (page, explorer):
            assert each.evaluate("document.documentElement.lang") == "de"
            texts = [text for text in each.locator(AROUND).all_text_contents() if not {"←", "→"} & {*text}]
            texts.append(each.locator("pre[aria-label]").get_attribute("aria-label"))
            assert len(texts) > 10 and all("‹" in text for text in texts), texts
            each.close()
    finally:
        monkeypatch.undo()
        words.cache_clear()


def test_a_file_of_words_that_lacks_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "words.json"
    monkeypatch.setenv(VARIABLE, str(other))
    for text, says in (
        ("{", "Expecting"),
        ('{"language": "de"}', "lacks lessons, "),
        ("[]", "lacks language"),
    ):
        other.write_text(text)
        words.cache_clear()
        with pytest.raises(FileError, match=says):
            words()
    words.cache_clear()


@pytest.mark.slow
def test_two_tabs_do_not_disturb_each_other(browser: Any, address: str) -> None:
    tabs = [opened(browser, f"{address}lessons/mac_grid/") for _ in range(2)]
    radios = [tab.get_by_role("radio") for tab in tabs]
    radios[0].nth(0).click()
    tabs[0].get_by_text("Not quite").first.wait_for()
    assert not radios[1].nth(0).is_checked()
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
    slider = page.locator(KNOB).first
    slider.focus()
    page.keyboard.press("ArrowRight")
    command = page.locator("code").filter(has_text="npusim estimate").first
    expect(page, lambda: "--set" in command.inner_text())
    page.wait_for_timeout(500)
    shown = page.get_by_text("Design A as a command").first.locator("..").inner_text()
    capfd.readouterr()
    assert run([*shlex.split(command.inner_text())[1:], "--format", "json"]) == 0
    cost = json.loads(capfd.readouterr().out)
    latency = engineering(cost["latency_s"], "s", last_digit(cost["latency_interval_s"]))
    assert f"(latency {latency} [" in shown
    assert page.complaints == []
    page.close()


@pytest.mark.slow
def test_every_slider_of_the_explorer_takes_every_position(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}explorer/")
    thumbs, image = page.locator(KNOB), page.locator("[data-drawn]").first
    expect(page, lambda: thumbs.count() == 2 * len(KNOBS))
    sheet = {knob.path: knob.sheet_value(DEFAULT_SOC) for knob in KNOBS}
    values, stacks = {"A": dict(sheet), "B": dict(sheet)}, {"A": "stagr", "B": "stagr+quantgr"}
    for number, (name, knob) in enumerate((name, knob) for name in values for knob in KNOBS):
        offered = knob.values(DEFAULT_SOC)
        for stop in range(len(offered)):
            place(page, thumbs.nth(number), offered, stop, is_next=0 < stop < len(offered) - 1)
            values[name][knob.path] = offered[stop]
            costs = {
                one: Design.of(DEFAULT_SOC, "gcn-cora", stacks[one], chosen).estimate
                for one, chosen in values.items()
            }
            shown = alternative(critical_bars(costs, lambda op: op.unit, UNIT_COLOURS))
            expect(page, lambda shown=shown: image.get_attribute("aria-label") == shown)
            reads_well(page)
    assert page.complaints == []
    page.close()
