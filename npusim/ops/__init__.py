"""Operators: types, tensors, number formats, amount of work. No cost, no machine."""

from npusim.ops import catalogue as catalogue  # registers npusim's own types
from npusim.ops.operator import (
    OPERATORS,
    Family,
    Int8Use,
    Operator,
    OpType,
    RowUse,
    Settings,
    Work,
    WorkClass,
    op_type,
)
from npusim.ops.tensor import (
    CSR_INDEX_BYTES,
    Annotation,
    DType,
    Role,
    Storage,
    Tensor,
    TensorKind,
    stored_bytes,
)

__all__ = [
    "CSR_INDEX_BYTES",
    "OPERATORS",
    "Annotation",
    "DType",
    "Family",
    "Int8Use",
    "OpType",
    "Operator",
    "Role",
    "RowUse",
    "Settings",
    "Storage",
    "Tensor",
    "TensorKind",
    "Work",
    "WorkClass",
    "op_type",
    "stored_bytes",
]
