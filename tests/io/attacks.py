"""Crafted checkpoints, one for each trick: all must be refused, and nothing may happen meanwhile.

`python -m tests.io.attacks` loads them all in a process whose audit hook counts imports, code,
processes, sockets and files opened for writing; it prints what was loaded and what happened.
"""

# ruff: noqa: E501  (tables, one attack a line)

from __future__ import annotations

import io
import json
import os
import resource
import struct
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import lucerne
from lucerne.io import safetensors
from lucerne.serialization import LoadError
from tests.io.craft import (
    HOOKS,
    Assembler,
    call,
    checkpoint,
    name,
    pickle_of,
    records,
    rezip,
    storage,
    tensor,
)

FOUR = (bytes(16),)
COMMAND = "touch /tmp/lucerne-was-here"
GADGETS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("os", "system", (COMMAND,)), ("posix", "system", (COMMAND,)), ("nt", "system", (COMMAND,)),
    ("os", "popen", (COMMAND,)), ("os", "execv", ("/bin/sh", ("sh",))), ("os", "spawnl", (0, "/bin/sh")),
    ("os", "remove", ("/tmp/x",)), ("os", "listdir", ("/",)), ("os", "putenv", ("A", "B")),
    ("subprocess", "Popen", (COMMAND,)), ("subprocess", "run", (COMMAND,)),
    ("subprocess", "check_output", (COMMAND,)), ("subprocess", "getoutput", (COMMAND,)),
    ("builtins", "eval", ("1+1",)), ("builtins", "exec", ("import os",)), ("builtins", "compile", ("1", "a", "eval")),
    ("builtins", "open", ("/tmp/lucerne-was-here", "w")), ("builtins", "__import__", ("os",)),
    ("builtins", "getattr", (1, "real")), ("builtins", "setattr", (1, "a", 2)), ("builtins", "globals", ()),
    ("builtins", "vars", ()), ("builtins", "map", (1, 2)), ("builtins", "type", ("A", (), {})),
    ("builtins", "object", ()), ("builtins", "input", ()), ("builtins", "print", ("hello",)),
    ("builtins", "apply", (1,)), ("builtins", "breakpoint", ()), ("builtins", "super", ()),
    ("__builtin__", "eval", ("1",)), ("__builtin__", "execfile", ("/tmp/x",)), ("__builtin__", "file", ("/tmp/x",)),
    ("functools", "partial", (1,)), ("functools", "reduce", (1, (1,))), ("operator", "attrgetter", ("a",)),
    ("operator", "methodcaller", ("system", COMMAND)), ("operator", "itemgetter", (0,)),
    ("itertools", "starmap", (1, 2)), ("types", "FunctionType", (1, {})), ("types", "CodeType", (1,)),
    ("importlib", "import_module", ("os",)), ("runpy", "run_path", ("/tmp/x.py",)), ("code", "interact", ()),
    ("codecs", "open", ("/tmp/x", "w")), ("_codecs", "lookup", ("rot13",)), ("posixpath", "join", ("a", "b")),
    ("posixpath", "os.system", (COMMAND,)), ("pty", "spawn", ("/bin/sh",)), ("socket", "create_connection", (("x", 1),)),
    ("socket", "socket", ()), ("ctypes", "CDLL", ("libc.so.6",)), ("pickle", "loads", ("x",)), ("_pickle", "loads", ("x",)),
    ("shutil", "rmtree", ("/tmp/x",)), ("tempfile", "mktemp", ()), ("webbrowser", "open", ("http://x",)),
    ("urllib.request", "urlopen", ("http://x",)), ("http.client", "HTTPSConnection", ("x",)), ("asyncio.unix_events", "_UnixSubprocessTransport", ()),
    ("multiprocessing.util", "spawnv_passfds", ("/bin/sh", (), ())), ("bdb", "Bdb.run", ("1",)), ("pdb", "run", ("1",)),
    ("timeit", "timeit", ("1",)), ("cProfile", "run", ("1",)), ("profile", "run", ("1",)), ("trace", "Trace.run", ("1",)),
    ("doctest", "debug_script", ("1",)), ("ensurepip", "_run_pip", ((),)), ("pip._internal", "main", (("install",),)),
    ("idlelib.run", "Executive.runcode", ("1",)), ("lib2to3.pgen2.pgen", "ParserGenerator", ("x",)), ("venv", "create", ("x",)),
    ("logging.config", "dictConfig", ({},)), ("logging", "FileHandler", ("/tmp/x",)), ("uuid", "_get_command_stdout", ("ls",)),
    ("numpy", "load", ("/tmp/x",)), ("numpy.f2py.crackfortran", "getlincoef", ("1",)), ("numpy.f2py.crackfortran", "_eval_length", ("1", {})),
    ("numpy.testing._private.utils", "runstring", ("import os", {})), ("numpy.distutils.exec_command", "exec_command", ("ls",)),
    ("numpy.core.numeric", "_frombuffer", (1,)), ("numpy", "vectorize", (1,)), ("numpy", "frompyfunc", (1, 1, 1)),
    ("torch", "load", ("/tmp/x",)), ("torch.serialization", "load", ("/tmp/x",)), ("torch.hub", "load", ("a/b", "c")),
    ("torch.jit", "load", ("/tmp/x",)), ("torch.storage", "_load_from_bytes", ("x",)), ("torch", "compile", (1,)),
    ("torch.utils._config_module", "ConfigModule.load_config", ("x",)), ("torch.utils.bottleneck.__main__", "run_autograd_prof", ("1", {})),
    ("torch._dynamo.guards", "GuardBuilder.get", ("1",)), ("torch._inductor.codecache", "compile_file", ("x",)), ("torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression", ("1", ())),
    ("torch.utils.data.datapipes.utils.decoder", "basichandlers", ("pkl", "x")), ("torch.distributed.rpc", "rpc_sync", ("w", 1)),
    ("torch.utils.cpp_extension", "load_inline", ("x", "y")), ("torch.ops", "load_library", ("/tmp/x.so",)), ("torch._utils", "_import_dotted_name", ("os.system",)),
    ("torch._utils", "_rebuild_wrapper_subclass", ()), ("torch._tensor", "_rebuild_from_type", (1, 2, 3, 4)), ("torch.nn.modules.linear", "Linear", (2, 2)),
    ("lucerne", "load", ("/tmp/x",)), ("lucerne._src.io.files", "load", ("/tmp/x",)), ("copyreg", "_reconstructor", (1, 2, 3)), ("copyreg", "__newobj__", (1,)),
    ("sys", "exit", ()), ("site", "main", ()), ("nose", "main", ()), ("cloudpickle.cloudpickle", "_make_function", (1,)), ("dill._dill", "_create_function", (1,)),
    ("marshal", "loads", ("x",)), ("signal", "signal", (9, 1)), ("gc", "get_objects", ()), ("weakref", "finalize", (1,)), ("commands", "getoutput", ("ls",)),
]  # fmt: skip
"""Functions that pickles have used to run code, or could."""


