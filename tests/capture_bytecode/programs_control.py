"""Branches and loops."""

import lucerne as torch
from tests.capture_bytecode.cases import case


@case(lambda: (5,), lambda: (-5,), lambda: (0,))
def if_elif_else(n):
    if n > 0:
        word = "positive"
    elif n < 0:
        word = "negative"
    else:
        word = "zero"
    return word


@case(lambda: ([1, 2, 3], 2), lambda: ([1, 2, 3], 9))
def for_else(xs, wanted):
    for k, x in enumerate(xs):
        if x == wanted:
            break
    else:
        return "absent"
    return k


@case(lambda: (10,))
def while_else_continue(n):
    seen = []
    while n:
        n -= 1
        if n % 2:
            continue
        seen.append(n)
        if n == 0:
            break
    else:
        seen.append("never")
    return seen


@case(lambda: (27,))
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@case(lambda: (4,))
def nested_loops_with_breaks(n):
    found = []
    for i in range(n):
        for j in range(n):
            if j > i:
                break
            if (i + j) % 2:
                continue
            found.append((i, j))
        else:
            found.append("whole")
    return found


@case(lambda: (1, 5, 3), lambda: (1, 0, 3), lambda: (3, 4, 5))
def chained_comparisons(a, b, c):
    return a < b < c, a < b > c, a <= b <= c != a, not a < b < c


@case(lambda: (0, [], "x"), lambda: (1, [2], ""), lambda: (None, 0.0, ()))
def short_circuits(a, b, c):
    return a and b, a or b, a or b or c, a and b and c, not (a and b) or c, (a or b) and c


@case(lambda: ([3, 1, 2],))
def walrus(xs):
    found = []
    while (n := len(xs)) > 1:
        found.append((n, last := xs.pop()))
    return found, n, last


@case(lambda: (3,), lambda: (None,))
def none_checks(x):
    if x is None:
        return "none"
    if x is not None and x > 2:
        return "big"
    return "small"


@case(lambda: (12, 18))
def euclid(a, b):
    while b:
        a, b = b, a % b
    return a


@case(lambda: (20,))
def sieve(n):
    flags = [True] * n
    flags[0] = flags[1] = False
    for p in range(2, n):
        if flags[p]:
            for q in range(p * p, n, p):
                flags[q] = False
    return [k for k, f in enumerate(flags) if f]


@case(lambda: ([5, 2, 9, 1, 7],))
def bubble_sort_in_place(xs):
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]


@case(lambda: (7,))
def ternaries(n):
    return "a" if n < 3 else "b" if n < 6 else "c" if n < 9 else "d"


@case(lambda: (6,))
def recursion(n):
    def fib(k):
        return k if k < 2 else fib(k - 1) + fib(k - 2)

    return fib(n)


@case(lambda: (5,))
def mutual_recursion(n):
    def even(k):
        return k == 0 or odd(k - 1)

    def odd(k):
        return k != 0 and even(k - 1)

    return even(n), odd(n)


@case(lambda: (3,), lambda: (0,))
def assert_statement(n):
    assert n, f"n is {n}"
    return n


@case(lambda: (4,))
def del_local(n):
    x = n
    del x
    try:
        return x
    except UnboundLocalError as error:
        return str(error)


@case(lambda: (True,), lambda: (False,))
def maybe_unbound(flag):
    if flag:
        value = 1
    return value


@case(lambda: (300,))
def many_constants_and_jumps(n):
    total = 0
    for k in range(n):
        if k % 15 == 0:
            total += 1
        elif k % 5 == 0:
            total += 2
        elif k % 3 == 0:
            total += 3
        else:
            total -= 1
    return total


@case(lambda: (torch.arange(4.0), 3))
def tensor_loop(x, n):
    for k in range(n):
        x = x * 2 + k
    return x


@case(
    lambda: (torch.ones(2, 3), "relu"),
    lambda: (torch.ones(2, 3), "tanh"),
    lambda: (torch.ones(2, 3), "none"),
)
def tensor_choice_by_string(x, name):
    if name == "relu":
        return torch.relu(x - 1)
    elif name == "tanh":
        return torch.tanh(x)
    raise ValueError(f"no such function {name!r}")


@case(lambda: (torch.tensor([1.0, 2.0]),), lambda: (torch.tensor([-1.0, -2.0]),))
def tensor_branch_on_data(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(lambda: (torch.tensor(10.0),))
def tensor_while_on_data(x):
    steps = 0
    while x > 1:
        x = x / 2
        steps += 1
    return x, steps


@case(lambda: (torch.ones(3, 4),), lambda: (torch.ones(4, 3),))
def tensor_branch_on_shape(x):
    rows, columns = x.shape
    if rows < columns:
        return x.t() @ x
    return x @ x.t()


@case(lambda: (torch.arange(6.0).reshape(2, 3),))
def loop_over_tensor_rows(x):
    total = torch.zeros(3)
    for row in x:
        total = total + row * 2
    return total


@case(lambda: ([None, None, 3, None],))
def while_none(xs):
    k, x = 0, None
    while x is None:
        x = xs[k]
        k += 1
    while x is not None:
        x = xs[k]
    return k, x
