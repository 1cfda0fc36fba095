"""Closures, classes, generators, exceptions, context managers: Python around tensors, with breaks
in between so that what is alive there must be carried over."""

import contextlib
import dataclasses
import functools
import itertools
from collections import defaultdict, namedtuple

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F
from tests.capture_python.table import program

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class State:
    h: object
    n: int = 0
    tags: list = dataclasses.field(default_factory=list)


@program
def closure_over_a_local():
    def fn(x):
        scale = x.abs().max() + 1

        def scaled(t):
            return t / scale

        print("made")
        return scaled(x) + scaled(x * 2)

    return fn, None


@program
def closure_that_changes():
    def fn(x):
        total = x * 0

        def add(t):
            nonlocal total
            total = total + t
            return total

        add(x)
        print("once")
        add(x * 2)
        return total

    return fn, None


@program
def lambda_in_a_loop():
    def fn(x):
        fns = [lambda t: t * k for k in range(3)]  # noqa: B023 - the mistake this is about
        print(len(fns))
        return sum(f(x) for f in fns)

    return fn, None


@program
def partial_functions():
    def scaled(t, k, *, shift):
        return t * k + shift

    def fn(x):
        f = functools.partial(scaled, k=2.0, shift=x.mean())
        print("partial")
        return f(x)

    return fn, None


@program
def dataclass_across_a_break():
    def fn(x):
        state = State(x * 2)
        state.n += 1
        print(state.n)
        state.h = state.h + 1
        state.tags.append("seen")
        return state

    return fn, None


@program
def dataclass_made_and_used():
    def fn(x):
        state = State(x.sum(0), 3)
        again = dataclasses.replace(state, n=4)
        return again.h * again.n + state.n

    return fn, None


@program
def named_tuple_across_a_break():
    def fn(x):
        pair = Pair(x + 1, x - 1)
        print(type(pair).__name__)
        a, b = pair
        return Pair(a * b, pair.first)

    return fn, None


@program
def class_instance_across_a_break():
    class Point:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def dot(self):
            return (self.a * self.b).sum()

    def fn(x):
        p = Point(x * 2, x + 1)
        print("made")
        p.c = p.dot()
        return p.c + p.a.sum()

    return fn, None


@program
def slotted_class():
    class Point:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def fn(x):
        p = Point(x * 2, 3)
        print("made")
        p.b = p.b + 1
        return p.a * p.b

    return fn, None


@program
def operators_of_a_class():
    class Dual:
        def __init__(self, v, d):
            self.v, self.d = v, d

        def __mul__(self, other):
            return Dual(self.v * other.v, self.v * other.d + self.d * other.v)

        def __add__(self, other):
            return Dual(self.v + other.v, self.d + other.d)

    def fn(x):
        a = Dual(x, torch.ones(3))
        b = a * a + a
        print("dual")
        return (b * a).d

    return fn, None


@program
def generator_of_rows():
    def rows(t):
        for k in range(len(t)):
            yield t[k] * k

    def fn(x):
        total = x[0] * 0
        for r in rows(x):
            total = total + r
        return total

    return fn, None


@program
def generator_with_a_break_outside():
    def halves(t):
        while True:
            t = t / 2
            yield t

    def fn(x):
        out = []
        for k, h in enumerate(halves(x)):
            print(k)
            out.append(h)
            if k == 2:
                break
        return torch.stack(out)

    return fn, None


@program
def generator_with_a_break_inside():
    def steps(t):
        for k in range(3):
            t = t * 2
            print("inside", k)
            yield t + k

    def fn(x):
        return sum(steps(x))

    return fn, None


@program
def generator_consumed_twice():
    def fn(x):
        rows = (r * 2 for r in x)
        a = sum(rows)
        b = sum(rows)
        return a, b

    return fn, None


@program
def yield_from_and_send():
    def inner(t):
        got = yield t
        yield t * got

    def outer(t):
        yield from inner(t + 1)
        yield t

    def fn(x):
        g = outer(x)
        a = next(g)
        b = g.send(3)
        print("sent")
        c = next(g)
        return a + b + c

    return fn, None


@program
def comprehensions():
    def fn(x):
        squares = [r * r for r in x]
        by_index = {k: r.sum() for k, r in enumerate(squares)}
        print(sorted(by_index))
        return torch.stack([by_index[k] for k in sorted(by_index)])

    return fn, None


