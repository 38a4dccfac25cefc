"""Values of what follows from the edges, for the example that a network was imported with."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Packed = tuple[str, str, tuple[int, ...], bytes]
"""Name, type, shape and bytes of an array."""


class KnownValues(Mapping[str, Array]):
    """Arrays by tensor, such as the node numbers that a layer gathers; equal arrays are one object.

    Whole numbers have 32 bits. Equality and `repr` go by a digest of the values, and a pickle holds bytes.
    """

    def __init__(self, arrays: Mapping[str, Array] | Iterable[Packed] = ()) -> None:
        if not isinstance(arrays, Mapping):
            arrays = {name: np.frombuffer(raw, kind).reshape(shape) for name, kind, shape, raw in arrays}
        self._arrays: dict[str, Array] = {}
        equal: dict[tuple[str, tuple[int, ...], bytes], Array] = {}
        digest = hashlib.sha256()
        for name, array in sorted(arrays.items()):
            held = np.ascontiguousarray(array, np.int32 if array.dtype == np.int64 else array.dtype)
            key = (held.dtype.str, array.shape, hashlib.sha256(held.tobytes()).digest())
            self._arrays[name] = equal.setdefault(key, held.reshape(array.shape))
            digest.update(repr((name, key)).encode())
        self.digest = digest.hexdigest()[:16]

    @property
    def elements(self) -> int:
        """Numbers of all arrays, equal ones once."""
        return sum({id(array): array.size for array in self._arrays.values()}.values())

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"KnownValues({self.digest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownValues) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        packed = [(name, a.dtype.str, a.shape, a.tobytes()) for name, a in self._arrays.items()]
        return KnownValues, (packed,)
