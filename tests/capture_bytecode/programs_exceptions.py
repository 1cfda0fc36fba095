"""try, except, finally, raise, groups."""

import contextlib
import sys
import traceback

import lucerne as torch
from tests.capture_bytecode.cases import case


class MyError(Exception):
    def __init__(self, code, note="none"):
        super().__init__(f"code {code}")
        self.code, self.note = code, note


@case(lambda: (0,), lambda: (2,), lambda: ("x",))
def try_except_else_finally(x):
    log = []
    try:
        y = 10 / x
    except ZeroDivisionError as error:
        log.append(f"zero: {error}")
        y = None
    except (TypeError, ValueError) as error:
        log.append(type(error).__name__)
        y = -1
    else:
        log.append("else")
    finally:
        log.append("finally")
    return y, log


@case(lambda: (0,), lambda: (1,))
def uncaught(x):
    return [1, 2][x + 1]


@case(lambda: (0,))
def deep_traceback(x):
    def one(y):
        return two(y) + 1

    def two(y):
        return 1 / y

    return one(x)


@case(lambda: (1,), lambda: (2,), lambda: (3,), lambda: (4,))
def raise_forms(k):
    try:
        raise KeyError("inner")
    except KeyError as error:
        if k == 1:
            raise ValueError("outer") from error
        if k == 2:
            raise ValueError("outer") from None
        if k == 3:
            raise ValueError("outer")
        raise


@case(lambda: ())
def raise_class_and_instance():
    found = []
    for what in (ValueError, ValueError("v"), MyError(3)):
        try:
            raise what
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


@case(lambda: (5,), lambda: (None,), lambda: ("text",))
def raise_wrong_things(what):
    try:
        raise what
    except TypeError as error:
        return str(error)


@case(lambda: ())
def raise_wrong_cause():
    try:
        raise ValueError("v") from 5
    except TypeError as error:
        return str(error), error.__cause__


@case(lambda: ())
def reraise_nothing():
    raise


@case(lambda: (MyError(7, note="n"),), observe=lambda args: args[0].note)
def raise_argument(error):
    error.note = "changed"
    raise error


@case(lambda: ())
def nested_handlers():
    log = []
    try:
        try:
            raise ValueError("a")
        except ValueError:
            log.append("first")
            try:
                raise KeyError("b")
            except KeyError:
                log.append("second")
            raise
        finally:
            log.append("inner finally")
    except ValueError as error:
        log.append(str(error))
        log.append(str(error.__context__))
    return log


@case(lambda: ())
def contexts_chain():
    try:
        try:
            raise ValueError("a")
        except ValueError:
            try:
                raise KeyError("b")
            except KeyError:
                {}["c"]
    except KeyError as error:
        found = []
        while error is not None:
            found.append((type(error).__name__, str(error)))
            error = error.__context__
        return found


@case(lambda: ())
def finally_overrides_return():
    def f():
        try:
            return "try"
        finally:
            return "finally"

    return f()


@case(lambda: ())
def finally_after_return():
    log = []

    def f():
        try:
            return log.append("return") or len(log)
        finally:
            log.append("finally")

    return f(), log


@case(lambda: ())
def finally_in_loop():
    log = []
    for k in range(4):
        try:
            if k == 1:
                continue
            if k == 3:
                break
            log.append(k)
        finally:
            log.append(f"f{k}")
    return log


@case(lambda: ())
def finally_swallows():
    for _ in range(1):
        try:
            raise ValueError("lost")
        finally:
            break
    return "went on"


@case(lambda: ())
def exception_variable_is_deleted():
    try:
        raise ValueError("v")
    except ValueError as error:
        kept = str(error)
    try:
        return error
    except UnboundLocalError as other:
        return kept, str(other)


@case(lambda: ())
def raise_in_handler_keeps_context():
    try:
        int("x")
    except ValueError as first:
        try:
            first.missing
        except AttributeError as second:
            return second.__context__ is first, str(second)


@case(lambda: ())
def raise_in_finally():
    try:
        try:
            raise ValueError("a")
        finally:
            raise KeyError("b")
    except KeyError as error:
        return type(error.__context__).__name__, error.__cause__


