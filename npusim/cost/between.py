"""What passes between two uses of an operator's operands: columns of the operator table."""

from __future__ import annotations

from typing import NamedTuple

from npusim.cost.records import Bytes


class Between(NamedTuple):
    """Bytes that pass before each operand is used again, and one more; 0: it was not used before, or lost."""

    a: Bytes = 0.0
    """Activations of a product, or the first operand."""
    b: Bytes = 0.0
    """Weights of a product."""
    extra: Bytes = 0.0
    """All other operands."""
    c: Bytes = 0.0
    """From the operator to the last use of its results; 0: others need them, too."""
