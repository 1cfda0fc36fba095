"""Programs that change what lives outside of them."""

import lucerne as torch
from lucerne import nn
from tests.capture_python.table import program

COUNTS = {"calls": 0}
STEP = 0
SEEN = []


def _globals():
    return dict(COUNTS), STEP, list(SEEN)


def _reset():
    global STEP
    STEP = 0
    COUNTS.clear()
    COUNTS["calls"] = 0
    SEEN.clear()


@program
def global_counter():
    _reset()

    def fn(x):
        global STEP
        y = x * 2
        STEP += 1
        return y + 1

    return fn, _globals


@program
def global_dict_counter():
    _reset()

    def fn(x):
        COUNTS["calls"] += 1
        y = x * 2
        COUNTS[f"of {len(x)}"] = COUNTS.get(f"of {len(x)}", 0) + 1
        return y + COUNTS["calls"]

    return fn, _globals


@program
def global_list():
    _reset()

    def fn(x):
        y = x * 2
        SEEN.append(y.sum())
        return y + len(SEEN)

    return fn, _globals


@program
def history_of_losses():
    history = []

    def fn(x):
        loss = (x * x).mean()
        history.append(loss)
        return loss * 2

    return fn, history


@program
def history_of_items():
    history = []

    def fn(x):
        loss = (x * x).mean()
        history.append(round(loss.item(), 4))
        return loss * 2

    return fn, history


@program
def attribute_counter():
    class Counter:
        count = 0

        def step(self, x):
            y = x + 1
            self.count += 1
            return y * 2

    counter = Counter()
    return lambda x: counter.step(x), lambda: counter.count


@program
def class_attribute_counter():
    class Counter:
        total = 0

    def fn(x):
        y = x + 1
        Counter.total += 1
        return y * 2

    return fn, lambda: Counter.total


@program
def module_counter():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.inner(x).relu()

    model = Counting()
    return lambda x: model(x).sum(), model


@program
def module_keeps_its_output():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.last = None

        def forward(self, x):
            y = self.inner(x)
            self.last = y.detach()
            print("kept")
            return y + 1

    model = Keeping()
    return lambda x: model(x), lambda: model.last


@program
def nonlocal_counter():
    count = 0

    def fn(x):
        nonlocal count
        y = x * 2
        count += 1
        return y + 1

    return fn, lambda: count


@program
def nonlocal_tensor():
    total = torch.zeros(3)

    def fn(x):
        nonlocal total
        total = total * 0.5 + x.sum(0).detach()
        print("kept")
        return total * 2

    return fn, lambda: total


@program
def running_mean_in_an_object():
    class Mean:
        def __init__(self):
            self.value, self.count = torch.zeros(3), 0

        def update(self, x):
            self.count += 1
            self.value = self.value + (x.mean(0) - self.value) / self.count

    mean = Mean()

    def fn(x):
        mean.update(x.detach())
        return x - mean.value

    return fn, lambda: (mean.value, mean.count)


@program
def cache_by_size():
    cache = {}

    def fn(x):
        key = len(x)
        if key not in cache:
            cache[key] = torch.arange(key, dtype=torch.float32).unsqueeze(1)
        return x + cache[key]

    return fn, cache


@program
def default_argument_cache():
    def fn(x, seen=[]):  # noqa: B006 - the mistake this is about
        y = x * 2
        seen.append(len(x))
        return y + len(seen)

    return fn, None


@program
def dict_of_tensors_changed():
    state = {"a": torch.ones(3)}

    def fn(x):
        state["a"] = state["a"] * 2
        state["b"] = x.sum(0).detach()
        return x + state["a"]

    return fn, state


@program
def argument_list_changed():
    def add(items, t):
        items.append(t * 2)
        items.append(t + 1)
        return items

    kept = []

    def fn(x):
        return add(kept, x)[-1] + len(kept[0])

    return fn, kept


@program
def set_of_sizes():
    sizes = set()

    def fn(x):
        y = x * 2
        sizes.add(len(x))
        return y + 1

    return fn, lambda: sorted(sizes)


