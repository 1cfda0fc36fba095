"""Schemas of operators: torch's little language for what an op takes and returns.

    mylib::scale(Tensor x, float factor=2., *, Tensor(a!) out, int[] dims=[]) -> (Tensor, Tensor)

A type is a name (`Tensor`, `int`, `float`, `bool`, `str`, `Scalar`, `ScalarType`, `Device`), an
optional list mark (`int[]`, `int[2]`) and an optional question mark (may be None). `Tensor(a!)` is
written to (`Tensor!` for short), `Tensor(a)` may share memory with another one marked `a`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

MISSING: Any = object()
"""The default of an argument that has none."""

NAMES = frozenset((
    "Tensor", "int", "SymInt", "float", "bool", "SymBool", "str", "Scalar", "ScalarType", "Device",
    "Layout", "MemoryFormat", "Generator", "complex", "Dimname", "Stream", "Storage", "QScheme",
    "t",
))  # fmt: skip


class SchemaType(NamedTuple):
    """`int[]?` is Type("int", is_list=True, optional=True)."""

    name: str
    is_list: bool = False
    optional: bool = False
    """The whole may be None."""
    size: int | None = None
    """`int[2]`: a single number stands for that many."""
    element_optional: bool = False
    """`Tensor?[]`: entries may be None."""

    def __str__(self) -> str:
        inner = self.name + ("?" if self.element_optional else "")
        listed = f"[{'' if self.size is None else self.size}]" if self.is_list else ""
        return f"{inner}{listed}{'?' if self.optional else ''}"

    @property
    def is_tensor(self) -> bool:
        return self.name == "Tensor"


class Argument(NamedTuple):
    """One argument, or one result (then `name` may be empty)."""

    name: str
    type: SchemaType
    default_value: Any = MISSING
    kwarg_only: bool = False
    alias: str = ""
    """The letter of `Tensor(a)`: memory that may be shared."""
    is_write: bool = False
    into: str = ""
    """The star of `Tensor(a -> *)`: what the memory is part of afterwards."""

    def __str__(self) -> str:
        kind = str(self.type)
        if self.alias:
            after = f" -> {self.into}" if self.into else ""
            mark = f"({self.alias}{'!' if self.is_write else ''}{after})"
            kind = self.type.name + mark + kind[len(self.type.name) :]
        named = f"{kind} {self.name}" if self.name else kind
        return named if self.default_value is MISSING else f"{named}={spelled(self.default_value)}"

    def has_default_value(self) -> bool:
        return self.default_value is not MISSING


class Schema(NamedTuple):
    """What an operator takes and returns.

    >>> s = parse("lib::f(Tensor x, int n=2) -> Tensor")
    >>> s.name, [a.name for a in s.arguments], str(s)
    ('lib::f', ['x', 'n'], 'lib::f(Tensor x, int n=2) -> Tensor')
    """

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    def __str__(self) -> str:
        heads: list[str] = []
        for a in self.arguments:
            if a.kwarg_only and "*" not in heads:
                heads.append("*")
            heads.append(str(a))
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        return f"{name}({', '.join(heads)}) -> {_results(self.returns)}"

    @property
    def is_mutable(self) -> bool:
        return any(a.is_write for a in self.arguments)

    @property
    def written(self) -> tuple[int, ...]:
        """The numbers of the arguments that are written to."""
        return tuple(i for i, a in enumerate(self.arguments) if a.is_write)

    def renamed(self, name: str, overload: str = "") -> Schema:
        return self._replace(name=name, overload_name=overload)


def _results(returns: tuple[Argument, ...]) -> str:
    texts = [str(r) for r in returns]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def spelled(value: Any) -> str:
    """A default as a schema spells it: `2.` for 2.0, text in double quotes."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return f"{int(value)}."
    if isinstance(value, float):
        return f"{value:.17g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(spelled(v) for v in value)}]"
    return str(value).rpartition("torch.")[2]


# ---- reading ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(->)|([A-Za-z_][A-Za-z0-9_]*)|(-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?j?)"
    r"|(\"[^\"]*\"|'[^']*')|(.))"
)


class SchemaError(RuntimeError):
    """A text that is no schema: says what was expected, and points at the place."""


