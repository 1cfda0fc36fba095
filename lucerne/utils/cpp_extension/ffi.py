"""TVM-FFI: the package that compiled functions are called through."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from lucerne._src.base.process import forks

_NAME = "tvm_ffi"


class _WithoutTorch(MetaPathFinder):
    """In one thread there is no torch to import: TVM-FFI loads it if it can, which takes seconds
    and gives nothing here."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if fullname.partition(".")[0] == "torch" and threading.get_ident() == self.thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


@contextmanager
def _without_torch() -> Iterator[None]:
    finder = _WithoutTorch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def ffi() -> Any:
    """The package `tvm_ffi`; an error that says what to install where it is missing."""
    found = sys.modules.get(_NAME)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    if importlib.util.find_spec(_NAME) is None:
        raise ModuleNotFoundError(
            "lucerne.utils.cpp_extension calls compiled functions through Apache TVM-FFI, which is "
            "not installed: pip install apache-tvm-ffi (or lucerne[cpp])",
            name=_NAME,
        )
    with _without_torch():
        return forks.import_module("tvm_ffi")


def version() -> str:
    return str(ffi().__version__)


def include_paths(device_type: str = "cpu") -> list[str]:
    """Where headers are that kernels include: those of TVM-FFI and of DLPack."""
    if device_type != "cpu":
        raise NotImplementedError(
            f"include_paths: device_type={device_type!r}: only code for the processor is compiled"
        )
    info = ffi().libinfo
    return list(dict.fromkeys([info.find_include_path(), info.find_dlpack_include_path()]))


def library_paths(device_type: str = "cpu") -> list[str]:
    """Where the library is that compiled functions call (they need not be linked with it)."""
    if device_type != "cpu":
        raise NotImplementedError(
            f"library_paths: device_type={device_type!r}: only code for the processor is compiled"
        )
    return [str(Path(ffi().libinfo.find_libtvm_ffi()).parent)]
