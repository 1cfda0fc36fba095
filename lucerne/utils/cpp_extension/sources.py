"""What users write: texts and files, and what none of them may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = "docs/extend/cpp.md"
PRELUDE = """\
#include <tvm/ffi/tvm_ffi.h>
#include <tvm/ffi/extra/c_env_api.h>
"""
"""What a source may use without including it, as torch includes its own headers."""
_EXPORTED = re.compile(r"\bTVM_FFI_DLL_EXPORT_TYPED_FUNC\s*\(\s*(\w+)\s*,")
_QUIET = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_FOREIGN_HEADER = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]((?:torch|ATen|c10|pybind11)/[^>\"]*)[>\"]", re.MULTILINE
)
_FOREIGN_NAME = re.compile(
    r"\b(?:(torch|at|c10|pybind11|py)::\w+|PYBIND11_MODULE|TORCH_LIBRARY\w*)"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def refuse_libtorch(where: str, text: str) -> None:
    """Raise if a source is written against libtorch."""
    found = _FOREIGN_HEADER.search(text)
    what = f"includes <{found[1]}>" if found else ""
    if found is None:
        bare = _QUIET.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        for found in _FOREIGN_NAME.finditer(bare):
            own = found[1] is not None and re.search(rf"\bnamespace\s+{found[1]}\b", bare)
            if not own:
                what = f"uses {found[0]}"
                break
        else:
            return
    assert found is not None
    line = text.count("\n", 0, found.start()) + 1
    raise NotImplementedError(
        f"{where}:{line} {what}: extensions written against libtorch can't be compiled: there is "
        "no libtorch here. The same kernel written against TVM-FFI is a few lines shorter; "
        f"{PAGE} shows one before and after"
    )


def joined(cpp_sources: str | Sequence[str]) -> str:
    """The text of one file, as torch joins them."""
    texts = [cpp_sources] if isinstance(cpp_sources, str) else cpp_sources
    if (
        not isinstance(texts, (list, tuple))
        or not texts
        or not all(isinstance(t, str) for t in texts)
    ):
        raise TypeError("cpp_sources has to be a string, or a list of strings: C++ code")
    return "\n".join(texts)


def function_docs(
    functions: str | Sequence[str] | Mapping[str, str] | None, more: Sequence[str]
) -> dict[str, str]:
    """Names of functions with their docstrings, which are their names where none is given."""
    if functions is None:
        found: dict[str, str] = {}
    elif isinstance(functions, str):
        found = {functions: functions}
    elif isinstance(functions, Mapping):
        found = dict(functions)
    elif isinstance(functions, Sequence):
        found = {name: name for name in functions}
    else:
        raise ValueError(
            f"Expected 'functions' to be a list, dict or string, but was {type(functions).__name__}"
        )
    for name in (*found, *more):
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a C++ function")
    return found | {name: name for name in more if name not in found}


def exported(texts: Sequence[str]) -> list[str]:
    """The functions that sources export by TVM-FFI's macro."""
    return [name for text in texts for name in _EXPORTED.findall(_QUIET.sub(" ", text))]


def glue(functions: Sequence[str]) -> str:
    """What is written below a source for functions that it does not export itself."""
    lines = [f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name});" for name in functions]
    return '\n#line 1 "exports"\n' + "\n".join([*lines, ""]) if lines else ""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