@case(lambda: ())
def exc_info_is_seen():
    before = sys.exc_info()[0]
    try:
        raise ValueError("v")
    except ValueError:
        inside = sys.exc_info()[0], str(sys.exc_info()[1])

        def callee():
            return sys.exc_info()[0]

        deeper = callee()
        text = traceback.format_exc().splitlines()[-1]
    return before, inside, deeper, text, sys.exc_info()[0]


@case(lambda: ())
def bare_raise_in_callee():
    def again():
        raise

    try:
        try:
            raise ValueError("v")
        except ValueError:
            again()
    except ValueError as error:
        return str(error)


@case(lambda: ())
def except_tuple_and_base():
    found = []
    for kind in (KeyError, IndexError, OSError):
        try:
            raise kind("x")
        except LookupError:
            found.append("lookup")
        except Exception:
            found.append("other")
    return found


@case(lambda: (5,), lambda: ("text",))
def catching_wrong_class(kind):
    try:
        try:
            raise ValueError("v")
        except kind:
            return "caught"
    except TypeError as error:
        return str(error)


@case(lambda: ())
def except_star():
    log = []
    try:
        raise ExceptionGroup(
            "g", [ValueError(1), KeyError("k"), ExceptionGroup("h", [ValueError(2), OSError(3)])]
        )
    except* ValueError as group:
        log.append([type(e).__name__ for e in group.exceptions])
    except* KeyError as group:
        log.append(str(group))
    except* OSError as group:
        log.append(repr(group))
    return log


@case(lambda: ())
def except_star_rest_is_raised():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError("k")])
    except* ValueError:
        pass


@case(lambda: ())
def except_star_naked():
    log = []
    try:
        raise ValueError("naked")
    except* ValueError as group:
        log.append(repr(group))
    return log


@case(lambda: ())
def except_star_raises():
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError("k")])
        except* ValueError:
            raise OSError("new")
        except* KeyError:
            raise
    except ExceptionGroup as group:
        return repr(group), [type(e).__name__ for e in group.exceptions]


@case(lambda: ())
def stop_iteration_by_hand():
    it = iter([1])
    found = [next(it), next(it, "end")]
    try:
        next(it)
    except StopIteration as error:
        found.append(error.value)
    return found


@case(lambda: ())
def recursion_error():
    def forever(n):
        return forever(n + 1)

    try:
        forever(0)
    except RecursionError as error:
        return str(error)[:32]


@case(lambda: ())
def notes():
    try:
        error = ValueError("v")
        error.add_note("a note")
        raise error
    except ValueError as caught:
        return caught.__notes__


@case(lambda: ({"a": 1},))
def retry_loop(d):
    tries = []
    for key in ("x", "y", "a"):
        try:
            value = d[key]
        except KeyError as error:
            tries.append(error.args[0])
            continue
        else:
            break
    return value, tries


@case(lambda: (), lambda: (1,), lambda: (1, 2, 3))
def wrong_argument_counts(*args):
    def f(a, b):
        return a, b

    return f(*args)


@case(lambda: ())
def suppressed():
    with contextlib.suppress(KeyError, IndexError):
        [][1]
    with contextlib.suppress(KeyError):
        raise ValueError("v")


@case(lambda: (torch.ones(2, 3), torch.ones(2, 3)))
def tensor_error_is_caught(a, b):
    try:
        return a @ b
    except RuntimeError:
        return a @ b.t()


@case(lambda: (torch.ones(2),))
def tensor_written_before_error(x):
    x.add_(1)
    x.mul_(3)
    raise MyError(int(x.numel()))


@case(lambda: (torch.ones(2), -1), lambda: (torch.ones(2), 2))
def tensor_checked_argument(x, k):
    try:
        if k < 0:
            raise ValueError(f"k must not be negative, is {k}")
        y = x * k
    except ValueError as error:
        y = x
        message = str(error)
    else:
        message = "fine"
    finally:
        y = y + 1
    return y, message
