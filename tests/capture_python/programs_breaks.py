"""Programs with lines that no graph can hold."""

import logging
import math
import os
import random
import time
import warnings

import numpy as np

import lucerne as torch
from lucerne import nn
from tests.capture_python.table import program


@program
def prints_between():
    def fn(x):
        y = x * 2 + 1
        print("rows", len(y))
        return y.sin() + x

    return fn, None


@program
def prints_a_tensor():
    def fn(x):
        y = (x * 2).sum()
        print(f"sum {y.item():.3f}")
        return y + x

    return fn, None


@program
def prints_at_the_end():
    def fn(x):
        y = x.exp() + 1
        print("done")
        return y

    return fn, None


@program
def prints_first():
    def fn(x):
        print("begin")
        return (x + 1).relu() * 2

    return fn, None


@program
def branch_on_a_tensor():
    def fn(x):
        y = x * 3
        if y.sum() > 0:
            z = y + 1
        else:
            z = y - 1
        return z * x

    return fn, None


@program
def branch_twice():
    def fn(x):
        if x.mean() > 0:
            x = x + 1
        if x.max() > 100:
            x = x * 0
        elif x.min() < 0:
            x = x - x.min()
        return x.sum(0)

    return fn, None


@program
def loop_until():
    def fn(x):
        steps = 0
        while x.abs().max() > 0.5:
            x = x * 0.5
            steps += 1
        return x, steps

    return fn, None


@program
def item_in_a_loop():
    def fn(x):
        total = 0.0
        for row in x:
            y = row * row
            total += y.sum().item()
        return x * 2, round(total, 4)

    return fn, None


@program
def break_at_each_turn():
    def fn(x):
        for k in range(5):
            x = x * 0.9 + 0.1
            print("turn", k)
        return x

    return fn, None


@program
def appends_and_breaks_at_each_turn():
    def fn(x):
        found = []
        for k in range(4):
            x = x.tanh() + 0.1
            found.append(x)
            print(k, len(found))
        return torch.stack(found)

    return fn, None


@program
def loop_variable_in_an_op():
    def fn(x):
        for k in range(3):
            x = x + k
            print(k)
        return x

    return fn, None


@program
def nested_loops_with_breaks():
    def fn(x):
        for i in range(2):
            for j in range(2):
                x = x * 1.5 + 1
                print(i, j)
            x = x - x.mean()
        return x

    return fn, None


@program
def break_and_continue():
    def fn(x):
        out = x
        for k in range(6):
            if k == 1:
                continue
            if k == 4:
                break
            out = out + x * 0.5
            print(k)
        else:
            out = out * 0
        return out

    return fn, None


@program
def tolist_in_the_middle():
    def fn(x):
        y = (x > 0).sum(1)
        counts = y.tolist()
        return x * len(counts), counts

    return fn, None


@program
def numpy_in_the_middle():
    def fn(x):
        y = (x * 2).detach()
        z = torch.from_numpy(np.sort(y.numpy(), axis=0))
        return z + x

    return fn, None


@program
def math_of_an_item():
    def fn(x):
        scale = math.sqrt(x.abs().sum().item())
        return x / scale

    return fn, None


@program
def float_and_int_of_tensors():
    def fn(x):
        a = float(x.sum())
        b = int((x > 0).sum())
        return x + a * 0.5, b

    return fn, None


@program
def masked_select():
    def fn(x):
        y = x + 1
        found = y[y > 1]
        return found.sum() + x.sum(), found.shape[0]

    return fn, None


@program
def nonzero_rows():
    def fn(x):
        rows = (x.sum(1) > 0).nonzero()
        return x.sum() * 2, rows.shape[1]

    return fn, None


@program
def python_random():
    def fn(x):
        k = random.random()
        return x * 2 + k

    return fn, None


@program
def random_choice():
    def fn(x):
        y = x * 2
        if random.random() < 0.5:
            return y + 1
        return y - 1

    return fn, None


@program
def reads_the_clock():
    def fn(x):
        began = time.perf_counter()
        y = (x * 2).sum()
        took = time.perf_counter() - began
        return y, took >= 0

    return fn, None


