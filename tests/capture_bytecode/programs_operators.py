"""Arithmetic, comparison, identity, membership: every operator."""

import decimal
import fractions
import operator

import lucerne as torch
from tests.capture_bytecode.cases import case


@case(lambda: (7, 3), lambda: (-7, 3), lambda: (7.5, -2))
def arithmetic(a, b):
    return a + b, a - b, a * b, a / b, a // b, a % b, a**2, -a, +a, abs(a), divmod(a, b)


@case(lambda: (12, 10))
def bits(a, b):
    return a & b, a | b, a ^ b, a << 2, a >> 1, ~a


@case(lambda: (5, 3))
def in_place(a, b):
    found = []
    x = a
    x += b
    found.append(x)
    x -= 1
    found.append(x)
    x *= b
    found.append(x)
    x //= 2
    found.append(x)
    x **= 2
    found.append(x)
    x %= 7
    found.append(x)
    x <<= 3
    found.append(x)
    x |= 1
    found.append(x)
    x &= 13
    found.append(x)
    x ^= 6
    found.append(x)
    x >>= 1
    found.append(x)
    x /= 2
    return found, x


@case(
    lambda: (1, 2),
    lambda: (2, 2),
    lambda: ("a", "b"),
    lambda: ((1, 2), (1, 3)),
    lambda: (1.0, float("nan")),
)
def comparisons(a, b):
    return a < b, a <= b, a == b, a != b, a > b, a >= b, a is b, a is not b


@case(lambda: (1, "a"), lambda: (None, 1), lambda: ([], {}))
def unorderable(a, b):
    return a < b


@case(lambda: (1, "a"), lambda: ("a", 1), lambda: ([], 1), lambda: (None, None), lambda: ({}, []))
def unaddable(a, b):
    return a + b


@case(lambda: ({}, 2))
def unpowerable(a, b):
    a **= b


@case(lambda: (0, 1), lambda: (0.0, 2.0))
def division_by_zero(a, b):
    return b % a


@case(lambda: ("x",), lambda: (None,))
def bad_unary(x):
    return -x


@case(lambda: (2, [1, 2, 3]), lambda: (5, {5: 1}), lambda: ("ell", "hello"), lambda: (1, 5))
def membership(x, xs):
    return x in xs, x not in xs


@case(lambda: ())
def other_numbers():
    return (
        fractions.Fraction(1, 3) + 1,
        decimal.Decimal("0.1") * 3,
        1 + 2j,
        (1 + 2j) * 1j,
        10**30,
        0x1F,
        1_000,
        round(2.5),
        int("ff", 16),
        True + True,
    )


class Reflected:
    def __init__(self, name):
        self.name = name

    def __radd__(self, other):
        return f"{getattr(other, 'name', other)}+{self.name}"

    def __rmatmul__(self, other):
        return f"{other}@{self.name}"

    def __eq__(self, other):
        return NotImplemented

    __hash__ = None

    def __gt__(self, other):
        return "gt"


class Sub(Reflected):
    def __add__(self, other):
        return NotImplemented

    def __radd__(self, other):
        return "sub first"


@case(lambda: (Reflected("r"), Sub("s")))
def reflected(r, s):
    found = [1 + r, [1] @ r, r == 1, r != 1, r == r, 1 < r, r > 5]
    try:
        s + s
    except TypeError as error:
        found.append(str(error))
    try:
        r + 1
    except TypeError as error:
        found.append(str(error))
    return found, s + r, r + s


class Inverse:
    def __invert__(self):
        return "~"

    def __pos__(self):
        return "+"

    def __neg__(self):
        return "-"

    def __abs__(self):
        return "abs"

    def __index__(self):
        return 2

    def __float__(self):
        return 2.5

    def __pow__(self, k, m=None):
        return ("pow", k, m)

    def __rpow__(self, k):
        return ("rpow", k)

    def __divmod__(self, k):
        return ("divmod", k)

    def __round__(self, n=None):
        return ("round", n)


@case(lambda: (Inverse(),))
def unary_of_class(x):
    return (
        ~x,
        +x,
        -x,
        abs(x),
        [1, 2, 3][x],
        float(x),
        x**2,
        2**x,
        pow(x, 2, 3),
        divmod(x, 1),
        round(x, 1),
        hex(x),
    )


class Ordered:
    def __init__(self, k):
        self.k = k

    def __lt__(self, other):
        if not isinstance(other, Ordered):
            return NotImplemented
        return self.k < other.k

    def __le__(self, other):
        return ["not", "a", "bool"]


@case(lambda: (Ordered(1), Ordered(2)))
def rich_comparison(a, b):
    found = [a < b, a > b, a <= b, min(b, a) is a, sorted([b, a])[0] is a]
    if a <= b:
        found.append("truthy")
    try:
        a < 5
    except TypeError as error:
        found.append(str(error))
    return found


@case(lambda: (3, 4))
def operator_module(a, b):
    return (
        operator.add(a, b),
        operator.getitem([1, 2], 1),
        operator.iadd([1], [2]),
        operator.truth([]),
        operator.is_(a, a),
        operator.concat("a", "b"),
        operator.index(5),
    )


@case(lambda: (torch.arange(1, 4).float(), torch.tensor([2.0, 2.0, 2.0])))
def tensor_operators(a, b):
    return (
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        -a,
        +a,
        abs(a - 2),
        a @ b,
        2 + a,
        2 - a,
        2 / a,
        2**a,
    )


@case(lambda: (torch.arange(3.0), 1.0))
def tensor_comparisons(a, b):
    return (
        a < b,
        a <= b,
        a == b,
        a != b,
        a > b,
        a >= b,
        (a > 0) & (a < 2),
        ~(a > 0),
        (a > 0) | (a < 1),
        (a > 0) ^ (a > 1),
    )


@case(lambda: (torch.tensor([12, 10]), torch.tensor([10, 3])))
def tensor_bits(a, b):
    return a & b, a | b, a ^ b, a << 1, a >> 1, ~a, a // 3, a % 3


@case(lambda: (torch.arange(3.0),))
def tensor_in_place_operators(a):
    b = a
    a += 1
    a -= 0.5
    a *= 2
    a /= 4
    a **= 2
    return a is b, a


@case(lambda: (torch.arange(3.0), [1]))
def tensor_identity(a, xs):
    xs.append(a)
    return a is xs[1], a is not a, any(x is a for x in xs), id(a) == id(xs[1])