@program
def deletes_from_a_dict():
    state = {}

    def fn(x):
        state["x"] = x * 2
        y = state.pop("x") + 1
        return y

    return fn, state


@program
def list_pop_and_push():
    queue = [1, 2, 3]

    def fn(x):
        k = queue.pop(0)
        queue.append(k)
        return x * k

    return fn, queue


@program
def writes_in_place_to_the_input():
    def fn(x):
        x.mul_(2)
        print("written")
        x.add_(1)
        return x.sum()

    return fn, None


@program
def writes_to_a_buffer():
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total += x.sum(0)
            print("added")
            return x + self.total

    model = Buffered()
    return lambda x: model(x), model


@program
def batch_norm_with_a_break():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def fn(x):
        y = model(x)
        print("between")
        return model(y).sum()

    return fn, model


@program
def object_as_argument():
    class State:
        def __init__(self):
            self.h, self.steps = torch.zeros(3), 0

    state = State()

    def step(s, x):
        s.h = (s.h + x.sum(0)).tanh()
        s.steps += 1
        return s.h * 2

    return lambda x: step(state, x), lambda: (state.h, state.steps)


@program
def counter_decides():
    class Loop:
        count = 0

    loop = Loop()

    def fn(x):
        loop.count += 1
        if loop.count % 2:
            return x * 2
        return x + 1

    return fn, lambda: loop.count


@program
def counter_in_an_op():
    class Loop:
        count = 0

    loop = Loop()

    def fn(x):
        loop.count += 1
        return x * loop.count

    return fn, lambda: loop.count


@program
def swapped_attributes():
    class Pair:
        def __init__(self):
            self.a, self.b = torch.ones(3), torch.zeros(3)

    pair = Pair()

    def fn(x):
        pair.a, pair.b = pair.b + x.sum(0), pair.a
        print("swapped")
        return pair.a + pair.b

    return fn, lambda: (pair.a, pair.b)


@program
def order_of_effects():
    log = []

    def fn(x):
        log.append("begin")
        y = x * 2
        log.append(("size", len(y)))
        z = y + 1
        print("middle", len(log))
        log.append("end")
        return z

    return fn, log


@program
def aliased_lists():
    a = []
    b = {"a": a}

    def fn(x):
        a.append(x.sum())
        b["a"].append(x.mean())
        return x * len(a)

    return fn, b


@program
def setattr_and_getattr():
    class Bag:
        pass

    bag = Bag()
    bag.scale = 2.0

    def fn(x):
        y = x * getattr(bag, "scale", 1.0)
        setattr(bag, "last", y.sum())  # noqa: B010
        return y + 1

    return fn, lambda: bag.last


@program
def list_of_lists():
    table = [[], []]

    def fn(x):
        table[0].append(x[0])
        table[1] = [*table[1], len(x)]
        return x + 1

    return fn, table


@program
def extends_and_clears():
    items = [0]

    def fn(x):
        items.clear()
        items.extend([x.sum(), x.mean()])
        return x * 2

    return fn, items


@program
def global_config_changes():
    config = {"scale": 1.0}

    def fn(x):
        y = x * config["scale"]
        config["scale"] = config["scale"] * 2
        return y + 1

    return fn, config


@program
def effects_in_a_callee():
    log = []

    class Meter:
        def __init__(self):
            self.total, self.n = 0.0, 0

        def add(self, t):
            self.n += 1
            log.append(t.detach())

    meter = Meter()

    def fn(x):
        loss = (x * x).sum()
        meter.add(loss)
        return loss + 1

    return fn, lambda: (log, meter.n)


@program
def property_with_a_setter():
    class Box:
        def __init__(self):
            self._value, self.sets = torch.zeros(3), 0

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self.sets += 1
            self._value = new

    box = Box()

    def fn(x):
        box.value = box.value + x.sum(0)
        return box.value * 2

    return fn, lambda: (box._value, box.sets)
