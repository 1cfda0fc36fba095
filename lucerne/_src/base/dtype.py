"""Element types: one frozen object per type, with the lattice that decides what two of them make.

NumPy has no bfloat16, float8 or complex32. Such types are *storage types*: their bytes live in a
plain unsigned array (`storage`), and arithmetic happens in `compute`, the type the values widen to.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np

BOOL, INTEGER, FLOAT, COMPLEX, OPAQUE = range(5)


class dtype:
    """An element type such as `lucerne.float32`.

    >>> import lucerne
    >>> lucerne.bfloat16.itemsize, lucerne.bfloat16.is_floating_point
    (2, True)
    """

    __slots__ = (
        "_compute",
        "category",
        "digits",
        "is_signed",
        "itemsize",
        "name",
        "native",
        "storage",
    )

    def __init__(
        self,
        name: str,
        storage: str,
        category: int,
        *,
        signed: bool = True,
        native: bool = True,
        compute: str | None = None,
        digits: int = 0,
    ) -> None:
        self.name: Final = name
        self.storage: Final[np.dtype] = np.dtype(storage)
        self.category: Final = category
        self.is_signed: Final = signed
        self.native: Final = native
        self.itemsize: Final[int] = self.storage.itemsize
        self._compute = compute or name
        self.digits: Final = digits
        _BY_NAME[name] = self

    @property
    def is_floating_point(self) -> bool:
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        return self.category == COMPLEX

    @property
    def compute(self) -> dtype:
        """The type arithmetic on this one runs in (float32 for the 8- and 16-bit floats)."""
        return _BY_NAME[self._compute]

    def to_real(self) -> dtype:
        return _TO_REAL.get(self, self)

    def to_complex(self) -> dtype:
        return _TO_COMPLEX.get(self, self)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return by_name, (self.name,)

    def __deepcopy__(self, memo: object) -> dtype:
        return self

    def __copy__(self) -> dtype:
        return self


_BY_NAME: dict[str, dtype] = {}


def by_name(name: str) -> dtype:
    """The dtype called `name`, without any prefix."""
    return _BY_NAME[name]


def all_dtypes() -> tuple[dtype, ...]:
    return tuple(_BY_NAME.values())


float32 = dtype("float32", "f4", FLOAT, digits=24)
float64 = dtype("float64", "f8", FLOAT, digits=53)
float16 = dtype("float16", "f2", FLOAT, compute="float32", digits=11)
bfloat16 = dtype("bfloat16", "u2", FLOAT, native=False, compute="float32", digits=8)
complex64 = dtype("complex64", "c8", COMPLEX, digits=24)
complex128 = dtype("complex128", "c16", COMPLEX, digits=53)
complex32 = dtype("complex32", "u4", COMPLEX, native=False, compute="complex64", digits=11)
uint8 = dtype("uint8", "u1", INTEGER, signed=False)
int8 = dtype("int8", "i1", INTEGER)
int16 = dtype("int16", "i2", INTEGER)
int32 = dtype("int32", "i4", INTEGER)
int64 = dtype("int64", "i8", INTEGER)
uint16 = dtype("uint16", "u2", INTEGER, signed=False)
uint32 = dtype("uint32", "u4", INTEGER, signed=False)
uint64 = dtype("uint64", "u8", INTEGER, signed=False)
bool_ = dtype("bool", "?", BOOL, signed=False)
float8_e4m3fn = dtype("float8_e4m3fn", "u1", FLOAT, native=False, compute="float32", digits=4)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", "u1", FLOAT, native=False, compute="float32", digits=4)
float8_e5m2 = dtype("float8_e5m2", "u1", FLOAT, native=False, compute="float32", digits=3)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", "u1", FLOAT, native=False, compute="float32", digits=3)
float8_e8m0fnu = dtype(
    "float8_e8m0fnu", "u1", FLOAT, signed=False, native=False, compute="float32", digits=1
)
float4_e2m1fn_x2 = dtype("float4_e2m1fn_x2", "u1", OPAQUE, native=False)
# Names only: torch keeps these as opaque storage, without arithmetic, and so do we.
for _name, _store in (
    ("qint8", "i1"), ("quint8", "u1"), ("qint32", "i4"), ("quint4x2", "u1"), ("quint2x4", "u1"),
    ("bits1x8", "u1"), ("bits2x4", "u1"), ("bits4x2", "u1"), ("bits8", "u1"), ("bits16", "u2"),
    *((f"int{bits}", "i1") for bits in range(1, 8)),
    *((f"uint{bits}", "u1") for bits in range(1, 8)),
):  # fmt: skip
    dtype(_name, _store, OPAQUE, native=False)

_TO_REAL = {complex64: float32, complex128: float64, complex32: float16}
_TO_COMPLEX = {
    float32: complex64,
    float64: complex128,
    float16: complex32,
    bfloat16: complex64,
}

_FLOAT8 = frozenset(t for t in _BY_NAME.values() if t.name.startswith("float8"))
_BARE_UNSIGNED = frozenset((uint16, uint32, uint64))
_INT_RANK = {uint8: 0, int8: 0, int16: 1, int32: 2, int64: 3}
_FLOAT_RANK = {float16: 0, bfloat16: 0, float32: 1, float64: 2}
_COMPLEX_RANK = {complex32: 0, complex64: 1, complex128: 2}


@functools.cache
def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type that holds both, by torch's table.

    >>> import lucerne
    >>> lucerne.promote_types(lucerne.int32, lucerne.float16)
    torch.float16
    """
    a, b = type1, type2
    if a is b:
        return a
    if a in _FLOAT8 or b in _FLOAT8:
        raise RuntimeError(
            f"Promotion for Float8 Types is not supported, attempted to promote {_cxx(a)} and "
            f"{_cxx(b)}"
        )
    if OPAQUE in (a.category, b.category):
        raise RuntimeError(f"promotion is not defined for {a} and {b}")
    if a.category > b.category:
        a, b = b, a
    if a in _BARE_UNSIGNED or b in _BARE_UNSIGNED:
        if b.category == FLOAT:
            return b
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{_cxx(type1)} and {_cxx(type2)}"
        )
    if a.category == BOOL:
        return b
    if b.category == INTEGER:
        return _promote_ints(a, b)
    if b.category == FLOAT:
        return b if a.category == INTEGER else _promote_floats(a, b)
    if a.category == INTEGER:
        return b
    if a.category == FLOAT:
        return _promote_real_complex(a, b)
    return a if _COMPLEX_RANK[a] > _COMPLEX_RANK[b] else b


