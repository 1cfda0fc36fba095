"""From sources to a library: what is refused, what is kept, what a compiler's complaint says."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lucerne._src.base.process.sealed_folder import Cache
from lucerne.utils import cpp_extension
from lucerne.utils.cpp_extension import cache, compiler, loading
from tests.cpp.sources import TINY, needs_compiler

load, load_inline = cpp_extension.load, cpp_extension.load_inline


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty folder of libraries, and a process that has loaded none."""
    made = Cache(str(tmp_path / "kept"), 1 << 24, ".extension", "extensions")
    monkeypatch.setattr(cache, "folder", lambda: made)
    monkeypatch.setattr(loading, "_libraries", {})
    return made


def tiny(**more: Any) -> Any:
    return load_inline("tiny", TINY, no_implicit_headers=True, extra_cflags=["-O0"], **more)


# ---- what is refused, without a compiler ---------------------------------------------------------

# the source, what the error says
LIBTORCH = [
    ("#include <torch/extension.h>\n", r"own\.cpp:1 includes <torch/extension\.h>"),
    ("int x;\n  #  include <ATen/ATen.h>", r"own\.cpp:2 includes <ATen/ATen\.h>"),
    ("#include <pybind11/pybind11.h>", "pybind11"),
    ("// one\ntorch::Tensor f(torch::Tensor x) { return x; }", r"own\.cpp:2 uses torch::Tensor"),
    ("at::Tensor f();", "uses at::Tensor"),
    ("/* two\nlines */ void f(c10::Half);", r"own\.cpp:2 uses c10::Half"),
    ("PYBIND11_MODULE(a, m) {}", "uses PYBIND11_MODULE"),
    ("TORCH_LIBRARY(a, m) {}", "uses TORCH_LIBRARY"),
]


@pytest.mark.parametrize(("source", "says"), LIBTORCH)
def test_libtorch_is_refused_with_the_page(source: str, says: str) -> None:
    with pytest.raises(NotImplementedError, match=says) as error:
        load_inline("own", source, functions=["f"])
    page = str(error.value).rpartition(" ")[0].rpartition("; ")[2].split()[0]
    assert (Path(__file__).parents[2] / page).is_file()


# not libtorch: comments, strings, names of one's own
HARMLESS = [
    "// torch::Tensor f()",
    'const char* s = "at::Tensor";',
    "namespace at { int x; } int y = at::x;",
    "int format::x; int f(int that) { return that; }",
]


@pytest.mark.parametrize("source", HARMLESS)
def test_what_only_looks_like_libtorch_is_not_refused(source: str) -> None:
    loading.sources.refuse_libtorch("own.cpp", source)


# arguments, the error, what it says
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"cuda_sources": "x"}, NotImplementedError, "cuda_sources"),
    ({"sycl_sources": "x"}, NotImplementedError, "sycl_sources"),
    ({"extra_cuda_cflags": ["-O2"]}, NotImplementedError, "extra_cuda_cflags"),
    ({"extra_sycl_cflags": ["-O2"]}, NotImplementedError, "extra_sycl_cflags"),
    ({"with_cuda": True}, NotImplementedError, "with_cuda"),
    ({"with_sycl": True}, NotImplementedError, "with_sycl"),
    ({"with_pytorch_error_handling": False}, NotImplementedError, "exceptions"),
    ({"use_pch": True}, NotImplementedError, "precompiled headers"),
    ({"is_python_module": False}, ValueError, "no function has a schema"),
    ({"functions": 3}, ValueError, "Expected 'functions' to be a list, dict or string"),
    ({"functions": ["a b"]}, ValueError, "'a b' is not the name"),
    ({"name": "a-b"}, ValueError, "identifier"),
    ({"cpp_sources": 3}, TypeError, "cpp_sources"),
]


@pytest.mark.parametrize(("given", "kind", "says"), REFUSED, ids=lambda x: str(x)[:30])
def test_arguments_are_read_or_refused(
    given: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        load_inline(**{"name": "tiny", "cpp_sources": TINY, **given})


def test_files_are_held_to_what_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("")
    (tmp_path / "k.cpp").write_text("#include <torch/all.h>")
    rows = [
        ("k.cu", NotImplementedError, "C and C"),
        ("k.c", FileNotFoundError, "no source"),
        ("k.cpp", NotImplementedError, "torch/all.h"),
    ]
    for name, kind, _ in rows:
        with pytest.raises(kind):
            load("own", str(tmp_path / name))
    with pytest.raises(ValueError, match="no sources"):
        load("own", [])
    with pytest.raises(NotImplementedError, match="not a program"):
        load("own", [], is_standalone=True)


@pytest.mark.torch
def test_signatures_are_torchs_and_one_argument_more() -> None:
    theirs = pytest.importorskip("torch.utils.cpp_extension")
    for name in ("load", "load_inline"):
        mine = inspect.signature(getattr(cpp_extension, name)).parameters
        wanted = inspect.signature(getattr(theirs, name)).parameters
        assert [*mine] == [*wanted, "schemas"]
        assert [p.default for p in mine.values()][:-1] == [p.default for p in wanted.values()]


def test_without_a_compiler_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"none of c\+\+, g\+\+, clang\+\+ .* ziglang"):
        compiler.find("c++")
    monkeypatch.setenv("CXX", "mine")
    with pytest.raises(RuntimeError, match="none of mine"):
        compiler.find("c++")
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: object())
    assert compiler.find("cc")[1:] == ["-m", "ziglang", "cc"]


