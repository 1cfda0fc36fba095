"""The table of names: what a checkpoint may speak of, and what each name builds here.

Keys are the module and name as text. Nothing is imported and nothing of that name is called: a
builder takes the arguments from the pickle, checks their types and makes the value itself.
"""

from __future__ import annotations

import collections
import difflib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import device as Device
from lucerne._src.io import arrays, nested
from lucerne._src.io.errors import (
    CorruptFileError,
    LoadError,
    UnsafeFileError,
    UnsupportedFileError,
)
from lucerne._src.io.machine import PickleBuilder, PickleMachine
from lucerne._src.io.options import safe_table
from lucerne._src.io.storages import (
    OPAQUE_STORAGES,
    STORAGE_DTYPES,
    StorageKind,
    StorageTable,
    check_geometry,
    check_location,
    view_of,
)
from lucerne._src.ir.meta import make_meta
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.interop.typed_names import TypedStorage
from lucerne._src.tensor.interop.untyped import UntypedStorage
from lucerne._src.tensor.layers import conjugate
from lucerne.nn.parameter import Parameter

Build = Callable[[PickleMachine, tuple[Any, ...]], Any]
TABLE: dict[tuple[str, str], Any] = {}
UNSUPPORTED = {
    ("torch._utils", "_rebuild_qtensor"): "a quantized tensor; save x.dequantize() instead",
    ("torch._utils", "_rebuild_wrapper_subclass"): "a tensor subclass; save plain tensors",
    (
        "torch._utils",
        "_rebuild_device_tensor_from_numpy",
    ): "a tensor of another device; save x.cpu()",
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): "a device tensor; save x.cpu()",
    ("torch.storage", "_load_from_bytes"): "a checkpoint inside a checkpoint; save the tensor",
    **{("torch", f"{name}Storage"): "a quantized tensor" for name in OPAQUE_STORAGES},
}
"""Names of torch that are harmless but have no meaning here, and what to do about them."""


DATA_MODULES = {"argparse", "collections", "dataclasses", "datetime", "decimal", "enum", "pathlib"}
"""Modules of Python whose classes are data, and may well be in a checkpoint."""


def entry(*names: tuple[str, str]) -> Callable[[Build], Build]:
    """Register a builder under module and name."""

    def keep(build: Build) -> Build:
        for module, name in names:
            TABLE[module, name] = PickleBuilder(f"{module}.{name}", build)
        return build

    return keep


class LoadContext:
    """What builders need besides their arguments: the storages and the limit on view sizes."""

    def __init__(self, storages: StorageTable, view_limit: int) -> None:
        self.storages, self.view_limit = storages, view_limit
        self._safe = safe_table()

    def knows(self, module: str, name: str) -> bool:
        return (module, name) in TABLE or (module, name) in self._safe

    def find(self, module: str, name: str) -> Any:
        """The meaning of a name, or an error that says what to do."""
        found = TABLE.get((module, name))
        if found is not None:
            return found
        why = UNSUPPORTED.get((module, name))
        if why is not None:
            raise UnsupportedFileError(f"the checkpoint contains {why} ({module}.{name})")
        if (module, name) in self._safe:
            return vouched(f"{module}.{name}", self._safe[module, name])
        raise unknown_name(module, name)


def unknown_name(module: str, name: str) -> LoadError:
    shown = f"{module}.{name}"[:200]
    advice = (
        f"If you trust the file and {shown} is a plain class of yours, call "
        f"`lucerne.serialization.add_safe_globals([{name[:80]}])` first"
    )
    if module.startswith(("torch.nn", "lucerne.nn")):
        advice = (
            "The file holds a whole module, and making one would run its code. Save "
            "model.state_dict() instead and load it with model.load_state_dict(...); "
            "`lucerne convert FILE.pt OUT.safetensors` takes it out of this file"
        )
    elif module.partition(".")[0] in sys.stdlib_module_names - DATA_MODULES:
        advice = (
            "No checkpoint needs it: this is what files look like that attack whoever loads them"
        )
    elif module.startswith("torch"):
        close = difflib.get_close_matches(name, [n for m, n in TABLE if m == module], 1)
        advice += f" (known: {module}.{close[0]})" if close else ""
    return UnsafeFileError(
        f"Weights only load failed. Unsupported global: GLOBAL {shown} was not an allowed global "
        f"by default. {advice}."
    )