def gadgets() -> Iterator[tuple[str, bytes]]:
    for module, attribute, args in GADGETS:
        yield f"gadget {module}.{attribute}", checkpoint(pickle_of(call(module, attribute, *args)))


def other_ways_to_call() -> Iterator[tuple[str, bytes]]:
    """The same call by instructions that ordinary checkpoints don't use."""
    system = name("os", "system")
    raw = {
        "INST": b"\x80\x02(X\x02\0\0\0lsios\nsystem\n.",
        "OBJ": b"\x80\x02(cos\nsystem\nX\x02\0\0\0lso.",
        "NEWOBJ": pickle_of(system, ("ls",), b"\x81"),
        "NEWOBJ_EX": pickle_of(system, ("ls",), {}, b"\x92"),
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.",
        "STACK_GLOBAL of bytes": b"\x80\x04C\x02osC\x06system\x93\x8c\x02ls\x85R.",
        "EXT1": b"\x80\x02\x82\x01)R.",
        "EXT4": b"\x80\x02\x84\x01\0\0\0)R.",
        "text protocol": b"cos\nsystem\n(S'ls'\ntR.",
        "protocol 0": b"\x80\x00cos\nsystem\n(X\x02\0\0\0lstR.",
        "protocol 9": b"\x80\x09N.",
        "dotted name": pickle_of(name("torch", "_utils._rebuild_tensor_v2.__globals__"), b")R"),
        "name with spaces": pickle_of(name("torch._utils ", "_rebuild_tensor_v2"), b")R"),
        "name that does not end": b"\x80\x02c" + b"a" * 5000,
        "call of a value": pickle_of("os", ("ls",), b"R"),
        "call of a dtype": pickle_of(name("torch", "float32"), (), b"R"),
        "call of a storage class": pickle_of(name("torch", "FloatStorage"), (4,), b"R"),
        "call of Tensor": pickle_of(name("torch", "Tensor"), ((2,),), b"R"),
        "call of int": pickle_of(name("builtins", "int"), ("1" * 10,), b"R"),
        "call of list with a map": pickle_of(name("builtins", "list"), ((1, 2),), b"R"),
        "call without a tuple": pickle_of(name("collections", "OrderedDict"), [], b"R"),
        "a name as the value": pickle_of(name("collections", "OrderedDict")),
        "a name in a list": pickle_of([name("torch", "FloatStorage")]),
        "a name in a dict in a tuple": pickle_of(({"a": (name("numpy", "ndarray"),)},)),
        "a name as a tensor attribute": pickle_of(
            call("torch._utils", "_rebuild_parameter_with_state", tensor(), True, HOOKS,
                 {"__class__": name("torch", "Tensor")})),
        "after STOP": pickle_of(None) + pickle_of(call("os", "system", "ls")),
    }  # fmt: skip
    for key, value in raw.items():
        yield f"call by {key}", checkpoint(value, FOUR)


