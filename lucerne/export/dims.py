"""`Dim`: a size that is not known when a program is exported, and where it stands in arguments."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.ir.symbolic.expressions import SMALLEST, Expr, symbol
from lucerne._src.tensor.base import TensorBase
from lucerne.export.errors import ExportError

LARGEST = 2**31 - 1


class _Hint(enum.Enum):
    AUTO = "AUTO"
    DYNAMIC = "DYNAMIC"
    STATIC = "STATIC"

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A size with a name, from `min` to `max`. Arguments that have one Dim have one size.

    `2 * batch` and `length + 1` are sizes that follow from it. `Dim.AUTO` lets a size change if the
    module lets it; `Dim.DYNAMIC` insists; `Dim.STATIC` (like None) is the size it has now.

    >>> from lucerne.export import Dim
    >>> batch = Dim("batch", min=2, max=64)
    >>> batch, 2 * batch + 1
    (Dim('batch', min=2, max=64), 2*batch + 1)
    """

    AUTO = _Hint.AUTO
    DYNAMIC = _Hint.DYNAMIC
    STATIC = _Hint.STATIC

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Dim: a name like a variable's is expected, not {name!r}")
        self.name, self.__name__ = name, name
        self.min = 0 if min is None else min
        self.max = LARGEST if max is None else max
        if self.max < self.min:
            raise ValueError(f"Dim {name!r}: max ({max}) is less than min ({min})")

    def __repr__(self) -> str:
        least = f", min={self.min}" if self.min else ""
        most = f", max={self.max}" if self.max != LARGEST else ""
        return f"Dim({self.name!r}{least}{most})"

    def __add__(self, other: int) -> Derived:
        return Derived(self, symbol(self.name) + other)

    def __mul__(self, other: int) -> Derived:
        return Derived(self, symbol(self.name) * other)

    def __sub__(self, other: int) -> Derived:
        return Derived(self, symbol(self.name) - other)

    __radd__, __rmul__ = __add__, __mul__


class Derived:
    """A size that follows from a Dim: `2 * batch + 1`."""

    def __init__(self, root: Dim, formula: Expr) -> None:
        self.root, self.formula = root, formula

    def __repr__(self) -> str:
        return repr(self.formula)

    def __add__(self, other: int) -> Derived:
        return Derived(self.root, self.formula + other)

    def __mul__(self, other: int) -> Derived:
        return Derived(self.root, self.formula * other)

    def __sub__(self, other: int) -> Derived:
        return Derived(self.root, self.formula - other)

    __radd__, __rmul__ = __add__, __mul__

    def at(self, n: int) -> int:
        return self.formula.at({self.root.name: n})

    def root_at(self, size: int, where: str) -> int:
        """The size of the root for which this one is `size`."""
        low, high = self.at(0), self.at(1)
        step = high - low
        n, rest = divmod(size - low, step or 1)
        if rest or not step or self.at(n) != size:
            raise ExportError(
                f"{where} is {size}, which is not {self.formula} for any whole number"
            )
        return n


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several Dims with the same range.

    >>> from lucerne.export import dims
    >>> dims("rows", "columns", max=10)
    (Dim('rows', max=10), Dim('columns', max=10))
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


@dataclass
class Place:
    """A dimension of a tensor among the arguments that may change."""

    leaf: int
    dim: int
    where: str
    """In words: `x, dimension 0`."""
    root: Dim
    size: Callable[[int], int]
    """Its size when the root has a size."""