def vouched(name: str, thing: Any) -> PickleBuilder:
    """A class or function the user vouches for (`add_safe_globals`)."""

    def call(m: PickleMachine, args: tuple[Any, ...]) -> Any:
        return thing(*args)

    def new(m: PickleMachine, args: tuple[Any, ...]) -> Any:
        return thing.__new__(thing, *args)

    return PickleBuilder(name, call, new if isinstance(thing, type) else None, thing)


def fail(what: str) -> CorruptFileError:
    return CorruptFileError(f"the checkpoint has {what} with arguments that torch does not write")


def context(m: PickleMachine) -> LoadContext:
    found: LoadContext = m.find.__self__  # type: ignore[attr-defined]
    return found


# ---- tensors ----------------------------------------------------------------------------------


def _tensor(m: PickleMachine, held: Any, dtype: Any, place: tuple[Any, ...]) -> Any:
    """A checked view of a storage; `place` is offset, sizes and strides."""
    if not isinstance(held, UntypedStorage | TypedStorage) or not isinstance(dtype, dt.dtype):
        raise fail("a tensor without a storage or dtype")
    untyped = held.untyped()
    c = context(m)
    c.storages.order(untyped._storage, dtype)
    m.budget.take(150)
    offset, sizes, strides = place
    return view_of(untyped._storage, dtype, offset, sizes, strides, c.view_limit)


def _no_hooks(hooks: Any) -> bool:
    return hooks is None or (isinstance(hooks, dict) and not hooks)


def _finish(made: Any, requires_grad: Any, hooks: Any, extra: Any) -> Any:
    """Gradient flag, and what torch keeps as bits of a view: conjugation and negation."""
    if type(requires_grad) is not bool or not _no_hooks(hooks):
        raise fail("a tensor")
    if extra is not None:
        bits = type(extra) is dict and set(extra) <= {"conj", "neg"}
        if not bits or not all(type(bit) is bool for bit in extra.values()):
            raise UnsupportedFileError("a tensor has metadata that Lucerne does not know")
        if extra.get("neg") and made.is_complex():
            made = made.neg()
        elif extra.get("neg"):
            made = conjugate.alias(made, True)
        if extra.get("conj") and made.is_complex():
            made = conjugate.alias(made, True)
    return _with_grad(made) if requires_grad else made


def _with_grad(t: Any) -> Any:
    if t._meta.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise CorruptFileError(f"a tensor of {t._meta.dtype} is said to require grad")
    return t.requires_grad_()


@entry(("torch._utils", "_rebuild_tensor_v2"))
def tensor_v2(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) not in (6, 7) or not isinstance(args[0], TypedStorage):
        raise fail("a tensor")
    made = _tensor(m, args[0], args[0].dtype, args[1:4])
    return _finish(made, args[4], args[5], args[6] if len(args) == 7 else None)


