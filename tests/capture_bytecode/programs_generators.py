"""Generators: yield, send, throw, close, yield from; generator expressions."""

import itertools

import lucerne as torch
from tests.capture_bytecode.cases import case


def count(n, log=None):
    try:
        for k in range(n):
            yield k
    finally:
        if log is not None:
            log.append(f"end {n}")


@case(lambda: (5,))
def simple(n):
    total = 0
    for k in count(n):
        total += k
    return total, list(count(3)), sum(count(4)), tuple(count(2)), max(count(6))


@case(lambda: ([],))
def broken_off(log):
    for k in count(10, log):
        if k == 3:
            break
    log.append("after")
    g = count(3, log)
    next(g)
    g.close()
    log.append("closed")
    return next(g, "nothing")


@case(lambda: (torch.ones(2),))
def looks_at_what_it_extends(x):
    y = [x]
    y.extend(y[-1] * 2 + len(y) for _ in range(3))
    z = [1]
    z.extend(map(lambda k: z[-1] + k, count(3)))
    try:
        z.extend(10 // (2 - k) for k in range(4))
    except ZeroDivisionError:
        z.append("stopped")
    return y, z


def echo(log):
    got = yield "ready"
    while got != "stop":
        log.append(got)
        got = yield got * 2
    return "done"


@case(lambda: ([],))
def send_values(log):
    g = echo(log)
    found = [next(g), g.send(1), g.send("a")]
    try:
        g.send("stop")
    except StopIteration as end:
        found.append(end.value)
    return found


@case(lambda: ())
def send_to_fresh():
    g = count(3)
    try:
        g.send(1)
    except TypeError as error:
        return str(error), next(g)


def catcher(log):
    while True:
        try:
            x = yield len(log)
            log.append(("got", x))
        except ValueError as error:
            log.append(("caught", str(error)))
        finally:
            log.append("finally")


@case(lambda: ([],))
def throw_into_generator(log):
    g = catcher(log)
    found = [next(g), g.throw(ValueError("v")), g.send(5)]
    try:
        g.throw(KeyError("k"))
    except KeyError as error:
        found.append(str(error))
    return found, next(g, "dead")


@case(lambda: ())
def throw_forms():
    def g():
        while True:
            try:
                yield 1
            except Exception as error:
                yield f"{type(error).__name__}: {error}"

    one = g()
    next(one)
    found = [one.throw(ValueError("a"))]
    next(one)
    found.append(one.throw(KeyError("b")))
    fresh = g()
    try:
        fresh.throw(OSError("early"))
    except OSError as error:
        found.append(str(error))
    return found


def stubborn():
    try:
        yield 1
    except GeneratorExit:
        yield 2


@case(lambda: ())
def ignores_close():
    g = stubborn()
    next(g)
    try:
        g.close()
    except RuntimeError as error:
        return str(error)


def leaf(log):
    try:
        got = yield "leaf"
        log.append(("leaf got", got))
        yield "leaf again"
    except ValueError as error:
        log.append(("leaf caught", str(error)))
        yield "leaf recovered"
    finally:
        log.append("leaf end")
    return "leaf result"


def branch(log):
    result = yield from leaf(log)
    log.append(("branch", result))
    yield from [10, 20]
    return "branch result"


@case(lambda: ([],))
def yield_from(log):
    def root():
        result = yield from branch(log)
        log.append(("root", result))

    return list(root())


@case(lambda: ([],))
def send_through_yield_from(log):
    g = branch(log)
    return next(g), g.send("hello"), next(g), next(g), next(g, "end")


@case(lambda: ([],))
def throw_through_yield_from(log):
    g = branch(log)
    found = [next(g), g.throw(ValueError("v")), next(g), next(g)]
    h = branch(log)
    next(h)
    try:
        h.throw(KeyError("k"))
    except KeyError:
        found.append("out")
    return found


@case(lambda: ([],))
def close_through_yield_from(log):
    g = branch(log)
    next(g)
    g.close()
    return next(g, "closed")


@case(lambda: ([],))
def throw_through_native_iterator(log):
    def over(xs):
        try:
            yield from xs
        except ValueError as error:
            log.append(str(error))
            yield "recovered"

    g = over([1, 2, 3])
    return next(g), g.throw(ValueError("v")), list(g)


@case(lambda: ())
def raises_stop_iteration():
    def g():
        yield 1
        raise StopIteration("inside")

    found = []
    try:
        for x in g():
            found.append(x)
    except RuntimeError as error:
        return found, str(error), type(error.__cause__).__name__


@case(lambda: ())
def already_running():
    def g():
        try:
            next(me)
        except ValueError as error:
            yield str(error)

    me = g()
    return list(me)


@case(lambda: (20,))
def pipeline(n):
    def evens(xs):
        for x in xs:
            if x % 2 == 0:
                yield x

    def squares(xs):
        for x in xs:
            yield x * x

    def until(xs, limit):
        for x in xs:
            if x > limit:
                return
            yield x

    return list(until(squares(evens(range(n))), 150))


@case(lambda: (5,))
def generator_expressions(n):
    g = (a * b for a in range(n) for b in range(a) if a != b + 1)
    first = next(g)
    return (
        first,
        list(g),
        any(x > 2 for x in range(n)),
        all(x < 9 for x in range(n)),
        dict((k, k) for k in "ab"),
    )


@case(lambda: ())
def infinite_with_islice():
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    return (
        list(itertools.islice(naturals(), 2, 8, 2)),
        list(zip(naturals(), "abc")),
        list(itertools.takewhile(lambda x: x < 3, naturals())),
    )


@case(lambda: ())
def recursive_tree():
    tree = (1, (2, (3,), 4), ((5,), 6))

    def walk(node):
        for child in node:
            if isinstance(child, tuple):
                yield from walk(child)
            else:
                yield child

    return list(walk(tree))


@case(lambda: ())
def star_and_unpack_generators():
    def g():
        yield 1
        yield 2
        yield 3

    a, b, c = g()
    first, *rest = g()
    return [*g(), *g()], a, b, c, first, rest, print(*g()), max(*g())


@case(lambda: ())
def unpack_wrong_number():
    a, b = count(5)
    return a, b


@case(lambda: ([],))
def two_generators_interleaved(log):
    a, b = count(3, log), count(4, log)
    found = []
    for x in a:
        found.append((x, next(b)))
    found.append(next(b))
    return found, list(b)


@case(lambda: ())
def generator_that_handles():
    def g():
        try:
            yield 1
            raise ValueError("v")
        except ValueError as error:
            yield str(error)
        yield 3

    def h():
        try:
            raise KeyError("outer")
        except KeyError:
            for x in g():
                yield x
            raise

    found = []
    try:
        for x in h():
            found.append(x)
    except KeyError as error:
        found.append(str(error))
    return found


@case(lambda: ())
def generator_method_and_class():
    class Tree:
        def __init__(self, value, *children):
            self.value, self.children = value, children

        def __iter__(self):
            yield self.value
            for c in self.children:
                yield from c

    t = Tree(1, Tree(2, Tree(3)), Tree(4))
    return list(t), [x * 2 for x in t], sum(t), 3 in t


@case(lambda: ())
def return_value_of_generator():
    def g():
        yield 1
        return "value"

    def h():
        got = yield from g()
        yield got

    return list(h())


@case(lambda: ([1, 2, 3, 4],))
def coroutine_average(xs):
    def averager():
        total, n, average = 0, 0, None
        while True:
            x = yield average
            if x is None:
                return average, n
            total += x
            n += 1
            average = total / n

    g = averager()
    next(g)
    found = [g.send(x) for x in xs]
    try:
        g.send(None)
    except StopIteration as end:
        return found, end.value


@case(lambda: (torch.arange(6.0).reshape(3, 2),))
def tensor_generator(x):
    def rows(t):
        for k in range(t.shape[0]):
            yield t[k] * (k + 1)

    total = torch.zeros(2)
    for row in rows(x):
        total = total + row
    return total, torch.stack(list(rows(x)))


@case(lambda: (torch.ones(3), 4))
def tensor_schedule(x, n):
    def rates():
        rate = 1.0
        while True:
            yield rate
            rate *= 0.5

    for _, rate in zip(range(n), rates()):
        x = x - rate * x * 0.1
    return x


@case(lambda: (torch.arange(4.0),))
def tensor_sum_of_generator(x):
    return sum(x * k for k in range(4)), torch.cat([x[None] + k for k in count(2)])
