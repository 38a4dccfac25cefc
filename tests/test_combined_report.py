"""Several results on one page: a summary first, every result's page, the command or file behind each."""

import re
import shlex
from pathlib import Path

import pytest

import npusim
from npusim.cli.program import run
from npusim.reporting.html import distinguish


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("report")
    npusim.estimate("gcn-cora", techniques="stagr", interval=False).write(made / "estimate.json")
    space = {
        "schema": "npusim.space/1",
        "workload": "gcn-cora",
        "techniques": "stagr",
        "axes": {"npu.tiles": {"values": [2, 4]}},
    }
    npusim.sweep(space, made / "swept")
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    runs = [str(folder / "estimate.json"), str(folder / "swept"), "compare none stagr gcn-cora"]
    assert run(["report", *runs, "-o", str(folder / "report.html"), "--title", "Ours <&>"]) == 0
    return (folder / "report.html").read_text()


def test_the_summary_comes_first_and_links_to_every_result(page: str) -> None:
    links = re.findall(r'href="#(result-\d)"', page)
    assert links == ["result-1", "result-2", "result-3"]
    assert [page.count(f'id="{link}"') for link in links] == [1, 1, 1]
    assert page.index("<h2>Summary</h2>") < page.index('id="result-1"') < page.index('id="result-2"')
    assert "Ours &lt;&amp;&gt;" in page


@pytest.mark.laws
def test_a_result_of_a_command_has_all_its_pictures_and_its_verdict(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(
        "schema: npusim.space/1\nworkload: gcn-cora\ntechniques: stagr\naxes: {npu.tiles: {values: [2, 4]}}\n"
    )
    swept = shlex.join(["sweep", str(tmp_path / "space.yaml"), "-o", str(tmp_path / "swept")])
    runs = ["estimate gcn-cora -t stagr --engine event", "validate silicon-dma", swept]
    assert run(["report", *runs, "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    for heading in ("What lies in SRAM", "What happened when", "What flows through the machine", "Roofline"):
        assert f">{heading}" in page, heading
    assert re.search(r"silicon-dma: \d+ of \d+ groups of figures within their limits", page)
    assert re.search(r"Front: .*swept", page)


def test_traces_are_told_apart_without_colour() -> None:
    import plotly.graph_objects as go

    figure = go.Figure()
    for name in "abc":
        figure.add_bar(x=[1.0], y=["one"], name=f"bar {name}", marker={"color": "#444444"})
        figure.add_scatter(x=[0], y=[0], mode="lines", name=f"line {name}", line={"color": "#444444"})
        figure.add_scatter(x=[0], y=[0], mode="markers", name=f"dot {name}", marker={"color": "#444444"})
    swatches = distinguish(figure)
    assert len(swatches) == len(set(swatches.values())) == 9
    assert len({trace.marker.pattern.shape for trace in figure.data if trace.type == "bar"}) == 3


def test_each_result_says_where_it_comes_from(page: str, folder: Path) -> None:
    assert page.count("npusim compare none stagr gcn-cora") >= 2
    assert re.search(r"estimate\.json, SHA-256 [0-9a-f]{64}", page)
    assert f"directory {folder / 'swept'}" in page
    assert "Written by <code>npusim report" in page


def test_no_two_elements_have_one_name_and_every_plot_finds_its_place(page: str) -> None:
    body = page.partition("<body>")[2]
    names = re.findall(r'\bid="([^"]+)"', body)
    assert len(names) == len(set(names))
    plots = re.findall(r'Plotly\.newPlot\(\s*"([^"]+)"', body)
    assert plots and set(plots) <= set(names)
    assert page.count("<html") == 1 and page.count("<h1>") == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("no such thing", "which is no file"),
        ("estimate 'gcn", "No closing quotation"),
        ("estimate nosuch", "gave no result"),
        ("list socs --nosuch", "gave no result"),
        ("schema estimate", "has no result"),
        ("", "which is no file"),
    ],
)
def test_what_is_no_result_is_refused(
    asked: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", asked, "-o", str(tmp_path / "page.html")]) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text('{"schema": "other/1"}')
    assert run(["report", str(tmp_path / "x.json"), "-o", str(tmp_path / "page.html")]) == 2
    assert "x.json" in capfd.readouterr().err
    assert run(["report", str(tmp_path / "x.json"), "-o", str(tmp_path / "page.txt")]) == 2
    assert ".html" in capfd.readouterr().err
