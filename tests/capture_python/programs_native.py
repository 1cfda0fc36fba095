"""Programs whose code is called by native code: `__lt__` in `sort`, `__str__` in `%`, ..."""

# ruff: noqa: RUF012, RUF015, UP030, UP031, UP032 - what is written here is what is to be tested

import bisect
import copy
import functools
import heapq
import itertools
import operator
import re
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass

import lucerne as torch
from lucerne import nn
from tests.capture_python.table import program


class Key:
    """Notes whatever is asked of it."""

    log = []

    def __init__(self, v):
        self.v = v

    def __lt__(self, other):
        self.log.append(("lt", self.v, other.v))
        return self.v < other.v

    def __eq__(self, other):
        self.log.append(("eq", self.v))
        return self.v == other.v

    def __hash__(self):
        self.log.append(("hash", self.v))
        return hash(self.v)

    def __str__(self):
        self.log.append("str")
        return f"K{self.v}"

    def __repr__(self):
        self.log.append("repr")
        return f"Key({self.v})"

    def __format__(self, spec):
        self.log.append(("format", spec))
        return "f" * self.v

    def __index__(self):
        self.log.append("index")
        return self.v

    def __float__(self):
        self.log.append("float")
        return float(self.v)

    def __copy__(self):
        self.log.append("copy")
        return Key(self.v)

    def __iter__(self):
        self.log.append("iter")
        return iter(range(self.v))

    def __reversed__(self):
        self.log.append("reversed")
        return iter((3, 2, 1))

    def __round__(self, digits=0):
        self.log.append("round")
        return self.v

    def __bool__(self):
        self.log.append("bool")
        return self.v > 1

    def __add__(self, other):
        self.log.append("add")
        return Key(self.v + getattr(other, "v", other))

    __radd__ = __add__

    @property
    def doubled(self):
        self.log.append("doubled")
        return 2 * self.v


def key_program(fn):
    """A row: the function, and what the keys have noted."""

    def make():
        Key.log = []
        return fn, lambda: list(Key.log)

    make.__name__, make.__module__ = fn.__name__, fn.__module__
    return program(make)


@key_program
def sort_with_lt(x):
    keys = [Key(3), Key(1), Key(2)]
    keys.sort()
    return x + keys[0].v


@key_program
def sorted_with_lt(x):
    return (x * 2) + sorted([Key(2), Key(1)])[0].v


@key_program
def sorted_after_an_op_of_dict_keys(x):
    y = x * 2
    return y + sorted({Key(1): 1, Key(2): 2})[0].v


@key_program
def index_with_eq(x):
    return x + [Key(1), Key(2)].index(Key(2))


@key_program
def count_and_remove_with_eq(x):
    keys = [Key(1), Key(2), Key(2)]
    n = keys.count(Key(2))
    keys.remove(Key(1))
    return x + n + len(keys)


@key_program
def contains_with_eq(x):
    return x + (Key(1) in [Key(2), Key(1)]) + (Key(5) in (Key(2), Key(1)))


@key_program
def tuples_of_keys_are_compared(x):
    return x + ((1, Key(1)) == (1, Key(1))) + ([Key(1)] < [Key(2)])


@key_program
def dict_lookup_with_hash(x):
    found = {Key(1): 2.0}
    y = x * found[Key(1)]
    found[Key(2)] = 3.0
    return y + found.get(Key(2), 0.0) + found.setdefault(Key(3), 1.0)


@key_program
def set_with_hash(x):
    kept = {Key(1), Key(1), Key(2)}
    kept.add(Key(2))
    return x * len(kept) + len(kept & {Key(1)})


@key_program
def percent_calls_str(x):
    return x * len("%s and %r" % (Key(1), Key(2)))


@key_program
def str_format_calls_format(x):
    return x * len(f"{Key(2):>4}"), "{0} {1!r}".format(Key(1), Key(2))


@key_program
def text_of_a_list_calls_repr(x):
    return x * 2, str([Key(1)]), f"{[Key(2)]}", repr({"a": Key(3)})


@key_program
def join_of_map_str(x):
    return x * 2, ",".join(map(str, [Key(1), Key(2)]))


