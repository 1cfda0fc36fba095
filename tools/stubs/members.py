"""The stub of what Tensor gets when the package loads: methods, operators and properties.

`Tensor` itself is written as a class, and a checker reads it there; this is the base class it has
in a checker's eyes.
"""

from __future__ import annotations

import inspect
from typing import Any

import lucerne
from lucerne import Tensor
from tools.stubs import layout
from tools.stubs.facts import ANY, Parameter, Signature, annotated
from tools.stubs.signatures import POSITIONAL, SELF, as_method, closed_over, signatures

FILE = "declared.pyi"
CLASS = "TableMembers"
ALIASES = {
    "Device": "device | str | _int",
    "Number": "_int | _float | _complex",
    "Sizes": "_int | Sequence[_int]",
}
DOC = "What the op table gives to Tensor, and words that stubs share: for type checkers alone."


def module(tensor: str) -> str:
    """The dotted name of the stub, which stands beside the module of Tensor."""
    return f"{tensor.rpartition('.')[0]}.{FILE.removesuffix('.pyi')}"


def stub(known: dict[str, str]) -> str:
    aliases = [f"{name}: TypeAlias = {text}" for name, text in ALIASES.items()]
    base = Tensor.__base__
    assert base is not None
    lines = [f"class {CLASS}({base.__name__}):"]
    for name in sorted(vars(Tensor)):
        lines += _member(name, vars(Tensor)[name], known["Tensor"])
    body = "\n".join([*aliases, *lines])
    imported = layout.imports(body, known, set(ALIASES), set())
    return layout.module(DOC, imported, [aliases, lines])


def _member(name: str, value: Any, tensor: str) -> list[str]:
    """The lines of one member; none for what the class itself defines."""
    if isinstance(value, property):
        own = _module_of(value.fget) == tensor
        return [] if own or _is_of_few(name) else _property(name, value)
    if not callable(value) or _module_of(value) in (tensor, None):
        return []
    mark = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    return layout.function(name, forms(name, value), "    ", mark)


def _is_of_few(name: str) -> bool:
    """Whether a plain tensor does not have it: what tensors on a mesh learn when it is loaded."""
    try:
        getattr(lucerne.ones(2, 2), name)
    except AttributeError:
        return True
    except Exception:  # it is there, and refuses a matrix
        return False
    return False


def _module_of(function: Any) -> str | None:
    return getattr(inspect.unwrap(function), "__module__", None)


def _property(name: str, value: property) -> list[str]:
    """Its type by its getter's annotation, or by what a matrix answers."""
    told = annotated(getattr(inspect.unwrap(value.fget), "__annotations__", {}).get("return"))
    if told == ANY:
        answer = getattr(lucerne.ones(2, 2), name)
        told = ANY if answer is None else annotated(type(answer).__name__)
    lines = ["    @property", f"    def {name}(self) -> {told}: ..."]
    if value.fset is not None:
        lines += [f"    @{name}.setter", f"    def {name}(self, value: {told}) -> None: ..."]
    return lines


def forms(name: str, value: Any) -> list[Signature]:
    """A method's signatures; of an in-place one by the function it writes the result of."""
    if name.startswith("__") and name.endswith("__"):
        return [_operator(name, value)]
    over = closed_over(value, "fn") if name.endswith("_") else None
    read = signatures(value if over is None else over, name if over is None else name[:-1])
    found = [as_method(form) for form in read]
    if name.endswith("_"):
        found = [form._replace(result="Tensor") for form in found][:1]
    return found


def _operator(name: str, value: Any) -> Signature:
    """Operators take whatever Python hands them, and answer NotImplemented to what they can't."""
    given = list(inspect.signature(inspect.unwrap(value)).parameters.values())[1:]
    others = [p for p in given if p.kind is POSITIONAL and p.default is p.empty]
    result = "None" if name in ("__setitem__", "__delitem__") else "Tensor"
    return Signature((SELF, *(Parameter(p.name, POSITIONAL, ANY) for p in others)), result)


def as_functions(name: str) -> list[Signature]:
    """`lucerne.exp_(x)`: a method as a function."""
    first = Parameter("input", POSITIONAL, "Tensor")
    value = inspect.getattr_static(Tensor, name)
    return [form._replace(parameters=(first, *form.parameters[1:])) for form in forms(name, value)]