def test_without_tvm_ffi_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tvm_ffi", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install apache-tvm-ffi"):
        cpp_extension.include_paths()


# ---- what is compiled ----------------------------------------------------------------------------


@needs_compiler
def test_a_source_that_exports_by_itself(kept: Cache) -> None:
    found = tiny()
    assert found.number() == 1
    with pytest.raises(AttributeError, match="exports no function 'other'"):
        _ = found.other


@needs_compiler
def test_errors_are_the_compilers_with_the_users_line(kept: Cache) -> None:
    source = TINY + "int f() {\n  return nothing;\n}\n"
    line = source.count("\n", 0, source.index("return nothing")) + 1
    with pytest.raises(RuntimeError, match=rf"tiny\.cpp:{line}:.*nothing") as error:
        load_inline("tiny", source, no_implicit_headers=True)
    assert "return nothing;" in str(error.value)
    assert not kept.used


@needs_compiler
def test_a_second_time_nothing_is_compiled(kept: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny()
    monkeypatch.setattr(compiler, "_run", lambda *_: pytest.fail("the compiler ran"))
    assert tiny().number() == 1  # this process has it
    monkeypatch.setattr(loading, "_libraries", {})
    assert tiny().number() == 1  # the disk has it


# what changes, so that another library is made
CHANGES: list[dict[str, Any]] = [
    {"cpp_sources": TINY + "//"},
    {"extra_cflags": ["-O0", "-DX"]},
    {"extra_ldflags": ["-lm"]},
    {"name": "other"},
]


@needs_compiler
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_a_library_is_made_from_is_its_name(
    change: dict[str, Any], kept: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"name": "tiny", "cpp_sources": TINY, "extra_cflags": ["-O0"], "extra_ldflags": None}
    asked = []
    monkeypatch.setattr(loading.cache, "read", lambda key: asked.append(key))
    for given in (usual, usual | change):
        load_inline(**given, no_implicit_headers=True)
    assert len(set(asked)) == 2


@needs_compiler
def test_another_header_is_another_library(kept: Cache, tmp_path: Path) -> None:
    header = tmp_path / "number.h"
    flags = {"extra_cflags": ["-O0", "-DWITH_HEADER"], "extra_include_paths": [str(tmp_path)]}
    seen = []
    for number in (5, 5, 6):
        header.write_text(f"#define NUMBER {number}\n")
        loading._libraries.clear()
        made = load_inline("tiny", TINY, no_implicit_headers=True, **flags)
        seen.append(made.number())
    assert seen == [5, 5, 6]


@needs_compiler
def test_a_damaged_file_is_compiled_again(kept: Cache, tmp_path: Path) -> None:
    tiny()
    (file,) = (tmp_path / "kept").glob("*.extension")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    loading._libraries.clear()
    assert tiny().number() == 1
    assert kept.refused == 1


@needs_compiler
def test_files_of_c_and_cpp(kept: Cache, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "part.c").write_text("int part(void) { return 40; }\n")
    text = TINY.replace("NUMBER;", "part() + 2;").replace(
        "extern", 'extern "C" int part();\nextern'
    )
    (tmp_path / "whole.cpp").write_text(text)
    made = load("whole", [str(tmp_path / "whole.cpp"), str(tmp_path / "part.c")], verbose=True)
    assert made.number() == 42
    said = capsys.readouterr().out
    assert "part.c" in said
    assert "whole.so" in said


@needs_compiler
def test_a_build_directory_holds_what_is_made(kept: Cache, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    tiny(build_directory=str(first))
    assert {"tiny.cpp", "tiny.so", "0.o"} <= {p.name for p in first.iterdir()}
    kept.drop(next(iter(kept.used)))
    tiny(build_directory=str(second), keep_intermediates=False)
    assert [p.name for p in second.iterdir()] == ["tiny.so"]
    with pytest.raises(FileNotFoundError, match="no folder"):
        tiny(build_directory=str(tmp_path / "third"))


SECOND = """
import sys
import lucerne
from lucerne.utils.cpp_extension import compiler, load_inline
from tests.cpp.sources import TINY
ran = []
run, compiler._run = compiler._run, lambda *a: (ran.append(1), run(*a))
assert load_inline("tiny", TINY, no_implicit_headers=True).number() == 1
print(len(ran), "torch" in sys.modules)
"""


@needs_compiler
def test_a_second_process_does_not_compile(tmp_path: Path) -> None:
    environment = {**os.environ, "LUCERNE_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run(
            [sys.executable, "-c", SECOND], env=environment, capture_output=True, text=True,
            cwd=Path(__file__).parents[2], check=True,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert said == ["2 False\n", "0 False\n"]
