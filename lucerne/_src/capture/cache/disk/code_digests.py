"""Digests of code objects, and what code names: the part of the key that follows edits."""

from __future__ import annotations

import dis
import hashlib
import os
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.source_location import is_users

_KNOWN: dict[int, tuple[types.CodeType, CodeFacts]] = {}
"""By id of a code object, which is kept so that no other one gets the id."""
_MOST_KNOWN = 16384
_STANDARD: dict[str, bool] = {"lucerne": True, "numpy": True, "builtins": True}
"""Of the top module's name."""
IMPURE = frozenset(
    ("os", "sys", "io", "random", "secrets", "time", "datetime", "uuid", "socket", "subprocess",
     "pathlib", "shutil", "tempfile", "urllib", "http", "locale", "platform", "getpass", "glob")
)  # fmt: skip
"""Modules through which a function may read what no key describes."""
IMPURE_NAMES = frozenset(("open", "input", "id"))
_DRAWS = "random"


class CodeFacts(NamedTuple):
    """What is known of a code object and of those inside of it."""

    digest: bytes
    names: frozenset[str]
    """Of globals and attributes, in the code inside of it as well."""
    reads: tuple[str, ...]
    """Globals that are read, in order."""
    imports: tuple[str, ...]
    inner: tuple[types.CodeType, ...]
    """Itself and the code inside of it."""


def is_standard(module: str | None) -> bool:
    """Whether a module is Python's, NumPy's or this package's: their versions are in the key."""
    if module is None:
        return False
    top = own_home(module).partition(".")[0]
    if top not in _STANDARD:
        _STANDARD[top] = top in sys.stdlib_module_names and _is_pythons(top)
    return _STANDARD[top]


def _is_pythons(top: str) -> bool:
    """Whether it is Python's own module, not somebody's of the same name."""
    path = getattr(sys.modules.get(top), "__file__", None)
    if path is None:
        return True  # built in, or not loaded
    rest = path.removeprefix(_PYTHON)
    return rest != path and not rest.startswith(_INSTALLED)


def facts_of(code: types.CodeType) -> CodeFacts:
    """Remembered for each code object."""
    found = _KNOWN.get(id(code))
    if found is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[id(code)] = code, _facts(code)
    return found[1]


def _facts(code: types.CodeType) -> CodeFacts:
    digest = hashlib.sha256()
    for part in _parts(code):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw) + raw)
    names, inner = set(code.co_names), [code]
    reads: dict[str, None] = {}
    imports: dict[str, None] = {}
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            reads[i.argval] = None
        elif i.opname == "IMPORT_NAME":
            imports[i.argval] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            below = facts_of(constant)
            names |= below.names
            reads.update(dict.fromkeys(below.reads))
            imports.update(dict.fromkeys(below.imports))
            inner.extend(below.inner)
    return CodeFacts(digest.digest(), frozenset(names), tuple(reads), tuple(imports), tuple(inner))


def _parts(code: types.CodeType) -> Iterator[str]:
    """Everything that decides what code does. Not the lines it stands on."""
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags))
    yield repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        yield constant_text(constant)


def constant_text(x: Any) -> str:
    """A constant of code, exactly."""
    if isinstance(x, types.CodeType):
        return f"code {facts_of(x).digest.hex()}"
    if isinstance(x, tuple):
        return f"tuple ({', '.join(map(constant_text, x))})"
    if isinstance(x, frozenset):
        return f"frozenset {sorted(map(constant_text, x))}"
    return f"{type(x).__name__} {x!r}"


def is_impure(code: types.CodeType, scope: dict[str, Any]) -> str:
    """What code itself reads that no key describes; empty: nothing."""
    names = frozenset(code.co_names)
    for name in code.co_names:
        found = scope.get(name)
        if isinstance(found, types.ModuleType):
            top = found.__name__.partition(".")[0]
            if top in IMPURE or (
                top == "numpy" and (_DRAWS in names or "random" in found.__name__)
            ):
                return f"the module {found.__name__}"
        elif name in IMPURE_NAMES and name not in scope and name in names:
            return f"{name}()"
    for name in facts_of(code).imports:
        if name.partition(".")[0] in IMPURE:
            return f"the module {name}"
    return ""


def is_foreign(code: types.CodeType) -> bool:
    """Whether code that ran is neither this package's, Python's nor NumPy's."""
    name = code.co_filename
    if not is_users(code) or name.startswith("<frozen"):
        return False
    rest = name.removeprefix(_PYTHON)
    if rest != name:
        return rest.startswith(_INSTALLED) and not rest.partition(os.sep)[2].startswith("numpy")
    return True


_PYTHON = os.path.dirname(os.__file__) + os.sep
"""The folder of Python's own files; what is installed may be a folder in it."""
_INSTALLED = ("site-packages", "dist-packages")