@key_program
def index_and_float(x):
    y = x * [1.0, 2.0, 3.0][Key(1)]
    return y + float(Key(2)) + range(10)[Key(3)]


@key_program
def copies_call_copy(x):
    return x + copy.copy(Key(2)).v


@key_program
def iter_in_native_consumers(x):
    a, b = Key(2)
    return x + sum(Key(3)) + len(list(Key(2))) + max(Key(4)) + a + b + len([*Key(2)])


@key_program
def zip_and_enumerate_of_iter(x):
    pairs = list(zip(Key(2), Key(3), strict=False))
    return x + len(pairs) + len(dict(enumerate(Key(2)))) + len(tuple(reversed(Key(1))))


@key_program
def any_all_of_bools(x):
    return x + any([Key(1), Key(2)]) + all([Key(2), Key(1)]) + len(list(filter(None, [Key(1)])))


@key_program
def round_and_sum(x):
    return x + round(Key(3)) + sum([Key(1), Key(2)], Key(0)).v


@key_program
def max_and_min_compare(x):
    return x + max([Key(1), Key(2)]).v + min(Key(3), Key(2)).v


@key_program
def max_with_a_key_function(x):
    return x + max([1, 2, 3], key=lambda v: Key.log.append(v) or -v)


@key_program
def bisect_compares(x):
    return x + bisect.bisect([Key(1), Key(3)], Key(2))


@key_program
def heap_compares(x):
    heap = []
    heapq.heappush(heap, Key(2))
    heapq.heappush(heap, Key(1))
    return x + heap[0].v + heapq.heappop(heap).v


@key_program
def attrgetter_asks_a_property(x):
    return x * operator.attrgetter("doubled")(Key(2))


@key_program
def getattr_asks_a_property(x):
    return x * getattr(Key(2), "doubled", 1) * getattr(Key(1), "nothing", 1)


@key_program
def methodcaller_calls(x):
    return x * 2, operator.methodcaller("__str__")(Key(1))


@key_program
def reduce_with_a_log(x):
    return x + functools.reduce(lambda a, b: Key.log.append(b) or a + b, [1, 2, 3])


@key_program
def accumulate_with_a_log(x):
    return x + list(itertools.accumulate([1, 2, 3], lambda a, b: Key.log.append(a) or a + b))[-1]


@key_program
def groupby_compares(x):
    return x + len([k for k, _ in itertools.groupby([Key(1), Key(1), Key(2)])])


@key_program
def counter_hashes(x):
    return x + Counter([Key(1), Key(1), Key(2)])[Key(1)]


@key_program
def deque_compares(x):
    return x + deque([Key(1), Key(2)]).index(Key(2)) + (deque([Key(1)]) == deque([Key(1)]))


@key_program
def substitution_calls_back(x):
    return re.sub("a", lambda m: Key.log.append("sub") or "b", "aa"), x + 1


@key_program
def logs_in_a_partial(x):
    note = functools.partial(Key.log.append)
    y = x * 2
    note(1)
    return y + list(map(functools.partial(operator.add, 1), [1]))[0]


@key_program
def eval_of_text_with_a_write(x):
    return x + eval("Key.log.append('eval') or 3")


@key_program
def cmp_to_key_compares(x):
    order = functools.cmp_to_key(lambda a, b: Key.log.append((a, b)) or a - b)
    return x + sorted([3, 1, 2], key=order)[0]


@program
def cached_function():
    log = []

    @functools.lru_cache(None)
    def double(k):
        log.append(k)
        return k * 2

    return (lambda x: x + double(3) + double(len(x))), log


@program
def cached_function_of_a_tensor():
    log = []

    @functools.lru_cache(None)
    def table(n):
        log.append(n)
        return torch.arange(float(n))

    return (lambda x: x.sum(1) + table(x.shape[0])), log


@program
def cached_property_with_a_log():
    log = []

    class Holder:
        @functools.cached_property
        def scale(self):
            log.append("scale")
            return 2.0

    held = Holder()
    return (lambda x: x * held.scale * Holder().scale), log


@program
def single_dispatch_with_a_log():
    log = []

    @functools.singledispatch
    def show(v):
        log.append("any")
        return 1.0

    @show.register(int)
    def _(v):
        log.append("int")
        return 2.0

    return (lambda x: x * show(3) + show("a")), log


