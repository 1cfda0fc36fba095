"""What values and functions are called in graphs and in the code made from them.

Lucerne stands in for torch, so its functions go by torch's names: `torch.relu` in generated code is
this package's.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.ir.define import fronts
from lucerne._src.ir.namespaces import public_names
from lucerne._src.ir.op import Op, table
from lucerne._src.tensor import api as lu

PACKAGE = "lucerne"
ROOT = "torch"
"""The name under which generated code knows the package."""

SUPPLIED: dict[str, tuple[str, Any]] = {
    "inf": ("from math import inf", float("inf")),
    "nan": ("from math import nan", float("nan")),
    "NoneType": ("NoneType = type(None)", type(None)),
    "device": (f"from {PACKAGE} import device", lu.device),
}
"""Names that generated code may use without having said where they come from."""

_TAKEN: dict[str, Any] = {word: object() for word in keyword.kwlist}
_TAKEN.update(vars(builtins))
_TAKEN.update({name: found for name, (_, found) in SUPPLIED.items()})
_TAKEN.update({name: object() for name in (ROOT, "fx_pytree", "pytree")})

_PARTS = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?")
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


def snake_case(name: str) -> str:
    """`MaxPool` as `max_pool`."""
    return _HUMP.sub(r"_\1", name).lower()


def is_magic(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class Namespace:
    """Gives each value a name of its own that is no keyword and hides no builtin.

    >>> names = Namespace()
    >>> [names.create_name(n, None) for n in ("add", "add", "max", "0.weight")]
    ['add', 'add_1', 'max_1', '_0_weight']
    """

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._last: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A name like `candidate` that nobody has; the same one again for the same `obj`."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = _identifier(candidate)
        parts = _PARTS.fullmatch(candidate)
        assert parts is not None
        base, digits = parts.groups()
        if digits is not None and candidate not in self._used:
            number = int(digits)
        else:
            number = self._last.get(base, 0)
            if _TAKEN.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        while candidate in self._used:
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last[base] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Remember that `obj` has this name already."""
        if self._names.setdefault(obj, name) != name:
            raise AssertionError(f"{obj} has the name {self._names[obj]} already")

    def rename(self, obj: Any, name: str) -> None:
        self._names[obj] = name
        self._used.add(name)

    def forget(self, obj: Any) -> None:
        """Give the object's association up; its name stays used."""
        self._names.pop(obj, None)


def _identifier(text: str) -> str:
    if _PARTS.fullmatch(text):
        return text
    text = re.sub("[^0-9a-zA-Z_]+", "_", text) or "_unnamed"
    return f"_{text}" if text[0].isdigit() else text


# ---- functions ----------------------------------------------------------------------------------


@functools.cache
def _public() -> dict[Any, str]:
    """Where each public function is found: "relu", "nn.functional.relu", "Tensor.add_"."""
    found: dict[Any, str] = {}
    spaces = {op.namespace for op in table().values()} | {f.namespace for f in fronts().values()}
    # A function known in several places is one of nn.functional, or else torch.name.
    for space in sorted(spaces, key=lambda s: (s != "nn.functional", s)):
        names = public_names(space)
        for name in _own_names(space) & names.keys():
            found.setdefault(names[name], f"{space}.{name}" if space else name)
        for name, function in names.items():
            found.setdefault(function, f"{space}.{name}" if space else name)
    for name, member in vars(lu.Tensor).items():
        if callable(member) and not isinstance(member, type):
            found.setdefault(member, f"Tensor.{name}")
    return found


def _own_names(space: str) -> set[str]:
    """Names of entries, without their aliases."""
    entries: list[Any] = [*table().values(), *fronts().values()]
    return {e.name for e in entries if e.namespace == space}


def public_path(function: Any) -> str | None:
    """Where the package shows this object, below its root; None if it does not."""
    if isinstance(function, Op):
        function = function.public
    try:
        found = _public().get(function)
    except TypeError:  # not hashable, so none of ours
        return None
    op = getattr(function, "op", None)
    if found is None and isinstance(op, Op) and function is op.public:
        owner: Any = getattr(op.host, "owner", None)
        if owner is not None:  # an operator of the user's
            return f"ops.{owner.spelling}".removesuffix(".default")
        found = f"ops.lucerne.{op.name}"  # a building block, by no public name
    if found is not None:
        return found
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    module = None if module is None else own_home(module)
    if module is None or name is None or module.partition(".")[0] != PACKAGE:
        return None
    for place in (PACKAGE, f"{PACKAGE}.nn", f"{PACKAGE}.nn.functional", module):
        if vars(sys.modules[place]).get(name) is function:
            return f"{place}.{name}"[len(PACKAGE) + 1 :]
    return None


_PREFIXED = ("fft", "linalg", "special")
"""Namespaces that are part of their functions' names in torch: `linalg_inv`."""


def short_name(function: Any) -> str:
    """The last part of a function's name: what nodes are named after."""
    if isinstance(function, Op):
        return function.name
    op = getattr(function, "op", None)
    path = public_path(function)
    if path is not None:
        if path.startswith("ops.") and op is not None:
            return op.name
        space, _, name = path.rpartition(".")
        return f"{space}_{name}" if space in _PREFIXED else name
    own = getattr(function, "__name__", None)
    return own if isinstance(own, str) else type(function).__name__


def qualified_name(function: Any) -> str:
    """A function's name with its module: `torch.relu`, `operator.add`, `my_model.scale`."""
    name = short_name(function)
    if getattr(builtins, name, None) is function:
        return name
    path = public_path(function)
    if path is not None:
        return f"{ROOT}.{path}"
    if name == "<lambda>":
        name = _lambda_name(function)
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{name}"


def _lambda_name(function: Callable[..., Any]) -> str:
    """What a lambda was assigned to."""
    try:
        return inspect.getsource(function).split("=")[0].strip()
    except (OSError, TypeError) as error:
        raise RuntimeError("Unable to represent lambda") from error


def pretty_target(target: Any) -> str:
    """A node's target in printed graphs."""
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", None)
    name = getattr(target, "__name__", None)
    if module == "builtins":
        return f"builtins.{name}"
    if module == "_operator":
        return f"operator.{name}"
    return qualified_name(target)


def type_name(kind: Any) -> str:
    """A type as it would be written in an annotation."""
    generic = typing.get_origin(kind) is not None
    if isinstance(kind, type) and not generic:
        if kind.__module__ == "builtins":
            return kind.__qualname__
        path = public_path(kind)
        return f"{ROOT}.{path}" if path else f"{kind.__module__}.{kind.__qualname__}"
    if kind is ...:
        return "..."
    if isinstance(kind, types.FunctionType):
        return kind.__name__
    return repr(kind)


def package() -> Any:
    """The root package: loaded long before anybody makes code."""
    return sys.modules[PACKAGE]
