"""Classes: methods, properties, descriptors, inheritance, special methods."""

import lucerne as torch
from tests.capture_bytecode.cases import case


class Point:
    dims = 2

    def __init__(self, x, y=0):
        self.x, self.y = x, y

    def __add__(self, other):
        if not isinstance(other, Point):
            return NotImplemented
        return Point(self.x + other.x, self.y + other.y)

    def __radd__(self, other):
        return Point(other + self.x, other + self.y)

    def __eq__(self, other):
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __lt__(self, other):
        return (self.x, self.y) < (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))

    def __repr__(self):
        return f"Point({self.x}, {self.y})"

    def __bool__(self):
        return bool(self.x or self.y)

    def __len__(self):
        return 2

    def __getitem__(self, k):
        return (self.x, self.y)[k]

    def __setitem__(self, k, value):
        setattr(self, "xy"[k], value)

    def __delitem__(self, k):
        setattr(self, "xy"[k], None)

    def __contains__(self, value):
        return value in (self.x, self.y)

    def __call__(self, k):
        return Point(self.x * k, self.y * k)

    def __neg__(self):
        return Point(-self.x, -self.y)

    @property
    def norm(self):
        return abs(self.x) + abs(self.y)

    @norm.setter
    def norm(self, value):
        self.x, self.y = value, 0

    @classmethod
    def origin(cls):
        return cls(0, 0)

    @staticmethod
    def dot(a, b):
        return a.x * b.x + a.y * b.y


class Point3(Point):
    dims = 3

    def __init__(self, x, y=0, z=0):
        super().__init__(x, y)
        self.z = z

    def __repr__(self):
        return super().__repr__() + f"+{self.z}"

    @property
    def norm(self):
        return super().norm + abs(self.z)

    @classmethod
    def origin(cls):
        made = super().origin()
        made.z = 1
        return made


@case(lambda: (Point(1, 2),))
def methods_and_properties(p):
    p.norm = 5
    return p.norm, p.origin(), Point.dot(p, Point(2, 2)), p.dims, repr(p)


@case(lambda: (Point(1, 2), Point(3, 4)))
def operators_of_class(p, q):
    return p + q, 1 + p, p == q, p != q, p < q, p > q, -p, p(3), sorted([q, p]), {p: 1}[Point(1, 2)]


@case(lambda: (Point(1, 2),))
def unsupported_operand(p):
    return p + "text"


@case(lambda: (Point(1, 2),))
def items_of_class(p):
    p[0] = 7
    del p[1]
    return p[0], p[1], 7 in p, len(p), [v for v in p]


@case(lambda: (Point(0, 0),), lambda: (Point(1, 0),))
def truth_of_class(p):
    found = []
    if p:
        found.append("true")
    if not p:
        found.append("false")
    found.append(p and 1)
    found.append(p or 1)
    while p:
        p = Point(p.x - 1)
    return found


@case(lambda: (1, 2, 3))
def inheritance(x, y, z):
    p = Point3(x, y, z=z)
    return p, p.norm, p.origin(), isinstance(p, Point), p.dims, type(p).__mro__, vars(p)


class Diamond:
    def who(self):
        return ["Diamond"]


class Left(Diamond):
    def who(self):
        return ["Left", *super().who()]


class Right(Diamond):
    def who(self):
        return ["Right", *super().who()]


class Both(Left, Right):
    def who(self):
        return ["Both", *super().who()]

    def closed(self):
        return [k for k in super().who()], (lambda: super(Both, self).who())()


@case(lambda: ())
def diamond():
    return Both().who()


@case(lambda: ())
def super_in_inner_scopes():
    return Both().closed()


class Lazy:
    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(f"no attribute {name}")
        self.asked.append(name)
        return name.upper()

    def __setattr__(self, name, value):
        if name == "frozen":
            raise AttributeError("frozen")
        object.__setattr__(self, name, value)


@case(lambda: (Lazy(),))
def dynamic_attributes(o):
    o.x = 1
    found = [o.x, o.abc, o.abc, getattr(o, "nope", "default"), hasattr(o, "yes")]
    try:
        o.frozen = 1
    except AttributeError as error:
        found.append(str(error))
    try:
        return o.nothing
    except AttributeError as error:
        return found, str(error), o.asked


class Celsius:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, kind=None):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, value):
        setattr(obj, self.name, value * 2)

    def __delete__(self, obj):
        delattr(obj, self.name)


class Room:
    heat = Celsius()


@case(lambda: (Room(),))
def descriptors(room):
    room.heat = 20
    first = room.heat
    del room.heat
    return first, room.heat, type(Room.heat).__name__


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@case(lambda: (Slotted(1),))
def slots(s):
    s.b = s.a + 1
    del s.a
    try:
        s.c = 1
    except AttributeError as error:
        return s.b, hasattr(s, "a"), type(error).__name__


class Single:
    made = None

    def __new__(cls, *args):
        if cls.made is None:
            cls.made = super().__new__(cls)
            cls.made.calls = []
        return cls.made

    def __init__(self, *args):
        self.calls.append(args)


def _forget():
    Single.made = None


@case(lambda: (), reset=_forget)
def own_new():
    a, b = Single(1), Single(2, 3)
    return a is b, a.calls


class BadInit:
    def __init__(self):
        return 5


@case(lambda: ())
def init_returns_value():
    return BadInit()


@case(lambda: (3,))
def class_in_function(n):
    class Local(Point):
        """Local."""

        size = n
        table = [k * n for k in range(3)]

        def area(self):
            return self.size * n, __class__.__name__

        class Inner:
            depth = 2

    made = Local(1)
    return made.area(), Local.table, Local.Inner.depth, Local.__doc__, made + Point(1, 1)


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.stamped = cls.__name__
        return made


