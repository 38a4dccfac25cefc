"""Static lessons: without server and network they show what the live pages show, and keep progress."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from npusim.cli.program import run
from npusim.course.catalogue import lessons
from npusim.course.export import MOST_POSITIONS, export_lessons, positions
from npusim.course.lesson import Picture, Slider
from npusim.course.pages import shown_at, thumbs, values_at

pytestmark = pytest.mark.usefixtures("own_main")
QUICK = ("roofline", "machine_steps")
FEW = 40
MOST_BYTES = 2_000_000
"""Of a page with the library."""
TEXT = "element => element.innerText"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("npusim.course.export.MOST_POSITIONS", FEW)  # so that one page has lines through a grid
        export_lessons(folder, QUICK, print)
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder, and yield its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as url:
        yield url


@pytest.fixture(scope="module")
def browser(chromium: Callable[..., Any]) -> Any:
    return chromium("--no-sandbox")


def opened(browser: Any, url: str, width: int = 1280) -> Any:
    """Open a page that reaches nothing but its own server; errors are noted."""
    page = browser.new_page(viewport={"width": width, "height": 1000})
    page.complaints = []
    own = url.partition("//")[2].partition("/")[0]

    def answer(route: Any) -> None:
        if own and f"//{own}/" in route.request.url:
            route.continue_()
        else:
            page.complaints.append(route.request.url)
            route.abort()

    page.route(lambda target: target.startswith(("http", "ws")), answer)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    page.wait_for_selector("[data-drawn]")
    return page


def take(page: Any, name: str) -> None:
    """Take a static lesson: guess, move every slider to its ends, compare with the model, answer."""
    lesson = import_module(next(each.module for each in lessons() if each.name == name)).LESSON
    inputs = page.locator(".sliders input, .sliders select")
    assert inputs.first.is_disabled()
    page.locator("[name=guess]").first.check()
    at = 0
    for number, picture in enumerate(lesson.pictures):
        section = page.locator("[data-picture]").nth(number)
        for slider in picture.sliders.values():
            for _ in thumbs(slider):
                for place in (len(slider.values) - 1, 0):
                    set_to(inputs.nth(at), place, isinstance(slider.value, str))
                    compare(section, picture)
                at += 1
    answer = page.locator(".exercise input")
    for typed, verdict in ((lesson.exercise.right * 3 + 7, "Not yet"), (lesson.exercise.right, "Right.")):
        answer.fill(f"{typed:.7g}")
        answer.press("Enter")
        page.get_by_text(verdict, exact=False).first.wait_for()
    assert "Solved in this browser" in page.locator(".progress").inner_text()
    assert page.locator("merror").count() == 0 and page.complaints == []


def set_to(element: Any, place: int, is_list: bool) -> None:
    if is_list:
        element.select_option(str(place))
    else:
        element.evaluate("(e, at) => { e.value = at; e.dispatchEvent(new Event('input')); }", str(place))


def compare(section: Any, picture: Picture) -> None:
    """Compare picture, words and text with the live ones at the position where the sliders stand."""
    places = tuple(int(place) for place in section.get_attribute("data-at").split(","))
    assert all(
        element.input_value() == str(place)
        for element, place in zip(
            section.locator(".sliders input, .sliders select").all(), places, strict=True
        )
    )
    spec, said, text = shown_at(picture, places)
    below = section.locator(".below")
    words = below.evaluate(
        """(element, html) => {
            const live = document.createElement("div");
            live.innerHTML = html;
            const plain = (root) => {
                const copy = root.cloneNode(true);
                for (const formula of copy.querySelectorAll(".arithmatex"))
                    formula.textContent = formula.dataset.drawnTex ?? formula.textContent.slice(2, -2);
                return copy.textContent.replace(/\\s+/g, " ").trim();
            };
            return [plain(element), plain(live)];
        }""",
        text,
    )
    assert words[0] == words[1]
    if not spec:
        return
    drawn = section.locator("[data-drawn]").first
    assert drawn.get_attribute("aria-label") == said
    if picture.is_player:
        sizes = json.loads(spec)["counters"]
        last = section.locator(".steps input")
        set_to(last, int(last.get_attribute("max")), False)
        for name, value in sizes.items():
            now, total = section.locator(f"[data-counter={name}] td").all_inner_texts()[:2]
            assert int(now.replace(" ", "")) == int(total[3:].replace(" ", "")) == round(value)
    else:
        assert drawn.evaluate("e => e.data.length") == len(json.loads(spec)["data"])


@pytest.mark.parametrize("name", QUICK)
def test_a_static_lesson_is_taken_from_a_server_and_from_a_file(
    browser: Any, address: str, site: Path, name: str
) -> None:
    for url in (f"{address}{name}.html", f"{site.as_uri()}/{name}.html"):
        page = opened(browser, url)
        take(page, name)
        page.goto(url.replace(f"{name}.html", "index.html"))
        page.get_by_text("✓ solved").first.wait_for()
        page.goto(url)
        page.get_by_role("button", name="Begin again").click()
        page.get_by_text("0 exercises solved").wait_for()
        page.locator(".sliders :is(input, select):disabled").first.wait_for()
        assert page.locator("[name=guess]:checked").count() == 0
        page.close()


def test_a_static_lesson_is_small_and_fits_a_telephone_and_another_page(
    browser: Any, address: str, site: Path
) -> None:
    for path in site.glob("*.html"):
        assert path.stat().st_size + (site / "library.js").stat().st_size < MOST_BYTES, path.name
        assert (
            "http://" not in path.read_text().replace("http://www.w3.org/", "") or path.name == "index.html"
        )
    (site / "course.html").write_text('<iframe src="roofline.html" width="380" height="600"></iframe>')
    for name in QUICK:
        page = opened(browser, f"{address}{name}.html", 390)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.close()
    page = browser.new_page()
    page.goto(f"{address}course.html")
    page.frame_locator("iframe").locator("[data-drawn]").first.wait_for()
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [lesson.name for lesson in lessons()])
def test_every_static_lesson_is_small_and_taken_without_a_network(
    browser: Any, tmp_path: Path, name: str
) -> None:
    export_lessons(tmp_path, [name], print)
    assert sum((tmp_path / file).stat().st_size for file in (f"{name}.html", "library.js")) < MOST_BYTES
    with served(tmp_path) as address:
        page = opened(browser, f"{address}{name}.html")
        take(page, name)
        page.close()


def test_a_page_has_all_positions_or_those_of_each_slider() -> None:
    for page in lessons():
        if page.name not in ("mac_grid", "roofline", "machine_steps", "int8", "calibrating"):
            continue
        for picture in import_module(page.module).LESSON.pictures:
            sizes = [len(slider.values) for slider in picture.sliders.values() for _ in thumbs(slider)]
            start = tuple(place for slider in picture.sliders.values() for place in thumbs(slider))
            offered = set(positions(picture))
            assert start in offered and len(offered) <= MOST_POSITIONS
            if prod(sizes) <= MOST_POSITIONS:
                everywhere = product(*map(range, sizes))
                assert offered == {places for places in everywhere if _is_ordered(picture, places)}
            for i, size in enumerate(sizes):
                lines = [(*start[:i], place, *start[i + 1 :]) for place in range(size)]
                ordered = [line for line in lines if _is_ordered(picture, line)]
                assert set(ordered) <= offered


def _is_ordered(picture: Picture, places: tuple[int, ...]) -> bool:
    ends = (value for value in values_at(picture, places).values() if isinstance(value, tuple))
    return all(low <= high for low, high in ends)


def test_a_refused_position_says_why() -> None:
    from npusim.errors import InfeasibleError

    def refuse(width: int) -> Any:
        raise InfeasibleError("too wide for `this` <machine>")

    spec, _, text = shown_at(Picture({"width": Slider("width", [1, 2], 1)}, refuse), (0,))
    assert not spec and "too wide" in text and "<machine>" not in text


def test_the_explorer_is_not_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["learn", "explorer", "--export", str(tmp_path)]) == 2
    assert "needs a server" in capfd.readouterr().err