@entry(("torch._utils", "_rebuild_tensor_v3"))
def tensor_v3(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    """The form that names the dtype, for types without a storage class of their own."""
    if len(args) not in (7, 8):
        raise fail("a tensor")
    made = _tensor(m, args[0], args[6], args[1:4])
    return _finish(made, args[4], args[5], args[7] if len(args) == 8 else None)


@entry(("torch._utils", "_rebuild_tensor"))
def tensor_v1(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 4 or not isinstance(args[0], TypedStorage):
        raise fail("a tensor")
    return _tensor(m, args[0], args[0].dtype, args[1:4])


@entry(("torch._utils", "_rebuild_meta_tensor_no_storage"))
def meta_tensor(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 4 or not isinstance(args[0], dt.dtype) or type(args[3]) is not bool:
        raise fail("a meta tensor")
    check_geometry(0, args[1], args[2])
    meta = make_meta(args[0], tuple(args[1]), tuple(args[2]), Device("meta"))
    made = new_tensor(meta)
    return _with_grad(made) if args[3] else made


@entry(("torch._utils", "_rebuild_sparse_tensor"), ("torch._utils", "_rebuild_sparse_csr_tensor"))
def sparse_tensor(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    """Layout, then indices, values and size; indices are checked as if a user had given them."""
    if len(args) != 2 or not isinstance(args[0], lo.layout) or type(args[1]) is not tuple:
        raise fail("a sparse tensor")
    kind, data = args
    coo = kind is lo.sparse_coo
    parts, rest = (data[:2], data[2:]) if coo else (data[:3], data[3:])
    fits = len(rest) in (1, 2) if coo else len(rest) == 1
    options: dict[str, Any]
    if not fits or not all(type(t) is lu.Tensor for t in parts):
        raise fail("a sparse tensor")
    if any(t.dtype not in (dt.int64, dt.int32) for t in parts[:-1]):
        raise fail("a sparse tensor")
    if not isinstance(rest[0], tuple) or not all(type(n) is int and n >= 0 for n in rest[0]):
        raise fail("a sparse tensor")
    known = rest[1] if len(rest) == 2 else None
    if known is not None and type(known) is not bool:
        raise fail("a sparse tensor")
    m.budget.take(600)
    try:
        if coo:
            options = {"check_invariants": True, "is_coalesced": known}
            return lu.sparse_coo_tensor(parts[0], parts[1], rest[0], **options)
        options = {"check_invariants": True, "layout": kind}
        return lu.sparse_compressed_tensor(parts[0], parts[1], parts[2], rest[0], **options)
    except (RuntimeError, IndexError, TypeError) as error:
        raise CorruptFileError(f"a sparse tensor is damaged: {error}") from None


@entry(("torch._utils", "_rebuild_parameter"))
def parameter(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 3 or not isinstance(args[0], lu.Tensor) or not _no_hooks(args[2]):
        raise fail("a parameter")
    if type(args[1]) is not bool:
        raise fail("a parameter")
    if args[1] and args[0]._meta.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise CorruptFileError(f"a parameter of {args[0].dtype} is said to require grad")
    m.budget.take(150)
    return Parameter(args[0], args[1])


@entry(("torch._utils", "_rebuild_parameter_with_state"))
def parameter_with_state(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 4:
        raise fail("a parameter")
    return set_attributes(parameter(m, args[:3]), args[3])


@entry((nested.HOME, nested.REBUILD))
def jagged_tensor(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(1000)
    return nested.jagged(args)


@entry(("torch._utils", "_rebuild_nested_tensor"))
def listed_tensor(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(
        1000 + 600 * sum(len(a) for a in args[1:2] if isinstance(a, lu.Tensor) and a.ndim)
    )
    return nested.listed(args)


def _note(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(100)
    return nested.NOTE


TABLE[nested.HOME, nested.KIND] = PickleBuilder(f"{nested.HOME}.{nested.KIND}")
TABLE[nested.DIM_RANGE] = PickleBuilder(".".join(nested.DIM_RANGE), None, _note)


@entry(("torch._tensor", "_rebuild_from_type_v2"))
def tensor_with_state(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    """A tensor with attributes; `nn.Buffer` is one."""
    if len(args) != 4 or type(args[0]) is not PickleBuilder or type(args[2]) is not tuple:
        raise fail("a tensor")
    rebuild, kind, inner, state = args
    if rebuild.build is jagged_tensor and kind is TABLE[nested.HOME, nested.KIND]:
        return jagged_tensor(m, inner)  # (its attributes are its parts once more)
    if rebuild.build not in (tensor_v2, tensor_v3, parameter, meta_tensor):
        raise fail("a tensor")
    if kind not in (TABLE["torch", "Tensor"], TABLE["torch.nn.parameter", "Parameter"]):
        raise UnsupportedFileError(f"a tensor of type {kind!r}: save plain tensors")
    return set_attributes(rebuild.build(m, inner), state)


def set_attributes(t: Any, state: Any) -> Any:
    """Give a tensor the attributes a user had set; none may hide one that all tensors have."""
    if type(state) is not dict:
        raise fail("a tensor's attributes")
    for name, value in state.items():
        free = type(name) is str and name.isidentifier() and not name.startswith("__")
        if not free or hasattr(type(t), name):
            raise UnsafeFileError("a tensor has an attribute that would hide one of Tensor's own")
        t.__dict__[name] = value
    return t


# ---- small values of torch --------------------------------------------------------------------


@entry(("torch", "Size"))
def size(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 1 or not isinstance(args[0], tuple | list):
        raise fail("a torch.Size")
    if not all(type(n) is int for n in args[0]):
        raise fail("a torch.Size")
    return lu.Size(args[0])


TORCH_DEVICES = frozenset((
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia",
    "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
))  # fmt: skip


@entry(("torch", "device"))
def device(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) not in (1, 2) or (len(args) == 2 and type(args[1]) is not int):
        raise fail("a torch.device")
    name = check_location(args[0]) if len(args) == 1 else f"{check_location(args[0])}:{args[1]}"
    if check_location(name).partition(":")[0] not in TORCH_DEVICES:
        raise UnsupportedFileError(f"the checkpoint speaks of a device {name!r}")
    return Device(name)


@entry(("torch.serialization", "_get_layout"))
def layout(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    names = {f"torch.{found.name}": found for found in lo._LAYOUTS.values()}
    if len(args) != 1 or type(args[0]) is not str or args[0] not in names:
        raise fail("a layout")
    return names[args[0]]


@entry(("torch._C", "Generator"), ("torch", "Generator"))
def generator(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if args and not (len(args) == 1 and isinstance(args[0], Device)):
        raise fail("a torch.Generator")
    m.budget.take(8192)
    return lu.Generator("cpu")


def version_text(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 1 or type(args[0]) is not str:
        raise fail("a version")
    return args[0]


TABLE["torch.torch_version", "TorchVersion"] = PickleBuilder(
    "torch.torch_version.TorchVersion", version_text, version_text
)
TABLE["torch", "Tensor"] = PickleBuilder("torch.Tensor")
TABLE["torch.nn.parameter", "Parameter"] = PickleBuilder("torch.nn.parameter.Parameter")
TABLE.update({("torch", kind.name): kind for kind in dt.all_dtypes()})
for _name, _kind in STORAGE_DTYPES.items():
    for _module in ("torch", "torch.cuda", "torch.storage"):
        TABLE[_module, _name] = StorageKind(f"{_module}.{_name}", _kind)


# ---- Python -----------------------------------------------------------------------------------


@entry(("collections", "OrderedDict"))
def ordered_dict(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(100)
    made: collections.OrderedDict[Any, Any] = collections.OrderedDict()
    if not args:
        return made
    if len(args) != 1 or type(args[0]) is not list:
        raise fail("an OrderedDict")
    for pair in args[0]:  # written by Python 2
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise fail("an OrderedDict")
        m.keys([pair[0]])
        made[pair[0]] = pair[1]
    return made


@entry(("collections", "Counter"))
def counter(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) > 1 or (args and type(args[0]) is not dict):
        raise fail("a Counter")
    made: collections.Counter[Any] = collections.Counter()
    if args:
        m.budget.take(110 * len(args[0]))
        dict.update(made, args[0])
    return made


@entry(("collections", "deque"))
def deque(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(640)
    if not args:
        return collections.deque()
    longest = args[1] if len(args) == 2 else None
    if len(args) > 2 or not isinstance(args[0], list | tuple):
        raise fail("a deque")
    if longest is not None and (type(longest) is not int or longest < 0):
        raise fail("a deque")
    return collections.deque(args[0], longest)


@entry(("collections", "defaultdict"))
def default_dict(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(200)
    if not args:
        return collections.defaultdict()
    factory = None if args[0] is None else FACTORIES.get(id(args[0]))
    if len(args) != 1 or (factory is None and args[0] is not None):
        raise UnsafeFileError("a defaultdict whose factory is not a plain container or number")
    return collections.defaultdict(factory)


def _members(what: str, kind: Any) -> Build:
    def build(m: PickleMachine, args: tuple[Any, ...]) -> Any:
        if not args:
            m.budget.take(220)
            return kind()
        if len(args) != 1 or type(args[0]) not in (list, tuple, set, frozenset):
            raise fail(what)
        return kind(m.keys(list(args[0])))

    return build


def _complex(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 2 or not all(type(part) is float for part in args):
        raise fail("a complex number")
    return complex(*args)


def _byte_array(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    raw = args[0] if len(args) == 1 else b""
    if type(raw) is not bytes or len(args) > 1:
        raise fail("a bytearray")
    m.budget.take(len(raw))
    return bytearray(raw)


def _bytes(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if args:
        raise fail("bytes")
    return b""


def _slice(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 3 or not all(part is None or type(part) is int for part in args):
        raise fail("a slice")
    return slice(*args)


def _range(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    if len(args) != 3 or not all(type(part) is int for part in args) or args[2] == 0:
        raise fail("a range")
    return range(*args)


def _empty(kind: Any) -> Build:
    def build(m: PickleMachine, args: tuple[Any, ...]) -> Any:
        if args:
            raise fail(f"a {kind.__name__}")
        m.budget.take(100)
        return kind()

    return build


_BUILTINS: dict[str, Build] = {
    "set": _members("a set", set),
    "frozenset": _members("a frozenset", frozenset),
    "complex": _complex,
    "bytearray": _byte_array,
    "bytes": _bytes,
    "slice": _slice,
    "range": _range,
    "xrange": _range,
    "list": _empty(list),
    "dict": _empty(dict),
}
for _module in ("builtins", "__builtin__"):
    for _name, _build in _BUILTINS.items():
        TABLE[_module, _name] = PickleBuilder(f"{_module}.{_name}", _build)
    for _name in ("int", "float", "str", "tuple"):
        TABLE[_module, _name] = PickleBuilder(f"{_module}.{_name}")
FACTORIES: dict[int, Any] = {
    id(TABLE[module, kind.__name__]): kind
    for module in ("builtins", "__builtin__")
    for kind in (list, dict, set, int, float, str, tuple)
}
"""What a defaultdict may make, by the builder that stands for it."""


@entry(("_codecs", "encode"))
def encode(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    """How protocol 2 spells bytes: as text in latin-1."""
    if len(args) != 2 or type(args[0]) is not str or args[1] != "latin1":
        raise fail("bytes")
    m.budget.take(40 + len(args[0]))
    try:
        return args[0].encode("latin1")
    except UnicodeEncodeError:
        raise fail("bytes") from None


# ---- NumPy ------------------------------------------------------------------------------------

TABLE["numpy", "ndarray"] = PickleBuilder("numpy.ndarray")
_CORE = ("numpy._core.multiarray", "numpy.core.multiarray")


@entry(*((module, "_reconstruct") for module in _CORE))
def array(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(200)
    return arrays.reconstruct(args, TABLE["numpy", "ndarray"])


@entry(*((module, "scalar") for module in _CORE))
def scalar(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    return arrays.make_scalar(args)


@entry(("numpy", "dtype"))
def numpy_dtype(m: PickleMachine, args: tuple[Any, ...]) -> Any:
    m.budget.take(200)
    return arrays.make_dtype(args)


# ---- states -----------------------------------------------------------------------------------


def set_state(m: PickleMachine, target: Any, state: Any) -> Any:
    """What BUILD does: give an object its state. The object, or what takes its place."""
    kind = type(target)
    if kind is collections.OrderedDict:
        if type(state) is not dict or set(state) - {"_metadata"}:
            raise UnsafeFileError("an OrderedDict has attributes other than _metadata")
        target.__dict__.update(state)
        return target
    if isinstance(target, np.dtype):
        return arrays.set_dtype_state(target, state)
    if kind is np.ndarray:
        m.budget.take(len(state[-1]) if type(state) is tuple and state else 0)
        arrays.set_array_state(target, state)
        return target
    if kind is str and target == nested.NOTE:
        return target
    if kind is lu.Generator:
        return _set_generator(target, state)
    if kind is str and type(state) is dict and not state:  # a TorchVersion
        return target
    if any(kind is thing for thing in safe_table().values()):
        return _set_vouched(target, state)
    raise UnsafeFileError(f"the pickle sets the state of a {kind.__name__}")


def _set_generator(target: Any, state: Any) -> Any:
    if type(state) is not tuple or len(state) != 3 or not isinstance(state[2], lu.Tensor):
        raise fail("a torch.Generator")
    try:
        return target.set_state(state[2])
    except (RuntimeError, TypeError, ValueError) as error:
        raise CorruptFileError(f"a torch.Generator has a state that is damaged: {error}") from None


def _set_vouched(target: Any, state: Any) -> Any:
    """The user's class: its own `__setstate__`, or its attributes (and slots)."""
    own = getattr(target, "__setstate__", None)
    if own is not None:
        own(state)
        return target
    slots: Any = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        if part is not None and not (
            type(part) is dict and all(type(name) is str for name in part)
        ):
            raise fail(f"a {type(target).__name__}")
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)
    return target
