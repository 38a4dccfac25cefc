"""Operators: types, tensors, number formats, amount of work. No cost, no machine."""

from npusim.ops.catalogue import CATALOGUE, Family, OpType, op_type
from npusim.ops.dtypes import DType
from npusim.ops.operator import Operator
from npusim.ops.tensor import Annotation, Role, Storage, Tensor, TensorKind, stored_bytes
from npusim.ops.work import Work, work_of

__all__ = [
    "CATALOGUE",
    "Annotation",
    "DType",
    "Family",
    "OpType",
    "Operator",
    "Role",
    "Storage",
    "Tensor",
    "TensorKind",
    "Work",
    "op_type",
    "stored_bytes",
    "work_of",
]
