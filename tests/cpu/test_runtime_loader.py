"""Compiling and loading: every kind of reference between functions, data and the outside."""

import ctypes
import math
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucerne._src.backends.cpu.emit.builder import F64, I32, I64, PTR, VOID, LLVMFunction, Module
from lucerne._src.backends.cpu.runtime import code, link, llvm, orc, symbols
from lucerne._src.backends.cpu.runtime.image import Image, ImageError, load, unpack

DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
INT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
Write = Callable[[Module], None]
LOADERS = ["own", "orc"]


class Raw:
    """Stands for a Module whose text is written by hand."""

    def __init__(self, text: str, exports: list[str], imports: list[str]) -> None:
        self._text, self.exports, self._imports = text, exports, imports

    def text(self) -> str:
        return self._text

    def imports(self) -> list[str]:
        return self._imports


def addresses(module: Any, loader: str) -> dict[str, int]:
    made = llvm.llvm().emit_object(module.text())
    if loader == "own":
        return link.load(link.prepare(made))
    return orc.load(orc.prepare(made, module.exports, module.imports()))


def module(write: Write) -> Module:
    made = Module()
    write(made)
    return made


def _function(m: Module, name: str = "f", **more: Any) -> LLVMFunction:
    return m.function(name, [("x", I64)], I64, **more)


def inner_call(m: Module) -> None:
    with _function(m, "twice", internal=True, attributes="nounwind noinline") as f:
        f.ret(f.args[0] * 2)
    with _function(m) as f:
        f.ret(f.call("twice", I64, [f.args[0]]) + 1)


def call_before_definition(m: Module) -> None:
    with _function(m) as f:
        f.ret(f.call_at(f.symbol("later"), I64, [f.args[0]]))
    with _function(m, "later") as f:
        f.ret(f.args[0] * 2 + 1)


def variables(m: Module) -> None:
    """One with a value, one of zeros, and one known outside."""
    m.variable("start", "i64", "40")
    m.variable("calls", "[1000 x i64]")
    m.variable("shown", "i64", "7", shown=True)
    with _function(m) as f:
        calls = f.at(f.symbol("calls"), 999, I64)
        f.store(f.load(I64, calls) + 1, calls)
        total = f.load(I64, calls) + f.load(I64, f.symbol("start"))
        f.store(total, f.symbol("start"))
        f.ret(total + f.args[0] - 41 + f.load(I64, f.symbol("shown")) * 2 + f.args[0] - 13)


def pointer_table(m: Module) -> None:
    """Constants that hold addresses: of functions, of data, of the C library."""
    for k in range(3):
        with _function(m, f"case{k}", internal=True) as f:
            f.ret(f.args[0] * 2 + (k - 1))
    m.constant("table", "[3 x ptr]", "[ptr @case0, ptr @case1, ptr @case2]")
    with _function(m) as f:
        row = f.at(f.symbol("table"), f.bits("and", f.args[0], 3) - 3 + 2, I64)
        f.ret(f.call_at(f.load(PTR, row), I64, [f.args[0]]))


def vector_constants(m: Module) -> None:
    """Read-only data in sections of several alignments."""
    wide = I64.vector(8)
    with _function(m) as f:
        total = f.fold("add", f.splat(f.args[0], 8) * f.lanes(wide))
        f.ret(total - f.args[0] * 26 + 1)


CASES = [inner_call, call_before_definition, variables, pointer_table, vector_constants]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_references_are_bound(case: Write, loader: str) -> None:
    """Each case computes 2 x + 1, at x = 3."""
    assert INT(addresses(module(case), loader)["f"])(3) == 7


