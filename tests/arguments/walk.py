"""Which parameters of public functions no code reads: an argument for them is accepted and ignored.

`signatures` walks what users can reach, `unread` reads the byte code of the function that has the
body. An op's public function only passes its arguments on, so the op's entry is read in its place:
its body, its meta, its derivatives, and for primitives the rule of the reference backend, which
takes the op's parameters one by one.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import lucerne
from lucerne._src.backends.reference import backend as _rules  # noqa: F401
from lucerne._src.backends.reference.table import RULES
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import Op
from lucerne._src.tensor.sparse.kinds import OPS
from tests.support.structure import RANKS

PRIVATE = re.compile(
    r"\.(_\w*|cli|conformance|contract|explain|backend_names|backends\.(api|contract|cpu"
    r"|formulas|null|reference)|export\.\w+|func\.\w+"
    r"|fx\.(caller|codegen|drawing|layout|names|one_ir)|io\.(?!safetensors)\w+|jit\.\w+"
    r"|library\.\w+|multiprocessing\.signals|profiler\.(?!itt|profiler)\w+|tiles\.\w+"
    r"|utils\.data\.(channel|iteration|launch|pool|progress|seeds|shards|slots|wire|worker)"
    r"|testing\.\w+|utils\.tensorboard\.images|utils\.benchmark\.\w+)(\.|$)"
)
"""Modules that are how the package is made; what they have for users is found where it is shown."""

CALLED = ("__init__", "__new__", "__call__")
"""Methods with underscores whose parameters are the class's own choice, not Python's."""

THROWN_AWAY = {"POP_TOP", "BUILD_TUPLE", "NOP", "RESUME"}


class Signature(NamedTuple):
    """A public function: the name users know, and the function or op that has the body."""

    name: str
    body: Any
    is_method: bool

    @property
    def parameters(self) -> tuple[str, ...]:
        if isinstance(self.body, Op):
            return self.body.args
        names = names_of(self.body.__code__)
        return names[1:] if self.is_method else names


# ---- what code reads ----------------------------------------------------------------------------


def names_of(code: CodeType) -> tuple[str, ...]:
    """All parameters, `*args` and `**kwargs` included."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def loads(code: CodeType) -> set[str]:
    """Variables that are loaded, inner functions included, but for `del x` and `_ = x, y`."""
    found: set[str] = set()
    waiting: list[str] = []  # loaded, and not known yet what for
    for step in dis.get_instructions(code):
        kind, what = step.opname, step.argval
        if kind.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
            waiting += what if isinstance(what, tuple) else [what]
        elif (kind == "STORE_FAST" and what == "_") or kind == "POP_TOP":
            waiting.clear()
        elif kind not in THROWN_AWAY:
            found.update(waiting)
            waiting = [what[1]] if kind == "STORE_FAST_LOAD_FAST" else []
        if kind == "LOAD_GLOBAL" and what in ("locals", "vars"):
            found.update(names_of(code))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= loads(inner) & set(inner.co_freevars)
    return found


def refuses(function: FunctionType) -> bool:
    """Whether a function can only raise: it ignores nothing."""
    if function.__annotations__.get("return") in ("NoReturn", "typing.NoReturn"):
        return True
    return not any(
        step.opname.startswith(("RETURN_VALUE", "RETURN_CONST", "YIELD"))
        for step in dis.get_instructions(function.__code__)
    )


def unread(signature: Signature) -> list[str]:
    """The parameters that nothing reads."""
    body = signature.body
    if isinstance(body, Op):
        read = _read_of_op(body)
    elif refuses(body):
        return []
    else:
        read = loads(body.__code__)
    return [name for name in signature.parameters if name not in read]


def _read_of_op(op: Op) -> set[str]:
    """What the entry of an op reads; by position, for a rule may have names of its own."""
    readers = [op.body, op.meta, RULES.get(op.qualified, (None,))[0]]
    found = {"input", "dim", "keepdim", "dtype"} if op.kind == op_.REDUCTION else set()
    for reader in readers:
        code = getattr(reader, "__code__", None)
        if code is not None:
            read = loads(code)
            found |= {
                name for name, own in zip(op.args, names_of(code), strict=False) if own in read
            }
            if code.co_flags & inspect.CO_VARARGS:
                found |= set(op.args[code.co_argcount :])
    named = {name.removesuffix("_meta") for _, reads in op.derivatives.values() for name in reads}
    return found | named


# ---- what users can reach -----------------------------------------------------------------------


_OF_AN_EXTRA = "lucerne._src.backends.xla"


def _needs_an_extra(name: str) -> None:
    """A package that could not be imported: only one that needs what is not installed."""
    if not name.startswith(_OF_AN_EXTRA):
        raise ImportError(name)


def public_modules() -> Iterator[ModuleType]:
    """What is not `PRIVATE`, and the functions that sparse tensors are given to."""
    yield lucerne
    importlib.import_module("lucerne._src.tensor.sparse.ops")  # its methods come when they are used
    of_sparse = ModuleType("lucerne.sparse.tensors")
    of_sparse.__dict__.update(OPS)
    yield of_sparse
    for info in pkgutil.walk_packages(lucerne.__path__, "lucerne.", _needs_an_extra):
        if info.name.startswith(_OF_AN_EXTRA):
            continue  # (a backend's folder: what users reach of it are tensors)
        inside = info.name.removeprefix("lucerne._src.").removeprefix("lucerne.").split(".")[0]
        shown = info.name.replace("lucerne._src.", "lucerne.")
        if (inside == "backends" or inside not in RANKS) and not PRIVATE.search(shown):
            yield importlib.import_module(info.name)


def signatures(modules: Iterable[ModuleType]) -> list[Signature]:
    """Every function, constructor and method of public name, each body once."""
    found: dict[Any, Signature] = {}
    classes: set[type] = set()
    for module in modules:
        for name, value in _members(module):
            if inspect.isclass(value):
                _add_class(found, classes, value)
            else:
                _add(found, f"{module.__name__}.{name}", value, is_method=False)
    return list(found.values())


def _members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or dir(module):
        if not name.startswith("_"):
            value = getattr(module, name)
            if str(getattr(value, "__module__", "")).startswith("lucerne"):
                yield name, value


def _add(found: dict[Any, Signature], name: str, value: Any, *, is_method: bool) -> None:
    function = inspect.unwrap(value)
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return
    op = getattr(function, "op", None)
    if op is None and function.__code__.co_filename.startswith("<"):
        return  # made from text, a dataclass's constructor for one: it stores what it is given
    body = function if op is None else op
    found.setdefault(function.__code__ if op is None else op, Signature(name, body, is_method))


def _add_class(found: dict[Any, Signature], classes: set[type], owner: type) -> None:
    for base in owner.__mro__:
        if base in classes or not base.__module__.startswith("lucerne"):
            continue
        classes.add(base)
        for name, value in vars(base).items():
            if name.startswith("_") and name not in CALLED:
                continue
            if inspect.isclass(value):
                _add_class(found, classes, value)
                continue
            is_method = name == "__new__" or not isinstance(value, staticmethod)
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            _add(found, f"{base.__module__}.{base.__qualname__}.{name}", value, is_method=is_method)
