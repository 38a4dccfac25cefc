"""The fit of a laptop's CPU and GPU to NITRO's times of a token."""

import pytest

from npusim.calibration.fits import main


@pytest.mark.laws
def test_a_fit_to_figures_prints_each_figure_fitted_and_left_out(capsys):
    assert main(["nitro"]) == 0
    out = capsys.readouterr().out
    assert "| llama3-8b | 635.8 ms | 623.8 ms | -1.9% | 611.2 ms | -3.9% |" in out
    assert "gpu.dram_bandwidth | 6.552e+10 B/s" in out
    assert "nothing is fitted" in out  # of the NPU


def test_a_fit_whose_sheet_is_written_by_hand_refuses_to_write(capsys):
    assert main(["nitro", "--quick", "--write"]) == 2
    assert "by hand" in capsys.readouterr().err
