"""Functions in functions: cells, defaults, decorators, lambdas."""

import functools

import lucerne as torch
from tests.capture_bytecode.cases import case

COUNT = 0
SCALE = 3.0


def _reset():
    global COUNT
    COUNT = 0


@case(lambda: (3,))
def counter(n):
    count = 0

    def step(by=1):
        nonlocal count
        count += by
        return count

    return [step() for _ in range(n)], step(10), count


@case(lambda: (4,))
def late_binding(n):
    fs = [lambda: k for k in range(n)]
    gs = [lambda k=k: k for k in range(n)]
    return [f() for f in fs], [g() for g in gs]


@case(lambda: ("a",))
def three_levels(x):
    def one(y):
        def two(z):
            def three():
                return x + y + z

            return three

        return two

    return one("b")("c")()


@case(lambda: (2,))
def shared_cell(n):
    value = n

    def get():
        return value

    def put(v):
        nonlocal value
        value = v

    before = get()
    put(before * 10)
    return before, get(), value


@case(lambda: (5,))
def decorator(n):
    calls = []

    def logged(prefix):
        def wrap(fn):
            @functools.wraps(fn)
            def inner(*args, **kwargs):
                calls.append((prefix, fn.__name__, args, kwargs))
                return fn(*args, **kwargs)

            return inner

        return wrap

    @logged("x")
    def add(a, b=2):
        "Adds."
        return a + b

    return add(n), add(n, b=3), calls, add.__doc__, add.__name__


@case(lambda: (5,))
def lambda_defaults_and_stars(n):
    f = lambda a, *b, c=n, **d: (a, b, c, sorted(d.items()))
    return f(1), f(1, 2, 3), f(1, c=2, z=3), f(*[1, 2], **{"c": 0})


@case(lambda: (), observe=lambda args: COUNT, reset=_reset)
def global_counter():
    global COUNT
    COUNT += 1
    COUNT = COUNT * 2 + len("ab")
    return COUNT


@case(lambda: ())
def delete_global():
    global TEMPORARY
    TEMPORARY = 5
    before = TEMPORARY
    del TEMPORARY
    try:
        return TEMPORARY
    except NameError as error:
        return before, str(error)


@case(lambda: ())
def cell_not_set_yet():
    def peek():
        return later

    try:
        peek()
    except NameError as error:
        text = str(error)
    later = 1
    return text, peek()


@case(lambda: (3,))
def delete_cell(x):
    def get():
        return x

    first = get()
    del x
    try:
        return get()
    except NameError as error:
        return first, str(error)


@case(lambda: (4,))
def argument_is_cell(n):
    def grow():
        nonlocal n
        n += 1
        return n

    return grow(), grow(), n


@case(lambda: (2, 3))
def closures_in_loop_share(a, b):
    made = []
    for k in range(3):

        def f(x, k=k):
            return a * x + b + k

        made.append(f)
    return [f(1) for f in made]


@case(lambda: (3,))
def partials(n):
    def f(a, b, c=0, *, d=0):
        return a, b, c, d

    g = functools.partial(f, n, d=1)
    h = functools.partial(g, 2, c=5)
    return g(1), h(), h(d=7), functools.reduce(lambda x, y: x * y, range(1, n + 2))


@case(lambda: (6,))
def memo_in_closure(n):
    memo = {}

    def fib(k):
        if k not in memo:
            memo[k] = k if k < 2 else fib(k - 1) + fib(k - 2)
        return memo[k]

    return fib(n), memo


@case(lambda: ())
def function_attributes():
    def f(x: int, y: "str" = "a", *, z: float = 1.0) -> bool:
        return bool(x)

    f.tag = 1
    return f.__annotations__, f.__defaults__, f.__kwdefaults__, f.tag, f.__qualname__


@case(lambda: ([3, 1, 2],))
def keys_that_close_over(xs):
    order = {1: "c", 2: "a", 3: "b"}
    calls = []

    def key(x):
        calls.append(x)
        return order[x]

    return sorted(xs, key=key), min(xs, key=key), max(xs, key=lambda x: -x), calls


@case(lambda: (torch.ones(3), 2.0))
def tensor_in_closure(x, scale):
    def layer(y):
        return y * scale + x

    return layer(layer(x))


@case(lambda: (torch.arange(3.0),))
def tensor_global_number(x):
    return x * SCALE


@case(lambda: (torch.arange(3.0),))
def compose_tensor_functions(x):
    def compose(*fs):
        def run(y):
            for f in fs:
                y = f(y)
            return y

        return run

    return compose(torch.exp, lambda y: y - 1, torch.relu)(x)


@case(lambda: (torch.ones(2),))
def tensor_accumulated_by_nonlocal(x):
    total = torch.zeros(2)

    def add(y):
        nonlocal total
        total = total + y

    for k in range(3):
        add(x * k)
    return total


@case(lambda: (torch.ones(2),))
def returns_closure_over_tensor(x):
    y = x * 2

    def later(z):
        return y + z

    return later(x), later.__closure__[0].cell_contents
