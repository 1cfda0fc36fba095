"""How a function comes to its state: the columns of the matrix, as the text of programs.

`READ` stands for the expression that reads the state, `WRITE` on a line of its own for the
statements that write to it. Functions beside `f` see the same `S`; `, S` stands where it is passed
on if it is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A way of reading or writing, in the body of `f(x)`."""

    name: str
    body: str
    helpers: str = ""
    """Functions beside `f`."""

    @property
    def writes(self) -> bool:
        return "WRITE" in self.body + self.helpers

    @property
    def reads(self) -> bool:
        return "READ" in self.body + self.helpers


_INNER = """
def inner(x, S):
    WRITE
    return x * READ
"""
_READER = """
def reader(_, S):
    return READ
"""
_WRITER = """
def writer(_, S):
    WRITE
    return 1.0
"""

COLUMNS: dict[str, Column] = {
    c.name: c
    for c in (
        Column("before", "v = READ\nreturn x * v + v"),
        Column("after", "y = (x * 2).sin()\nreturn y * READ"),
        Column("in parts", "y = x * 2\npause()\ny = y * READ\npause()\nreturn y + READ"),
        Column("write", "y = x * 2\nWRITE\nreturn y + 1"),
        Column("write read", "WRITE\nreturn x * READ"),
        Column("read write read", "v = READ\nWRITE\nreturn x * v + READ"),
        Column(
            "parts write",
            "y = x * READ\nWRITE\npause()\ny = y + READ\nWRITE\nreturn y * READ",
        ),
        Column("write pause", "y = x * 2\nWRITE\npause()\nreturn y * 3"),
        Column("nested", "return inner(x, S) + inner(x, S)", _INNER),
        Column("nested read", "return x * reader(0, S) + reader(1, S)", _READER),
        Column("loop", "for i in range(3):\n    x = x * READ\n    WRITE\nreturn x"),
        Column("comprehension", "return sum([x * READ + i for i in range(3)])"),
        Column("written in one", "return sum([inner(x, S) for _ in range(2)])", _INNER),
        Column(
            "generator",
            "return sum(steps(x, S))",
            "def steps(x, S):\n    for i in range(2):\n        WRITE\n        yield x * READ\n",
        ),
        Column(
            "failed try",
            "try:\n    WRITE\n    v = READ\n    raise KeyError('no')\nexcept KeyError:\n"
            "    x = x * 2\nreturn x * READ",
        ),
        Column("raises", "y = x * READ\nWRITE\nraise ValueError('after it')"),
        Column(
            "with",
            "with manager(x):\n    WRITE\n    v = READ\nreturn x * v + READ",
            "@contextlib.contextmanager\ndef manager(x):\n    yield x\n",
        ),
        Column("lambda", "g = lambda y: y * READ\nWRITE\nreturn g(x)"),
        Column("map", "return x * sum(map(lambda i: READ + i, [1, 2]))"),
        Column("map a function", "return x * sum(map(functools.partial(reader, S=S), [1, 2]))",
               _READER),
        Column("map that writes", "n = sum(map(lambda i: writer(i, S), [1, 2]))\nreturn x * n",
               _WRITER),
        Column("reduce", "return x * functools.reduce(lambda a, b: a + b * READ, [1.0, 2.0])"),
        Column("reduce that writes",
               "n = functools.reduce(lambda a, b: a + writer(b, S), [1.0, 2.0])\nreturn x * n",
               _WRITER),
        Column("sorted", "return x * sorted([1.0, 2.0, 3.0], key=lambda i: abs(i - READ))[0]"),
        Column("max", "return x * max([1.0, 2.0, 3.0], key=lambda i: -abs(i - READ))"),
        Column("sort that writes",
               "items = [3.0, 1.0]\nitems.sort(key=lambda i: i * writer(i, S))\n"
               "return x * items[0]", _WRITER),
        Column("re.sub", "return x * float(re.sub('a', lambda m: str(float(READ)), 'a'))"),
        Column("re.sub that writes",
               "return x * float(re.sub('a', lambda m: str(writer(0, S)), 'a'))", _WRITER),
        Column("filter", "return x * len(list(filter(lambda i: i < READ, [0.5, 1.5, 2.5])))"),
        Column("any", "return x * 2 if any(READ > i for i in (1.5, 2.5)) else x * 3"),
        Column("branch", "if READ > 1.5:\n    return x * 2\nreturn x * 3"),
        Column("text", "v = READ\nreturn x * float(f'{float(v):.2f}') + len(str(v))"),
        Column("printed", "print('state', float(READ))\nreturn x * 2"),
        Column("written printed", "WRITE\nprint('state', float(READ))\nreturn x * READ"),
        Column("returned", "return x * 2, READ"),
        Column("written returned", "y = x * 2\nWRITE\nreturn y, READ"),
        Column("tensor hook",
               "y = x * 2\nif y.requires_grad:\n    y.register_hook(lambda g: g * READ)\n"
               "return y * 3"),
        Column("hook that writes",
               "y = x * 2\nif y.requires_grad:\n"
               "    y.register_hook(lambda g: g * writer(0, S))\nreturn y * 3", _WRITER),
        Column("checkpoint",
               "return checkpoint(lambda y: (y * READ).sin(), x, use_reentrant=False)"),
        Column("function", "return Own.apply(x) * READ",
               "class Own(torch.autograd.Function):\n    @staticmethod\n"
               "    def forward(ctx, x):\n        return x * 2\n    @staticmethod\n"
               "    def backward(ctx, g):\n        return g * 5\n"),
        Column("backward inside", "y = x.detach().requires_grad_()\n(y * READ).sum().backward()\n"
               "WRITE\nreturn y.grad * READ"),
        Column("no grad", "with torch.no_grad():\n    y = x * READ\n    WRITE\nreturn y * READ"),
        Column("while", "n = 0\nwhile n < 2:\n    x = x + READ\n    WRITE\n    n += 1\nreturn x"),
        Column("finally", "try:\n    y = x * READ\nfinally:\n    WRITE\nreturn y * READ"),
        Column("method",
               "return Other(S).both(x)",
               "class Other:\n    def __init__(self, s):\n        self.s = s\n"
               "    def both(self, x):\n        S = self.s\n        WRITE\n"
            "        return x * READ\n"),
        Column("module", "return layer(x)",
               "class Layer(torch.nn.Module):\n    def forward(self, x):\n        WRITE\n"
               "        return x * READ\nlayer = Layer()\n"),
    )
}  # fmt: skip
QUICK = ("before", "in parts", "read write read", "parts write", "nested", "map")
"""The columns of the quick tier."""
