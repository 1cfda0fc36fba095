"""LLVM, through llvmlite's shared library and a handle of our own.

Importing llvmlite costs 70 ms, and its Python layer holds one lock over every call, so that two
threads compile no faster than one. The few functions needed here are called directly instead, with
one LLVM context for each compilation: threads compile side by side. The library is found without
importing the package, and is loaded when the first kernel has to be compiled.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import threading
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from lucerne._src.backends.contract.machines import MACHINES, TargetMachine
from lucerne._src.backends.cpu.emit.target import HOST, WRITES_ONLY, is_left_out, left_out
from lucerne._src.base.config import config
from lucerne._src.base.process import forks

OPTIMIZATION = 1
"""Of the code generator: higher levels gave no faster kernels, only slower compilation."""
_OLDEST = (0, 50)
"""The llvmlite whose functions these are."""

_OUT = POINTER(c_char_p)
# name: result, arguments
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "InitializeNativeTarget": (None, []),
    "InitializeNativeAsmPrinter": (None, []),
    "InitializeNativeAsmParser": (None, []),
    "InitializeAllTargetInfos": (None, []),
    "InitializeAllTargets": (None, []),
    "InitializeAllTargetMCs": (None, []),
    "InitializeAllAsmPrinters": (None, []),
    "GetProcessTriple": (None, [_OUT]),
    "GetHostCPUName": (None, [_OUT]),
    "GetHostCPUFeatures": (c_int, [_OUT]),
    "DisposeString": (None, [c_char_p]),
    "GetTargetFromTriple": (c_void_p, [c_char_p, _OUT]),
    "CreateTargetMachine": (
        c_void_p,
        [c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p],
    ),
    "ContextCreate": (c_void_p, []),
    "ContextDispose": (None, [c_void_p]),
    "ParseAssembly": (c_void_p, [c_void_p, c_char_p, _OUT]),
    "VerifyModule": (c_bool, [c_void_p, _OUT]),
    "DisposeModule": (None, [c_void_p]),
    "CreatePipelineTuningOptions": (c_void_p, []),
    "DisposePipelineTuningOptions": (None, [c_void_p]),
    "CreatePassBuilder": (c_void_p, [c_void_p, c_void_p]),
    "DisposePassBuilder": (None, [c_void_p]),
    "buildPerModuleDefaultPipeline": (c_void_p, [c_void_p, c_int]),
    "RunNewModulePassManager": (None, [c_void_p, c_void_p, c_void_p]),
    "DisposeNewModulePassManger": (None, [c_void_p]),
    "TargetMachineEmitToMemory": (c_void_p, [c_void_p, c_void_p, c_int, _OUT]),
    "GetBufferStart": (c_void_p, [c_void_p]),
    "GetBufferSize": (c_size_t, [c_void_p]),
    "DisposeMemoryBuffer": (None, [c_void_p]),
    "CreateLLJITCompiler": (c_void_p, [c_void_p, c_bool, c_bool, _OUT]),
    "LLJIT_Link": (
        c_void_p,
        [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, _OUT],
    ),
}


class CompileError(RuntimeError):
    """LLVM refused a module: the generator wrote wrong code."""


@cache
def folder() -> Path:
    """Where llvmlite is installed."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("compiling kernels needs llvmlite: pip install 'llvmlite>=0.50'")
    return Path(spec.submodule_search_locations[0])


def library_path() -> Path:
    for name in ("libllvmlite.so", "libllvmlite.dylib", "llvmlite.dll"):
        path = folder() / "binding" / name
        if path.exists():
            return path
    raise RuntimeError(f"llvmlite in {folder()} has no shared library")


@cache
def version() -> str:
    """llvmlite's version, read from its files."""
    text = (folder() / "_version.py").read_text()
    found = re.search(r"version_version = '([^']+)'", text)
    if found is None:
        raise RuntimeError(f"llvmlite in {folder()} does not say its version")
    return found.group(1)


_ASSEMBLY, _OBJECT = 0, 1
_GATE = forks.Gate()
"""LLVM has locks of its own, which nobody can make anew in a forked child."""