@pytest.mark.parametrize("loader", LOADERS)
def test_switch_with_a_jump_table(loader: str) -> None:
    cases = "\n".join(f"i64 {k}, label %c{k}" for k in range(12))
    blocks = "\n".join(f"c{k}:\n store i64 {k * k}, ptr @g\n br label %end" for k in range(12))
    text = (
        "@g = internal global i64 0\n"
        f"define i64 @f(i64 %x) nounwind {{\n switch i64 %x, label %end [{cases}]\n{blocks}\n"
        "end:\n %r = load i64, ptr @g\n ret i64 %r\n}"
    )
    f = INT(addresses(Raw(text, ["f"], []), loader)["f"])
    assert [f(k) for k in (3, 11, 0, 99)] == [9, 121, 0, 0]


@pytest.mark.parametrize("loader", LOADERS)
def test_functions_of_the_c_library(loader: str) -> None:
    def write(m: Module) -> None:
        with m.function("f", [("x", F64)], F64) as f:
            f.ret(f.call("lgamma", F64, [f.args[0]]) + f.call("cos", F64, [f.args[0]]))

    f = DOUBLE(addresses(module(write), loader)["f"])
    assert f(4.5) == pytest.approx(math.lgamma(4.5) + math.cos(4.5))


@pytest.mark.parametrize("loader", LOADERS)
def test_functions_of_python_and_of_the_runtime(loader: str) -> None:
    number = ctypes.c_int64(41)
    symbols.provide("test_number", ctypes.addressof(number))

    def write(m: Module) -> None:
        with m.function("f", [], PTR) as f:
            value = f.load(I64, f.symbol("test_number"))
            f.ret(f.call("PyLong_FromLongLong", PTR, [value + 1]))

    made = addresses(module(write), loader)["f"]
    assert ctypes.PYFUNCTYPE(ctypes.py_object)(made)() == 42


def test_unknown_function_is_named() -> None:
    def write(m: Module) -> None:
        with m.function("f", []) as f:
            f.call("no_such_function_anywhere", VOID, [])

    with pytest.raises(LookupError, match="no_such_function_anywhere"):
        addresses(module(write), "own")


REFUSED = {
    "thread-local": "@t = thread_local global i64 0\ndefine ptr @f() nounwind {\n ret ptr @t\n}",
    "constructors": (
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
        "[{ i32, ptr, ptr } { i32 65535, ptr @f, ptr null }]\n"
        "define void @f() nounwind {\n ret void\n}"
    ),
    "absolute or common": "@c = common global i64 0\ndefine ptr @f() nounwind {\n ret ptr @c\n}",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_loader_does_not_know_is_refused(what: str) -> None:
    with pytest.raises(link.LinkError, match=what):
        link.link(llvm.llvm().emit_object(REFUSED[what]))


def test_unknown_relocation_is_named() -> None:
    text = "declare void @abort()\ndefine void @f() nounwind {\n call void @abort()\n ret void\n}"
    raw = bytearray(llvm.llvm().emit_object(text))
    [table] = [s for s in link._read_sections(bytes(raw)) if s.name == ".rela.text"]
    kind = raw.find(table.content) + 8
    raw[kind : kind + 4] = struct.pack("<I", 26)
    with pytest.raises(link.LinkError, match="R_X86_64_GOTPC32"):
        link.link(bytes(raw))


@pytest.mark.parametrize("raw", [b"", b"\x7fELF", bytes(64), b"\x7fELF\x02\x01" + bytes(100)])
def test_other_files_are_no_objects(raw: bytes) -> None:
    with pytest.raises(link.LinkError, match="not a relocatable ELF object"):
        link.link(raw)


def test_wrong_text_is_an_error_and_not_a_crash() -> None:
    for text in ("nonsense", "define i64 @f() {\n ret i32 0\n}", "define void @f() {\n}"):
        with pytest.raises(llvm.CompileError):
            llvm.llvm().emit_object(text)
    undominated = (
        "define i64 @f(i1 %c) {\n br i1 %c, label %a, label %b\na:\n %x = add i64 1, 2\n"
        " br label %b\nb:\n ret i64 %x\n}"
    )
    with pytest.raises(llvm.CompileError, match="dominate"):
        llvm.llvm().emit_object(undominated)


def test_memory_is_never_writable_and_executable() -> None:
    made = addresses(module(variables), "own")
    with open("/proc/self/maps") as file:
        maps = [line.split()[:2] for line in file]
    rights = {}
    for where, right in maps:
        start, stop = (int(end, 16) for end in where.split("-"))
        for name, address in made.items():
            if start <= address < stop:
                rights[name] = right
    assert rights == {"f": "r-xp", "shown": "rw-p"}


# ---- images -----------------------------------------------------------------------------------


def test_image_survives_packing() -> None:
    image = link.link(llvm.llvm().emit_object(module(variables).text()))
    assert unpack(image.pack()) == image
    assert INT(load(unpack(image.pack()))["f"])(3) == 7


@given(st.data())
def test_damaged_images_are_refused_or_unchanged(data: st.DataObject) -> None:
    """Cut at any place: refused. A changed number: refused, or inside the image still."""
    image = Image(
        bytes(100), bytes(40), 200, {"f": 5, "g": 4096}, [("cos", 8, -4)], [(16, 24), (4100, 0)]
    )
    raw = bytearray(image.check().pack())
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ImageError):
        unpack(bytes(raw[:cut]))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        unpack(bytes(raw)).check()
    except ImageError:
        pass


