"""with statements."""

import contextlib

import lucerne as torch
from tests.capture_bytecode.cases import case


class Guard:
    def __init__(self, log, swallow=(), name="g"):
        self.log, self.swallow, self.name = log, swallow, name

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None} {trace is not None}")
        return kind is not None and issubclass(kind, self.swallow)


@case(lambda: ([],))
def plain_with(log):
    with Guard(log) as g:
        log.append(g.name)
    return log[-1]


@case(lambda: ([],), lambda: ([],))
def with_swallows(log):
    with Guard(log, swallow=(ValueError,)):
        raise ValueError("swallowed")
    log.append("after")


@case(lambda: ([],))
def with_lets_through(log):
    with Guard(log, swallow=(KeyError,)):
        raise ValueError("through")


@case(lambda: ([],))
def several_items(log):
    with (
        Guard(log, name="a") as a,
        Guard(log, (ZeroDivisionError,), name="b"),
        Guard(log, name="c"),
    ):
        1 / 0
    return a.name


@case(lambda: ([],))
def with_return_and_break(log):
    for k in range(3):
        with Guard(log, name=str(k)):
            if k == 0:
                continue
            if k == 1:
                break
    with Guard(log, name="r"):
        return k


@contextlib.contextmanager
def tagged(log, name, swallow=False):
    log.append(f"<{name}>")
    try:
        yield name.upper()
    except ValueError as error:
        log.append(f"caught {error}")
        if not swallow:
            raise
    finally:
        log.append(f"</{name}>")


@case(lambda: ([],))
def contextmanager_function(log):
    with tagged(log, "a") as a, tagged(log, "b") as b:
        log.append(a + b)


@case(lambda: ([],), lambda: ([],))
def contextmanager_swallows(log):
    with tagged(log, "a", swallow=True):
        raise ValueError("v")
    return "after"


@case(lambda: ([],))
def contextmanager_reraises(log):
    with tagged(log, "a"):
        raise ValueError("v")


@case(lambda: ([],))
def contextmanager_other_error(log):
    with tagged(log, "a"):
        raise KeyError("k")


@case(lambda: ([],))
def contextmanager_as_decorator(log):
    @tagged(log, "d")
    def f(x):
        log.append(x)
        return x * 2

    return f(1), f(2)


@case(lambda: ([],))
def exit_stack(log):
    with contextlib.ExitStack() as stack:
        for k in range(3):
            stack.enter_context(tagged(log, f"s{k}"))
        stack.callback(log.append, "callback")
        log.append("body")
    return len(log)


@case(lambda: ([],))
def exit_raises(log):
    class Bad:
        def __enter__(self):
            return 1

        def __exit__(self, *args):
            raise KeyError("in exit")

    try:
        with Bad():
            raise ValueError("in body")
    except KeyError as error:
        return type(error.__context__).__name__


@case(lambda: ([],))
def enter_raises(log):
    class Bad:
        def __enter__(self):
            raise KeyError("in enter")

        def __exit__(self, *args):
            log.append("never")

    with Guard(log):
        with Bad():
            log.append("never")


@case(lambda: (5,))
def not_a_manager(x):
    with x:
        return 1


class HalfManager:
    def __enter__(self):
        return self


@case(lambda: ())
def half_a_manager():
    with HalfManager():
        return 1


@case(lambda: ([],))
def nested_with_try(log):
    try:
        with Guard(log, name="outer"):
            try:
                with Guard(log, (KeyError,), name="inner"):
                    raise KeyError("k")
                log.append("between")
                raise OSError("o")
            finally:
                log.append("finally")
    except OSError as error:
        log.append(str(error))


@case(lambda: ())
def nullcontext_and_closing():
    class Door:
        closed = False

        def close(self):
            self.closed = True

    door = Door()
    with contextlib.nullcontext(5) as five, contextlib.closing(door) as same:
        inside = same.closed
    return five, inside, door.closed


@case(lambda: ())
def redirect():
    print("seen")
    with contextlib.redirect_stdout(None):
        print("not seen")
    print("seen again", end=".")


@case(lambda: (torch.ones(2, requires_grad=True),))
def tensor_no_grad(x):
    with torch.no_grad():
        y = x * 2
    z = x * 3
    with torch.enable_grad():
        w = x * 4
    return y.requires_grad, z.requires_grad, w.requires_grad, torch.is_grad_enabled()


@case(lambda: (torch.ones(2, requires_grad=True),))
def tensor_no_grad_with_error(x):
    try:
        with torch.no_grad():
            raise ValueError("v")
    except ValueError:
        return torch.is_grad_enabled(), (x * 2).requires_grad


@case(lambda: ([], torch.arange(3.0)))
def tensor_in_own_context(log, x):
    @contextlib.contextmanager
    def scaled(k):
        log.append("scale")
        yield x * k
        log.append("unscale")

    with scaled(2) as y, scaled(3) as z:
        return y + z


@case(lambda: (torch.ones(2, 2),))
def tensor_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    return y.dtype is torch.bfloat16, (x @ x).dtype is torch.float32


@case(lambda: (torch.ones(2, requires_grad=True),))
def tensor_no_grad_decorator(x):
    @torch.no_grad()
    def f(y):
        return y * 2

    return f(x)
