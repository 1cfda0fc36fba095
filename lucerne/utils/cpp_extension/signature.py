"""Schemas with types and sizes: what a compiled function takes, and what its results look like.

    (T[n, d] x, T[d] scale, float eps=1e-5) -> T[n, d] for T in float32, float64

is a schema of `lucerne.library` in which a tensor may say its type and its sizes instead of
`Tensor`. Such an argument is checked and made contiguous before machine code sees it, and such a
result is made before the call: the shape rule of the op follows from the text.

A type is the name of one (`float32`), or a letter bound by `for`. Sizes are numbers, names that
must be the same wherever they stand, or `...` for any leading sizes; those of results may be
computed (`n - k + 1`), from sizes and from integer arguments.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lucerne._src.base import dtype as dt
from lucerne._src.ir.schema import Argument, Schema, SchemaError, parse

ANY = "..."
_TYPED = re.compile(r"\b([A-Za-z_]\w*)\s*(\([a-z]!?\))?\[([^\]]*)\]")
_CHOICES = re.compile(r"\s+for\s+([A-Za-z_]\w*)\s+in\s+([\w\s,]+?)(?=\s+for\s|\s*$)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TYPES = {t.name: t for t in dt.all_dtypes()}
PASSED = ("Tensor", "int", "SymInt", "float", "bool", "str", "Scalar")
"""What can be given to C++; a bracket makes a list of it, as in any schema."""
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


@dataclass(frozen=True)
class Shaped:
    """`T[..., n, 3]`: a type and sizes."""

    text: str
    type: str
    sizes: tuple[str, ...]

    @property
    def leading(self) -> bool:
        return bool(self.sizes) and self.sizes[0] == ANY

    @property
    def named(self) -> tuple[str, ...]:
        return self.sizes[1:] if self.leading else self.sizes


class Signature:
    """A text as a schema, with a `Shaped` for each argument and result that has one."""

    def __init__(self, qualname: str, text: str) -> None:
        self.qualname, self.text = qualname, text
        self.choices = {
            m[1]: tuple(self._dtype(w.strip()) for w in m[2].split(","))
            for m in _CHOICES.finditer(text)
        }
        if re.search(rf"\b{_MARK}\b", text):
            self._refuse(f"no C++ function takes a {_MARK}")
        found: list[Shaped] = []
        plain = _TYPED.sub(lambda m: self._plain(m, found), _CHOICES.sub("", text))
        try:
            read = parse(plain, name=qualname)
        except SchemaError as error:
            raise SchemaError(f"{error}\nIt was read from: {text}") from None
        left = iter(found)  # (they stand in the schema in the order in which they were found)
        self.arguments = tuple([next(left) if _is_marked(a) else None for a in read.arguments])
        self.results = tuple([next(left) if _is_marked(r) else None for r in read.returns])
        self.schema = Schema(
            qualname,
            "",
            tuple([_unmarked(a) for a in read.arguments]),
            tuple([_unmarked(r) for r in read.returns]),
        )
        self._check()

    def _plain(self, m: re.Match[str], found: list[Shaped]) -> str:
        name, alias, inner = m[1], m[2] or "", m[3]
        if name in PASSED:
            return m[0]
        if name not in _TYPES and name not in self.choices:
            self._refuse(
                f"{m[0]} has no type: {name!r} is none, and nothing like `for {name} in float32, "
                "float64` says which it may be"
            )
        sizes = tuple(s.strip() for s in inner.split(",")) if inner.strip() else ()
        found.append(Shaped(f"{name}[{inner}]", name, sizes))
        return f"{_MARK}{alias}"

    def _dtype(self, name: str) -> dt.dtype:
        if name not in _TYPES:
            self._refuse(f"{name!r} is no type")
        return _TYPES[name]

    def _refuse(self, why: str) -> NoReturn:
        raise SchemaError(f"schema of {self.qualname}: {why}. The schema is: {self.text}")

    # ---- what a text may say -------------------------------------------------------------------

    def _check(self) -> None:
        for a in self.schema.arguments:
            if a.type.name not in PASSED:
                self._refuse(
                    f"{a} can't be given to C++: {', '.join(PASSED)} and lists of them can"
                )
        known = {a.name for a in self.schema.arguments if a.type.name in ("int", "SymInt")}
        types: set[str] = set()
        for shaped in filter(None, self.arguments):
            for k, size in enumerate(shaped.sizes):
                if size.isdigit() or (size == ANY and k == 0):
                    continue
                if not _NAME.fullmatch(size):
                    self._refuse(
                        f"{size!r} in {shaped.text}: sizes of arguments are numbers, names, or "
                        "`...` in the front"
                    )
                known.add(size)
            types.add(shaped.type)
        leading = any(s.leading for s in self.arguments if s is not None)
        for result in filter(None, self.results):
            if result.type in self.choices and result.type not in types:
                self._refuse(f"no argument says what {result.type} of {result.text} is")
            if result.leading and not leading:
                self._refuse(f"no argument says what `...` of {result.text} is")
            for size in result.named:
                for name in self._names_in(size):
                    if name not in known:
                        self._refuse(f"no argument says what {name!r} of {result.text} is")
        told = [r for r in self.results if r is not None]
        if told and len(told) != len(self.results):
            self._refuse("either all results say their sizes, or none does")

    def _names_in(self, size: str) -> list[str]:
        try:
            tree = ast.parse(size, mode="eval")
        except SyntaxError:
            self._refuse(f"{size!r} is no size")
        for node in ast.walk(tree):
            fine = isinstance(
                node, (ast.Expression, ast.BinOp, ast.Name, ast.Load, *_OPERATORS)
            ) or (isinstance(node, ast.Constant) and type(node.value) is int)
            if not fine:
                self._refuse(f"{size!r}: sizes are made of names, numbers, + - * // and %")
        return [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]

    # ---- a call --------------------------------------------------------------------------------

    def result_shapes(self, values: Sequence[Any]) -> list[tuple[tuple[Any, ...], dt.dtype]]:
        """Shapes and types of the results for bound arguments, which are held to the text."""
        sizes, types = self.bound(values)
        return [
            ((*(sizes[ANY] if r.leading else ()), *(_value(s, sizes) for s in r.named)),
             types[r.type] if r.type in self.choices else _TYPES[r.type])
            for r in self.results if r is not None
        ]  # fmt: skip

    def bound(self, values: Sequence[Any]) -> tuple[dict[str, Any], dict[str, dt.dtype]]:
        """What the names of sizes and types stand for in a call; raises where it can't be."""
        sizes: dict[str, Any] = {}
        types: dict[str, dt.dtype] = {}
        for a, shaped, value in zip(self.schema.arguments, self.arguments, values, strict=True):
            if shaped is None:
                number = a.type.name in ("int", "SymInt") and isinstance(value, int)
                if number and sizes.setdefault(a.name, value) != value:
                    raise RuntimeError(
                        f"{self.qualname}: argument {a.name!r} has to be {sizes[a.name]}, the size "
                        f"of that name, but is {value}. Schema: {self.text}"
                    )
                continue
            self._bind_type(a.name, shaped, value.dtype, types)
            self._bind_sizes(a.name, shaped, tuple(value.shape), sizes)
        return sizes, types

    def _bind_type(
        self, name: str, shaped: Shaped, dtype: dt.dtype, types: dict[str, dt.dtype]
    ) -> None:
        allowed = self.choices.get(shaped.type, ())
        wanted = types.get(shaped.type) or (None if allowed else _TYPES[shaped.type])
        if wanted is None and dtype in allowed:
            types[shaped.type] = dtype
        elif dtype is not wanted:
            said = str(wanted) if wanted else " or ".join(map(str, allowed))
            raise RuntimeError(
                f"{self.qualname}: argument {name!r} has to be {said}, but is {dtype}. Schema: "
                f"{self.text}"
            )

    def _bind_sizes(
        self, name: str, shaped: Shaped, shape: tuple[Any, ...], sizes: dict[str, Any]
    ) -> None:
        named = shaped.named
        extra = len(shape) - len(named)
        good = extra == 0 or (extra > 0 and shaped.leading)
        if good and shaped.leading:
            good = sizes.setdefault(ANY, shape[:extra]) == shape[:extra]
        if good:
            for size, n in zip(named, shape[extra:], strict=True):
                good &= bool(n == (int(size) if size.isdigit() else sizes.setdefault(size, n)))
        if not good:
            told = {s: sizes[s] for s in shaped.sizes if s in sizes}
            where = " with " + ", ".join(f"{k} = {v}" for k, v in told.items()) if told else ""
            raise RuntimeError(
                f"{self.qualname}: argument {name!r} has to be {shaped.text}{where}, but its shape "
                f"is {list(shape)}. Schema: {self.text}"
            )


_MARK = "Storage"
"""What stands in a schema for a tensor with type and sizes, while it is read."""


def _is_marked(a: Argument) -> bool:
    return a.type.name == _MARK


def _unmarked(a: Argument) -> Argument:
    return a._replace(type=a.type._replace(name="Tensor")) if _is_marked(a) else a


def _value(size: str, sizes: dict[str, Any]) -> Any:
    return _computed(ast.parse(size, mode="eval").body, sizes)


def _computed(node: ast.AST, sizes: dict[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        left, right = (_computed(x, sizes) for x in (node.left, node.right))
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Name):
        return sizes[node.id]
    assert isinstance(node, ast.Constant)
    return node.value
