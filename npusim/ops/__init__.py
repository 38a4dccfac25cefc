"""Operators: types, tensors, number formats, amount of work. No cost, no machine."""

from npusim.ops.catalogue import op_type
from npusim.ops.dtypes import DType
from npusim.ops.operator import Operator
from npusim.ops.tensor import Annotation, Role, Storage, Tensor, TensorKind, stored_bytes
from npusim.ops.types import OPERATORS, Family, Int8Use, OpType, RowUse, Settings, WorkClass
from npusim.ops.work import Work

__all__ = [
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