class Stamped(metaclass=Meta):
    def __init__(self, x):
        self.x = x


@case(lambda: (4,))
def metaclass(x):
    s = Stamped(x)
    return s.x, s.stamped


class Registry:
    known = []

    def __init_subclass__(cls, /, tag=None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.known.append((cls.__name__, tag))


@case(lambda: (), observe=lambda args: Registry.known, reset=lambda: Registry.known.clear())
def init_subclass():
    class A(Registry, tag="a"):
        pass

    class B(A):
        pass

    return [k for k, _ in Registry.known], B.__mro__[1].__name__


class Chain:
    def __init__(self):
        self.steps = []

    def add(self, x):
        self.steps.append(x)
        return self

    def twice(self):
        self.steps = self.steps * 2
        return self


@case(lambda: (Chain(),))
def fluent_methods(c):
    return c.add(1).add(2).twice().add(3).steps


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


@case(lambda: (Countdown(4),))
def own_iterator(c):
    total = [x for x in c if x % 2]
    for x in Countdown(3):
        total.append(x)
    return total, list(Countdown(2)), sum(Countdown(5))


class NotIterable:
    def __iter__(self):
        return 5


@case(lambda: (NotIterable(),))
def iter_returns_wrong(o):
    for x in o:
        return x


@case(lambda: ([1, 2],))
def bound_methods_as_values(xs):
    add = xs.append
    add(3)
    c = Chain()
    f, g = c.add, Chain.add
    f(1)
    g(c, 2)
    return xs, c.steps, f.__self__ is c, list(map(c.add, [5]))[0] is c


class Vec:
    def __init__(self, data):
        self.data = data

    def __matmul__(self, other):
        return (self.data * other.data).sum()

    def __iadd__(self, other):
        self.data = self.data + other.data
        return self

    def __mul__(self, k):
        return Vec(self.data * k)

    __rmul__ = __mul__


@case(lambda: (Vec(torch.arange(3.0)), Vec(torch.ones(3))))
def tensor_in_class(a, b):
    a += b
    c = 2 * (a * 3)
    return a @ b, c


class Stats:
    def __init__(self):
        self.count, self.mean = 0, torch.zeros(2)

    def update(self, x):
        self.count += 1
        self.mean = self.mean + (x - self.mean) / self.count
        return self


@case(lambda: (Stats(), torch.tensor([2.0, 4.0])))
def tensor_running_statistics(s, x):
    for k in range(3):
        s.update(x * k)
    return s.mean


@case(lambda: (torch.tensor([2.0, 4.0]),))
def tensor_object_made_inside(x):
    s = Stats().update(x).update(x + 2)
    return s.mean, s.count


class Affine(Point):
    @property
    def weight(self):
        return torch.full((2,), float(self.x))

    def __call__(self, t):
        return t * self.weight + self.y


@case(lambda: (Affine(2, 1), torch.arange(2.0)))
def tensor_through_property(layer, x):
    return layer(layer(x)), layer.weight


class Sized:
    def __init__(self, n, log):
        self.n, self.log = n, log

    def __len__(self):
        self.log.append("len")
        return self.n

    def __abs__(self):
        return Sized(abs(self.n), self.log)

    def __repr__(self):
        self.log.append("repr")
        return f"Sized({self.n})"

    def __contains__(self, x):
        self.log.append(("contains", x))
        return x < self.n and "truthy"

    def __iadd__(self, k):
        self.n += k
        return self

    def __isub__(self, k):
        return NotImplemented

    def __sub__(self, k):
        return Sized(self.n - k, self.log)

    def __invert__(self):
        return ~self.n


@case(
    lambda: (Sized(0, []),),
    lambda: (Sized(3, []),),
    lambda: (Sized(-1, []),),
    lambda: (Sized("x", []),),
)
def asked_for_length(s):
    if s:
        found = ["true"]
    else:
        found = ["false"]
    while not s:
        s += 2
    return found, len(s), 1 in s, 9 not in s, len(abs(s)), repr(s), str(s), f"{s}", (s and 5), ~s


@case(lambda: (Sized(3, []),))
def in_place_methods(s):
    t = s
    t += 4
    same = t is s
    t -= 1
    return same, t is s, s.n, t.n


class BadBool:
    def __bool__(self):
        return 1

    def __repr__(self):
        return 5


@case(lambda: (BadBool(), 0), lambda: (BadBool(), 1))
def wrong_answers(b, k):
    if k:
        return repr(b)
    return 1 if b else 2


class Wait:
    def __init__(self):
        self.left = 3

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration("over")
        return self.left

    def __iter__(self):
        return self


@case(lambda: (Wait(),))
def next_of_own_iterator(w):
    it = iter(w)
    found = [next(it), next(it), next(it, None), next(it, "none left")]
    try:
        next(it)
    except StopIteration as end:
        found.append(end.value)
    return found


class Defaults(dict):
    def __missing__(self, key):
        self.asked = key
        return f"no {key}"


class Squares:
    def __init__(self):
        self.asked = []

    def __getitem__(self, k):
        self.asked.append(k)
        if k > 3:
            raise IndexError(k)
        return k * k


class Deep(Point):
    @property
    def norm(self):
        self.asked = True
        return super().norm * 10

    def call_norm(self):
        return super().norm.bit_length()


@case(lambda: (Defaults(a=1), Squares(), Deep(1, -2)))
def old_protocols(d, s, p):
    return d["a"], d["b"], [x for x in s], list(Squares()), 9 in s, p.norm, p.call_norm()
