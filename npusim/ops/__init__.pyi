"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.ops import catalogue as catalogue
from npusim.ops.operator import CSR_INDEX_BYTES as CSR_INDEX_BYTES
from npusim.ops.operator import OPERATORS as OPERATORS
from npusim.ops.operator import Annotation as Annotation
from npusim.ops.operator import DType as DType
from npusim.ops.operator import Family as Family
from npusim.ops.operator import Int8Use as Int8Use
from npusim.ops.operator import Operator as Operator
from npusim.ops.operator import OpType as OpType
from npusim.ops.operator import Role as Role
from npusim.ops.operator import RowUse as RowUse
from npusim.ops.operator import Settings as Settings
from npusim.ops.operator import Storage as Storage
from npusim.ops.operator import Tensor as Tensor
from npusim.ops.operator import TensorKind as TensorKind
from npusim.ops.operator import Work as Work
from npusim.ops.operator import WorkClass as WorkClass
from npusim.ops.operator import op_type as op_type
from npusim.ops.operator import stored_bytes as stored_bytes