@program
def metaclass_call_and_instance_check():
    log = []

    class Meta(type):
        def __call__(cls, *args):
            log.append("call")
            return super().__call__(*args)

        def __instancecheck__(cls, x):
            log.append("instance")
            return True

        def __getitem__(cls, k):
            log.append("item")
            return k

        def __len__(cls):
            log.append("len")
            return 3

    class Made(metaclass=Meta):
        v = 2.0

    return (lambda x: x * Made().v + isinstance(3, Made) + Made[2] + len(Made)), log


@program
def class_getitem_and_init_subclass():
    log = []

    class Base:
        def __class_getitem__(cls, k):
            log.append(("item", k))
            return k

        def __init_subclass__(cls, **more):
            log.append("subclass")

    def fn(x):
        class Child(Base):
            log.append("body")
            w = 3

        return x * Child.w + Base[2]

    return fn, log


@program
def own_dict_with_missing():
    log = []

    class Own(dict):
        def __missing__(self, k):
            log.append(("missing", k))
            return 5

        def __setitem__(self, k, v):
            log.append(("set", k))
            super().__setitem__(k, v)

    def fn(x):
        own = Own()
        own["a"] = 1
        own.update(b=2)
        return x + own["zz"] + own["a"] + own["b"]

    return fn, log


@program
def default_factory_with_a_log():
    log = []

    def fn(x):
        found = defaultdict(lambda: log.append("made") or 2.0)
        y = x * found["a"]
        return y + found["a"] + len(found)

    return fn, log


@program
def user_dict_with_a_log():
    log = []

    class Own(UserDict):
        def __getitem__(self, k):
            log.append(k)
            return super().__getitem__(k)

    return (lambda x: x * Own(a=2.0)["a"] * Own(b=3.0).get("b")), log


@program
def getattribute_with_a_log():
    log = []

    class Odd:
        def __getattribute__(self, name):
            log.append(name)
            return 7.0

    return (lambda x: x * Odd().anything + getattr(Odd(), "more")), log  # noqa: B009


@program
def getattr_and_setattr_with_a_log():
    log = []

    class Odd:
        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            log.append(name)
            return 7.0

        def __setattr__(self, name, value):
            log.append(("set", name))
            object.__setattr__(self, name, value)

    def fn(x):
        odd = Odd()
        odd.k = 2.0
        setattr(odd, "m", 3.0)  # noqa: B010
        return x * odd.k * odd.m + odd.anything + hasattr(odd, "more")

    return fn, log


@program
def item_iteration_with_a_log():
    log = []

    class Items:
        def __getitem__(self, k):
            log.append(k)
            if k > 2:
                raise IndexError
            return k

    def fn(x):
        y = x * 2
        for k in Items():
            y = y + k
        return y + sum(v for v in Items()) + len(list(Items())) + (1 in Items())

    return fn, log


@program
def next_in_native_consumers():
    log = []

    class Three:
        def __init__(self):
            self.k = 0

        def __iter__(self):
            return self

        def __next__(self):
            log.append(self.k)
            self.k += 1
            if self.k > 3:
                raise StopIteration
            return self.k

    def fn(x):
        first, *rest = Three()
        taken = list(itertools.islice(Three(), 2))
        return x * sum(Three()) + first + len(rest) + taken[1] + len(dict.fromkeys(Three()))

    return fn, log


@program
def length_hint_and_contains():
    log = []

    class Hinted:
        def __length_hint__(self):
            log.append("hint")
            return 2

        def __iter__(self):
            log.append("iter")
            return iter((1, 2))

        def __contains__(self, v):
            log.append("contains")
            return v == 2

    return (lambda x: x + len(list(Hinted())) + (2 in Hinted())), log


@program
def descriptors_with_a_log():
    log = []

    class Field:
        def __get__(self, owner, kind=None):
            log.append("get")
            return 2.0

        def __set__(self, owner, value):
            log.append("set")

    class Holder:
        f = Field()

    def fn(x):
        held = Holder()
        held.f = 3.0
        return x * held.f * operator.attrgetter("f")(held)

    return fn, log


