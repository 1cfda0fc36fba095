"""Where the fields of the native objects are, and the C structures that describe them to Python.

Objects begin with Python's header. All numbers below are byte offsets; `emit_objects` and
`emit_dispatch` read and write these fields in machine code, Python sees them as attributes.
"""

from __future__ import annotations

import ctypes
from typing import Any

HEAD = object.__basicsize__
TYPE = HEAD - 8
"""The type pointer is the last word of the header."""

TUPLE_ITEMS = tuple.__basicsize__
VAR_SIZE = HEAD
LIST_ITEMS = HEAD + 8
SLICE_PARTS = (HEAD, HEAD + 8, HEAD + 16)
"""start, stop, step."""
"""Where objects of variable size keep their length."""


class TensorLayout:
    """Fields of a tensor. With STORAGE empty the tensor owns the block at DATA alone."""

    META = HEAD
    STORAGE = HEAD + 8
    OFFSET = HEAD + 16
    DATA = HEAD + 24
    NBYTES = HEAD + 32
    SEEN_VERSION = NBYTES
    """Of a view (which owns no block): its storage's version when that was last looked at."""
    AUTO = HEAD + 40
    VIEW = HEAD + 48
    ARRAY = HEAD + 56
    FLAGS = HEAD + 64
    DICT = HEAD + 72
    WEAK = HEAD + 80
    SIZE = HEAD + 88
    PENDING_AUTO = 1
    """FLAGS: AUTO holds a record (a list) that becomes an AutogradState when somebody looks."""
    PENDING_VIEW = 2
    """FLAGS: VIEW holds a record that becomes a ViewState when somebody looks."""


class StorageLayout:
    """Fields of a storage."""

    ADDRESS = HEAD
    NBYTES = HEAD + 8
    VERSION = HEAD + 16
    SAVED = HEAD + 24
    INFERENCE = HEAD + 25
    BUFFER = HEAD + 32
    DEVICE = HEAD + 40
    OWNER = HEAD + 48
    WRITER = HEAD + 56
    VIEWS = HEAD + 64
    WEAK = HEAD + 72
    SIZE = HEAD + 80


class Public:
    """Fields of a public function."""

    VECTORCALL = HEAD
    FUNCTION = HEAD + 8
    DICT = HEAD + 16
    WEAK = HEAD + 24
    BY_VALUE = HEAD + 32
    """Whether floats go into the key by value (one of them decides something) or by type."""
    SIZE = HEAD + 40


class MemoryLayout:
    """Fields of a block of host memory."""

    ADDRESS = HEAD
    NBYTES = HEAD + 8
    WRITES = HEAD + 16
    """Counts writes in place, through whatever storage; begins at a number of its own."""
    EXPORTED = HEAD + 24
    """Whether others (NumPy, ...) were given its address: they may write unseen."""
    WEAK = HEAD + 32
    SIZE = HEAD + 40


# ---- what PyType_FromSpec reads ---------------------------------------------------------------


class MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class MemberDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class GetSetDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("get", ctypes.c_void_p),
        ("set", ctypes.c_void_p),
        ("doc", ctypes.c_char_p),
        ("closure", ctypes.c_void_p),
    ]


class TypeSlot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("pointer", ctypes.c_void_p)]


class TypeSpec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(TypeSlot)),
    ]


OBJECT, OBJECT_OR_ERROR, SSIZE, BOOL = 6, 16, 19, 14
"""Member types: an object (None when empty), an object (AttributeError when empty), ..."""
READ_ONLY = 1
FASTCALL = 0x80

SLOT_GETBUFFER = 1
SLOT_DEALLOC = 52
SLOT_TRAVERSE = 71
SLOT_CLEAR = 51
SLOT_MEMBERS = 72
SLOT_SETATTRO = 69
SLOT_GETSET = 73

FLAG_BASETYPE = 1 << 10
FLAG_GC = 1 << 14
FLAG_VECTORCALL = 1 << 11
FLAG_METHOD = 1 << 17
SLOT_CALL = 50
SLOT_DESCR_GET = 54

# PyTypeObject and the method tables it points to: not part of the stable ABI, the same in the
# versions we support, and checked against known types before anything is patched (`patch.py`).
TYPE_BASICSIZE = 32
TYPE_DEALLOC = 48
TYPE_NUMBER = 96
TYPE_MAPPING = 112
TYPE_CALL = 128
TYPE_GETATTRO = 144
TYPE_COMPARE = 200
NUMBER_SLOTS = {
    "add": 0, "sub": 8, "mul": 16, "mod": 24, "pow": 40, "neg": 48, "abs": 64, "and": 104,
    "xor": 112, "or": 120, "floordiv": 232, "truediv": 240, "matmul": 272,
}  # fmt: skip
MAPPING_SUBSCRIPT = 8

kept: list[Any] = []
"""C structures that Python's types point to: alive as long as the process."""


def make_immortal(thing: Any) -> None:
    """Machine code refers to it: it must outlive even the clearing of modules at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


make_immortal(kept)


def c_array(kind: Any, items: list[tuple[Any, ...]]) -> Any:
    """A C array of structures, closed by an empty one, kept for ever."""
    made = (kind * (len(items) + 1))(*[kind(*i) for i in items])
    kept.append(made)
    return made


def make_type(
    name: str,
    size: int,
    flags: int,
    slots: list[tuple[int, int]],
    members: list[tuple[Any, ...]],
    getsets: list[tuple[Any, ...]] = [],  # noqa: B006 - read only
) -> type:
    """A heap type made of machine code."""
    listed = list(slots)
    listed.append((SLOT_MEMBERS, ctypes.addressof(c_array(MemberDef, members))))
    if getsets:
        listed.append((SLOT_GETSET, ctypes.addressof(c_array(GetSetDef, getsets))))
    spec = TypeSpec(name.encode(), size, 0, flags, c_array(TypeSlot, listed))
    kept.append(spec)
    from_spec = ctypes.pythonapi.PyType_FromSpec
    from_spec.restype, from_spec.argtypes = ctypes.py_object, [ctypes.c_void_p]
    made: type = from_spec(ctypes.addressof(spec))
    kept.append(made)
    return made


def builtin(name: str, address: int, owner: Any = None, doc: str = "") -> Any:
    """A Python callable over machine code: `ptr f(ptr owner, ptr args, i64 count)`."""
    definition = MethodDef(name.encode(), address, FASTCALL, doc.encode() or None)
    kept.append(definition)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    kept.append(owner)
    return new(ctypes.addressof(definition), None if owner is None else id(owner), None)


def slot_offset(cls: type, name: str) -> int:
    """Where instances of a class keep a `__slots__` attribute (asked of its descriptor)."""
    descriptor = cls.__dict__[name]
    # PyMemberDescrObject: header, type, name, qualname, then the PyMemberDef.
    definition = ctypes.c_void_p.from_address(id(descriptor) + HEAD + 24).value
    assert definition is not None
    return MemberDef.from_address(definition).offset
