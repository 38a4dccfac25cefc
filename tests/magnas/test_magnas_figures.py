"""Suite `magnas`: which figures it reads, mappings as strings, refusals; and what its predictions keep."""

import pytest

import npusim
from npusim.cli.program import run
from npusim.errors import ConfigError
from npusim.magnas.suite import FIGURES, MagnasFit, predicted, problem_of, shipped_figures
from npusim.validation import load_suite

ROW = "{name: mine, stem: D, grapher: GGGGGGGG, ffn: DDDDGDDD, cls: D, latency_ms: 20, energy_mj: 200}"


def file_of(tmp_path, row):
    path = tmp_path / "figures.yaml"
    path.write_text(f"magnas:\n  table3_cifar100_a3:\n    - {row}\n")
    return path


def test_every_published_figure_is_read_by_its_path():
    keys = {figure.id: key for figure, key in shipped_figures()}
    assert len(keys) == 24
    assert next(iter(keys)) == "magnas.baselines_latency_ms_energy_mj.max_relative.gpu.0"
    assert "magnas.table3_cifar100_a3.2.latency_ms" in keys
    assert keys["magnas.table3_cifar100_a3.2.energy_mj"]["mapping"] == "D/DGGGGGGG/DGGGGGGG/G"
    assert min(figure.value for figure, _ in shipped_figures()) > 0


def test_a_mapping_of_ones_own_is_a_row(tmp_path):
    figures, notes = FIGURES.figures(load_suite("magnas"), file_of(tmp_path, ROW))
    quantities = [(figure.id.rpartition(".")[2], figure.value) for figure, _ in figures]
    assert quantities == [("latency_ms", 20.0), ("energy_mj", 200.0)]
    assert figures[0][1]["mapping"] == "D/GGGGGGGG/DDDDGDDD/D"
    assert notes == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("GGGGGGGG", "GGGGGGG", "1/7/8/1 letters; allowed: 1/8/8/1 letters"),
        ("DDDDGDDD", "DDDDXDDD", "found `X` in .*; allowed: G .gpu., D .dla."),
        ("latency_ms: 20", "latency_ms: soon", "found soon|found `soon`"),
    ],
)
def test_a_row_that_is_no_mapping_is_refused_with_its_line(before, after, message, tmp_path):
    with pytest.raises(ConfigError, match=message) as error:
        FIGURES.figures(load_suite("magnas"), file_of(tmp_path, ROW.replace(before, after)))
    assert error.value.line == 3


def test_the_command_refuses_it_too(tmp_path, capsys):
    path = file_of(tmp_path, ROW.replace("stem: D", "stem: DD"))
    assert run(["validate", "magnas", "--figures", str(path)]) == 2
    assert "2/8/8/1 letters" in capsys.readouterr().err


@pytest.mark.slow
def test_the_fit_predicts_what_the_suite_does():
    fit = MagnasFit("jetson-agx-xavier")
    expected = [predicted(key, problem_of(key["network"])) for key in fit.keys]
    assert fit.predicted({}) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_all_figures_are_within_the_limit():
    assert npusim.validate(["magnas"]).ok
