"""What newer Pythons can write. Older ones can't even read it, so it stands here as text, each piece
under the version that knows it."""

from __future__ import annotations

import sys
from typing import Any

import lucerne as torch
from tests.capture_bytecode.cases import case

SINCE_3_14 = """
from string.templatelib import Interpolation, Template


@case(lambda: (1,), lambda: ("a",), lambda: (None,))
def except_without_brackets(x):
    try:
        return x + 1, {1: 2}[x], [][x]
    except TypeError, KeyError:
        return "either"
    except IndexError:
        return "index"


@case(lambda: (torch.arange(3.0), 1), lambda: (torch.arange(3.0), 0))
def tensor_except_without_brackets(x, k):
    try:
        y = x / [1, 2][2 * k]
    except IndexError, ZeroDivisionError:
        y = -x
    return y + 1


def shown(template):
    found = []
    for part in template:
        if isinstance(part, Interpolation):
            found.append((part.value, part.expression, part.conversion, part.format_spec))
        else:
            found.append(part)
    return found


@case(lambda: (3, "abc"))
def template_strings(n, name):
    width = 5
    made = t"{n}a{name!r}{n + 1:>{width}} and {name!s:x}{{}}"
    return shown(made), made.strings, made.values, shown(t""), shown(t"only text")


@case(lambda: (3,))
def template_concatenated(n):
    both = t"a{n}" + t"{n}b"
    return isinstance(both, Template), shown(both), shown(t"x" t"{n}")


@case(lambda: (torch.arange(3.0),))
def tensor_template(x):
    made = t"sum {x.sum()} of {x * 2}"
    return sum(v.sum() for v in made.values) + 1


@case(lambda: (2,))
def annotations_deferred(n):
    def scaled(x: Unknown, k: n = 2) -> "also unknown":
        return x * k * n

    return scaled(3), scaled.__defaults__, scaled.__annotate__ is not None


@case(lambda: (2,))
def annotations_read(n):
    def scaled(x: int, k: n) -> list[int]:
        return x

    return scaled.__annotations__


@case(lambda: (2,))
def annotations_that_fail(n):
    def scaled(x: Unknown):
        return x

    return scaled.__annotations__


@case(lambda: (torch.arange(3.0),))
def tensor_annotations_of_a_class(x):
    class Record:
        scale: Unknown = 2
        shift: int = 1

        def of(self, x: Unknown) -> Later:
            return x * self.scale + self.shift

    return Record().of(x)


@case(lambda: (torch.arange(4.0),))
def tensor_any_all_tuple(x):
    parts = tuple(x * k for k in range(3))
    if any(k > 1 for k in range(3)) and all(k < 5 for k in range(3)):
        return sum(parts)
    return x
"""
SINCE_3_15 = """
lazy import decimal
lazy from fractions import Fraction as Ratio

LAZY = ("decimal", "Ratio")
UNREAD = {name: globals()[name] for name in LAZY}


def forget():
    globals().update(UNREAD)


@case(lambda: ("1.5",), reset=forget)
def lazy_imports(text):
    return decimal.Decimal(text) + 1, Ratio(text)


@case(lambda: ([],), reset=forget)
def lazy_import_in_a_branch(log):
    if log:
        return decimal.Decimal(1)
    return str(type(globals()["decimal"]))


@case(lambda: (torch.arange(3.0),), reset=forget)
def tensor_lazy_imports(x):
    return x * float(Ratio(3, 2)) + int(decimal.Decimal(2))


@case(lambda: ([[1, 2], [], (3,)],))
def unpacking_in_comprehensions(xs):
    return [*x for x in xs], {*x for x in xs}, {**{y: y for y in x} for x in xs}, list(*x for x in xs)


@case(lambda: ([torch.arange(2.0), torch.ones(2)],))
def tensor_unpacking_in_comprehensions(xs):
    both = [*(x, x + 1) for x in xs]
    return sum(both)


@case(lambda: ([1, 2, 3],))
def list_and_set_of_generators(xs):
    return list(x + 1 for x in xs), set(x % 2 for x in xs), tuple(x for x in xs if x > 1)


@case(lambda: (5,))
def generator_expression_over_no_iterable(n):
    return sum(x for x in n)
"""
PIECES = {(3, 14): SINCE_3_14, (3, 15): SINCE_3_15}
SPACES: list[dict[str, Any]] = []


def _define(version: tuple[int, int], source: str) -> None:
    file = __file__.replace(".py", f"_{version[0]}{version[1]}.py")
    space = {"__name__": __name__, "case": case, "torch": torch}
    exec(compile(source, file, "exec"), space)
    SPACES.append(space)


for _version, _source in PIECES.items():
    if sys.version_info >= _version:
        _define(_version, _source)