@program
def reads_the_environment():
    os.environ["LUCERNE_TEST_FLAG"] = "3"

    def fn(x):
        y = x + 1
        k = int(os.environ.get("LUCERNE_TEST_FLAG", "0"))
        return y * k

    return fn, None


@program
def logs():
    lines = []
    logger = logging.getLogger("lucerne.tests.capture_python")
    logger.propagate = False
    logger.setLevel(logging.INFO)

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    logger.handlers = [Keep()]

    def fn(x):
        y = x * 2
        logger.info("size %d", len(y))
        return y + 1

    return fn, lines


@program
def warns():
    def fn(x):
        y = x * 2
        if len(y) > 5:
            warnings.warn("many rows", stacklevel=1)
        return y.sum()

    return fn, None


@program
def asserts_on_a_tensor():
    def fn(x):
        y = x * x
        assert (y >= 0).all(), "negative"
        return y.sqrt()

    return fn, None


@program
def failing_assert():
    def fn(x):
        y = x + 1
        assert y.sum() < -1000, "too large"
        return y

    return fn, None


@program
def seeds_inside():
    def fn(x):
        torch.manual_seed(3)
        return x * 0 + torch.ones(3)

    return fn, None


@program
def disabled_function():
    seen = []

    @torch.compiler.disable
    def keep(t):
        seen.append(t.sum().item())
        return t + 1

    def fn(x):
        y = keep(x * 2)
        return y * 3

    return fn, lambda: [round(v, 3) for v in seen]


@program
def break_deep_in_a_callee():
    def inner(t, k):
        t = t * 2
        print("inner", k)
        return t + k

    def middle(t):
        a = inner(t, 1) * 3
        return a + inner(a, 2)

    def fn(x):
        y = x + 1
        return middle(y) - y

    return fn, None


@program
def break_in_a_forward():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            y = self.inner(x)
            print("forward")
            return y.relu() + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Noisy(), nn.Linear(3, 2)

        def forward(self, x):
            return self.b(self.a(x))

    model = Model()
    return lambda x: model(x), model


@program
def module_with_a_branch():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            if x.sum() > 0:
                return self.a(x)
            return self.b(x)

    model = nn.Sequential(nn.Linear(3, 3), Gate(), nn.Tanh())
    return lambda x: model(x).sum(), model


@program
def truth_of_tensors_in_conditions():
    def fn(x):
        s = x.sum()
        y = x * 2 if s > 0 and s < 100 else x * 3
        flag = bool(s > 0) or False
        return y, flag, not (s > 0)

    return fn, None


@program
def index_from_a_tensor():
    def fn(x):
        k = int(x.sum(1).argmax())
        return x[k] + x[0]

    return fn, None


@program
def compare_with_max():
    def fn(x):
        return max(x.sum(), x.mean()) + min(x[0, 0], x[0, 1])

    return fn, None


@program
def range_of_an_item():
    def fn(x):
        n = int((x[0] > -10).sum())
        y = x
        for k in range(n):
            y = y + x * k
        return y

    return fn, None


@program
def writes_a_file():
    import tempfile

    path = tempfile.mktemp()

    def fn(x):
        y = x * 2
        with open(path, "a") as file:
            file.write(f"{len(y)}\n")
        return y + 1

    def state():
        with open(path) as file:
            return file.read()

    return fn, state


@program
def recursion_with_a_break():
    def down(t, k):
        if k == 0:
            print("bottom")
            return t
        return down(t * 2, k - 1) + k

    return lambda x: down(x, 3), None


@program
def break_in_a_comprehension():
    def fn(x):
        sizes = [float(row.sum()) > 0 for row in x * 2]
        return x + sum(sizes), sizes

    return fn, None


@program
def sorted_by_values():
    def fn(x):
        rows = sorted([r * 2 for r in x], key=lambda r: float(r.sum()))
        return torch.stack(rows)

    return fn, None


@program
def formats_a_tensor():
    def fn(x):
        text = f"{(x * 0).sum()} {x.shape}"
        return x + 1, text

    return fn, None


@program
def str_of_shapes():
    def fn(x):
        return x * 2, f"{tuple(x.shape)} {x.dtype}"

    return fn, None