@program
def zip_enumerate_map():
    def fn(x):
        out = x[0] * 0
        for k, (a, b) in enumerate(zip(x, x.flip(0), strict=True)):
            out = out + a * b * k
        out = out + sum(map(lambda r: r * 2, x))  # noqa: C417
        print("end")
        return out + 1

    return fn, None


@program
def itertools_over_tensors():
    def fn(x):
        pairs = [(a * b).sum() for a, b in itertools.combinations(list(x)[:3], 2)]
        print(len(pairs))
        return torch.stack(pairs)

    return fn, None


@program
def try_except_around_an_op():
    def fn(x):
        try:
            y = x @ torch.ones(5)
        except RuntimeError:
            y = x.sum(1)
        return y * 2

    return fn, None


@program
def try_except_with_a_break():
    def fn(x):
        try:
            y = x * 2
            print("trying")
            y = y @ torch.ones(7)
        except RuntimeError as error:
            print(type(error).__name__)
            y = x.sum(1)
        finally:
            print("finally")
        return y + 1

    return fn, None


@program
def own_exception():
    class TooLargeError(Exception):
        def __init__(self, value):
            super().__init__("too large")
            self.value = value

    def check(t):
        y = t * 2
        if len(t) > 5:
            raise TooLargeError(y.sum())
        return y

    def fn(x):
        try:
            return check(x)
        except TooLargeError as error:
            return error.value + 1

    return fn, None


@program
def raises_to_the_caller():
    def fn(x):
        y = x * 2
        if len(x) > 5:
            raise ValueError(f"{len(x)} rows")
        return y

    return fn, None


@program
def raises_after_an_effect():
    log = []

    def fn(x):
        log.append(x.sum())
        if len(x) > 5:
            raise ValueError("many")
        return x + 1

    return fn, log


@program
def swallows_everything():
    def fn(x):
        try:
            k = (x * 2).sum().item()
        except Exception:
            k = 0.0
        return x + k

    return fn, None


@program
def finally_with_return():
    def fn(x):
        try:
            y = x * 2
            return y + 1
        finally:
            print("left")

    return fn, None


@program
def no_grad_around_a_break():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        with torch.no_grad():
            a = x * w
            print("no grad", torch.is_grad_enabled())
            b = a + w
        return b.requires_grad, b + x * w

    return fn, None


@program
def nested_grad_modes():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        with torch.no_grad():
            a = (x * w).sum()
            with torch.enable_grad():
                b = (x * w).sum()
                print(b.requires_grad)
            c = a + b
        return a.requires_grad, b, c.requires_grad

    return fn, None


@program
def set_grad_enabled_inside():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = x * w
        torch.set_grad_enabled(before)
        return y + x * w

    return fn, None


@program
def autocast_around_a_break():
    layer = nn.Linear(3, 3)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
            print(y.dtype)
            z = layer(y)
        return z.float().sum() * 0 + 1, z.dtype

    return fn, None


@program
def own_context_manager():
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(f"in {name}")
        try:
            yield name
        finally:
            log.append(f"out {name}")

    def fn(x):
        with noted("a") as name:
            y = x * 2
            print(name)
            z = y + 1
        return z

    return fn, log


@program
def class_context_manager():
    class Timer:
        depth = 0

        def __enter__(self):
            self.depth += 1
            return self

        def __exit__(self, *exc):
            self.depth -= 1
            return False

    timer = Timer()

    def fn(x):
        with timer as t:
            y = x * 2
            print(t.depth)
            y = y + t.depth
        return y * 2

    return fn, lambda: timer.depth


@program
def exit_swallows():
    class Quiet:
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return True

    def fn(x):
        y = x
        with Quiet():
            y = x * 2
            raise KeyError("gone")
        return y + 1

    return fn, None


@program
def defaultdict_of_tensors():
    def fn(x):
        groups = defaultdict(list)
        for k, r in enumerate(x):
            groups[k % 2].append(r * 2)
        print(sorted(groups))
        return torch.stack([sum(v) for _, v in sorted(groups.items())])

    return fn, None


