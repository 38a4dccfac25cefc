"""Operators and tensors: how much there is to do, how much there is to move."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.cost.lowering.execution import execution_of
from npusim.errors import ShapeError, UnknownNameError
from npusim.ops import OPERATORS, DType, Family, Operator, Storage, Tensor, Work, op_type, stored_bytes


def tensor(*shape: int, dtype: DType = DType.FP16) -> Tensor:
    return Tensor("t", shape, dtype)


def work_of(op: Operator, inputs: list[Tensor], outputs: list[Tensor]) -> Work:
    return op.traits.work(op, inputs, outputs)


def operator(kind: str, **attrs: object) -> Operator:
    return Operator("op", kind, ("a", "b"), ("c",), attrs)


def test_a_product_has_m_k_n() -> None:
    work = work_of(operator("MatMul"), [tensor(2708, 1433), tensor(1433, 64)], [tensor(2708, 64)])
    assert (work.out_w, work.in_c, work.out_c, work.batch) == (2708, 1433, 64, 1)
    assert work.macs == 2708 * 1433 * 64


def test_transposed_operands_are_turned() -> None:
    turned = operator("MatMul", transpose_a=True, transpose_b=True)
    work = work_of(turned, [tensor(8, 5), tensor(3, 8)], [tensor(5, 3)])
    assert (work.out_w, work.in_c, work.out_c) == (5, 8, 3)


def test_a_batch_on_one_matrix_is_more_rows_and_on_many_is_a_batch() -> None:
    shared = work_of(operator("MatMul"), [tensor(4, 5, 8), tensor(8, 3)], [tensor(4, 5, 3)])
    own = work_of(operator("MatMul"), [tensor(4, 5, 8), tensor(4, 8, 3)], [tensor(4, 5, 3)])
    assert (shared.batch, shared.out_w) == (1, 20)
    assert (own.batch, own.out_w) == (4, 5)
    assert shared.macs == own.macs == 4 * 5 * 8 * 3


def test_a_convolution_counts_taps_and_strides() -> None:
    op = operator("Convolution", strides=(2, 2))
    work = work_of(op, [tensor(1, 16, 28, 28), tensor(32, 16, 3, 3)], [tensor(1, 32, 14, 14)])
    assert work.macs == 14 * 14 * 32 * 16 * 9
    assert (work.out_w, work.out_h, work.in_c, work.out_c, work.stride_w) == (14, 14, 16, 32, 2)


def test_a_depthwise_convolution_is_a_group_convolution_of_one_channel() -> None:
    op = operator("GroupConvolution")
    work = work_of(op, [tensor(1, 32, 14, 14), tensor(32, 1, 1, 3, 3)], [tensor(1, 32, 12, 12)])
    assert work.macs == 12 * 12 * 32 * 9
    assert work.out_c == 32


def test_a_pooling_without_a_kernel_is_refused() -> None:
    with pytest.raises(ShapeError, match="kernel"):
        work_of(operator("MaxPool"), [tensor(1, 8, 4, 4)], [tensor(1, 8, 2, 2)])


def test_softmax_and_reductions_work_along_their_axes() -> None:
    soft = work_of(operator("Softmax", axes=(1,)), [tensor(100, 40)], [tensor(100, 40)])
    assert (soft.rows, soft.row_length, soft.elements) == (100, 40, 4000)
    pooled = work_of(operator("ReduceMax", axes=(1,)), [tensor(100, 10, 64)], [tensor(100, 64)])
    assert (pooled.rows, pooled.row_length) == (6400, 10)


def test_a_view_has_nothing_to_do_and_an_unknown_operator_never_nothing() -> None:
    assert work_of(operator("Reshape"), [tensor(4, 4)], [tensor(16)]).elements == 0
    assert op_type("MadeUpOperator").family is Family.UNKNOWN
    assert work_of(operator("MadeUpOperator"), [tensor(4, 4)], [tensor(2)]).elements == 16


def test_every_operator_can_run_somewhere() -> None:
    for name in OPERATORS:
        execution = execution_of(op_type(name))
        on_npu = execution.dpu is not None or execution.dsp_kernel or op_type(name).family is Family.VIEW
        assert on_npu or execution.host_only, name  # why it runs on hosts alone


@pytest.mark.parametrize(
    ("storage", "dtype", "density", "megabytes"),
    [
        (Storage.DENSE, DType.FP16, 1.0, 14.67),
        (Storage.ZVC, DType.FP16, 13264 / 2708**2, 0.943),
        (Storage.ZVC, DType.INT8, 13264 / 2708**2, 0.930),
        (Storage.TRIANGLE, DType.FP16, 1.0, 7.335972),
    ],
)
def test_storage_of_coras_norm_is_as_measured(
    storage: Storage, dtype: DType, density: float, megabytes: float
) -> None:
    assert stored_bytes(2708**2, dtype, storage, density, 2708) / 1e6 == pytest.approx(megabytes, rel=1e-3)


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from([DType.FP16, DType.INT8]))
def test_a_triangle_is_a_little_more_than_half_and_a_bitmap_at_least_an_eighth_of_a_byte(
    n: int, density: float, dtype: DType
) -> None:
    dense = stored_bytes(n * n, dtype, Storage.DENSE, density, n)
    triangle = stored_bytes(n * n, dtype, Storage.TRIANGLE, density, n)
    packed = stored_bytes(n * n, dtype, Storage.ZVC, density, n)
    assert dense / 2 < triangle <= dense
    assert n * n / 8 <= packed <= dense + n * n / 8 + 1e-9


@pytest.mark.parametrize("density", [-0.1, 1.1, math.nan])
def test_impossible_densities_are_refused(density: float) -> None:
    with pytest.raises(ShapeError, match="density"):
        Tensor("t", (2, 2), density=density)


@pytest.mark.parametrize("block_density", [-0.1, 1.1, 0.257])
def test_a_block_density_fits_the_density(block_density: float) -> None:
    """A granule that is not empty holds one of 256 elements at least: 0.00018 allows 0.047."""
    with pytest.raises(ShapeError, match="block density"):
        Tensor("norm", (2708, 2708), density=0.00018, block_density=block_density)
    assert Tensor("norm", (2708, 2708), density=0.00018, block_density=0.04).block_density == 0.04


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="shape"):
        Tensor("t", (2, -1))


def test_a_misspelt_dtype_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="fp16"):
        DType.parse("pf16")