class _Reader:
    """Tokens of a schema, one at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        kinds = ("arrow", "name", "number", "text", "mark")
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            assert found is not None
            which = next(i for i in range(1, 6) if found.group(i) is not None)
            self.tokens.append((kinds[which - 1], found.group(which), found.start(which)))
            at = found.end()
        self.tokens.append(("end", "", len(text)))
        self.at = 0
        self.without_letter = 0

    @property
    def here(self) -> tuple[str, str, int]:
        return self.tokens[self.at]

    def takes(self, text: str) -> bool:
        if self.here[1] == text and self.here[0] != "text":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.takes(text):
            self.fail(f"expected {text!r}")

    def kind(self, kind: str, what: str) -> str:
        found, text, _ = self.here
        if found != kind:
            self.fail(f"expected {what}")
        self.at += 1
        return text

    def unnamed(self) -> int:
        """The number of one more `Tensor!`, which has no letter."""
        self.without_letter += 1
        return self.without_letter - 1

    def fail(self, what: str) -> NoReturn:
        found = self.here[1] or "the end"
        raise SchemaError(
            f"{what} but found {found!r} here:\n{self.text}\n{' ' * self.here[2]}^\n"
            "A schema looks like: name(Tensor x, int[] sizes, float scale=1.0, *, Tensor(a!) out) "
            "-> Tensor"
        )


def parse(text: str, *, name: str | None = None) -> Schema:
    """Read a schema. `name`: used when the text begins with its bracket."""
    r = _Reader(text)
    own, overload = name or "", ""
    if r.here[0] == "name":
        own, overload = _name(r)
    elif name is None:
        r.fail("expected the name of the operator")
    r.expect("(")
    arguments = _arguments(r)
    r.expect("->")
    returns = _returns(r)
    if r.here[0] != "end":
        r.fail("expected the end of the schema")
    return Schema(own, overload, arguments, returns)


def _name(r: _Reader) -> tuple[str, str]:
    parts = r.kind("name", "a name")
    overload = ""
    if r.takes(":"):
        r.expect(":")
        parts = f"{parts}::{r.kind('name', 'the name of the operator')}"
    while r.takes("."):
        part = r.kind("name", "an overload")
        overload = f"{overload}.{part}" if overload else part
    return parts, overload


def _arguments(r: _Reader) -> tuple[Argument, ...]:
    found: list[Argument] = []
    keyword_only = False
    while not r.takes(")"):
        if found or keyword_only:
            r.expect(",")
        if r.takes("*"):
            keyword_only = True
            continue
        found.append(_argument(r, keyword_only))
        if [a.name for a in found].count(found[-1].name) > 1:
            raise SchemaError(f"two arguments are called {found[-1].name!r}:\n{r.text}")
    return tuple(found)


def _argument(r: _Reader, keyword_only: bool) -> Argument:
    type, alias, write, into = _type(r)
    name = r.kind("name", "the name of the argument")
    default = _default(r) if r.takes("=") else MISSING
    if default is not MISSING and type.name == "float" and isinstance(default, int):
        default = default if isinstance(default, bool) else float(default)
    return Argument(name, type, default, keyword_only, alias, write, into)


def _returns(r: _Reader) -> tuple[Argument, ...]:
    if not r.takes("("):
        return (_return(r),)
    found: list[Argument] = []
    while not r.takes(")"):
        if found:
            r.expect(",")
        found.append(_return(r))
    return tuple(found)


def _return(r: _Reader) -> Argument:
    type, alias, write, into = _type(r)
    name = r.kind("name", "a name") if r.here[0] == "name" else ""
    return Argument(name, type, MISSING, False, alias, write, into)


def _type(r: _Reader) -> tuple[SchemaType, str, bool, str]:
    name = r.kind("name", "a type")
    if name not in NAMES:
        r.at -= 1
        r.fail(f"unknown type specifier: expected one of {', '.join(sorted(NAMES - {'t'}))},")
    alias, write, into = _alias(r)
    before = r.takes("?")
    is_list, size = False, None
    if r.takes("["):
        is_list = True
        if r.here[0] == "number":
            size = int(r.kind("number", "a size"))
        r.expect("]")
        late = _alias(r)
        alias, write, into = alias or late[0], write or late[1], into or late[2]
    after = r.takes("?")
    optional = after or (before and not is_list)
    return SchemaType(name, is_list, optional, size, before and is_list), alias, write, into


def _alias(r: _Reader) -> tuple[str, bool, str]:
    """`(a)`, `(a!)`, `(a! -> b)`, `(a|b)`; `!` alone is memory of its own that is written to."""
    if r.here[0] == "mark" and r.takes("!"):
        return f"${r.unnamed()}", True, ""
    if r.here[1] != "(" or r.here[0] != "mark":
        return "", False, ""
    r.at += 1
    letter, write, into = "", False, ""
    while not r.takes(")"):
        if r.here[0] == "end":
            r.fail("expected ')'")
        if r.here[1] == "!":
            write = True
        elif r.tokens[r.at - 1][0] == "arrow":
            into = r.here[1]
        elif not letter:
            letter = r.here[1]
        r.at += 1
    return letter, write, into


_WORDS = {"None": None, "True": True, "False": False}


def _default(r: _Reader) -> Any:
    kind, text, _ = r.here
    r.at += 1
    if kind == "number":
        if text.endswith("j"):
            return complex(text)
        return float(text) if any(c in text for c in ".eE") else int(text)
    if kind == "text":
        return text[1:-1]
    if kind == "name":
        if text in ("inf", "nan"):
            return float(text)
        return _WORDS.get(text, text)
    if text == "[":
        items: list[Any] = []
        while not r.takes("]"):
            if items:
                r.expect(",")
            items.append(_default(r))
        return tuple(items)
    r.at -= 1
    return r.fail("expected a default value")
