"""Tensors of classes that answer ops themselves: how a capture takes them apart.

A class with `__tensor_flatten__` and `__tensor_unflatten__` says which tensors its own are made of.
While a function is captured, a wrapper is put together again around stand-ins for those: its
`__torch_dispatch__` (or `__torch_function__`) runs, and what it does with the tensors inside is
what the graph holds. Afterwards wrappers that the function returns are made of plain results.
A subclass that has numbers of its own is captured like a plain tensor, and results keep its class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.capture.trace.pytree import LEAF
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import TensorBase, plain_types
from lucerne._src.tensor.subclasses.torch_dispatch import has_data


def opens(cls: type) -> bool:
    """Whether tensors of a class can be taken apart and put together again."""
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def is_wrapper(t: Any) -> bool:
    """Whether it is a tensor that can be taken apart."""
    return is_a(t, TensorBase) and type(t) not in plain_types and opens(type(t))


def parts_of(t: Any) -> list[tuple[str, Any]]:
    """The tensors that a wrapper is made of, by name."""
    names, _ = t.__tensor_flatten__()
    found = [(name, getattr(t, name)) for name in names]
    for name, part in found:
        if not is_a(part, TensorBase):
            raise CaptureError(
                f"{type(t).__name__}.__tensor_flatten__ names {name!r}, which is a "
                f"{type(part).__name__} and no tensor. What is no tensor belongs to the context"
            )
    return found


def plain_tensors(things: Iterable[Any]) -> Iterator[Any]:
    """The tensors among them, wrappers taken apart down to tensors that have memory."""
    for x in things:
        if not is_a(x, TensorBase):
            continue
        if type(x) not in plain_types and opens(type(x)):
            yield from plain_tensors(part for _, part in parts_of(x))
        else:
            yield x


def own_attributes(t: Any) -> dict[str, Any]:
    """What a subclass keeps besides its numbers."""
    return dict(own_dict(t) or {})


class SubclassKind:
    """What two tensors of such a class have in common if one program serves both: everything but
    the numbers inside."""

    __slots__ = ("cls", "context", "meta", "names", "needs_grad", "parts")

    def __init__(self, t: Any) -> None:
        self.cls: Any = type(t)
        self.needs_grad: bool = t._needs_grad
        self.meta: TensorMeta = t._meta
        self.names: tuple[str, ...] = ()
        self.context: Any = None
        self.parts: list[Any] = []
        if type(t) in plain_types:
            return
        if opens(type(t)):
            names, self.context = t.__tensor_flatten__()
            self.names = tuple(names)
            self.parts = [SubclassKind(part) for _, part in parts_of(t)]
        else:
            self.context = own_attributes(t)

    def difference(self, other: SubclassKind) -> str | None:
        """What differs, in words; None: nothing does."""
        if self.cls is not other.cls:
            return f"is a {other.cls.__name__}, it was a {self.cls.__name__}"
        name = self.cls.__name__
        if self.meta is not other.meta or self.needs_grad != other.needs_grad:
            return f"({name}) has another shape, dtype, layout or requires_grad"
        if self.names != other.names or not _equal(self.context, other.context):
            what = "context" if self.names else "attributes"
            return f"({name}) has other {what}: {other.context!r}, it was {self.context!r}"
        for label, a, b in zip(self.names, self.parts, other.parts, strict=True):
            found = a.difference(b)
            if found is not None:
                return f".{label} {found}"
        return None

    def close(self, parts: Sequence[Any]) -> Any:
        """A wrapper of this kind around other tensors (what `pytree.rebuild` asks for)."""
        given = dict(zip(self.names, parts, strict=True))
        shape, strides = self.meta.shape, self.meta.strides
        return self.cls.__tensor_unflatten__(given, self.context, shape, strides)

    # Shapes of trees are compared.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubclassKind) and self.difference(other) is None

    __hash__ = None  # type: ignore[assignment]


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # a context may be anything
        return False


class Alike:
    """The guard of a version whose arguments or surroundings have such tensors."""

    def __init__(self, leaves: Sequence[Any], held: Iterable[Any]) -> None:
        self.given = [(k, SubclassKind(x)) for k, x in enumerate(leaves) if _is_special(x)]
        self.held = [(t, SubclassKind(t)) for t in held if _is_special(t)]
        self.which = self._which(leaves)

    def __bool__(self) -> bool:
        return bool(self.given or self.held)

    def _which(self, leaves: Sequence[Any]) -> list[int]:
        """Which of the tensors inside are one object."""
        first: dict[int, int] = {}
        things = [*(leaves[k] for k, _ in self.given), *(t for t, _ in self.held)]
        return [first.setdefault(id(x), n) for n, x in enumerate(plain_tensors(things))]

    def failure(self, leaves: Sequence[Any]) -> str | None:
        """Why the version can't be used, in words; None: it can."""
        for k, kind in self.given:
            found = kind.difference(SubclassKind(leaves[k]))
            if found is not None:
                return f"argument {k}{'' if found[0] == '.' else ' '}{found}"
        for t, kind in self.held:
            found = kind.difference(SubclassKind(t))
            if found is not None:
                return f"a {kind.cls.__name__} that the function sees {found}"
        if self._which(leaves) != self.which:
            return "the tensors inside of its arguments are shared in another way"
        return None


