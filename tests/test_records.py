"""Records of compiled code: one declaration gives type, unit, meaning and numpy dtype."""

from typing import Annotated, NamedTuple

import numpy as np
import pytest

from npusim.arch.dpu import DpuModel
from npusim.compiling.records import Bytes, Vector, columns_at, dtype_of, fields_of
from npusim.config.loading import field_descriptions
from npusim.cost.lowering.tables import DspKernelRecord, OpRecord, ResultRecord
from npusim.cost.machine.architecture import ARCH_DTYPE, ArchRecord
from npusim.cost.machine.hosts import HostRecord
from npusim.cost.units.grid import DpuWorkload
from npusim.cost.units.resources import CandidateRecord

RECORDS = (ArchRecord, OpRecord, ResultRecord, CandidateRecord, HostRecord, DspKernelRecord)


class Inner:
    size_bytes: Bytes
    """Size."""


@columns_at(DpuModel, {f"dpu_{name}": name for name in DpuModel.model_fields})
class Outer(Inner):
    count: int
    """Number of things."""
    sizes: Annotated[Vector, 3, "B"]
    """Sizes of three."""
    inner: Inner
    """A record within a record."""


def test_the_dtype_has_the_declared_columns_in_order():
    dtype = dtype_of(Outer)
    assert dtype.names[:4] == ("size_bytes", "count", "sizes", "inner")
    assert [dtype[name].base for name in dtype.names[:3]] == ["f8", "i8", "f8"]
    assert dtype["sizes"].shape == (3,)
    assert dtype["inner"] == dtype_of(Inner)


def test_a_column_knows_its_unit_and_meaning():
    fields = fields_of(Outer)
    assert fields["size_bytes"] == (np.dtype("f8"), "B", "Size.")
    assert fields["sizes"].unit == "B"


def test_the_data_sheet_declares_its_own_columns():
    field, texts = fields_of(Outer)["dpu_startup_cycles"], field_descriptions(DpuModel)
    assert (field.unit, field.meaning) == ("cycle", texts["startup_cycles"])
    assert {f"dpu_{name}" for name in DpuModel.model_fields} <= set(ARCH_DTYPE.names)


@pytest.mark.few(1)
@pytest.mark.parametrize("record", [*RECORDS, DpuWorkload], ids=lambda record: record.__name__)
def test_every_column_says_what_it_is(record):
    assert not [name for name, field in fields_of(record).items() if not field.meaning]


def test_a_value_can_be_declared_like_a_row():
    class Pair(NamedTuple):
        left: Bytes
        right: Bytes

    assert dtype_of(Pair).names == ("left", "right")