@program
def custom_function_with_a_log():
    log = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            log.append("forward")
            ctx.k = 2.0
            return x * 2

        @staticmethod
        def backward(ctx, g):
            log.append("backward")
            return g * ctx.k

    def fn(x):
        x = x.detach().requires_grad_()
        y = Double.apply(x * 3).sum()
        y.backward()
        return y, x.grad

    return fn, log


@program
def custom_function_that_only_computes():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = 2.0
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k

    def fn(x):
        x = x.detach().requires_grad_()
        Double.apply(x * 3).sum().backward()
        return x.grad

    return fn, None


@program
def checkpointed_function_with_a_log():
    log = []

    def body(x):
        log.append("body")
        return x.relu() * 2

    def fn(x):
        return torch.utils.checkpoint.checkpoint(body, x * 2, use_reentrant=False) + 1

    return fn, log


@program
def module_property_that_counts():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.layer = 0, nn.Linear(3, 2)

        @property
        def scale(self):
            self.n += 1
            return 2.0

        def forward(self, x):
            return self.layer(x) * self.scale

    model = Counting()
    return (lambda x: model(x)), lambda: model.n


@program
def representation_of_a_module():
    log = []

    class Named(nn.Module):
        def extra_repr(self):
            log.append("extra")
            return "named"

    model = Named()
    return (lambda x: (x * 2, repr(model), str(model))), log


@program
def optimizer_closure_with_a_log():
    log = []
    w = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)

    def fn(x):
        def closure():
            log.append("closure")
            optimizer.zero_grad()
            loss = (x * w).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return fn, lambda: (list(log), w)


@program
def dataclasses_compared_and_hashed():
    @dataclass(frozen=True, order=True)
    class Size:
        n: int
        m: int = 2

    scales = {Size(1): 2.0, Size(3): 4.0}

    def fn(x):
        y = x * scales[Size(1)]
        return y + (Size(1) == Size(1)) + sorted([Size(3), Size(1)])[0].n + max(scales).n

    return fn, None


@program
def ordered_dict_moves_to_end():
    order = OrderedDict(a=1, b=2)

    def fn(x):
        y = x * 2
        order.move_to_end("a")
        return y + next(iter(order.values()))

    return fn, order


@program
def heap_that_lives_outside():
    heap = [5, 7]

    def fn(x):
        y = x * 2
        heapq.heappush(heap, 3)
        bisect.insort(heap, 4)
        return y + heapq.heappop(heap)

    return fn, heap


@program
def decorator_with_a_log():
    log = []

    def noted(f):
        log.append(f.__name__)
        return f

    def fn(x):
        @noted
        def add(v):
            return v + 1

        return add(x)

    return fn, log


@program
def class_method_that_registers():
    class Registry:
        found = {}

        @classmethod
        def make(cls, k):
            cls.found[k] = cls.found.get(k, 0) + 1
            return cls.found[k]

    return (lambda x: x + Registry.make(3)), Registry.found


@program
def sets_an_attribute_through_object():
    class Own:
        def __init__(self):
            object.__setattr__(self, "n", 0)

        def __setattr__(self, name, value):
            super().__setattr__(name, value + 1)

    own = Own()

    def fn(x):
        y = x * 2
        own.k = len(x)
        object.__setattr__(own, "m", y.sum())
        type(own).__setattr__(own, "n", 3)
        return y + own.k + own.n

    return fn, lambda: dict(own.__dict__)


@program
def writes_through_map_and_operator():
    log, kept = [], {}

    def fn(x):
        y = x * 2
        list(map(log.append, [1, 2]))
        operator.setitem(kept, "n", len(log))
        operator.iadd(log, [3])
        list.append(log, 4)
        dict.update(kept, m=len(x))
        return y + len(log)

    return fn, lambda: (list(log), dict(kept))


@program
def identity_of_a_tensor():
    seen = {}

    def fn(x):
        y = x * 2
        seen[id(x)] = 1
        return y + len(seen) * 0 + (id(x) == id(x))

    return fn, None


@program
def counts_comparisons_in_its_class():
    class Card:
        asked = 0

        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            Card.asked += 1
            return self.rank < other.rank

    def fn(x):
        return x * sorted([Card(3), Card(1), Card(2)])[-1].rank

    return fn, lambda: Card.asked
