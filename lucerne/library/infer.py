"""Schemas read off the annotations of a Python function."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.schema import spelled
from lucerne._src.tensor.base import TensorBase

_PLAIN: dict[Any, str] = {
    int: "SymInt", float: "float", bool: "bool", str: "str", dt.dtype: "ScalarType",
    device: "Device",
}  # fmt: skip
_LISTED = frozenset(("Tensor", "SymInt", "float", "bool", "Scalar"))
_LISTS = (list, collections.abc.Sequence)
_NUMBER = frozenset((int, float, bool))
_RETURNED = ("Tensor", "SymInt", "float", "bool", "Scalar", "Tensor[]")
_TYPES = (
    "Tensor, Optional[Tensor], List[Tensor], List[Optional[Tensor]], int, float, bool, str, "
    "Union[int, float, bool] (a number), torch.dtype, torch.device, Optional of each, List or "
    "Sequence of Tensor, int, float, bool or number"
)


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of a function with annotations.

    >>> import lucerne as torch
    >>> def f(x: torch.Tensor, n: int, scale: float = 1.5) -> torch.Tensor:
    ...     return x
    >>> torch.library.infer_schema(f, mutates_args=())
    '(Tensor x, SymInt n, float scale=1.5) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    hints = _hints(prototype_function, signature)

    def fail(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    unknown = mutates_args == "unknown"
    mutated = set() if unknown else set(_names(mutates_args, fail))
    missing = mutated - set(signature.parameters)
    if missing:
        fail(
            f"{missing} in mutates_args were not found in the custom op's signature. mutates_args "
            "should contain the names of all args that the custom op mutates, or just the string "
            "'unknown' if you don't know."
        )
    texts: list[str] = []
    starred = False
    for i, p in enumerate(signature.parameters.values()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            fail("We do not support positional-only args, varargs, or varkwargs.")
        if p.kind == p.KEYWORD_ONLY and not starred:
            texts.append("*")
            starred = True
        if p.annotation is p.empty:
            fail(f"Parameter {p.name} must have a type annotation.")
        name = _schema_type(hints[p.name])
        if name is None:
            fail(
                f"Parameter {p.name} has unsupported type {hints[p.name]}. The valid types are: "
                f"{_TYPES}."
            )
        writes = p.name in mutated or (unknown and name.startswith("Tensor"))
        if writes:
            if not name.startswith("Tensor"):
                fail(
                    f"Parameter {p.name} is in mutable_args but only Tensors or collections of "
                    "Tensors can be mutated"
                )
            name = f"Tensor(a{i}!){name[len('Tensor') :]}"
        texts.append(f"{name} {p.name}{_default(p, fail)}")
    if signature.return_annotation is signature.empty:
        fail("No return type annotation was provided. Please add one.")
    returned = _returned(hints["return"], fail)
    return f"{op_name or ''}({', '.join(texts)}) -> {returned}"


def _names(mutates_args: Any, fail: Callable[[str], NoReturn]) -> Iterable[str]:
    if isinstance(mutates_args, str):
        fail("mutates_args must either be a sequence of the names of the arguments or the string "
             "'unknown'.")  # fmt: skip
    return typing.cast("Iterable[str]", mutates_args)


def _hints(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """Annotations, those written as text resolved where the function was written."""
    given = {n: p.annotation for n, p in signature.parameters.items()}
    given["return"] = signature.return_annotation
    if not any(isinstance(a, str) for a in given.values()):
        return given
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    scope = dict(vars(module)) if module is not None else {}
    scope.update(getattr(function, "__globals__", {}))
    closed = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    try:
        resolved = typing.get_type_hints(function, scope, dict(closed), include_extras=True)
    except NameError as error:
        raise ValueError(
            f"infer_schema(func): Unsupported type annotation {error.name}. It is not a type. "
            f"({error}). If you are using 'from __future__ import annotations', note that "
            "annotations are evaluated lazily as strings; make sure all types referenced "
            "in annotations are importable at module scope, not only inside a local "
            "function."
        ) from None
    none = type(None)
    return {n: None if (t := resolved.get(n, a)) is none else t for n, a in given.items()}


def _default(p: inspect.Parameter, fail: Callable[[str], NoReturn]) -> str:
    if p.default is p.empty:
        return ""
    value = p.default
    if isinstance(value, dt.dtype):
        return f"={value.name}"
    if isinstance(value, device):
        return f'="{value}"'
    if value is None or isinstance(value, (int, float, bool, str)):
        text = str(value) if isinstance(value, float) else spelled(value)
        return f"={text}"
    return fail(
        f"Parameter {p.name} has an unsupported default value type {type(value)}. Make it "
        "Optional, and put the list in its place inside."
    )


def _schema_type(hint: Any) -> str | None:
    """`Optional[List[int]]` is `SymInt[]?`; None: not a type a schema has."""
    if isinstance(hint, type) and issubclass(hint, TensorBase):
        return "Tensor"
    if isinstance(hint, type) and hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if set(inner) - {type(None)} == _NUMBER:
            return "Scalar?" if type(None) in inner else "Scalar"
        if len(inner) == 2 and type(None) in inner:
            name = _schema_type(next(x for x in inner if x is not type(None)))
            return None if name is None or name.endswith("?") else f"{name}?"
        return None
    if origin in _LISTS and len(inner) == 1:
        name = _schema_type(inner[0])
        if name in _LISTED or name == "Tensor?":
            return f"{name}[]"
    return None


def _returned(hint: Any, fail: Callable[[str], NoReturn]) -> str:
    if hint is None or hint is type(None):
        return "()"
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        names = [_return_type(h, fail) for h in inner if h != ()]
        return f"({', '.join(names)})" if len(names) != 1 else names[0]
    return _return_type(hint, fail)


def _return_type(hint: Any, fail: Callable[[str], NoReturn]) -> str:
    name = _schema_type(hint)
    if name not in _RETURNED:
        fail(
            f"Return has unsupported type {hint}. The valid types are: Tensor, List[Tensor], int, "
            "float, bool, a number, or a tuple of them."
        )
    return name
