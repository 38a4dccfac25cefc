"""The data sheets' parameters of the MAC grid are those that the figures give, and say what they rest on."""

from functools import cache

import pytest

from npusim.calibration.fits import Fitted, load_plan, shipped_rows, table_of
from npusim.calibration.unit_fits import DpuPlan, fit_dpu
from npusim.validation.running import machines_of
from npusim.validation.suite import load_suite
from npusim.validation.unit_models import Machine

MACHINES: dict[str, Machine] = machines_of(load_suite("silicon-dpu"))
npus = pytest.mark.parametrize("npu", sorted(MACHINES))


@cache
def fitted(npu: str) -> Fitted:
    return fit_dpu(MACHINES[npu], shipped_rows(npu))


@pytest.mark.laws
@npus
def test_shipped_numbers_are_those_of_the_fit(npu):
    sheet = MACHINES[npu].soc.npu.dpu.model
    for number in fitted(npu).numbers:
        shipped = getattr(sheet, number.path.removeprefix("npu.dpu.model."))
        assert float(shipped) == pytest.approx(number.value, rel=1e-3), number.path
        assert shipped.source == number.source, number.path
        assert shipped.uncertainty == pytest.approx(number.relative_sigma, rel=0.06), number.path


@npus
def test_numbers_that_were_not_fitted_say_so(npu):
    free = {number.path.rpartition(".")[2] for number in fitted(npu).numbers}
    for name, number in MACHINES[npu].soc.npu.dpu.model:
        if name not in free:
            assert number.source.startswith(
                ("[FIT] held: ", "[FIT] measured cycles: ", "[TIMM] vgg13", "absent")
            ), name


@npus
def test_the_fitted_machine_has_the_fitted_numbers(npu):
    arch = fitted(npu).machine.arch[0]
    for number in fitted(npu).numbers:
        assert arch[f"dpu_{number.path.rpartition('.')[2]}"] == number.value


def test_what_no_measured_row_moves_is_marked():
    unmeasured = {
        npu: {n.path.rpartition(".")[2] for n in fitted(npu).numbers if not n.on_silicon} for npu in MACHINES
    }
    assert {"fp16_output_rate", "pool_tap_cost", "eltwise_bytes_per_port_cycle"} == unmeasured["npu3720"]
    assert {"fp16_output_rate"} | {n for n in unmeasured["npu4000"] if "sparse" in n} == unmeasured["npu4000"]


def test_a_fit_to_predictions_finds_the_numbers_that_made_them():
    """All but those that the figures do not determine."""
    npu = "npu4000"
    truth = fitted(npu)

    def predicted_rows(suite):
        assert suite in load_plan("dpu", DpuPlan).sources
        figures, declared = shipped_rows(npu)(suite), load_suite(suite)
        values = table_of(declared).predict(figures, truth.machine)
        return figures.with_columns(**{declared.measured: values})

    again = {n.path: n for n in fit_dpu(MACHINES[npu], predicted_rows).numbers}
    for number in truth.numbers:
        if number.path not in truth.undetermined:
            spread = max(0.02, number.relative_sigma)
            assert again[number.path].value == pytest.approx(number.value, rel=spread), number.path
