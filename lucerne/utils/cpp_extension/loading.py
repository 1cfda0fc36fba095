"""`load` and `load_inline`: from sources to a module of functions and ops."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.base.refusals import only
from lucerne._src.tensor.storage import FAST
from lucerne.library.definition import CustomOpDef, forget, known_op
from lucerne.utils.cpp_extension import allocator, cache, compiler, sources
from lucerne.utils.cpp_extension.compiler import Flags
from lucerne.utils.cpp_extension.ffi import ffi, include_paths, version
from lucerne.utils.cpp_extension.functions import CppFunction, CppModule, function_of
from lucerne.utils.cpp_extension.op import make_op
from lucerne.utils.cpp_extension.signature import Signature

Words = str | Sequence[str] | None
Write = Callable[[Path], list[Path]]
"""Puts sources into a folder and says which files to compile."""
_ONLY_HOST = (
    "C and C++ for the processor are compiled here; kernels of another device come with its "
    "backend (docs/extend/backend.md)"
)
_ALWAYS = "C++ exceptions always become Python's"
_libraries: dict[bytes, Any] = {}
"""Loaded ones, by what they were made from: nothing is loaded twice."""
_loading = forks.lock()


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: Any = None,
    sycl_sources: Any = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Words = None,
    extra_cuda_cflags: Any = None,
    extra_sycl_cflags: Any = None,
    extra_ldflags: Words = None,
    extra_include_paths: Words = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
    *,
    schemas: Mapping[str, str] | None = None,
) -> Any:
    """Compile C++ code and load it as a module with its functions.

    `functions` are names to export (a dict gives them docstrings); they take and return tensors,
    numbers, text and lists of them as TVM-FFI does. `schemas` gives functions a schema, with types
    and sizes if wanted (`"(float32[n] x, float k) -> float32[n]"`): such a function is an operator,
    `torch.ops.NAME.function` too, which `compile` and `export` take whole and which
    `register_autograd` and the rest of `lucerne.library` know. A result with sizes is made before
    the call and is given to the function as its last argument, to be filled.

    The library is kept on disk by what it was made from: a second process compiles nothing.
    """
    where = "load_inline"
    _refuse_devices(where, cuda=(cuda_sources, extra_cuda_cflags, with_cuda),
                    sycl=(sycl_sources, extra_sycl_cflags, with_sycl))  # fmt: skip
    only(where, "with_pytorch_error_handling", with_pytorch_error_handling, True, _ALWAYS)
    only(where, "use_pch", use_pch, False, "the library itself is kept, precompiled headers aren't")
    text = sources.joined(cpp_sources)
    sources.refuse_libtorch(f"{name}.cpp", text)
    docs = sources.function_docs(functions, list(schemas or ()))
    own = sources.exported([text])
    whole = text + sources.glue([f for f in docs if f not in own])
    prelude = "" if no_implicit_headers else sources.PRELUDE
    flags = _flags(extra_cflags, extra_ldflags, extra_include_paths)
    if prelude:
        flags = Flags(("-include", "prelude.h", *flags.compile), flags.link, flags.include)

    def write(folder: Path) -> list[Path]:
        (folder / "prelude.h").write_text(prelude, encoding="utf-8")
        file = folder / f"{name}.cpp"
        file.write_text(whole, encoding="utf-8")
        return [file]

    parts = [prelude, whole]
    return _loaded(name, write, parts, flags, build_directory, verbose, is_python_module,
                   keep_intermediates, docs, schemas or {})  # fmt: skip


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Words = None,
    extra_cuda_cflags: Any = None,
    extra_sycl_cflags: Any = None,
    extra_ldflags: Words = None,
    extra_include_paths: Words = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
    *,
    schemas: Mapping[str, str] | None = None,
) -> Any:
    """Compile files of C and C++ and load them as a module with the functions that they export by
    `TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function)`; see `load_inline` for `schemas`."""
    _refuse_devices("load", cuda=(None, extra_cuda_cflags, with_cuda),
                    sycl=(None, extra_sycl_cflags, with_sycl))  # fmt: skip
    only("load", "is_standalone", is_standalone, False, "a library is made, not a program")
    files = [Path(p).absolute() for p in ([sources] if isinstance(sources, str) else sources)]
    return _load_files(name, files, _flags(extra_cflags, extra_ldflags, extra_include_paths),
                       build_directory, verbose, is_python_module, keep_intermediates,
                       schemas or {})  # fmt: skip


def _load_files(
    name: str, files: list[Path], flags: Flags, build_directory: str | None, verbose: bool,
    is_python_module: bool, keep_intermediates: bool, schemas: Mapping[str, str],
) -> Any:  # fmt: skip
    if not files:
        raise ValueError("load: no sources were given")
    texts: list[str] = []
    parts: list[str] = []
    for file in files:
        compiler.check_kind(file)
        if file.suffix in compiler.OBJECT_SUFFIXES:
            parts += [str(file), cache.digest_of(str(file))]
            continue
        text = sources.read(file)
        sources.refuse_libtorch(str(file), text)
        parts += [str(file), text]
        texts.append(text)
    docs = {f: f for f in sources.exported(texts)}
    docs |= {f: f for f in schemas if f not in docs}
    return _loaded(name, lambda folder: files, parts, flags, build_directory, verbose,
                   is_python_module, keep_intermediates, docs, schemas)  # fmt: skip


def _refuse_devices(where: str, **given: tuple[Any, Any, Any]) -> None:
    for kind, (text, flags, wanted) in given.items():
        for argument, value in (
            (f"{kind}_sources", text), (f"extra_{kind}_cflags", flags), (f"with_{kind}", wanted)
        ):  # fmt: skip
            if value:
                raise NotImplementedError(f"{where}: {argument}={value!r}: {_ONLY_HOST}")


def _flags(compile: Words, link: Words, include: Words) -> Flags:
    listed = [
        tuple([w] if isinstance(w, str) else [str(x) for x in w or ()])
        for w in (compile, link, include)
    ]
    return Flags(listed[0], listed[1], tuple(os.path.abspath(p) for p in listed[2]))


def _loaded(
    name: str, write: Write, parts: Sequence[str], flags: Flags, build_directory: str | None,
    verbose: bool, is_python_module: bool, keep: bool, docs: Mapping[str, str],
    schemas: Mapping[str, str],
) -> Any:  # fmt: skip
    if not name.isidentifier():
        raise ValueError(f"the name of an extension has to be an identifier, not {name!r}")
    if not is_python_module and not schemas:
        raise ValueError("is_python_module=False leaves only ops, and no function has a schema")
    signatures = {f: Signature(f"{name}::{f}", text) for f, text in schemas.items()}
    key = _key(name, parts, flags)
    with _loading:
        library = _libraries.get(key)
        if library is None or build_directory is not None:
            raw = _library(key, name, write, flags, build_directory, verbose, keep)
        if library is None:
            library = _libraries[key] = _opened(name, raw)
    module = CppModule(name, library)
    for f, doc in docs.items():
        function = function_of(library, name, f)
        if f in signatures:
            setattr(module, f, _op(signatures[f], function, key.hex(), doc))
        else:
            setattr(module, f, CppFunction(name, f, function, doc))
    return module if is_python_module else None


def _op(signature: Signature, function: Any, digest: str, doc: str) -> CustomOpDef:
    """The op of that name: the one there is if nothing about it has changed, else a new one."""
    there = known_op(signature.qualname)
    if there is not None:
        kernel = next(iter(there.kernels.values()), None)
        same = getattr(kernel, "digest", None) == digest
        if same and getattr(kernel, "signature").text == signature.text:  # noqa: B009
            return there
        forget(there)
    made = make_op(signature, function, digest)
    made.__doc__ = doc
    return made


def _key(name: str, parts: Sequence[str], flags: Flags) -> bytes:
    """Of all that a library depends on. (What it includes of the user's is kept beside it.)"""
    processor = compiler.processor(flags)
    return cache.key_of([
        name, str(len(parts)), *parts, *flags.compile, "link", *flags.link, "include",
        *flags.include, version(), compiler.identity(compiler.find("c++")),
        compiler.identity(compiler.find("cc")), os.uname().sysname, str(processor),
    ])  # fmt: skip


def _library(
    key: bytes, name: str, write: Write, flags: Flags, build_directory: str | None, verbose: bool,
    keep: bool,
) -> bytes:  # fmt: skip
    """The bytes of a library: those that are kept, else compiled now."""
    known = compiler.processor(flags) is not None
    kept = cache.read(key) if known else None
    if build_directory is not None and not os.path.isdir(build_directory):
        raise FileNotFoundError(f"build_directory: there is no folder {build_directory!r}")
    if kept is not None:
        if verbose:
            print(f"{name}: found on disk, nothing is compiled")
        if build_directory is not None:
            Path(build_directory, f"{name}.so").write_bytes(kept)
        return kept
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(build_directory or temporary).absolute()
        before = set(folder.iterdir())
        built = compiler.build(name, write(folder), folder, flags, include_paths(), verbose)
        raw = built.library.read_bytes()
        own = [h for h in built.headers if not h.startswith(f"{folder}{os.sep}prelude.h")]
        if not keep:
            for file in set(folder.iterdir()) - before - {built.library}:
                file.unlink()
    if known:
        cache.write(key, raw, own)
    return raw


def _opened(name: str, raw: bytes) -> Any:
    """A library in the process: from a file that only this user can have written."""
    if FAST is None:
        allocator.install()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, f"{name}.so")
        with open(file, "wb") as out:
            out.write(raw)
        return ffi().load_module(file)
