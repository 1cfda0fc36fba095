"""Writes the pickle inside a checkpoint, in the words torch uses.

Protocol 2, torch's names for tensors and storages, and only values whose names `rebuild.py` knows:
what can be saved can be loaded. Python's own pickler is of no use here, because it looks every name
up before writing it, and torch need not be installed.
"""

from __future__ import annotations

import collections
import struct
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import device as Device
from lucerne._src.base.homes import TorchName
from lucerne._src.io import arrays, nested
from lucerne._src.io.errors import SaveError
from lucerne._src.io.options import safe_table
from lucerne._src.io.rebuild import TORCH_DEVICES
from lucerne._src.ir.namespaces import home_of
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.interop.legacy_attributes import TYPE_NAMES
from lucerne._src.tensor.sparse.kinds import SparseTensor
from lucerne._src.tensor.storage import Storage
from lucerne.nn.parameter import Parameter

BATCH = 1000
NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
CONTAINERS = (dict, collections.OrderedDict, list, tuple, set, collections.deque)


class Pickler:
    """One pickle; `storages` are those it names, by key."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self._keys: dict[tuple[int, int], str] = {}
        self._out = bytearray()
        self._memo: dict[Any, int] = {}
        self._alive: list[Any] = []
        self._safe = {thing: name for name, thing in safe_table().items()}
        self._mixed: set[tuple[int, int]] = set()

    def dump(self, obj: Any) -> bytes:
        self._mixed = _storages_of_many_types(obj)
        self._out += b"\x80\x02"
        try:
            self.value(obj)
        except RecursionError:
            raise SaveError(
                "save: the object is nested too deeply, or refers to itself in a way that torch's "
                "format has no words for"
            ) from None
        self._out += b"."
        return bytes(self._out)

    # -- building blocks -------------------------------------------------------------------------

    def value(self, obj: Any) -> None:
        """Write any value."""
        kind = type(obj)
        write = WRITERS.get(kind)
        if write is None:
            write = _writer_by_family(obj)
        if write is None:
            if kind in self._safe:
                write = Pickler.vouched
            elif TorchName.is_ours:
                write = Pickler.reduced
            else:
                raise self._refusal(obj)
        if kind in UNNOTED or not self.recall(id(obj)):
            write(self, obj)

    def _refusal(self, obj: Any) -> SaveError:
        kind = type(obj)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if hasattr(obj, "state_dict"):
            advice = "save its state_dict() instead: loading the object would have to run its code"
        elif callable(obj):
            advice = "functions and classes are code; save what they need to be made again"
        else:
            advice = (
                "turn it into dicts, lists, numbers, text and tensors; a plain class of yours can "
                f"be saved after lucerne.serialization.add_safe_globals([{kind.__qualname__}])"
            )
        return SaveError(f"save: a {name} can't be saved safely; {advice}")

    def recall(self, key: Any) -> bool:
        """Refer to a value that was written before, if it was."""
        index = self._memo.get(key)
        if index is None:
            return False
        self._out += b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index)
        return True

    def note(self, key: Any, alive: Any = None) -> None:
        """Remember the value just written."""
        index = self._memo[key] = len(self._memo)
        self._alive.append(alive)  # an id means something only while its object lives
        self._out += b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index)

    def name(self, module: str, name: str) -> None:
        """A global."""
        key = ("global", module, name)
        if not self.recall(key):
            self._out += f"c{module}\n{name}\n".encode()
            self.note(key)

    def call(self, module: str, name: str, *args: Any, noted: Any = None) -> None:
        """A global and its arguments, to be called; `noted`: what the result stands for."""
        self.name(module, name)
        self.sequence(args)
        self._out += b"R"
        self.note(id(noted) if noted is not None else self._nobody(), noted)

    def _nobody(self) -> Any:
        """A key for what nothing refers to; torch notes it all the same, and files are alike."""
        return ("nobody", len(self._memo))

    def sequence(self, values: tuple[Any, ...]) -> None:
        """A tuple that nothing refers to. A value may be one that writes itself."""
        if len(values) > 3:
            self._out += b"("
        for value in values:
            value.write(self) if type(value) is Written else self.value(value)
        self._out += (b")", b"\x85", b"\x86", b"\x87")[len(values)] if len(values) <= 3 else b"t"
        if values:
            self.note(self._nobody())

    # -- plain values ----------------------------------------------------------------------------

    def none(self, obj: None) -> None:
        self._out += b"N"

    def boolean(self, obj: bool) -> None:
        self._out += b"\x88" if obj else b"\x89"

    def integer(self, obj: int) -> None:
        if 0 <= obj < 256:
            self._out += b"K" + bytes((obj,))
        elif 0 <= obj < 65536:
            self._out += b"M" + struct.pack("<H", obj)
        elif -(2**31) <= obj < 2**31:
            self._out += b"J" + struct.pack("<i", obj)
        else:
            raw = obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True)
            if len(raw) > 255:
                raise SaveError(f"save: an integer of {len(raw)} bytes is too large")
            self._out += b"\x8a" + bytes((len(raw),)) + raw

    def real(self, obj: float) -> None:
        self._out += b"G" + struct.pack(">d", obj)

    def text(self, obj: str) -> None:
        key = ("text", obj)
        if not self.recall(key):
            raw = obj.encode("utf-8", "surrogatepass")
            self._out += b"X" + struct.pack("<I", len(raw)) + raw
            self.note(key)

    def raw(self, obj: bytes) -> None:
        if obj:
            self.call("_codecs", "encode", obj.decode("latin1"), "latin1", noted=obj)
        else:
            self.call("__builtin__", "bytes", noted=obj)

    def byte_array(self, obj: bytearray) -> None:
        self.call("__builtin__", "bytearray", *((bytes(obj),) if obj else ()), noted=obj)

    def complex_(self, obj: complex) -> None:
        self.call("__builtin__", "complex", obj.real, obj.imag)

    def slice_(self, obj: slice) -> None:
        self.call("__builtin__", "slice", obj.start, obj.stop, obj.step)

    def range_(self, obj: range) -> None:
        self.call("__builtin__", "xrange", obj.start, obj.stop, obj.step)

    # -- containers ------------------------------------------------------------------------------

    def tuple_(self, obj: tuple[Any, ...]) -> None:
        if len(obj) > 3:
            self._out += b"("
        for value in obj:
            self.value(value)
        index = self._memo.get(id(obj))
        if index is not None:  # it contains itself, and that inner one was written already
            self._out += b"1" if len(obj) > 3 else b"0" * len(obj)
            self.recall(id(obj))
            return
        self._out += (b")", b"\x85", b"\x86", b"\x87")[len(obj)] if len(obj) <= 3 else b"t"
        if obj:
            self.note(id(obj), obj)

    def list_(self, obj: list[Any]) -> None:
        self._out += b"]"
        self.note(id(obj), obj)
        self.items(obj)

    def items(self, values: Any) -> None:
        """Append to the list that was written last."""
        values = list(values)
        for start in range(0, len(values), BATCH):
            part = values[start : start + BATCH]
            self._out += b"(" if len(part) > 1 else b""
            for value in part:
                self.value(value)
            self._out += b"e" if len(part) > 1 else b"a"

    def dict_(self, obj: dict[Any, Any]) -> None:
        self._out += b"}"
        self.note(id(obj), obj)
        self.pairs(obj)

    def pairs(self, obj: dict[Any, Any]) -> None:
        """Set items of the dict that was written last."""
        pairs = list(obj.items())
        for start in range(0, len(pairs), BATCH):
            part = pairs[start : start + BATCH]
            self._out += b"(" if len(part) > 1 else b""
            for key, value in part:
                self.value(key)
                self.value(value)
            self._out += b"u" if len(part) > 1 else b"s"

    def ordered_dict(self, obj: Any) -> None:
        self.call("collections", "OrderedDict", noted=obj)
        self.pairs(obj)
        if obj.__dict__:
            if set(obj.__dict__) != {"_metadata"}:
                raise SaveError(
                    "save: an OrderedDict with attributes of its own "
                    f"({', '.join(map(str, obj.__dict__))}); only _metadata is kept"
                )
            self.value(dict(obj.__dict__))
            self._out += b"b"

    def default_dict(self, obj: Any) -> None:
        factory = obj.default_factory
        args: tuple[Any, ...] = ()
        if factory is not None:
            if factory not in (list, dict, set, int, float, str, tuple):
                raise SaveError(
                    "save: a defaultdict whose factory is a function of yours; save dict(x) instead"
                )
            args = (Written(lambda p: p.name("__builtin__", factory.__name__)),)
        self.call("collections", "defaultdict", *args, noted=obj)
        self.pairs(obj)

    def counter(self, obj: Any) -> None:
        self.call("collections", "Counter", dict(obj), noted=obj)

    def deque(self, obj: Any) -> None:
        args: tuple[Any, ...] = () if obj.maxlen is None else ([], obj.maxlen)
        self.call("collections", "deque", *args, noted=obj)
        self.items(obj)

    def members(self, obj: Any) -> None:
        self.call("__builtin__", type(obj).__name__, list(obj), noted=obj)

    # -- torch -----------------------------------------------------------------------------------

    def size(self, obj: Any) -> None:
        self.call("torch", "Size", tuple(obj), noted=obj)

    def dtype(self, obj: dt.dtype) -> None:
        self.name("torch", obj.name)

    def device(self, obj: Any) -> None:
        if obj.type not in TORCH_DEVICES:
            raise SaveError(f"save: torch has no device {str(obj)!r}; save str(device) instead")
        args = (obj.type,) if obj.index is None else (obj.type, obj.index)
        self.call("torch", "device", *args, noted=obj)

    def layout(self, obj: Any) -> None:
        self.call("torch.serialization", "_get_layout", repr(obj))

    def generator(self, obj: Any) -> None:
        where = Written(lambda p: p.call("torch", "device", "cpu"))
        self.call("torch._C", "Generator", where, noted=obj)
        self.sequence((obj.initial_seed(), None, obj.get_state()))
        self._out += b"b"

    def parameter(self, obj: Any) -> None:
        inner = Written(lambda p: p.tensor_body(obj, requires_grad=False))
        hooks = Written(lambda p: p.call("collections", "OrderedDict"))
        extra = (dict(obj.__dict__),) if obj.__dict__ else ()
        name = "_rebuild_parameter_with_state" if extra else "_rebuild_parameter"
        self.call("torch._utils", name, inner, obj.requires_grad, hooks, *extra, noted=obj)

    def tensor(self, obj: Any) -> None:
        state = dict(obj.__dict__)
        if state:
            name, args = self.tensor_parts(obj, obj.requires_grad)
            rebuild = Written(lambda p: p.name("torch._utils", name))
            kind = Written(lambda p: p.name("torch", "Tensor"))
            inner = Written(lambda p: p.sequence(args))
            parts = (rebuild, kind, inner, state)
            self.call("torch._tensor", "_rebuild_from_type_v2", *parts, noted=obj)
        else:
            self.tensor_body(obj, obj.requires_grad, noted=obj)

    def tensor_body(self, t: Any, requires_grad: bool, noted: Any = None) -> None:
        name, args = self.tensor_parts(t, requires_grad)
        self.call("torch._utils", name, *args, noted=noted)

    def tensor_parts(self, t: Any, requires_grad: bool) -> tuple[str, tuple[Any, ...]]:
        """The function that rebuilds a tensor, and its arguments."""
        meta = t._meta
        shape, strides = tuple(meta.shape), tuple(meta.strides)
        if meta.device.type == backends.META:
            return "_rebuild_meta_tensor_no_storage", (meta.dtype, shape, strides, requires_grad)
        typed = None if _identity(t._storage) in self._mixed else TYPE_NAMES.get(meta.dtype)
        held = Written(lambda p: p.storage(t._storage, typed, meta.dtype))
        hooks = Written(lambda p: p.call("collections", "OrderedDict"))
        args = (held, t._offset, shape, strides, requires_grad, hooks)
        bit = "conj" if meta.dtype.category == dt.COMPLEX else "neg"
        extra = ({bit: True},) if meta.flipped else ()
        if typed is None:
            return "_rebuild_tensor_v3", (*args, meta.dtype, *extra)
        return "_rebuild_tensor_v2", (*args, *extra)

    def sparse_tensor(self, obj: Any) -> None:
        """By layout, indices, values and size; a parameter holds one."""
        shape = Written(lambda p: p.call("torch", "Size", tuple(obj.shape)))
        parts = [part.detach() for part in obj._parts()]
        data = (*parts, shape, obj.is_coalesced()) if obj.is_sparse else (*parts, shape)
        kind, held = Written(lambda p: p.layout(obj.layout)), Written(lambda p: p.sequence(data))
        if not isinstance(obj, Parameter):
            self.call("torch._utils", "_rebuild_sparse_tensor", kind, held, noted=obj)
            return
        inner = Written(lambda p: p.call("torch._utils", "_rebuild_sparse_tensor", kind, held))
        hooks = Written(lambda p: p.call("collections", "OrderedDict"))
        arguments = (inner, obj.requires_grad, hooks)
        self.call("torch._utils", "_rebuild_parameter", *arguments, noted=obj)

    def nested_tensor(self, obj: Any) -> None:
        """By its dense parts."""
        if isinstance(obj, nested.NestedList):
            parts = nested.listed_parts(obj)
            self.call("torch._utils", "_rebuild_nested_tensor", *parts, noted=obj)
            return
        rebuild = Written(lambda p: p.name(nested.HOME, nested.REBUILD))
        kind = Written(lambda p: p.name(nested.HOME, nested.KIND))
        inner = Written(lambda p: p.sequence((nested.jagged_parts(obj),)))
        state: dict[str, Any] = {}
        parts = (rebuild, kind, inner, state)
        self.call("torch._tensor", "_rebuild_from_type_v2", *parts, noted=obj)

    def storage(self, held: Storage, typed: str | None, dtype: dt.dtype | None) -> None:
        """A storage by its key; the bytes follow in a record of their own."""
        place = _identity(held)
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = str(len(self.storages))
            self.storages.append(held)
        where = held.device.type if held.device.type in TORCH_DEVICES else backends.HOST
        width = 1 if typed is None or dtype is None else dtype.itemsize
        module, name = ("torch.storage", "Untyped") if typed is None else ("torch", typed)
        kind = Written(lambda p: p.name(module, f"{name}Storage"))
        self.sequence(("storage", kind, key, where, held.nbytes // width))
        self._out += b"Q"

    def untyped_storage(self, obj: Any) -> None:
        self.storage(obj._storage, None, None)

    def typed_storage(self, obj: Any) -> None:
        held = obj.untyped()._storage
        typed = None if _identity(held) in self._mixed else TYPE_NAMES.get(obj.dtype)
        if typed is None:
            raise SaveError("save: a typed storage that shares memory with tensors of other types")
        self.storage(held, typed, obj.dtype)

    # -- NumPy and the user's classes -------------------------------------------------------------

    def numpy_dtype(self, obj: Any) -> None:
        if obj.kind not in arrays.KINDS:
            raise SaveError(f"save: a NumPy dtype {obj} of objects or records")
        code, state = arrays.dtype_code(obj)
        self.call("numpy", "dtype", code, False, True, noted=obj)
        self.sequence(state)
        self._out += b"b"

    def array(self, obj: Any) -> None:
        kind = Written(lambda p: p.name("numpy", "ndarray"))
        self.call("numpy._core.multiarray", "_reconstruct", kind, (0,), b"b", noted=obj)
        if obj.dtype.kind not in arrays.KINDS:
            raise SaveError(f"save: a NumPy array of dtype {obj.dtype}; save plain numbers or text")
        fortran = bool(obj.flags.f_contiguous and not obj.flags.c_contiguous)
        raw = obj.tobytes("F" if fortran else "C")
        self.sequence((1, tuple(obj.shape), obj.dtype, fortran, raw))
        self._out += b"b"

    def scalar(self, obj: Any) -> None:
        if obj.dtype.kind not in arrays.KINDS:
            raise SaveError(f"save: a NumPy scalar of dtype {obj.dtype}")
        self.call("numpy._core.multiarray", "scalar", obj.dtype, obj.tobytes())

    def reduced(self, obj: Any) -> None:
        """Any object, as Python's pickler would: behind `import torch`, libraries save their own.

        Classes and functions go by name; nothing is run here but the object's `__reduce_ex__`.
        Loading one stays refused unless somebody vouches for its class.
        """
        home = home_of(obj)
        if home is None and isinstance(obj, NAMED):
            home = obj.__module__ or "builtins", obj.__qualname__
        if home is not None:
            self.name(*home)
            return
        made = obj.__reduce_ex__(2)
        if isinstance(made, str):
            self.name(type(obj).__module__, made)
            return
        builder, args, state, items, pairs = (*made, None, None, None)[:5]
        if builder in CONTAINERS and state is items is pairs is None:
            plain = builder(*args)  # (a module's tables say that they are plain dicts)
            self.value(plain)
            self._memo[id(obj)] = self._memo[id(plain)]
            return
        if _is_plain(builder):  # a word of its own: weights-only loaders take no such function
            self.value(args[0])
            self.sequence(args[1:])
            self._out += b"\x81"
        else:
            self.value(builder)
            self.value(tuple(args))
            self._out += b"R"
        self.note(id(obj), obj)
        for item in items or ():
            self.value(item)
            self._out += b"a"
        for key, value in pairs or ():
            self.value(key)
            self.value(value)
            self._out += b"s"
        if state is not None:
            self.value(state)
            self._out += b"b"

    def vouched(self, obj: Any) -> None:
        """An object of a class the user vouches for: made anew, then given its attributes."""
        module, name = self._safe[type(obj)]
        made = obj.__reduce_ex__(2)
        builder, args, *rest = made if isinstance(made, tuple) else (None, ())
        state = rest[0] if rest else None
        plain = _is_plain(builder) and args[0] is type(obj)
        if not (plain or builder is type(obj)) or any(more is not None for more in rest[1:]):
            raise SaveError(f"save: {module}.{name} pickles itself in a way of its own")
        self.name(module, name)
        self.sequence(args[1:] if plain else args)
        self._out += b"\x81" if plain else b"R"
        self.note(id(obj), obj)
        if state is not None:
            self.value(state)
            self._out += b"b"


def _is_plain(builder: Any) -> bool:
    """Whether an object is made by its class's `__new__` alone, by what `__reduce_ex__` says."""
    return getattr(builder, "__name__", "") == "__newobj__"