def _is_special(x: Any) -> bool:
    return is_a(x, TensorBase) and type(x) not in plain_types


# ---- while a function is captured ---------------------------------------------------------------


def check(t: Any) -> None:
    """Raise if it has no numbers, and does not say which tensors have them."""
    if not opens(type(t)) and not has_data(t):
        raise CaptureError(
            f"a tensor is a {type(t).__name__}, which handles ops itself and does not say what it "
            "is made of: define __tensor_flatten__ and __tensor_unflatten__"
        )


def check_argument(t: Any) -> None:
    """The same of an argument: it may also not keep tensors that it does not tell of."""
    check(t)
    if not opens(type(t)) and _holds_tensors(own_attributes(t)):
        raise CaptureError(
            f"an argument is a {type(t).__name__}, which handles ops itself and keeps tensors: say "
            "so by __tensor_flatten__ and __tensor_unflatten__"
        )


def _holds_tensors(x: Any) -> bool:
    if is_a(x, dict):
        x = list(x.values())
    if is_a(x, (list, tuple)):
        return any(map(_holds_tensors, x))
    return is_a(x, TensorBase)


def stand_in(leaf: Any, replace: Callable[[str, Any], Any]) -> Any:
    """A wrapper like `leaf` around what stands for its tensors."""
    made = SubclassKind(leaf).close([replace(name, part) for name, part in parts_of(leaf)])
    if type(made) is not type(leaf):
        raise CaptureError(
            f"{type(leaf).__name__}.__tensor_unflatten__ gave a {type(made).__name__}"
        )
    if made._needs_grad != leaf._needs_grad:
        made._auto = AutogradState(requires_grad=True) if leaf._needs_grad else None
    return made


class Inside:
    """What wrappers held when a capture began: a program does not exchange it."""

    def __init__(self) -> None:
        self._found: list[tuple[Any, list[tuple[str, Any]], dict[str, Any]]] = []

    def note(self, t: Any) -> None:
        self._found.append((t, parts_of(t), own_attributes(t)))

    def check(self) -> None:
        """Raise if one holds something else now."""
        for t, parts, attributes in self._found:
            same = [(n, id(x)) for n, x in parts_of(t)] == [(n, id(x)) for n, x in parts]
            if not same or _ids(own_attributes(t)) != _ids(attributes):
                raise CaptureError(
                    f"a {type(t).__name__} from outside gets other tensors or attributes, which "
                    "is a write that a program can't repeat: write to its tensors (copy_)"
                )

    def restore(self) -> None:
        for t, _, attributes in self._found:
            own = own_dict(t)
            if own is not None and _ids(own) != _ids(attributes):
                own.clear()
                own.update(attributes)


def _ids(attributes: dict[str, Any]) -> dict[str, int]:
    return {name: id(x) for name, x in attributes.items()}


class Wrapped:
    """A wrapper as an outcome: its kind, and the outcomes of the tensors inside."""

    __slots__ = ("parts", "shape")

    def __init__(self, shape: Any, parts: list[Any]) -> None:
        self.shape, self.parts = shape, parts


def plain_outcomes(x: Any) -> list[Any]:
    """The outcomes that something left behind is made of."""
    return x.parts if type(x) is Wrapped else [] if x is None else [x]


def subclass_of(t: Any) -> tuple[type, dict[str, Any]] | None:
    """The class that a result keeps, with its attributes; None: it is a plain tensor."""
    if type(t) in plain_types:
        return None
    attributes = own_attributes(t)
    if _holds_tensors(attributes):
        raise CaptureError(
            f"a {type(t).__name__} is returned that has tensors as attributes: say so by "
            "__tensor_flatten__ and __tensor_unflatten__"
        )
    return type(t), attributes


def opened(t: Any, leaves: list[Any], is_known: Callable[[Any], bool]) -> Any:
    """Append the plain tensors of a result to leaves; gives its shape for `pytree.rebuild`.

    `is_known`: whether it was there before, and is to be given back as it is.
    """
    if not is_wrapper(t) or is_known(t):
        leaves.append(t)
        return LEAF
    if t._needs_grad:
        raise CaptureError(
            f"a {type(t).__name__} is returned that takes part in autograd, which a graph can't "
            "hold. Return a plain tensor computed from it, or detach it"
        )
    inner = tuple(opened(part, leaves, is_known) for _, part in parts_of(t))
    return type(t), SubclassKind(t), inner


def opened_shape(
    shape: Any, given: Iterator[Any], leaves: list[Any], known: Callable[[Any], bool]
) -> Any:
    """The shape of a tree whose leaves are `given`, with wrappers taken apart."""
    if shape is LEAF:
        return opened(next(given), leaves, known)
    return (*shape[:-1], tuple(opened_shape(s, given, leaves, known) for s in shape[-1]))