class Dynamic:
    """All dimensions of a call that may change, and the sizes the example has."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.roots: dict[str, Dim] = {}
        self.example: dict[str, int] = {}
        self.optional: set[str] = set()
        """Roots that may turn out to be fixed (`Dim.AUTO`)."""

    def add(self, leaf: int, dim: int, where: str, given: Any, size: int) -> None:
        if given is None or given is Dim.STATIC:
            return
        if isinstance(given, int) and not isinstance(given, bool):
            if given != size:
                raise ExportError(f"{where} is {size}, dynamic_shapes says {given}")
            return
        if isinstance(given, _Hint):
            if size < SMALLEST and given is Dim.AUTO:
                return
            # Equal sizes at one position (the batch) stay equal, as `compile` takes them to be.
            name = f"{'auto' if given is Dim.AUTO else 'dynamic'}{dim}_{size}"
            root = self.roots.get(name) or Dim(name)
            if given is Dim.AUTO:
                self.optional.add(name)
            given = root
        if not isinstance(given, (Dim, Derived)):
            raise ExportError(
                f"dynamic_shapes: {where} is {given!r}; a Dim, Dim.AUTO, Dim.STATIC, an int or "
                "None is expected"
            )
        derived = isinstance(given, Derived)
        root = given.root if isinstance(given, Derived) else given
        n = given.root_at(size, where) if isinstance(given, Derived) else size
        self._check(root, n, where)
        self.places.append(
            Place(leaf, dim, where, root, given.at if derived else (lambda m: m))  # type: ignore[union-attr]
        )

    def _check(self, root: Dim, n: int, where: str) -> None:
        if not root.min <= n <= root.max:
            raise ExportError(
                f"{where} is {n} in the example, outside the range {root.min} to {root.max} of "
                f"{root!r}"
            )
        if n < SMALLEST:
            raise ExportError(
                f"{where} is {n} in the example: sizes 0 and 1 do things that others do not "
                f"(broadcasting), so a dimension that changes needs an example of 2 or more"
            )
        known = self.roots.setdefault(root.name, root)
        if (known.min, known.max) != (root.min, root.max):
            raise ExportError(f"two Dims named {root.name!r} have different ranges")
        if self.example.setdefault(root.name, n) != n:
            raise ExportError(
                f"{where} is {n}, but {root.name} is {self.example[root.name]} elsewhere in the "
                "example: dimensions with one Dim have one size"
            )

    def drop(self, name: str) -> None:
        """A root that is fixed after all."""
        self.places = [p for p in self.places if p.root.name != name]
        del self.roots[name], self.example[name]
        self.optional.discard(name)

    def sizes(self, at: Mapping[str, int]) -> dict[tuple[int, int], int]:
        """The size of each dimension that changes, for sizes of the roots."""
        return {(p.leaf, p.dim): p.size(at[p.root.name]) for p in self.places}


def resolve(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any], spec: Any) -> Dynamic:
    """Where `dynamic_shapes` says that sizes change.

    `spec` follows the arguments: by name or by position, then into containers; at a tensor it is a
    dict from dimensions to Dims, or one entry for each dimension.
    """
    found = Dynamic()
    if not spec:
        return found
    named = argument_names(forward, args, kwargs)
    specs = _by_name(named, spec)
    leaf = 0
    for name, value in named.items():
        leaf = _walk(found, specs.get(name), value, name, leaf)
    return found


def argument_names(
    forward: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by the names of the parameters, in the order in which they are given."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}_{k}" for k in range(len(args) - len(names))]
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
    names += [f"args_{k}" for k in range(len(names), len(args))]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _by_name(named: Mapping[str, Any], spec: Any) -> Mapping[str, Any]:
    if isinstance(spec, Mapping):
        unknown = [k for k in spec if k not in named]
        starred = [k for k in unknown if any(n.startswith(f"{k}_") for n in named)]
        if starred:  # `*args` by its own name
            spread = {f"{k}_{i}": each for k in starred for i, each in enumerate(spec[k])}
            return {**{k: v for k, v in spec.items() if k not in starred}, **spread}
        if unknown:
            raise ExportError(
                f"dynamic_shapes names {', '.join(map(repr, unknown))}; the arguments are "
                f"{', '.join(map(repr, named))}"
            )
        return spec
    if isinstance(spec, Sequence):
        if len(spec) != len(named):
            raise ExportError(
                f"dynamic_shapes has {len(spec)} entries for {len(named)} arguments "
                f"({', '.join(named)}); write None for those that do not change"
            )
        return dict(zip(named, spec, strict=True))
    raise ExportError(f"dynamic_shapes: a dict or a tuple is expected, not {type(spec).__name__}")


def _walk(found: Dynamic, spec: Any, value: Any, where: str, leaf: int) -> int:
    """Read the spec of one argument; returns the number of the next leaf."""
    if isinstance(value, TensorBase):
        for d, given in _dimensions(spec, value, where):
            found.add(leaf, d, f"{where}, dimension {d}", given, int(value._meta.shape[d]))
        return leaf + 1
    children = _children(value)
    if children is None:
        if spec is not None and not isinstance(spec, _Hint):
            raise ExportError(f"dynamic_shapes: {where} is no tensor, but has {spec!r}")
        return leaf + 1
    for key, child in children:
        inner = spec
        if spec is not None and not isinstance(spec, _Hint):
            inner = _entry(spec, key, where)
        leaf = _walk(found, inner, child, f"{where}[{key!r}]", leaf)
    return leaf


def _entry(spec: Any, key: Any, where: str) -> Any:
    try:
        return spec[key] if isinstance(spec, Mapping) or isinstance(key, int) else None
    except (LookupError, TypeError):
        if isinstance(spec, Mapping):
            return None
        raise ExportError(f"dynamic_shapes: {where} has nothing for {key!r}") from None


def _children(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """What is inside a container, in the order of the leaves; None: it is no container."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    leaves: list[Any] = []
    if flatten(value, leaves) == ".":
        return None
    return list(enumerate(leaves))


def _dimensions(spec: Any, t: Any, where: str) -> list[tuple[int, Any]]:
    ndim = t._meta.ndim
    if spec is None:
        return []
    if isinstance(spec, _Hint):
        return [(d, spec) for d in range(ndim)]
    if isinstance(spec, Mapping):
        for d in spec:
            if not isinstance(d, int) or not -ndim <= d < ndim:
                raise ExportError(f"dynamic_shapes: {where} has no dimension {d!r}")
        return [(d % ndim, given) for d, given in spec.items()]
    if isinstance(spec, Sequence):
        if len(spec) != ndim:
            raise ExportError(
                f"dynamic_shapes: {where} has {ndim} dimensions, {len(spec)} are given"
            )
        return list(enumerate(spec))
    raise ExportError(f"dynamic_shapes: {where} has {spec!r}; a dict or a tuple is expected")
