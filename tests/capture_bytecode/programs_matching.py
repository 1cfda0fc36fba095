"""match statements."""

import dataclasses
import enum
from collections import OrderedDict, namedtuple

import lucerne as torch
from tests.capture_bytecode.cases import case


@dataclasses.dataclass
class Node:
    op: str
    args: tuple = ()


class Pair:
    __match_args__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Named = namedtuple("Named", "a b")


@case(lambda: (0,), lambda: (1,), lambda: ("x",), lambda: (None,), lambda: (2.5,), lambda: (True,))
def literals(x):
    match x:
        case 0:
            return "zero"
        case True:
            return "true"
        case 1 | 2:
            return "one or two"
        case "x" | "y" as letter:
            return f"letter {letter}"
        case None:
            return "none"
        case other if other > 2:
            return "big"
        case _:
            return "other"


@case(
    lambda: ([],),
    lambda: ([1],),
    lambda: ((1, 2),),
    lambda: ([1, 2, 3, 4],),
    lambda: ("ab",),
    lambda: ({1, 2},),
    lambda: (range(3),),
)
def sequences(x):
    match x:
        case []:
            return "empty"
        case [one]:
            return "one", one
        case (a, b):
            return "two", a, b
        case [first, *middle, last]:
            return first, middle, last
        case _:
            return "no sequence"


@case(
    lambda: ({},),
    lambda: ({"k": 1},),
    lambda: ({"k": 1, "m": 2, "n": 3},),
    lambda: (OrderedDict(t="add", v=[1, 2]),),
    lambda: ([("k", 1)],),
)
def mappings(x):
    match x:
        case {"t": "add", "v": [a, b]}:
            return a + b
        case {"k": k, "m": m, **rest}:
            return k, m, rest
        case {"k": k}:
            return k
        case {}:
            return "a mapping"
        case _:
            return "none"


@case(
    lambda: (Node("add", (1, 2)),),
    lambda: (Node("neg", (Node("one"),)),),
    lambda: (Node("one"),),
    lambda: (Pair(1, 2),),
    lambda: (Pair(Pair(1, 2), 3),),
    lambda: (Named(1, 2),),
    lambda: (5,),
    lambda: ("s",),
)
def classes(x):
    match x:
        case Node("add", (a, b)):
            return a + b
        case Node(op="neg", args=(Node(op=inner),)):
            return "neg", inner
        case Node(op):
            return op
        case Pair(Pair(a, b), c):
            return a, b, c
        case Pair(left=a, right=b):
            return a - b
        case Named(a=a):
            return "named", a
        case int(n) | str(n):
            return "plain", n


@case(lambda: (Color.RED,), lambda: (Color.BLUE,), lambda: (3,))
def values(x):
    match x:
        case Color.RED:
            return "red"
        case Color.BLUE:
            return "blue"
    return "no colour"


@case(lambda: (Pair(1, 2),))
def too_many_positional(x):
    match x:
        case Pair(a, b, c):
            return a, b, c


@case(lambda: (Node("x"),))
def same_attribute_twice(x):
    match x:
        case Node(a, op=b):
            return a, b


class NoArgs:
    pass


@case(lambda: (NoArgs(),))
def no_positional_patterns(x):
    match x:
        case NoArgs(1):
            return 1


@case(
    lambda: (("go", "north", 3),),
    lambda: (("go", "south", 12),),
    lambda: (("stop",),),
    lambda: (("quit", "now"),),
)
def commands(x):
    match x:
        case ("go", ("north" | "south") as where, int(n)) if n < 10:
            return where, n
        case ("go", where, _):
            return "too far", where
        case ("stop",):
            return "stopped"
        case [word, *_]:
            return "unknown", word


def evaluate(tree):
    match tree:
        case int() | float():
            return tree
        case ("+", *terms):
            return sum(evaluate(t) for t in terms)
        case ("*", a, b):
            return evaluate(a) * evaluate(b)
        case ("-", a):
            return -evaluate(a)
        case _:
            raise ValueError(f"can't evaluate {tree!r}")


@case(lambda: (("+", 1, ("*", 2, 3), ("-", 4.5)),), lambda: (("+", 1, "x"),))
def evaluator(tree):
    return evaluate(tree)


@case(lambda: (torch.ones(2, 3),), lambda: (torch.ones(4),), lambda: (5,))
def tensor_match(x):
    match x:
        case torch.Tensor(ndim=2, shape=(rows, columns)):
            return x.sum(0) * rows + columns
        case torch.Tensor():
            return x * 2
        case _:
            return "no tensor"


@case(lambda: (torch.ones(2), ("scale", 3.0)), lambda: (torch.ones(2), {"kind": "shift", "by": 2}))
def tensor_match_config(x, config):
    match config:
        case ("scale", factor):
            return x * factor
        case {"kind": "shift", "by": by}:
            return x + by
