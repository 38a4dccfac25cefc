"""Operators: types, tensors, number formats, amount of work. No cost, no machine."""

from npusim.ops import catalogue as catalogue  # registers npusim's own types
from npusim.ops.operator import OPERATORS as OPERATORS
from npusim.ops.operator import Family as Family
from npusim.ops.operator import Int8Use as Int8Use
from npusim.ops.operator import Operator as Operator
from npusim.ops.operator import OpType as OpType
from npusim.ops.operator import RowUse as RowUse
from npusim.ops.operator import Settings as Settings
from npusim.ops.operator import Work as Work
from npusim.ops.operator import WorkClass as WorkClass
from npusim.ops.operator import op_type as op_type
from npusim.ops.tensor import CSR_INDEX_BYTES as CSR_INDEX_BYTES
from npusim.ops.tensor import Annotation as Annotation
from npusim.ops.tensor import DType as DType
from npusim.ops.tensor import Role as Role
from npusim.ops.tensor import Storage as Storage
from npusim.ops.tensor import Tensor as Tensor
from npusim.ops.tensor import TensorKind as TensorKind
from npusim.ops.tensor import stored_bytes as stored_bytes
