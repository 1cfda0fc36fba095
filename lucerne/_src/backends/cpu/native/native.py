"""The native types and functions, built once: what the tensor layer takes in place of its own.

`load()` gives a Native or None (no machine code may run here, or this Python's objects are not laid
out as we know them); then the Python classes do the same work.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lucerne._src.backends.cpu.emit.builder import Module
from lucerne._src.backends.cpu.native import members, plans
from lucerne._src.backends.cpu.native.calls import write_calls
from lucerne._src.backends.cpu.native.dispatch import write_dispatch
from lucerne._src.backends.cpu.native.exchange import write_exchange
from lucerne._src.backends.cpu.native.keys import ENTRY_WORDS, MAX_KEY, TABLE_BITS
from lucerne._src.backends.cpu.native.layout import (
    BOOL,
    FLAG_BASETYPE,
    FLAG_GC,
    FLAG_METHOD,
    FLAG_VECTORCALL,
    MAPPING_SUBSCRIPT,
    NUMBER_SLOTS,
    OBJECT,
    OBJECT_OR_ERROR,
    READ_ONLY,
    SLOT_CALL,
    SLOT_CLEAR,
    SLOT_DEALLOC,
    SLOT_DESCR_GET,
    SLOT_GETBUFFER,
    SLOT_SETATTRO,
    SLOT_TRAVERSE,
    SSIZE,
    TYPE_BASICSIZE,
    TYPE_COMPARE,
    TYPE_DEALLOC,
    TYPE_MAPPING,
    TYPE_NUMBER,
    MemoryLayout,
    Public,
    StorageLayout,
    TensorLayout,
    builtin,
    make_immortal,
    make_type,
    slot_offset,
)
from lucerne._src.backends.cpu.native.lists import write_lists
from lucerne._src.backends.cpu.native.objects import KNOWN, write_objects
from lucerne._src.backends.cpu.native.public import CALL_MAP, MAX_ARGUMENTS, write_public
from lucerne._src.backends.cpu.native.records import LINE_CACHE
from lucerne._src.backends.cpu.native.slots import BINARY, UNARY, write_slots
from lucerne._src.backends.cpu.program.launch import write_launch
from lucerne._src.backends.cpu.runtime.code import Code, compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.memory import refuse_room
from lucerne._src.base.process.error_notes import call_failed
from lucerne._src.ir.scalar.protocol import COMPARISONS

NATIVE_ABI = 3


def _write(m: Module) -> None:
    m.optimize = True
    write_objects(m)
    write_dispatch(m)
    write_public(m)
    write_slots(m)
    write_lists(m)
    write_exchange(m)
    write_calls(m)
    write_launch(m)


class Native:
    """Types, functions and the table of plans of the fast path."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.entered: dict[int, Any] = {}
        """What table slots point to, by slot: kept alive while it stands there."""
        self.infos: dict[Any, Any] = {}
        self._set_known(
            none=None, true=True, false=False, float=float, int=int, bool=bool, tuple=tuple,
            str=str, zero=0, ellipsis=..., slice=slice, list=list, no_room=refuse_room,
        )  # fmt: skip
        self.Memory = self._memory_type()
        self.StorageBase = self._storage_type()
        self.TensorBase = self._tensor_type()
        self._set_known(memory_type=self.Memory)
        self.kernel_type = NativeKernel
        self.kernel_plan = plans.kernel_plan
        self.view_plan = plans.view_plan
        self.views_plan = plans.views_plan
        self.module_slots = members.load
        self.allocate = builtin("allocate", code["allocate"])
        self.make_tensor = builtin("make_tensor", code["make_tensor"])
        self.fresh_tensor = builtin("fresh_tensor", code["fresh_tensor"])
        self.run = builtin("run", code["run"])
        self.launch_program = builtin("launch_program", code["launch_program"])
        self.autos_of = builtin("autos_of", code["autos_of"])
        self.next_in_order = builtin("next_in_order", code["next_in_order"])
        self.set_mode = builtin("set_mode", code["set_mode"])
        self.ready = builtin("ready", code["ready"])
        self.call_values = builtin("call_values", code["call_values"])
        for name in ("place", "place_grads", "note_writes", "count_up", "clear_grads"):
            setattr(self, name, builtin(name, code[name]))
        self._remember = builtin("remember", code["remember"])
        self._remember_call = builtin("remember_call", code["remember_call"])
        self._make_public = builtin("make_public", code["make_public"])
        self.Public = self._public_type()
        builtin("claim_thread", code["claim_thread"])()
        self.set_mode(True, False, 0)

    # -- words of the module ----------------------------------------------------------------

    def _set_known(self, **objects: Any) -> None:
        for name, thing in objects.items():
            place = self.code["known"] + KNOWN.index(name) * 8
            ctypes.c_int64.from_address(place).value = id(thing)
            self.infos[name] = thing

    def _set_word(self, variable: str, value: int) -> None:
        ctypes.c_int64.from_address(self.code[variable]).value = value

    # -- types --------------------------------------------------------------------------------

    def _memory_type(self) -> type:
        code = self.code
        slots = [
            (SLOT_DEALLOC, code["memory_dealloc"]),
            (SLOT_GETBUFFER, code["memory_buffer"]),
        ]
        members = [
            (b"address", SSIZE, MemoryLayout.ADDRESS, READ_ONLY, None),
            (b"nbytes", SSIZE, MemoryLayout.NBYTES, READ_ONLY, None),
            (b"writes", SSIZE, MemoryLayout.WRITES, 0, None),
            (b"exported", SSIZE, MemoryLayout.EXPORTED, 0, None),
            (b"__weaklistoffset__", SSIZE, MemoryLayout.WEAK, READ_ONLY, None),
        ]
        return make_type("lucerne.Memory", MemoryLayout.SIZE, 0, slots, members)

    def _storage_type(self) -> type:
        slots = [(SLOT_DEALLOC, self.code["storage_dealloc"])]
        members = [
            (b"address", SSIZE, StorageLayout.ADDRESS, 0, None),
            (b"nbytes", SSIZE, StorageLayout.NBYTES, 0, None),
            (b"version", SSIZE, StorageLayout.VERSION, 0, None),
            (b"saved", BOOL, StorageLayout.SAVED, 0, None),
            (b"inference", BOOL, StorageLayout.INFERENCE, 0, None),
            (b"buffer", OBJECT, StorageLayout.BUFFER, 0, None),
            (b"device", OBJECT, StorageLayout.DEVICE, 0, None),
            (b"owner", OBJECT, StorageLayout.OWNER, 0, None),
            (b"writer", OBJECT, StorageLayout.WRITER, 0, None),
            (b"views", OBJECT, StorageLayout.VIEWS, 0, None),
            (b"__weaklistoffset__", SSIZE, StorageLayout.WEAK, READ_ONLY, None),
        ]
        return make_type("lucerne.StorageBase", StorageLayout.SIZE, FLAG_BASETYPE, slots, members)

    def _tensor_type(self) -> type:
        code = self.code
        slots = [
            (SLOT_DEALLOC, code["tensor_dealloc"]),
            (SLOT_TRAVERSE, code["tensor_traverse"]),
            (SLOT_CLEAR, code["tensor_clear"]),
            (SLOT_SETATTRO, code["tensor_setattro"]),
        ]
        members = [
            (b"_meta", OBJECT_OR_ERROR, TensorLayout.META, 0, None),
            (b"_offset", SSIZE, TensorLayout.OFFSET, 0, None),
            (b"_array", OBJECT, TensorLayout.ARRAY, 0, None),
            (b"__dictoffset__", SSIZE, TensorLayout.DICT, READ_ONLY, None),
            (b"__weaklistoffset__", SSIZE, TensorLayout.WEAK, READ_ONLY, None),
        ]
        api = ctypes.pythonapi
        get_dict = ctypes.cast(api.PyObject_GenericGetDict, ctypes.c_void_p).value
        set_dict = ctypes.cast(api.PyObject_GenericSetDict, ctypes.c_void_p).value
        getsets = [
            (b"_storage", code["get_storage"], code["set_storage"], None, None),
            (b"_auto", code["get_auto"], code["set_auto"], None, None),
            (b"_view", code["get_view"], code["set_view"], None, None),
            (b"_needs_grad", code["get_needs_grad"], None, None, None),
            (b"_record", code["get_record"], code["set_record"], None, None),
            (b"__dict__", get_dict, set_dict, None, None),
        ]
        flags = FLAG_BASETYPE | FLAG_GC
        return make_type("lucerne.TensorBase", TensorLayout.SIZE, flags, slots, members, getsets)

    def _public_type(self) -> type:
        api = ctypes.pythonapi
        call = ctypes.cast(api.PyVectorcall_Call, ctypes.c_void_p).value or 0
        get_dict = ctypes.cast(api.PyObject_GenericGetDict, ctypes.c_void_p).value
        slots = [(SLOT_CALL, call), (SLOT_DESCR_GET, self.code["public_get"])]
        members = [
            (b"__wrapped__", OBJECT, Public.FUNCTION, READ_ONLY, None),
            (b"by_value", SSIZE, Public.BY_VALUE, 0, None),
            (b"__vectorcalloffset__", SSIZE, Public.VECTORCALL, READ_ONLY, None),
            (b"__dictoffset__", SSIZE, Public.DICT, READ_ONLY, None),
            (b"__weaklistoffset__", SSIZE, Public.WEAK, READ_ONLY, None),
        ]
        getsets = [(b"__dict__", get_dict, None, None, None)]
        flags = FLAG_VECTORCALL | FLAG_METHOD
        made: Any = make_type("lucerne.function", Public.SIZE, flags, slots, members, getsets)
        made.__repr__ = lambda me: f"<function {me.__qualname__}>"
        made.__reduce__ = lambda me: me.rebuilt_by
        return made

    def public(self, function: Any) -> Any:
        """A Python function as users call it: calls seen before run without Python."""
        made = self._make_public(self.Public, function)
        made.by_value = 1
        made.__dict__.update(function.__dict__)
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(made, name, getattr(function, name))
        return made

    # -- what the tensor layer connects -------------------------------------------------------

    def connect(
        self, *, tensor: type, storage: type, state: type, in_place: type, op_class: type,
        meta: type, host_device: Any, identity_types: dict[str, type], callbacks: dict[str, Any],
    ) -> None:  # fmt: skip
        """Tell machine code the classes and Python functions it works with."""
        self._set_known(
            tensor_type=tensor, plain_type=tensor, storage_type=storage, host_device=host_device,
            in_place_type=in_place, **identity_types, **callbacks,
        )  # fmt: skip
        self._set_word("grad_fn_offset", slot_offset(state, "grad_fn"))
        self._set_word("grad_offset", slot_offset(state, "grad"))
        self._set_word("requires_grad_offset", slot_offset(state, "requires_grad"))
        self._set_word("op_native_offset", slot_offset(op_class, "native"))
        self._set_word("target_offset", slot_offset(in_place, "target"))
        self._set_word("exchanged_offset", slot_offset(meta, "exchanged"))

    def exchange_functions(self) -> list[int]:
        """Addresses of DLPack's functions, in the order of its table: room for a tensor, from one
        of ours, to one of ours, into a borrowed header (not made), the stream of a device."""
        names = ("dlpack_allocate", "dlpack_export", "dlpack_import", "", "dlpack_stream")
        return [self.code[name] if name else 0 for name in names]

    def call_by(self, call: int, drop: int) -> None:
        """TVM-FFI's functions that call a function and that drop an object."""
        self._set_word("tvm_call", call)
        self._set_word("tvm_drop", drop)

    def route(self, slow_run: Any, watcher: Any) -> None:
        """Another function for ops that machine code does not take, and one for public functions:
        `watcher(public, arguments, names)`; None: nobody, they are called."""
        self._set_known(slow_run=slow_run)
        if watcher is not None:
            self._set_known(watcher=watcher)
        else:
            ctypes.c_int64.from_address(self.code["known"] + KNOWN.index("watcher") * 8).value = 0

    def set_plain_type(self, cls: type) -> None:
        """A second type (Parameter) whose instances the fast path takes."""
        self._set_known(plain_type=cls)

    def info_of(self, op: Any) -> int:
        """The address of what machine code knows about an op; made on first use."""
        if op.native is None:
            kinds = op.kinds.encode().ljust((len(op.kinds) // 8 + 1) * 8, b"\0")
            packed = id(op).to_bytes(8, "little") + len(op.kinds).to_bytes(8, "little") + kinds
            made = ctypes.create_string_buffer(packed, len(packed))
            self.infos[op] = made
            op.native = ctypes.addressof(made)
        return int(op.native)

    def note_user_code(self, code: Any) -> None:
        """Calls from this code object are the user's: its lines are taken without asking."""
        slot = (id(code) >> 5) % LINE_CACHE
        self.infos["code", slot] = code
        ctypes.c_void_p.from_address(self.code["user_codes"] + slot * 8).value = id(code)

    def record_lines(self, on: bool) -> None:
        self._set_word("record_lines", int(on))

    def remember(self, op: Any, args: tuple[Any, ...], plan: plans.NativePlan) -> bool:
        """Enter a plan for calls like this one; False when such calls have no key."""
        self.info_of(op)
        key = (ctypes.c_int64 * MAX_KEY)()
        slot = self._remember(op, args, plan.address, ctypes.addressof(key))
        if slot >= 0:
            # The key's words are addresses of these objects: they must not be reused for others.
            self.entered[slot] = (plan, key, _identities(args))
            plan.slot = slot
        return bool(slot >= 0)

    def remember_call(
        self, public: Any, args: tuple[Any, ...], names: Any, plan: plans.NativePlan | None,
        sources: list[int] = [], constants: tuple[Any, ...] = (), target: int = -1,  # noqa: B006
        pick: int = -1,
    ) -> None:  # fmt: skip
        """Enter what calls like this one do: `plan` on arguments found at `sources` (-1: the
        constant), over argument `target` if that isn't -1, giving result `pick` of several; None:
        ask Python each time."""
        words = (ctypes.c_int64 * (CALL_MAP + MAX_ARGUMENTS))()
        if plan is not None:
            over = int(target >= 0)
            words[:CALL_MAP] = [plan.address, len(sources), id(constants), over, target, pick]
            for i, source in enumerate(sources):
                words[CALL_MAP + i] = source
        key = (ctypes.c_int64 * MAX_KEY)()
        address = ctypes.addressof(words)
        slot = self._remember_call(public, args, names, address, ctypes.addressof(key))
        if slot >= 0:
            self.entered[slot] = (plan, key, words, constants, _identities(args), names)

    def holds(self, plan: plans.NativePlan) -> bool:
        """Whether a plan still stands in the table."""
        found = self.entered.get(plan.slot)
        return found is not None and found[0] is plan

    def forget(self) -> None:
        """Empty the table of plans."""
        for slot in self.entered:
            start = self.code["table"] + slot * ENTRY_WORDS * 8
            ctypes.memset(start, 0, ENTRY_WORDS * 8)
        self.entered.clear()

    def patch(self, cls: type, ops: dict[str, Any]) -> None:
        """Put machine code in front of the operators of a finished class."""
        if ctypes.c_ssize_t.from_address(id(cls) + TYPE_BASICSIZE).value != cls.__basicsize__:
            return
        number = ctypes.c_void_p.from_address(id(cls) + TYPE_NUMBER).value
        mapping = ctypes.c_void_p.from_address(id(cls) + TYPE_MAPPING).value
        assert number is not None
        assert mapping is not None
        for name in (*BINARY, *UNARY):
            if name in ops:
                self._patch_slot(number + NUMBER_SLOTS[name], name, ops[name])
        for name in BINARY:
            self._set_fallback(cls, name)
        getitem = getattr(cls, "__getitem__")  # noqa: B009 - `type` has none for a checker
        if isinstance(getitem, self.Public):
            self._set_word("public_getitem", id(getitem))
            word = ctypes.c_void_p.from_address(mapping + MAPPING_SUBSCRIPT)
            word.value = self.code["slot_getitem"]
        for i, name in enumerate(COMPARISONS):
            if name in ops:
                place = self.code["compare_infos"] + i * 8
                ctypes.c_void_p.from_address(place).value = self.info_of(ops[name])
        self._swap(id(cls) + TYPE_COMPARE, "slot_compare", "old_compare")

    def _set_fallback(self, cls: type, name: str) -> None:
        """What a binary operator does when the core does not take it: Python's own protocol.

        One for all: the class patched first is a base of the others.
        """
        forward, backward = f"__{name}__", f"__r{name}__"

        def operate(a: Any, b: Any) -> Any:
            try:
                if isinstance(a, cls):
                    result = getattr(type(a), forward)(a, b)
                    if result is not NotImplemented or type(a) is type(b):
                        return result
                return getattr(type(b), backward)(b, a) if isinstance(b, cls) else NotImplemented
            except Exception as error:
                call_failed(error, name, (("left", a), ("right", b)))
                raise

        kept = self.infos.setdefault(("operate", name), operate)
        self._set_word(f"old_{name}", id(kept))

    def patch_dealloc(self, cls: type) -> None:
        """The exact tensor type frees its instances without Python's generic detour."""
        place = ctypes.c_void_p.from_address(id(cls) + TYPE_DEALLOC)
        place.value = self.code["tensor_dealloc"]

    def _patch_slot(self, place: int, name: str, op: Any) -> None:
        self._set_word(f"info_{name}", self.info_of(op))
        self._swap(place, f"slot_{name}", f"old_{name}")

    def _swap(self, place: int, new: str, old: str) -> None:
        word = ctypes.c_void_p.from_address(place)
        if word.value != self.code[new]:
            self._set_word(old, word.value or 0)
            word.value = self.code[new]


def _identities(args: Any) -> Any:
    """Everything in the arguments whose address stands in the key, but no tensor's data."""
    if isinstance(args, (tuple, list)):
        return tuple(_identities(a) for a in args)
    return getattr(args, "_meta", args)


def load() -> Native:
    made = Native(compiled(("eager", NATIVE_ABI, TABLE_BITS), _write))
    make_immortal(made)
    return made