@program
def star_arguments():
    def add(*parts, scale=1.0, **named):
        total = sum(parts) * scale
        for k in sorted(named):
            total = total + named[k]
        return total

    def fn(x):
        parts = [x, x * 2]
        print(len(parts))
        return add(*parts, scale=2.0, b=x.mean(), a=x.sum())

    return fn, None


@program
def unpacking():
    def fn(x):
        first, *rest = x
        a, (b, c) = first, (rest[0], rest[-1])
        print(len(rest))
        return a * b + c

    return fn, None


@program
def slices_and_steps():
    def fn(x):
        y = x[1:, ::2] * 2
        print(tuple(y.shape))
        y[0] = 1.0
        return y[:-1].sum(), y

    return fn, None


@program
def isinstance_and_type():
    def fn(x):
        y = x * 2 if isinstance(x, torch.Tensor) else 0
        if type(y) is torch.Tensor and hasattr(y, "shape"):
            return y + y.dim()
        return None

    return fn, None


@program
def tensor_as_a_dict_key():
    w = torch.ones(3, requires_grad=True)
    names = {w: "w"}

    def fn(x):
        local = {x: 1, w: 2}
        return x * local[x] + w.detach() * local[w], names[w]

    return fn, None


@program
def match_statement():
    def fn(x):
        match x.shape:
            case (4, k):
                y = x * k
            case (n, _):
                y = x + n
        print("matched")
        return y

    return fn, None


@program
def walrus_and_conditional():
    def fn(x):
        if (n := len(x)) > 4:
            return x * n
        return x + n if n else x

    return fn, None


@program
def recursive_structure():
    def total(tree):
        if isinstance(tree, dict):
            return sum(total(v) for v in tree.values())
        if isinstance(tree, (list, tuple)):
            return sum(map(total, tree))
        return tree.sum()

    def fn(x):
        tree = {"a": [x, x * 2], "b": (x + 1, {"c": x})}
        print("tree")
        return total(tree)

    return fn, None


@program
def super_and_inheritance():
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            return self.lin(x)

    class Derived(Base):
        def forward(self, x):
            y = super().forward(x)
            print("derived")
            return y.tanh()

    model = Derived()
    return lambda x: model(x), model


@program
def module_list_and_dict():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 2)})

        def forward(self, x):
            for k, layer in enumerate(self.layers):
                x = layer(x).relu()
                print("layer", k)
            return {name: head(x) for name, head in self.heads.items()}

    model = Net()
    return lambda x: model(x), model


@program
def hooks_on_modules():
    seen = []
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda m, args, out: seen.append(out.detach()) or out * 2)

    def fn(x):
        return model(x).sum()

    return fn, seen


@program
def ends_of_loops_carry_state():
    def fn(x):
        best, at = None, -1
        for k in range(len(x)):
            score = x[k].sum()
            if best is None or score > best:
                best, at = score, k
        return best, at

    return fn, None


@program
def string_formatting_with_sizes():
    def fn(x):
        name = "x".join(map(str, x.shape))
        table = {name: x * 2}
        print(*table)
        return table

    return fn, None


@program
def functional_layers():
    w = torch.ones(2, 3, requires_grad=True)

    def fn(x):
        y = F.linear(x, w)
        print("linear")
        return F.softmax(y, dim=-1)

    return fn, None


@program
def iterator_kept_across():
    def fn(x):
        it = iter(x)
        a = next(it) * 2
        print("first")
        b = next(it) + a
        rest = list(it)
        return b, len(rest)

    return fn, None


@program
def deep_call_chain():
    def make(k):
        if k == 0:
            return lambda t: t + 1
        below = make(k - 1)
        return lambda t: below(t * 1.1) + k

    chain = make(6)

    def fn(x):
        y = chain(x)
        print("chain")
        return chain(y)

    return fn, None


@program
def many_values_alive():
    def fn(x):
        a, b, c, d = x + 1, x * 2, x - 3, x / 4
        e = [a, b, (c, d)]
        print("alive")
        f = {"k": e, "a": a}
        return f["k"][2][1] + a * b - c, e[0] is f["a"]

    return fn, None


@program
def returns_its_argument():
    def fn(x):
        y = x * 2
        print("same")
        return x, y

    return fn, None


@program
def views_across_a_break():
    def fn(x):
        y = (x * 2).clone()
        v = y[0]
        print("view")
        v.add_(1)
        return y, v

    return fn, None
