"""The HTML page of all reports: whole, safe to share, and sending nothing anywhere."""

import html
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.cli.program import run
from npusim.reporting.charts import bar_figure
from npusim.reporting.engineering import engineering
from npusim.reporting.html import amount_axis, bullets, figure_text, page, plot, table
from npusim.reporting.page import Page
from npusim.reporting.plotly_library import plotting_library, trimmed

PAGE = page(
    "A <title>",
    plot(go.Figure(go.Scatter(x=[1, 2], y=[3, 4])), 300, "Two points"),
    table(["what", "how much"], [["a&b", "1"]]),
    lead="It depends.",
    notes=["one"],
    command="npusim whatif 'a b'",
)


def outside_of_the_library(text: str) -> str:
    """Return a page without the script of the plotting library, the longest of its scripts."""
    return text.replace(max(re.findall(r"<script>.*?</script>", text, re.S), key=len), "")


def test_a_page_loads_nothing_and_sends_nothing() -> None:
    assert "<script src" not in PAGE and "<link" not in PAGE and "<form" not in PAGE
    assert "default-src 'none'" in PAGE and "connect-src" not in PAGE
    assert "plotly.com" not in PAGE and "cdn.plot.ly" not in PAGE
    assert not re.findall(r"https?://", outside_of_the_library(PAGE))


def test_no_button_of_a_plot_uploads_it() -> None:
    assert '"showSendToCloud": false' in PAGE
    assert '"displaylogo": false' in PAGE


BUNDLE = (
    "var W=(e,t)=>()=>{};"
    'var bar=W((e,t)=>{t.exports={moduleType:"trace",name:"bar"};axis()});'
    'var box=W(e=>{e.exports={moduleType:"trace",name:"box"};depth()});'
    "var axis=W((e,t)=>{});var depth=W((e,t)=>{axis()});"
    "var all=W((e,t)=>{core.register([bar(),box()])});all();"
)


def test_the_library_of_a_page_has_the_modules_that_its_figures_need() -> None:
    assert trimmed(BUNDLE, {"box"}) == re.sub(r"var bar=.*?\}\);|bar\(\),", "", BUNDLE)
    bars = trimmed(BUNDLE, {"bar"})
    assert "var box" not in bars and "var depth" not in bars and "var axis" in bars
    assert trimmed("written otherwise", {"bar"}) == "written otherwise"
    whole, shown = plotting_library(frozenset({"scattergl"})), plotting_library(frozenset({"bar"}))
    assert 0 < len(shown) < len(whole) / 3
    assert plotting_library(frozenset({"scatter"})) in PAGE


def test_a_page_says_what_it_is_and_which_command_made_it() -> None:
    assert "<h1>A &lt;title&gt;</h1>" in PAGE
    assert "<code>npusim whatif &#x27;a b&#x27;</code>" in PAGE
    assert "width=device-width" in PAGE


@given(st.text())
def test_words_of_a_page_are_no_markup(words: str) -> None:
    drawn = table([words], [[words]]) + bullets([words])
    tags = re.findall(r"<[^>]*>", drawn)
    allowed = {"div", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "wbr"}
    assert {re.match(r"</?(\w+)", tag)[1] for tag in tags} <= allowed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["whatif", "gcn-cora", "--stack", "stagr,quantgr", "--html"], "gcn-cora on core-ultra-series2"),
        (["estimate", "gcn-cora", "-t", "stagr", "--engine", "event", "--trace"], "Critical path"),
    ],
)
def test_commands_write_that_page(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    assert run([*arguments, str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert told in text
    assert f"<code>npusim {' '.join(arguments)} {path}</code>" in text
    assert "plotly.com" not in text


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12))
def test_a_figure_is_told_by_its_data(seconds: list[float]) -> None:
    names = [f"stack {number}" for number in range(len(seconds))]
    figure = bar_figure({"latency": dict(zip(names, seconds, strict=True))}, amount_axis("time", "s"), "s")
    drawn = plot(figure, 300)
    for name, value in zip(names, seconds, strict=True):
        assert f"{name} {engineering(value, 's')}" in html.unescape(drawn)
    many = bar_figure({"": {str(k): float(k) for k in range(1, 40)}}, amount_axis("time", "s"), "s")
    assert "39 points, 1 s to 39 s" in figure_text(many)


def test_the_headline_is_the_first_sentence() -> None:
    both = Page("x", conclusion="Best: a, 1.5 x b. Tried: nothing.")
    assert (both.headline, both.rest) == ("Best: a, 1.5 x b.", "Tried: nothing.")
    assert (Page("x", lead="One. x").headline, Page("x").headline) == ("One. x", "")