class LLVM:
    """The loaded library and a description of the machine as LLVM sees it."""

    def __init__(self) -> None:
        if tuple(int(n) for n in version().split(".")[:2]) < _OLDEST:
            raise RuntimeError(f"llvmlite {version()} is too old: install llvmlite>=0.50")
        library = ctypes.CDLL(str(library_path()))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        other = MACHINES.get(config.target)
        if other is None:
            self._be_native()
        else:
            self._be(other)
        if WRITES_ONLY:
            self.InitializeNativeAsmParser()
        self._of_thread = threading.local()
        self.emitted = 0
        """Modules since `release_code` was called."""

    def _be_native(self) -> None:
        self.InitializeNativeTarget()
        self.InitializeNativeAsmPrinter()
        self.triple = self._text(self.GetProcessTriple)
        self.cpu = self._text(self.GetHostCPUName)
        self.features = _with_preferences(self._text(self.GetHostCPUFeatures))

    def _be(self, machine: TargetMachine) -> None:
        for part in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
            getattr(self, f"InitializeAll{part}")()
        self.triple, self.cpu = machine.triple.encode(), machine.cpu.encode()
        self.features = machine.llvm_features.encode()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"LLVMPY_{name} is not among the functions that are used")

    def _text(self, function: Any) -> bytes:
        out = c_char_p()
        function(byref(out))
        text = out.value or b""
        self.DisposeString(out)
        return text

    def _error(self, out: c_char_p) -> CompileError:
        text = (out.value or b"unknown error").decode(errors="replace")
        self.DisposeString(out)
        return CompileError(text)

    def machine(self) -> int:
        """A target machine of the calling thread."""
        made: int | None = getattr(self._of_thread, "machine", None)
        if made is None:
            out = c_char_p()
            target = self.GetTargetFromTriple(self.triple, byref(out))
            if not target:
                raise self._error(out)
            made = self.CreateTargetMachine(
                target, self.triple, self.cpu, self.features,
                OPTIMIZATION, b"pic", b"small", 0, 0, b"",
            )  # fmt: skip
            if not made:
                raise CompileError("LLVM can't make a target machine for this processor")
            self._of_thread.machine = made
        return made

    def emit_object(self, text: str, *, optimize: bool = False) -> bytes:
        """A relocatable object file of the module with this text; the module is verified.

        `optimize`: LLVM's own passes run over it first. Kernels are written as they should be;
        only code made of many small functions gains.
        """
        self.emitted += 1
        return self._emitted(text, optimize, _OBJECT)

    def emit_assembly(self, text: str, *, optimize: bool = False) -> str:
        """The same as text: what the machine executes, for people."""
        return self._emitted(text, optimize, _ASSEMBLY).decode(errors="replace")

    def _emitted(self, text: str, optimize: bool, kind: int) -> bytes:
        with _GATE:
            context = self.ContextCreate()
            try:
                return self._emit(context, text, optimize, kind)
            finally:
                self.ContextDispose(context)

    def _run_passes(self, module: int) -> None:
        options = self.CreatePipelineTuningOptions()
        builder = self.CreatePassBuilder(self.machine(), options)
        passes = self.buildPerModuleDefaultPipeline(builder, 2)
        self.RunNewModulePassManager(passes, module, builder)
        self.DisposeNewModulePassManger(passes)
        self.DisposePassBuilder(builder)
        self.DisposePipelineTuningOptions(options)

    def _emit(self, context: int, text: str, optimize: bool, kind: int) -> bytes:
        out = c_char_p()
        module = self.ParseAssembly(context, text.encode(), byref(out))
        if not module or out.value:
            raise self._error(out)
        try:
            if self.VerifyModule(module, byref(out)):
                raise self._error(out)
            if optimize:
                self._run_passes(module)
            buffer = self.TargetMachineEmitToMemory(self.machine(), module, kind, byref(out))
            if not buffer:
                raise self._error(out)
            made = ctypes.string_at(self.GetBufferStart(buffer), self.GetBufferSize(buffer))
            self.DisposeMemoryBuffer(buffer)
            return made
        finally:
            self.DisposeModule(module)


def _with_preferences(features: bytes) -> bytes:
    """The processor's features, and how we want them used: full vectors, no gathers on its own
    account. AMX is not in what LLVM detects."""
    features = _without(features, left_out(config.cpu_features))
    if not HOST.is_x86:
        return features
    more = [b"-prefer-256-bit", b"+prefer-no-gather"]
    if HOST.has_amx:
        more += [b"+amx-tile", b"+amx-bf16", b"+amx-int8"]
    return b",".join([features, *more])


def _without(features: bytes, less: tuple[str, ...]) -> bytes:
    """LLVM's list (`+avx2,-sse4a,...`) with a minus before those whose names begin so."""
    words = features.decode().split(",")
    return ",".join("-" + w[1:] if is_left_out(w[1:], less) else w for w in words).encode()


_DONTNEED = 4
_WORTH_RELEASING = 8
"""Kernels: to look through the mappings takes some milliseconds."""


def release_code() -> None:
    """Hand the memory that LLVM's own code takes (70 MB after some kernels) back to the system.

    It is read again from the file when the next kernel is compiled. Only parts without a page of
    this process's own are given up: the file has all they hold.
    """
    if not llvm.cache_info().currsize or HOST.system != "linux":
        return
    if llvm().emitted < _WORTH_RELEASING:
        return
    llvm().emitted = 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [c_void_p, c_size_t, c_int]
    for first, stop in _unchanged_parts(str(library_path())):
        madvise(first, stop - first, _DONTNEED)


def _unchanged_parts(path: str) -> list[tuple[int, int]]:
    """Where a file is mapped that nobody may write to, and nothing was written there before."""
    found: list[tuple[int, int]] = []
    here: tuple[int, int] | None = None
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        words = line.split()
        if "-" in words[0]:
            first, stop = (int(x, 16) for x in words[0].split("-"))
            here = (first, stop) if path in line and "w" not in words[1] else None
        elif here is not None and words[0] in ("Anonymous:", "Swap:") and words[1] != "0":
            here = None
        elif here is not None and words[0] == "VmFlags:":
            found.append(here)
    return found


@cache
def llvm() -> LLVM:
    """The library, loaded at the first call."""
    return LLVM()