def _promote_ints(a: dtype, b: dtype) -> dtype:
    if uint8 in (a, b):
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    return a if _INT_RANK[a] > _INT_RANK[b] else b


def _promote_floats(a: dtype, b: dtype) -> dtype:
    if _FLOAT_RANK[a] == _FLOAT_RANK[b]:
        return float32
    return a if _FLOAT_RANK[a] > _FLOAT_RANK[b] else b


def _promote_real_complex(real: dtype, cplx: dtype) -> dtype:
    if real is bfloat16 and cplx is complex32:
        return complex64
    rank = max(_FLOAT_RANK[real], _COMPLEX_RANK[cplx])
    return (complex32, complex64, complex128)[rank]


_CXX_NAMES = {
    float32: "Float", float64: "Double", float16: "Half", bfloat16: "BFloat16", int64: "Long",
    int32: "Int", int16: "Short", int8: "Char", uint8: "Byte", bool_: "Bool",
    complex64: "ComplexFloat", complex128: "ComplexDouble", complex32: "ComplexHalf",
    uint16: "UInt16", uint32: "UInt32", uint64: "UInt64",
}  # fmt: skip


def cxx_name(t: dtype) -> str:
    """What torch's messages call a type: "Long", "Float", ..."""
    return _CXX_NAMES.get(t, t.name.capitalize())


_cxx = cxx_name
_C_NAMES = {
    float32: "float", float64: "double", float16: "c10::Half", bfloat16: "c10::BFloat16",
    int64: "long int", int32: "int", int16: "short int", int8: "signed char",
    uint8: "unsigned char", bool_: "bool", complex64: "c10::complex<float>",
    complex128: "c10::complex<double>", complex32: "c10::complex<c10::Half>",
}  # fmt: skip


def c_name(t: dtype) -> str:
    """What torch's messages call a type in C: "long int", "float", ..."""
    return _C_NAMES.get(t, t.name)


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether a result of type `from_` may be written into a tensor of type `to`."""
    if from_.category == COMPLEX and to.category != COMPLEX:
        return False
    if from_.category == FLOAT and to.category in (BOOL, INTEGER):
        return False
    return not (from_.category != BOOL and to.category == BOOL)


_FROM_NUMPY = {t.storage: t for t in _BY_NAME.values() if t.native}


def from_numpy_dtype(t: np.dtype) -> dtype:
    """The dtype of a NumPy array, in native byte order."""
    try:
        return _FROM_NUMPY[t]
    except KeyError:
        raise TypeError(
            f"can't convert np.ndarray of type {t.type.__module__}.{t.type.__name__}. The only "
            "supported types are: float64, float32, float16, complex64, complex128, int64, int32, "
            "int16, int8, uint64, uint32, uint16, uint8, and bool."
        ) from None
