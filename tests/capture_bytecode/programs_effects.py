"""Side effects: what a function leaves behind, and in which order."""

import lucerne as torch
from tests.capture_bytecode.cases import case

LOG = []
TOTALS = {"calls": 0}
STEP = 0


def _reset():
    global STEP
    LOG.clear()
    TOTALS.clear()
    TOTALS["calls"] = 0
    STEP = 0


def _state(args):
    return args, LOG, TOTALS, STEP


def effect(*makers):
    return case(*makers, observe=_state, reset=_reset)


class Box:
    def __init__(self, **values):
        self.__dict__.update(values)


@effect(lambda: (3,))
def log_appended(n):
    for k in range(n):
        LOG.append(k)
    return len(LOG)


@effect(lambda: (Box(x=1),))
def attributes_set(box):
    box.x += 1
    box.y = [box.x]
    box.y.append(box)
    del box.x
    return sorted(vars(box))


@effect(lambda: ("k",))
def global_dict_changed(key):
    TOTALS["calls"] += 1
    TOTALS[key] = TOTALS.get(key, 0) + 5
    return dict(TOTALS)


@effect(lambda: ())
def global_rebound():
    global STEP
    STEP += 1
    LOG.append(STEP)
    STEP *= 10
    return STEP


@effect(lambda: ([1],), lambda: ([2],))
def mutable_default(x, seen=None):
    seen = [] if seen is None else seen
    seen.append(x)
    LOG.append(len(seen))
    return seen


@effect(lambda: (2,))
def prints(n):
    for k in range(n):
        print("step", k, sep="=", end=";\n")
    print(f"{n:>5}|")


@effect(lambda: ())
def order_of_evaluation():
    def note(x):
        LOG.append(x)
        return x

    d = {note("a"): note("b")}
    d[note("c")] = note("d")
    note(note("e") + note("f")) or note("g")
    [note(1), note(2)][note(0)]
    (lambda *a, **k: None)(note("h"), *[note("i")], k=note("j"), **{"m": note("l")})
    return note(1) < note(5) < note(2) < note(9)


@effect(lambda: ([1, 2, 3],))
def changes_in_callbacks(xs):
    list(map(LOG.append, xs))
    sorted(xs, key=lambda x: LOG.append(-x) or x)
    [LOG.append(x) for x in xs if x > 1]
    any(LOG.append(("any", x)) for x in xs)


@effect(lambda: (Box(n=0),))
def effects_before_error(box):
    box.n = 1
    LOG.append("before")
    try:
        box.n = 2
        raise ValueError("v")
    finally:
        box.n += 10
        LOG.append("finally")


@effect(lambda: ([],))
def effects_of_iteration(out):
    class Noisy:
        def __iter__(self):
            out.append("iter")
            return self

        def __next__(self):
            out.append("next")
            if len(out) > 4:
                raise StopIteration
            return len(out)

        def __len__(self):
            out.append("len")
            return 0

        def __bool__(self):
            out.append("bool")
            return True

        def __contains__(self, x):
            out.append("contains")
            return True

    n = Noisy()
    found = [x for x in n]
    if n:
        found.append(3 in n)
    return found


@effect(lambda: (Box(items=[]),))
def setattr_getattr_delattr(box):
    setattr(box, "a", 1)
    box.items.append(getattr(box, "a"))
    box.items.append(getattr(box, "zzz", None))
    delattr(box, "a")
    box.__dict__["raw"] = 5
    return hasattr(box, "a"), box.raw


@effect(lambda: ([[]],))
def aliased_arguments(xs):
    inner = xs[0]
    xs.append(inner)
    inner.append("x")
    xs[1] += ["y"]
    return xs[0] is xs[1]


@effect(lambda: ())
def counter_object():
    class Counter:
        total = 0

        def __init__(self):
            type(self).total += 1
            self.mine = Counter.total

    made = [Counter() for _ in range(3)]
    return Counter.total, [c.mine for c in made]


@effect(lambda: (torch.ones(3),))
def tensor_in_place(x):
    x.add_(1)
    x[0] = 10.0
    x *= 2
    y = x.view(3)
    y.sub_(1)
    return y


@effect(lambda: (torch.zeros(3), 4))
def tensor_state_and_log(x, n):
    for k in range(n):
        x += k
        LOG.append(k)
        TOTALS["calls"] += 1
    return x.sum()


@effect(lambda: (Box(mean=torch.zeros(2), steps=0), torch.tensor([2.0, 4.0])))
def tensor_attribute_updated(box, x):
    box.mean = 0.9 * box.mean + 0.1 * x
    box.steps += 1
    box.last = x
    return box.mean * 2


@effect(lambda: (torch.arange(3.0),))
def tensor_logged(x):
    y = x * 2
    LOG.append(y)
    z = y + 1
    TOTALS["z"] = z
    LOG.append(z.shape)
    return z


@effect(lambda: (torch.ones(2, requires_grad=True), torch.arange(2.0)))
def tensor_backward(w, x):
    loss = ((w * x - 3) ** 2).sum()
    loss.backward()
    LOG.append("done")
    return loss.detach()


@effect(lambda: (torch.ones(2, requires_grad=True), torch.arange(2.0)))
def tensor_gradient_step(w, x):
    for _ in range(2):
        w.grad = None
        loss = ((w * x - 3) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
    return loss.detach()


@effect(lambda: (torch.ones(2),))
def tensor_print_between(x):
    y = x + 1
    print("y has", y.numel(), "elements")
    z = y * 2
    print("done")
    return z


@effect(lambda: (torch.tensor([1.0, -2.0]),))
def tensor_item(x):
    y = x.sum().item()
    LOG.append(y)
    if y < 0:
        return x * -1
    return x + y