def wrong_types() -> Iterator[tuple[str, bytes]]:
    """Instructions on objects they are not meant for (CVE-2026-24747 and kin)."""
    t = tensor()
    rows: dict[str, tuple[Any, ...]] = {
        "SETITEM of a tensor": (t, 0, 1, b"s"),
        "SETITEMS of a tensor": (t, b"(", 0, 1, b"u"),
        "SETITEMS of a list": ([1], b"(", 0, 1, b"u"),
        "SETITEM of a string": ("abc", 0, 1, b"s"),
        "SETITEMS of a Counter": (call("collections", "Counter", {}), b"(", "a", 1, b"u"),
        "SETITEMS odd": (b"}(", "a", 1, "b", b"u"),
        "SETITEMS twice": (b"}(", "a", 1, "a", 2, b"u"),
        "APPEND to a dict": (b"}", 1, b"a"),
        "APPENDS to a tensor": (t, b"(", 1, 2, b"e"),
        "APPEND to a storage": (storage(), 1, b"a"),
        "ADDITEMS to a list": (b"](", 1, b"\x90"),
        "BUILD of a dict": (b"}", {"a": 1}, b"b"),
        "BUILD of a list": (b"]", {"a": 1}, b"b"),
        "BUILD of a tensor": (t, {"a": 1}, b"b"),
        "BUILD of a storage": (storage(), {"a": 1}, b"b"),
        "BUILD of None": (None, {"a": 1}, b"b"),
        "BUILD of a name": (name("collections", "OrderedDict"), {"a": 1}, b"b"),
        "OrderedDict attributes": (name("collections", "OrderedDict"), b")R", {"items": 1}, b"b"),
        "OrderedDict class": (name("collections", "OrderedDict"), b")R", {"__class__": 1}, b"b"),
        "defaultdict of a tensor": (call("collections", "defaultdict", t),),
        "defaultdict of a builder": (call("collections", "defaultdict", name("torch", "device")),),
        "list as a key": (b"}(", [1], 1, b"u"),
        "tensor as a key": (b"}(", t, 1, b"u"),
        "tensor in a set": (call("builtins", "set", [t]),),
        "key without a value": (b"}(", "a", b"u"),
        "pop of nothing": (b"0",),
        "mark of nothing": (b"t",),
        "tuple of nothing": (b"\x87",),
        "unknown memo": (b"h\x05",),
        "memo of nothing": (b"q\x00",),
        "two results": (1, 2),
        "a mark is left": (b"(", 1),
        "unknown instruction": (b"\xfe",),
        "half an integer": (b"J\x01",),
        "half a text": (b"X\xff\xff\xff\x7fab",),
        "text of 2^63 bytes": (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",),
        "bytes of 2^63": (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",),
        "text that is not UTF-8": (b"X\x02\0\0\0\xff\xff",),
        "integer of a megabyte": (b"\x8b\0\0\x10\0" + bytes(1 << 20),),
        "slice of a tensor": (call("builtins", "slice", t, None, None),),
        "range of step 0": (call("builtins", "range", 0, 1, 0),),
        "complex of text": (call("builtins", "complex", "1", "2"),),
        "bytearray of 2^40": (call("builtins", "bytearray", 1 << 40),),
        "bytes of 2^40": (call("builtins", "bytes", 1 << 40),),
        "codec": (call("_codecs", "encode", "abc", "rot13"),),
        "codec of tensor": (call("_codecs", "encode", t, "latin1"),),
        "device text": (call("torch", "device", "cpu;ls"),),
        "device unknown": (call("torch", "device", "evil:1"),),
        "device index": (call("torch", "device", "cuda", -1),),
        "size of floats": (call("torch", "Size", (1.5,)),),
        "layout": (call("torch.serialization", "_get_layout", "os.system"),),
        "generator": (name("torch._C", "Generator"), b")R", (1, None, t), b"b"),
        "generator state": (name("torch._C", "Generator"), b")R", (1, None, 5), b"b"),
        "deque of minus": (call("collections", "deque", [], -1),),
        "from_type of builder": (call("torch._tensor", "_rebuild_from_type_v2", name("torch", "device"), name("torch", "Tensor"), ("cpu",), {}),),
        "from_type of subclass": (call("torch._tensor", "_rebuild_from_type_v2", name("torch._utils", "_rebuild_tensor_v2"), name("torch", "device"), (), {}),),
    }  # fmt: skip
    for key, parts in rows.items():
        yield f"types: {key}", checkpoint(pickle_of(*parts), FOUR)


def numpy_tricks() -> Iterator[tuple[str, bytes]]:
    core = "numpy._core.multiarray"
    array = name("numpy", "ndarray")
    empty = call(core, "_reconstruct", array, (0,), call("_codecs", "encode", "b", "latin1"))

    def dtype(code: Any, *more: Any) -> Assembler:
        return call("numpy", "dtype", code, *(more or (False, True)))

    def raw(text: str) -> Assembler:
        return call("_codecs", "encode", text, "latin1")

    rows: dict[str, tuple[Any, ...]] = {
        "object array": (empty, (1, (1,), dtype("O8"), False, [1]), b"b"),
        "object dtype": (dtype("O"),),
        "record dtype": (dtype("i4,i4"),),
        "void dtype": (dtype("V8"),),
        "date dtype": (dtype("M8[s]"),),
        "dtype of a list": (dtype([("a", "i4")]),),
        "dtype state with fields": (dtype("i4"), (3, "<", None, ("a",), {"a": 1}, -1, -1, 0), b"b"),
        "dtype state with objects": (dtype("i4"), (3, "<", None, None, None, -1, -1, 63), b"b"),
        "dtype size lie": (dtype("S4"), (3, "|", None, None, None, 1 << 30, 1, 0), b"b"),
        "dtype of 10^9 characters": (dtype("U1000000000"),),
        "array shorter than said": (empty, (1, (1 << 40,), dtype("f4"), False, raw("abcd")), b"b"),
        "array negative": (empty, (1, (-1,), dtype("f4"), False, raw("abcd")), b"b"),
        "array overflow": (empty, (1, (1 << 61, 8), dtype("f4"), False, raw("")), b"b"),
        "array without bytes": (empty, (1, (1,), dtype("f4"), False, "abcd" * 3), b"b"),
        "array twice": (empty, (1, (1,), dtype("f4"), False, raw("abcd")), b"b",
                        (1, (1,), dtype("f4"), False, raw("abcd")), b"b"),
        "array of subclass": (call(core, "_reconstruct", name("numpy", "dtype"), (0,), "b"),),
        "array of 2^40": (call(core, "_reconstruct", array, (1 << 40,), "b"),),
        "scalar of object": (call(core, "scalar", dtype("O"), 1),),
        "scalar too short": (call(core, "scalar", dtype("f8"), raw("abc")),),
        "text beyond Unicode": (call(core, "scalar", dtype("U1"), raw("\xff\xff\xff\x7f")),),
    }  # fmt: skip
    for key, parts in rows.items():
        yield f"numpy: {key}", checkpoint(pickle_of(*parts))


def size_lies() -> Iterator[tuple[str, bytes]]:
    big = 1 << 40
    v3 = "_rebuild_tensor_v3"
    f32 = name("torch", "float32")
    untyped = storage("UntypedStorage", size=16)
    rows: dict[str, Any] = {
        "2^40 elements": tensor(shape=(big,)),
        "2^40 elements by stride 0": tensor(shape=(big,), strides=(0,)),
        "2^40 elements by two strides": tensor(shape=(1 << 20, 1 << 20), strides=(0, 0)),
        "one element too many": tensor(shape=(5,)),
        "one offset too far": tensor(offset=1),
        "stride too long": tensor(shape=(2,), strides=(4,)),
        "negative stride": tensor(offset=3, strides=(-1,)),
        "negative offset": tensor(offset=-1),
        "negative size": tensor(shape=(-4,)),
        "two negative sizes": tensor(shape=(-2, -2), strides=(1, 1)),
        "offset 2^63": tensor(offset=1 << 63, shape=(0,)),
        "offset beyond an empty view": tensor(offset=1000, shape=(0,)),
        "overflow to small": tensor(shape=(1 << 62, 4), strides=(4, 1)),
        "overflow of strides": tensor(shape=(2, 2), strides=((1 << 64) - 1, 1)),
        "size 2^64": tensor(shape=((1 << 64) + 4,)),
        "65 dimensions": tensor(shape=(1,) * 65, strides=(1,) * 65),
        "fewer strides": tensor(shape=(2, 2), strides=(1,)),
        "sizes as list": tensor(shape=[4]),
        "sizes as text": tensor(shape="4"),
        "size as float": tensor(shape=(4.0,)),
        "size as bool": tensor(shape=(True,)),
        "offset as None": tensor(offset=None),
        "no storage": tensor(held=None).__class__()(call("torch._utils", "_rebuild_tensor_v2", 1, 0, (1,), (1,), False, HOOKS)),
        "hooks": tensor(hooks=Assembler()({"a": 1})),
        "metadata": tensor(more=({"evil": True},)),
        "grad of text": tensor(grad="yes"),
        "grad of integers": tensor(held=storage("LongStorage", size=2), shape=(2,), grad=True),
        "too few arguments": call("torch._utils", "_rebuild_tensor_v2", storage()),
        "storage larger than its record": tensor(held=storage(size=5)),
        "storage smaller than its record": tensor(held=storage(size=3), shape=(3,)),
        "storage of 2^60": tensor(held=storage(size=1 << 60)),
        "storage of minus 1": tensor(held=storage(size=-1)),
        "storage size as float": tensor(held=storage(size=4.0)),
        "storage as wider type": tensor(held=storage("DoubleStorage", size=4)),
        "storage with two sizes": Assembler()(b"(", storage(size=4), storage("DoubleStorage", size=4), b"t"),
        "storage that is not there": tensor(held=storage(key="7")),
        "storage key as path": tensor(held=storage(key="../data/0")),
        "storage key as number": tensor(held=storage(key=0)),
        "storage location": tensor(held=storage(location="/etc/passwd")),
        "storage location as number": tensor(held=storage(location=0)),
        "persistent id as text": Assembler()("storage", b"Q"),
        "persistent id of a module": Assembler()(("module", name("torch", "FloatStorage"), "a", "b"), b"Q"),
        "persistent id short": Assembler()(("storage",), b"Q"),
        "persistent id with a view": Assembler()(("storage", name("torch", "FloatStorage"), "0", "cpu", 4, ("1", 0, 4)), b"Q"),
        "persistent id by text": b"Pstorage\n",
        "persistent id with a dtype": Assembler()(("storage", f32, "0", "cpu", 4), b"Q"),
        "v3 with a wide dtype": call("torch._utils", v3, untyped, 0, (4,), (1,), False, HOOKS, name("torch", "float64")),
        "v3 with text as dtype": call("torch._utils", v3, untyped, 0, (4,), (1,), False, HOOKS, "float32"),
        "meta of 2^70": call("torch._utils", "_rebuild_meta_tensor_no_storage", f32, (1 << 35, 1 << 35), (1, 1), False),
        "sparse out of bounds": call("torch._utils", "_rebuild_sparse_tensor", call("torch.serialization", "_get_layout", "torch.sparse_coo"), (tensor(), tensor(), (2,), True)),
        "parameter of a list": call("torch._utils", "_rebuild_parameter", [1], True, HOOKS),
        "parameter of integers": call("torch._utils", "_rebuild_parameter", tensor(held=storage("LongStorage", size=2), shape=(2,)), True, HOOKS),
        "parameter attribute": call("torch._utils", "_rebuild_parameter_with_state", tensor(), True, HOOKS, {"backward": 1}),
        "parameter dunder": call("torch._utils", "_rebuild_parameter_with_state", tensor(), True, HOOKS, {"__dict__": 1}),
    }  # fmt: skip
    for key, part in rows.items():
        yield f"sizes: {key}", checkpoint(pickle_of(part), FOUR)


def bombs() -> Iterator[tuple[str, bytes]]:
    """Small files that ask for much memory, time or stack."""
    million = 1 << 20
    yield "bomb: many lists", checkpoint(pickle_of(b"(" + b"]" * million + b"t"))
    yield "bomb: many marks", checkpoint(pickle_of(b"(" * million))
    yield "bomb: many sets", checkpoint(b"\x80\x04(" + b"\x8f" * million + b"t.")
    yield "bomb: many dicts", checkpoint(pickle_of(b"(" + b"}NNs" * million + b"t"))
    yield (
        "bomb: many OrderedDicts",
        checkpoint(
            pickle_of(name("collections", "OrderedDict") + b"q\x000(" + b"h\x00)R" * million + b"t")
        ),
    )
    puts = b"".join(b"r" + struct.pack("<I", n) for n in range(million))
    gets = b"".join(b"j" + struct.pack("<I", n) + b"0" for n in range(million))
    yield "bomb: memo", checkpoint(pickle_of(b"N" + puts + gets))
    mint = name("builtins", "slice") + b"q\x000NNN\x87q\x010" + b"h\x00h\x01R0" * 100_000
    yield (
        "bomb: budget by freeing twice",
        checkpoint(pickle_of(mint + b"(" + b"]" * million + b"t")),
    )
    laughs = b")q\x00" + b"(h\x00h\x00tq\x00" * 200
    yield "bomb: shared tuples as a key", checkpoint(pickle_of(b"}(" + laughs + b"Nu"))
    deep = b")" + b"\x85" * 500_000
    yield "bomb: deep tuple as a key", checkpoint(pickle_of(b"}" + deep + b"Ns"))
    yield (
        "bomb: deep tuple in a set",
        checkpoint(b"\x80\x04\x8f(" + b")" + b"\x85" * 100_000 + b"\x90."),
    )
    yield (
        "bomb: deep tuple as sizes",
        checkpoint(pickle_of(tensor(shape=Assembler()(b")" + b"\x85" * 100_000))), FOUR),
    )
    yield (
        "bomb: deep tuple as a call",
        checkpoint(pickle_of(name("builtins", "slice"), b")" + b"\x85" * 100_000 + b"R")),
    )
    keys = b"".join(b"\x8a\x08" + (n << 40).to_bytes(8, "little") + b"N" for n in range(50_000))
    yield "bomb: crafted integer keys", checkpoint(pickle_of(b"}(" + keys + b"u"))
    same = b"G" + bytes(8) + b"\x85N"
    yield "bomb: one key over and over", checkpoint(pickle_of(b"}(" + same * 100_000 + b"u"))
    yield (
        "bomb: big arrays of text",
        checkpoint(pickle_of([call("numpy", "dtype", "S9999999", False, True)] * 10 + [b"\xff"])),
    )
    views = tensor(held=storage(size=4), shape=(1 << 26,), strides=(0,))
    yield "bomb: many expanded views", checkpoint(pickle_of([views] * 10), FOUR)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/data.pkl", pickle_of(None))
        made.writestr("archive/data/0", bytes(1 << 24))
        made.writestr("archive/version", b"3\n")
    yield "bomb: deflated", out.getvalue()


def zip_tricks() -> Iterator[tuple[str, bytes]]:
    """Archives whose readers could disagree about them."""
    good = checkpoint(pickle_of(tensor()), FOUR)
    evil = pickle_of(call("os", "system", COMMAND))
    plain = good[: -87 - 2] + b"\0\0"  # as torch writes it: without our digest
    assert lucerne.load(io.BytesIO(plain)).shape == (4,)
    yield "zip: something before", b"#!/bin/sh\n" + plain
    yield "zip: something behind", plain + b"\0"
    yield "zip: two archives", plain + plain
    yield "zip: archive behind a gif", b"GIF89a" + plain
    yield "zip: 7z around it", b"7z\xbc\xaf\x27\x1c" + plain
    yield "zip: foreign comment", plain[:-2] + struct.pack("<H", 4) + b"evil"
    yield "zip: comment with a second end", plain[:-2] + struct.pack("<H", 22) + plain[-22:]
    yield "zip: truncated", plain[:-30]
    yield "zip: half", plain[: len(plain) // 2]
    yield "zip: digest missing", good[:-1]
    yield "zip: digest of another", good[:-64] + b"0" * 64
    yield "zip: digest in capitals", good[:-64] + good[-64:].upper().replace(b"0", b"A")
    for label, names in {
        "zip-slip": ["../data.pkl"], "absolute": ["/data.pkl"], "drive": ["C:/data.pkl"],
        "backslash": ["archive\\data.pkl"], "NUL": ["archive/data.pkl\0.txt"],
        "two folders": ["archive/data.pkl", "other/data/0"], "no folder": ["data.pkl"],
        "twice": ["archive/data.pkl", "archive/data.pkl"], "dot": ["archive/./data.pkl"],
        "directory": ["archive/", "archive/data.pkl"], "case": ["archive/DATA.PKL"],
        "unknown record": ["archive/data.pkl", "archive/evil.py"],
        "code": ["archive/data.pkl", "archive/code/a.py"], "key": ["archive/data.pkl", "archive/data/0x"],
        "constants": ["archive/data.pkl", "archive/constants.pkl"],
    }.items():  # fmt: skip
        yield f"zip names: {label}", _stored(names)
    yield "zip: no data.pkl", rezip(good, {"data.pkl": None})
    yield "zip: version 99", rezip(good, {"version": lambda _: b"99\n"})
    yield "zip: byte order", rezip(good, {"byteorder": lambda _: b"middle"})
    yield "zip: compressed by another method", _patched(plain, b"PK\x01\x02", 10, b"\x5d\x00")
    yield "zip: encrypted", _patched(plain, b"PK\x01\x02", 8, b"\x09\x08")
    yield (
        "zip: directory names another",
        plain.replace(b"archive/data.pklPK\x01\x02", b"archive/data.pkmPK\x01\x02"),
    )
    yield (
        "zip: header names another",
        plain.replace(b"archive/data.pklFB", b"archive/data.pkmFB", 1),
    )
    yield "zip: directory lies about size", _patched(plain, b"PK\x01\x02", 24, b"\x01\0\0\0")
    yield "zip: directory lies about the place", _patched(plain, b"PK\x01\x02", 42, b"\x01\0\0\0")
    yield "zip: checksum of the directory", _patched(plain, b"PK\x01\x02", 16, b"\x01\x02\x03\x04")
    yield "zip: descriptor lies", _patched(plain, b"PK\x07\x08", 8, b"\x01\0\0\0")
    yield "zip: header says a size", _patched(plain, b"PK\x03\x04", 18, b"\x07\0\0\0")
    yield "zip: padding with a message", plain.replace(b"ZZZZ", b"EVIL", 1)
    yield "zip: extra field of another kind", plain.replace(b"FB", b"UT", 1)
    yield "zip: comment of an entry", _patched(plain, b"PK\x01\x02", 32, b"\x04\0")
    yield "zip: other disk", _patched(plain, b"PK\x01\x02", 34, b"\x01\0")
    yield "zip: more entries than there are", _patched(plain, b"PK\x05\x06", 8, b"\xff\xff\xff\xff")
    yield (
        "zip: 2^40 entries",
        _patched(plain, b"PK\x06\x06", 24, struct.pack("<QQ", 1 << 40, 1 << 40)),
    )
    yield "zip64: locator elsewhere", _patched(plain, b"PK\x06\x07", 8, bytes(8))
    yield "zip64: disagrees with the end", _patched(plain, b"PK\x06\x06", 48, struct.pack("<Q", 1))
    yield "zip64: entry size", _patched(plain, b"PK\x01\x02", 20, b"\xff" * 8)
    yield "zip64: extra data in the end", _patched(plain, b"PK\x06\x06", 4, struct.pack("<Q", 45))
    yield "zip: pickle swapped, checksum kept", _swapped(plain, evil)
    yield "zip: overlapping entries", _overlapping()
    yield "zip: evil pickle", rezip(good, {"data.pkl": lambda _: evil})
    yield (
        "zip: evil pickle in the record of a storage",
        rezip(good, {"data.pkl": lambda _: pickle_of(call("torch", "load", storage()))}),
    )
    yield (
        "zip: big endian odd storage",
        rezip(
            checkpoint(
                pickle_of(tensor(held=storage("FloatStorage", size=0), shape=(0,))), (bytes(3),)
            ),
            {"byteorder": lambda _: b"big"},
        ),
    )


def _stored(names: list[str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for each in names:
            info = zipfile.ZipInfo(each)
            info.filename = each  # as it is
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made.writestr(info, pickle_of(None) if each.endswith("pkl") else b"")
    return out.getvalue()


def _patched(raw: bytes, magic: bytes, offset: int, value: bytes) -> bytes:
    at = raw.index(magic) + offset
    return raw[:at] + value + raw[at + len(value) :]


def _swapped(raw: bytes, evil: bytes) -> bytes:
    """Another pickle of the same length, as if the medium had changed it."""
    old = records(raw)["data.pkl"]
    at = raw.index(old)
    return raw[:at] + evil[:-1].ljust(len(old) - 1, b"0") + b"." + raw[at + len(old) :]


def _overlapping() -> bytes:
    """Two entries of the directory that share one header."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("archive/data.pkl", pickle_of(None))
        made.writestr("archive/version", b"3\n")
        made.infolist()[1].header_offset = 0
    return out.getvalue()


def legacy_tricks() -> Iterator[tuple[str, bytes]]:
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    head = magic + pickle_of(1001) + pickle_of({"little_endian": True})
    held = ("storage", name("torch", "FloatStorage"), "a", "cpu", 4, None)
    good = tensor(held=Assembler()(held, b"Q"))
    data = struct.pack("<q", 4) + bytes(16)
    sound = head + pickle_of(good) + pickle_of(["a"]) + data
    assert lucerne.load(io.BytesIO(sound)).shape == (4,)
    yield "legacy: gadget", head + pickle_of(call("os", "system", COMMAND)) + pickle_of([])
    yield "legacy: gadget in the header", magic + pickle_of(call("os", "system", COMMAND))
    yield (
        "legacy: gadget in the keys",
        head + pickle_of(good) + pickle_of(call("os", "system", "ls")),
    )
    yield "legacy: protocol", magic + pickle_of(1) + sound[len(magic) :]
    yield "legacy: system", magic + pickle_of(1001) + pickle_of({"little_endian": 3})
    yield "legacy: truncated", sound[:-1]
    yield "legacy: size lie", head + pickle_of(good) + pickle_of(["a"]) + struct.pack("<q", 1 << 40)
    yield "legacy: negative", head + pickle_of(good) + pickle_of(["a"]) + struct.pack("<q", -4)
    yield "legacy: other key", head + pickle_of(good) + pickle_of(["b"]) + data
    yield "legacy: key twice", head + pickle_of(good) + pickle_of(["a", "a"]) + data + data
    yield "legacy: keys as text", head + pickle_of(good) + pickle_of("a") + data
    huge = Assembler()(("storage", name("torch", "FloatStorage"), "a", "cpu", 1 << 40, None), b"Q")
    lie = tensor(held=huge)
    yield (
        "legacy: storage of 2^40",
        head + pickle_of(lie) + pickle_of(["a"]) + struct.pack("<q", 1 << 40),
    )
    far = tensor(held=Assembler()(held, b"Q"), offset=2)
    yield "legacy: view too far", head + pickle_of(far) + pickle_of(["a"]) + data
    two = Assembler()(("storage", name("torch", "DoubleStorage"), "a", "cpu", 4, None), b"Q")
    yield "legacy: two widths", head + pickle_of((good, two)) + pickle_of(["a"]) + data
    yield "legacy: bare pickle", pickle_of(call("os", "system", COMMAND))


def safetensors_tricks() -> Iterator[tuple[str, bytes]]:
    def file(header: Any, data: bytes = bytes(16), length: int | None = None) -> bytes:
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(raw) if length is None else length) + raw + data

    def entry(dtype: Any = "F32", shape: Any = (4,), place: Any = (0, 16)) -> dict[str, Any]:
        return {"dtype": dtype, "shape": shape, "data_offsets": place}

    rows: dict[str, bytes] = {
        "empty": b"", "short": b"abc", "header beyond the file": file({}, b"", 1000),
        "header of 2^63": file({}, b"", 1 << 63), "header of 100 MB": file({}, b"", 99_999_999),
        "not JSON": file(b"{abc"), "not an object": file(b"[1]"), "not UTF-8": file(b'{"\xff": 1}'),
        "name twice": file(b'{"a": {"dtype":"F32","shape":[4],"data_offsets":[0,16]}, "a": {"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'),
        "hole": file({"a": entry(shape=[2], place=(8, 16))}),
        "overlap": file({"a": entry(), "b": entry()}),
        "data too long": file({"a": entry(shape=[2], place=(0, 8))}),
        "data too short": file({"a": entry()}, bytes(8)),
        "size lie": file({"a": entry(shape=[1 << 40])}),
        "overflow": file({"a": entry(shape=[1 << 62, 4])}),
        "negative": file({"a": entry(shape=[-4])}), "reversed": file({"a": entry(place=(16, 0))}),
        "floats": file({"a": entry(shape=[4.0])}), "NaN": file(b'{"a": NaN}'),
        "booleans": file({"a": entry(shape=[True], place=(0, 4))}, bytes(4)),
        "unknown type": file({"a": entry("F99")}), "type as number": file({"a": entry(3)}),
        "missing field": file({"a": {"dtype": "F32", "shape": [4]}}),
        "extra field": file({"a": {**entry(), "evil": 1}}), "entry as text": file({"a": "evil"}),
        "metadata as list": file({"__metadata__": [1], "a": entry()}),
        "metadata of numbers": file({"__metadata__": {"a": 1}, "a": entry()}),
        "deep": file(b'{"a":' * 100_000), "digits": file(b'{"a": ' + b"9" * 10_000 + b"}"),
        "spaces first": file(b"  {}", b""), "65 dimensions": file({"a": entry(shape=[1] * 65, place=(0, 4))}, bytes(4)),
        "false digest": file({"__metadata__": {safetensors.DIGEST: "0" * 72}, "a": entry()}),
        "short digest": file({"__metadata__": {safetensors.DIGEST: "00"}, "a": entry()}),
    }  # fmt: skip
    for key, value in rows.items():
        yield f"safetensors: {key}", value


def all_attacks() -> dict[str, bytes]:
    makers = (
        gadgets, other_ways_to_call, wrong_types, numpy_tricks, size_lies, bombs, zip_tricks,
        legacy_tricks, safetensors_tricks,
    )  # fmt: skip
    made: dict[str, bytes] = {}
    for maker in makers:
        for key, value in maker():
            assert key not in made, key
            made[key] = value
    return made


WATCHED = (
    "import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "pty.", "shutil.",
    "ctypes.", "pickle.find_class", "marshal.", "code.__new__", "urllib.", "tempfile.", "signal.",
)  # fmt: skip


def run(attacks: dict[str, bytes]) -> dict[str, Any]:
    """Load each; what was loaded, what happened, which other exceptions came, time and memory."""
    events: list[str] = []
    watching = threading.local()

    def hook(event: str, args: Any) -> None:
        if getattr(watching, "on", False) and event.startswith(WATCHED):
            events.append(f"{watching.key}: {event} {args!r:.100}")

    folder = tempfile.mkdtemp()
    paths = {}
    for n, (key, raw) in enumerate(attacks.items()):
        end = "safetensors" if key.startswith("safetensors") else "pt"
        paths[key] = os.path.join(folder, f"{n}.{end}")
        with open(paths[key], "wb") as out:
            out.write(raw)
    _warm_up()
    honest = _seconds_per_byte()
    sys.addaudithook(hook)
    report: dict[str, Any] = {
        "files": len(attacks),
        "loaded": [],
        "foreign": [],
        "slow": [],
        "large": [],
    }
    for key, path in paths.items():
        start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        watching.key, watching.on = key, True
        try:
            found = lucerne.load(path) if path.endswith("pt") else safetensors.load_file(path)
            report["loaded"].append(f"{key}: {type(found).__name__}")
        except LoadError as error:
            report.setdefault("kinds", {}).setdefault(type(error).__name__, []).append(key)
        except BaseException as error:
            report["foreign"].append(f"{key}: {type(error).__name__}: {error!s:.200}")
        watching.on = False
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown * 1024 > 2 * len(attacks[key]) + (64 << 20):
            report["large"].append(f"{key}: {grown} kB")
        taken = time.process_time() - start
        if taken > max(5, 3 * honest * len(attacks[key])):
            report["slow"].append(f"{key}: {taken:.1f} s")
        os.unlink(path)
    os.rmdir(folder)
    report["events"] = [e for e in events if not _is_reading(e, folder)]
    report["kinds"] = {kind: len(keys) for kind, keys in report.get("kinds", {}).items()}
    return report


def _is_reading(event: str, folder: str) -> bool:
    """The file itself is opened for reading, and only that."""
    return (
        ": open (" in event
        and folder in event
        and f", None, {os.O_RDONLY | os.O_CLOEXEC})" in event
    )


def _seconds_per_byte() -> float:
    """What one instruction of a harmless file takes: machines differ, and so do their moods."""
    raw = checkpoint(pickle_of(b"(" + b"N" * 200_000 + b"t"))
    start = time.process_time()
    lucerne.load(io.BytesIO(raw))
    return (time.process_time() - start) / len(raw)


def _warm_up() -> None:
    """Let everything that is loaded on first use be loaded."""
    lucerne.load(io.BytesIO(checkpoint(pickle_of(tensor()), FOUR)))
    try:
        lucerne.load(io.BytesIO(checkpoint(pickle_of(call("torch.x", "y")))))
    except LoadError:
        safetensors.load(safetensors.save({"a": lucerne.ones(1)}))


def main() -> None:
    report = run(all_attacks())
    print(json.dumps(report, indent=1))
    bad = any(report[key] for key in ("loaded", "foreign", "slow", "large", "events"))
    sys.exit(1 if bad or os.path.exists("/tmp/lucerne-was-here") else 0)


if __name__ == "__main__":
    main()
