"""Graphs as text, read back: `parse(str(graph))` is the same graph.

    >>> import lucerne
    >>> text = '''graph(%0: float32[2, 3], %1: float32[3, 2]{1, 3})
    ...   %2: float32[2, 2] = batch_matmul(%0, %1)
    ...   return %2'''
    >>> str(parse(text)) == text
    True

Nothing in a text is executed: ops are looked up in the table, literals are read by this file.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import HOST, device
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, verify
from lucerne._src.ir.meta import make_meta

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<value>%\d+)
    | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>-?(?:inf|nan|\d+\.?\d*(?:[eE][+-]?\d+)?)(?![\w.]))
    | (?P<dots>\.\.\.)
    | (?P<name>[A-Za-z_][\w.]*)
    | (?P<unread><[^>]*>)
    | (?P<mark>[()\[\]{},:=@;])
    )""",
    re.VERBOSE,
)
_WORDS = {"True": True, "False": False, "None": None}
_NUMBER_TYPES = {"int": int, "float": float, "bool": bool, "complex": complex}
_MARK, _END = "mark", ("end", "")


class ParseError(ValueError):
    """A text that is no graph: says the line and what was expected."""


class UnknownOpError(ParseError):
    """A text that calls an op that is not there: `name`."""

    name = ""


class _Line:
    """One line, token by token."""

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number = text, number
        self.tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"can't read {text[at:].strip()[:20]!r}")
            self.tokens.append((str(found.lastgroup), found.group(str(found.lastgroup))))
            at = found.end()
        self.at = 0
        self.nested = 0
        """In how many graphs inside nodes the next token stands."""

    def error(self, what: str) -> ParseError:
        return ParseError(f"line {self.number}: {what}\n  {self.text.strip()}")

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def take(self, wanted: str | None = None, kind: str | None = None) -> str:
        """The next token, which must be `wanted`, or of a kind."""
        found, text = self.peek()
        if (wanted is not None and text != wanted) or (kind is not None and found != kind):
            raise self.error(f"expected {wanted or kind}, found {text or 'the end'!r}")
        self.at += 1
        return text

    def takes(self, mark: str) -> bool:
        """Whether the next token is this mark; it is taken then."""
        if self.peek() != (_MARK, mark):
            return False
        self.at += 1
        return True

    def end(self) -> None:
        if self.at < len(self.tokens) and not self.ends_inside():
            raise self.error(f"expected the end of the line, found {self.peek()[1]!r}")

    def ends_inside(self) -> bool:
        """Whether a statement of a graph inside a node ends here."""
        return self.nested > 0 and self.peek() in ((_MARK, ";"), (_MARK, "}"))