@pytest.mark.parametrize(
    "image",
    [
        Image(b""),
        Image(bytes(8), bytes(8), 0),
        Image(bytes(8), exports={"f": 5000}),
        Image(bytes(8), imports=[("cos", 1, 0)]),
        Image(bytes(8), relative=[(4090, 0)]),
        Image(bytes(8), relative=[(0, -1)]),
        Image(bytes(8), bytes(8), 8, relative=[(4097, 0)]),
    ],
    ids=range(7),
)
def test_images_that_point_outside_are_refused(image: Image) -> None:
    with pytest.raises(ImageError):
        image.check()


# ---- compiling --------------------------------------------------------------------------------


def _constant(k: int) -> Write:
    def write(m: Module) -> None:
        with m.function("f", [], I32) as f:
            f.ret(k)

    return write


def test_compile_all_gives_each_key_its_code() -> None:
    wanted = [(("test_compile_all", k), _constant(k)) for k in (*range(20), 3)]
    made = code.compile_all(wanted)
    assert [ctypes.CFUNCTYPE(ctypes.c_int32)(c["f"])() for c in made] == [*range(20), 3]
    assert made[3] is made[20] is code.compiled(*wanted[3])


def test_compile_all_reports_the_error() -> None:
    def wrong(m: Module) -> None:
        with m.function("f", [], I32) as f:
            f.emit("nonsense")
            f.ret(0)

    with pytest.raises(llvm.CompileError):
        code.compile_all([(("test_compile_all wrong", 0), wrong), ("x1", _constant(1))])


def test_two_threads_compile_two_kernels_at_the_same_time() -> None:
    """Each writes its module while the other does: one lock over all would never let them meet."""
    meeting = threading.Barrier(2, timeout=20)

    def write(m: Module) -> None:
        meeting.wait()
        _constant(7)(m)

    made: list[code.Code] = []
    workers = [
        threading.Thread(target=lambda k=k: made.append(code.compiled((str(meeting), k), write)))
        for k in (0, 1)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [ctypes.CFUNCTYPE(ctypes.c_int32)(c["f"])() for c in made] == [7, 7]


def test_one_kernel_is_compiled_once_though_two_threads_want_it() -> None:
    written: list[int] = []

    def write(m: Module) -> None:
        written.append(1)
        time.sleep(0.05)
        _constant(8)(m)

    key = ("test_one_kernel", id(written))
    first, second = code.on_all_cores(lambda _: code.compiled(key, write), [0, 1])
    assert first is second
    assert len(written) == 1


def test_llvmlite_is_never_imported() -> None:
    """Its import takes longer than compiling five kernels."""
    text = (
        "import sys, ctypes\n"
        "from lucerne._src.backends.cpu.runtime import memory, pool\n"
        "pool.pool(); memory.allocate(10)\n"
        "print('llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
