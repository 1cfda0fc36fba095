"""Calling: arguments of all kinds, wrong arguments, calls through objects."""

import functools
import importlib
import inspect
import math
import operator
import os.path
import sys
import warnings

import lucerne as torch
from tests.capture_bytecode.cases import case


def everything(a, b, /, c, d=4, *rest, e, f=6, **named):
    return a, b, c, d, rest, e, f, sorted(named.items())


@case(lambda: ())
def all_kinds_of_arguments():
    return (
        everything(1, 2, 3, e=5),
        everything(1, 2, c=3, e=5, z=0),
        everything(1, 2, 3, 4, 5, 6, e=0, f=0, g=0),
        everything(*(1, 2, 3), **{"e": 1}),
        everything(1, *[2], 3, *[4], e=1, **{"a": 5}),
    )


@case(
    lambda: ((), {}),
    lambda: ((1, 2), {"e": 1}),
    lambda: ((1, 2, 3), {}),
    lambda: ((1, 2, 3), {"e": 1, "c": 2}),
    lambda: ((1,), {"b": 2, "c": 3, "e": 1}),
)
def wrong_arguments(args, kwargs):
    return everything(*args, **kwargs)


def no_arguments():
    return 0


@case(lambda: ((1,), {}), lambda: ((), {"x": 1}))
def too_many_arguments(args, kwargs):
    return no_arguments(*args, **kwargs)


@case(lambda: (5,))
def star_of_non_iterable(n):
    return everything(*n)


@case(lambda: (5,))
def stars_of_non_mapping(n):
    return everything(**n)


@case(lambda: ({"a": 1}, {"a": 2}))
def keyword_twice(p, q):
    return dict(**p, **q)


@case(lambda: (5,), lambda: ("text",), lambda: (None,))
def not_callable(x):
    return x(1)


@case(lambda: ([3, 1, 2],))
def builtins_with_functions(xs):
    return (
        sorted(xs, key=lambda x: -x, reverse=True),
        list(map(str, xs)),
        functools.reduce(operator.add, xs),
        max(xs, default=0),
        min([], default="none"),
        list(filter(lambda x: x > 1, xs)),
        sum(xs, 10),
        next(iter(xs)),
        isinstance(xs, (list, tuple)),
        callable(len),
        abs(-3),
        divmod(7, 2),
        round(2.567, 2),
        pow(2, 5, 7),
    )


@case(lambda: (3,))
def locals_and_globals(n):
    k = n + 1
    found = dict(locals())
    return found, "everything" in globals(), sorted(vars()), dir()


@case(lambda: (4,))
def eval_and_exec(n):
    space = {}
    exec("y = 5", space)
    return eval("n * 2"), eval("a + 1", {"a": n}), space["y"], eval(compile("n + 1", "<x>", "eval"))


@case(lambda: (2.0,))
def imports_inside(x):
    import math as m
    from collections import OrderedDict, deque
    from os.path import join as j

    import os.path

    return m.sqrt(x), OrderedDict(a=1), deque([1]), j("a", "b"), os.path.basename("a/b")


@case(lambda: ())
def import_errors():
    found = []
    try:
        import there_is_no_such_module
    except ImportError as error:
        found.append((type(error).__name__, str(error), error.name))
    try:
        from math import no_such_name
    except ImportError as error:
        found.append((type(error).__name__, str(error)[:60], error.name))
    return found


@case(lambda: ())
def modules_by_name():
    return (
        importlib.import_module("math").pi,
        math.floor(2.5),
        sys.modules["math"] is math,
        os.path.join("a", "b"),
    )


@case(lambda: (3,))
def call_results_called(n):
    def adder(a):
        return lambda b: lambda c: a + b + c

    return adder(n)(2)(1), (lambda: 5)(), [len, sum][1]([1, 2]), {"f": max}["f"](1, 2)


@case(lambda: (3,))
def default_arguments_evaluated_once(n):
    log = []

    def f(x=log.append("made") or n, acc=[]):
        acc.append(x)
        return list(acc)

    return f(), f(5), f(x=6), log


class Callme:
    def __init__(self, k):
        self.k = k

    def __call__(self, *args, **kwargs):
        return self.k, args, kwargs

    @functools.cached_property
    def costly(self):
        self.k += 100
        return self.k

    @functools.singledispatchmethod
    def kind(self, x):
        return "other"

    @kind.register
    def _(self, x: int):
        return "int"

    half = functools.partialmethod(__call__, "half")


@case(lambda: (Callme(1),))
def callable_objects(c):
    return c(1, a=2), c.half(2), c.costly, c.costly, c.kind(1), c.kind("a"), list(map(c, [1]))


@functools.lru_cache(maxsize=None)
def cached(n):
    return n if n < 2 else cached(n - 1) + cached(n - 2)


@case(lambda: (20,), reset=cached.cache_clear)
def lru_cached(n):
    return cached(n), cached.cache_info().hits > 0


@functools.singledispatch
def describe(x):
    return "something"


@describe.register
def _(x: int):
    return f"int {x}"


@describe.register(list)
def _(x):
    return [describe(y) for y in x]


@case(lambda: ())
def single_dispatch():
    return describe(3), describe("a"), describe([1, "b"])


@case(lambda: ())
def warnings_at_the_right_line():
    def deeper():
        warnings.warn("here", stacklevel=1)
        warnings.warn("caller", DeprecationWarning, stacklevel=2)

    warnings.warn("first")
    deeper()


@case(lambda: ())
def introspection():
    def f(a, b=1, *c, **d):
        "Doc."

    return (
        str(inspect.signature(f)),
        inspect.isfunction(f),
        f.__code__.co_varnames,
        f.__doc__,
        callable(f),
    )


@case(lambda: (5,))
def trampolines(n):
    def bounce(f, *args):
        result = f(*args)
        while callable(result):
            result = result()
        return result

    def down(k, acc):
        return acc if k == 0 else lambda: down(k - 1, acc + k)

    return bounce(down, n, 0)


@case(lambda: ("lower",))
def methods_by_name(name):
    return (
        getattr("ABC", name)(),
        operator.methodcaller("split", "-")("a-b"),
        operator.attrgetter("real")(5),
        operator.itemgetter(1, 0)("xy"),
        str.upper("q"),
        (5).__add__(2),
        "{}".format(3),
    )


@case(lambda: (torch.arange(4.0), {"dim": 0, "keepdim": True}))
def tensor_keywords(x, options):
    return (
        x.sum(**options),
        torch.sum(x, dim=0),
        x.reshape(*[2, 2]).mean(1),
        torch.clamp(x, min=1, max=2),
    )


@case(lambda: (torch.arange(4.0),))
def tensor_functions_as_values(x):
    table = {"relu": torch.relu, "double": lambda y: y * 2, "method": torch.Tensor.exp}
    for name in ("double", "relu", "method"):
        x = table[name](x - 1)
    return x


@case(lambda: ([torch.ones(2), torch.arange(2.0)],))
def tensor_map_and_reduce(xs):
    return (
        functools.reduce(torch.add, xs),
        list(map(lambda t: t * 2, xs)),
        sum(xs),
        torch.stack(sorted(xs, key=lambda t: float(t.sum()))),
    )


@case(lambda: (torch.ones(2), 3))
def tensor_recursion(x, n):
    def power(y, k):
        if k == 0:
            return torch.ones_like(y)
        half = power(y * 2, k - 1)
        return half * y

    return power(x, n)