class Written:
    """An argument that knows how to write itself."""

    __slots__ = ("write",)

    def __init__(self, write: Callable[[Pickler], None]) -> None:
        self.write = write


def _identity(held: Storage) -> tuple[int, int]:
    """Storages over the same memory are one (`.data` and `detach` make such)."""
    return (held.address, held.nbytes) if held.address and held.nbytes else (id(held), -1)


def _storages_of_many_types(root: Any) -> set[tuple[int, int]]:
    """Storages that tensors read as different types: torch has words for them only untyped."""
    types: dict[tuple[int, int], dt.dtype] = {}
    mixed: set[tuple[int, int]] = set()
    seen: set[int] = set()
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, lu.Tensor):
            place = _identity(value._storage)
            if types.setdefault(place, value._meta.dtype) is not value._meta.dtype:
                mixed.add(place)
            left.extend(value.__dict__.values())
        elif isinstance(value, CONTAINERS) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value.values() if isinstance(value, dict) else value)
    return mixed


Writer = Callable[[Pickler, Any], None]
WRITERS: dict[type, Writer] = {
    type(None): Pickler.none,
    bool: Pickler.boolean,
    int: Pickler.integer,
    float: Pickler.real,
    str: Pickler.text,
    bytes: Pickler.raw,
    bytearray: Pickler.byte_array,
    complex: Pickler.complex_,
    slice: Pickler.slice_,
    range: Pickler.range_,
    tuple: Pickler.tuple_,
    list: Pickler.list_,
    dict: Pickler.dict_,
    collections.OrderedDict: Pickler.ordered_dict,
    collections.defaultdict: Pickler.default_dict,
    collections.Counter: Pickler.counter,
    collections.deque: Pickler.deque,
    set: Pickler.members,
    frozenset: Pickler.members,
    lu.Size: Pickler.size,
    dt.dtype: Pickler.dtype,
    Device: Pickler.device,
    lo.layout: Pickler.layout,
    lu.Generator: Pickler.generator,
    lu.Tensor: Pickler.tensor,
    Parameter: Pickler.parameter,
    lu.UntypedStorage: Pickler.untyped_storage,
    lu.TypedStorage: Pickler.typed_storage,
    np.ndarray: Pickler.array,
}
UNNOTED = frozenset((
    type(None), bool, int, float, str, complex, slice, range, dt.dtype, lo.layout,
    lu.UntypedStorage, lu.TypedStorage,
))  # fmt: skip
"""Types whose writers remember nothing by identity."""


def _writer_by_family(obj: Any) -> Writer | None:
    """For types with many classes."""
    if isinstance(obj, np.generic):
        return Pickler.scalar
    if isinstance(obj, np.dtype):
        return Pickler.numpy_dtype
    if isinstance(obj, SparseTensor):
        return Pickler.sparse_tensor
    if isinstance(obj, nested.NestedTensor):
        return Pickler.nested_tensor
    if isinstance(obj, lu.Tensor):
        raise SaveError(
            f"save: a tensor of type {type(obj).__name__} has no safe spelling in torch's format; "
            "save plain tensors (x.as_subclass(torch.Tensor), or what it wraps)"
        )
    return None