class _Reader:
    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[int, Value] = {}

    def read(self, text: str) -> Graph:
        lines = [_Line(t, n) for n, t in enumerate(text.split("\n"), 1) if t.strip()]
        if not lines:
            raise ParseError("line 1: an empty text is no graph")
        self._head(lines[0])
        if len(lines) < 2 or lines[-1].peek()[1] != "return":
            raise lines[-1].error("expected a last line with `return`")
        for line in lines[1:-1]:
            self._statement(line)
        return self._return(lines[-1])

    def _statement(self, line: _Line) -> None:
        after = line.tokens[line.at + 1 : line.at + 2]
        if line.peek()[1] == "write" and after and after[0][0] == "value":
            self._write(line)
        else:
            self._node(line)

    def _return(self, last: _Line) -> Graph:
        last.take("return")
        outputs = []
        while last.peek() != _END and not last.ends_inside():
            outputs.append(self._known(last))
            if not last.takes(","):
                break
        last.end()
        self.graph.outputs = tuple(outputs)
        self.graph._next = max(self.values, default=-1) + 1
        return self.graph

    def _subgraph(self, line: _Line) -> Graph:
        """`{graph(%0: float32[]); %1: float32[] = neg(%0); return %1}`: numbers of its own."""
        line.take("{")
        line.nested += 1
        inner = _Reader()
        inner._head(line)
        line.take(";")
        while line.peek()[1] != "return":
            inner._statement(line)
            line.take(";")
        made = inner._return(line)
        line.take("}")
        line.nested -= 1
        return made

    def _head(self, line: _Line) -> None:
        line.take("graph")
        line.take("(")
        while not line.takes(")"):
            self.graph.inputs.append(self._typed(line))
            if line.peek() != (_MARK, ")"):
                line.take(",")
        line.end()

    def _node(self, line: _Line) -> None:
        outputs: list[Value] = []
        if line.peek()[0] == "value":
            outputs.append(self._typed(line))
            while line.takes(","):
                outputs.append(self._typed(line))
            line.take("=")
        name = line.take(kind="name")
        op = op_.table().get(name) or op_.custom_ops().get(name)
        if op is None:
            unknown = UnknownOpError(*line.error(f"there is no op {name!r}").args)
            unknown.name = name
            raise unknown
        args = self._items(line, "(", ")")
        line.end()
        self.graph.nodes.append(Node(op, args, tuple(outputs)))

    def _write(self, line: _Line) -> None:
        line.take("write")
        target = self._known(line)
        line.take("=")
        self.graph.writes.append((target, self._known(line)))
        line.end()

    # ---- values ---------------------------------------------------------------------------------

    def _known(self, line: _Line) -> Value:
        text = line.take(kind="value")
        found = self.values.get(int(text[1:]))
        if found is None:
            raise line.error(f"{text} is read before it is defined")
        return found

    def _typed(self, line: _Line) -> Value:
        """`%1: float32[2, 3]{1, 2}@device`: a new value."""
        index = int(line.take(kind="value")[1:])
        line.take(":")
        if index in self.values:
            raise line.error(f"%{index} is defined twice")
        made = self.values[index] = Value(index, self._meta(line))
        return made

    def _meta(self, line: _Line) -> Any:
        name = line.take(kind="name")
        if line.peek() != (_MARK, "["):
            if name == "object":
                return None
            if name not in _NUMBER_TYPES:
                raise line.error(f"{name!r} is no type of a number, and no shape follows it")
            return _NUMBER_TYPES[name]
        dtype = getattr(dt, "bool_" if name == "bool" else name, None)
        if not isinstance(dtype, dt.dtype):
            raise line.error(f"{name!r} is no dtype")
        shape = self._items(line, "[", "]")
        strides = self._items(line, "{", "}") if line.peek() == (_MARK, "{") else None
        place = HOST
        if line.takes("@"):
            place = line.take(kind="name")
            if line.takes(":"):
                place += f":{line.take(kind='number')}"
        return make_meta(dtype, shape, strides, device(place))

    # ---- arguments ------------------------------------------------------------------------------

    def _items(self, line: _Line, start: str, stop: str) -> tuple[Any, ...]:
        line.take(start)
        found = []
        while not line.takes(stop):
            found.append(self._argument(line))
            if line.peek() != (_MARK, stop):
                line.take(",")
        return tuple(found)

    def _argument(self, line: _Line) -> Any:
        kind, text = line.peek()
        if kind == "value":
            return self._known(line)
        if text == "(":
            return self._items(line, "(", ")")
        if text == "{":
            return self._subgraph(line)
        if text == "[":
            return list(self._items(line, "[", "]"))
        line.take()
        if kind == "number":
            whole = text.lstrip("-").isdigit()
            return int(text) if whole else float(text)
        if kind == "string":
            return ast.literal_eval(text)
        if kind == "dots":
            return ...
        if kind == "name":
            return self._named(line, text)
        if kind == "unread":
            raise line.error(f"{text} stands for an object that has no text")
        raise line.error(f"expected an argument, found {text or 'the end'!r}")

    def _named(self, line: _Line, text: str) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if text in ("complex", "slice"):
            parts = self._items(line, "(", ")")
            return complex(*parts) if text == "complex" else slice(*parts)
        if text == "device":
            return self._device(line)
        name = text.removeprefix("torch.")
        found = getattr(dt, "bool_" if name == "bool" else name, None)
        if name != text and isinstance(found, dt.dtype):
            return found
        found = getattr(lo, name, None)
        if name != text and isinstance(found, (lo.layout, lo.memory_format)):
            return found
        raise line.error(f"{text!r} means nothing here")

    def _device(self, line: _Line) -> device:
        """`device(type='cpu', index=0)`."""
        line.take("(")
        given: dict[str, Any] = {}
        while not line.takes(")"):
            key = line.take(kind="name")
            line.take("=")
            given[key] = self._argument(line)
            line.takes(",")
        return device(given["type"], given.get("index"))


def parse(text: str) -> Graph:
    """The graph that prints as this text."""
    graph = _Reader().read(text)
    verify(graph)
    return graph


def parse_static(text: str) -> Any:
    """An argument that `words.static_text` wrote: a number, text, a dtype, a tuple of such."""
    line = _Line(text, 1)
    found = _Reader()._argument(line)
    line.end()
    return found
