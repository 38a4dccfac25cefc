"""Draw the pictures of the course's slides from npusim: ``python scripts/course_slides.py [LESSON...]``.

A picture is the first of a lesson, at its first slider positions. It needs the extras `learn` and `dev` and a
Chromium; nothing is loaded from a network.
"""

from __future__ import annotations

import re
import shutil
import sys
import urllib.parse
from importlib import import_module
from pathlib import Path

from playwright.sync_api import sync_playwright

from npusim.course.catalogue import lessons

COURSE = Path(__file__).resolve().parents[1] / "docs" / "course"
WIDTH, HEIGHT = 900, 400
DRAW = f"""() => Plotly.toImage(document.querySelector('.plotly-graph-div'),
    {{format: 'svg', width: {WIDTH}, height: {HEIGHT}}})"""


def main(names: list[str]) -> None:
    """Draw the lessons by name; none: those that the slides show."""
    deck = (COURSE / "slides.md").read_text(encoding="utf-8")
    names = names or sorted(set(re.findall(r"pictures/(\w+)\.svg", deck)))
    modules = {page.name: page.module for page in lessons()}
    (COURSE / "pictures").mkdir(exist_ok=True)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names:
            picture = import_module(modules[name]).LESSON.pictures[0]
            figure, _ = picture.show(**{key: slider.value for key, slider in picture.sliders.items()})
            figure.update_layout(template="plotly_white", font_size=15, updatemenus=[])
            figure.update_xaxes(automargin=True)
            figure.update_yaxes(automargin=True)
            page = browser.new_page()
            page.set_content(figure.to_html(include_plotlyjs=True))
            svg = urllib.parse.unquote(page.evaluate(DRAW).partition(",")[2])
            (COURSE / "pictures" / f"{name}.svg").write_text(svg, encoding="utf-8")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
