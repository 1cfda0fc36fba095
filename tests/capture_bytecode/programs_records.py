"""dataclasses, named tuples, enums, typed dicts, abstract classes."""

import abc
import collections
import dataclasses
import enum
import types
import typing

import lucerne as torch
from tests.capture_bytecode.cases import case


@dataclasses.dataclass
class Config:
    width: int
    depth: int = 2
    names: list = dataclasses.field(default_factory=list)
    size: int = dataclasses.field(init=False, repr=False, default=0)

    def __post_init__(self):
        self.size = self.width * self.depth

    @property
    def area(self):
        return self.width**2


@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0


@dataclasses.dataclass(slots=True)
class Slot:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Wide(Config):
    extra: str = "e"


class Shape(typing.NamedTuple):
    rows: int
    columns: int = 1

    def area(self):
        return self.rows * self.columns


Pair = collections.namedtuple("Pair", ["first", "second"], defaults=[None])


class Mode(enum.Enum):
    TRAIN = "train"
    TEST = "test"

    @property
    def short(self):
        return self.value[:2]

    @classmethod
    def default(cls):
        return cls.TRAIN


class Flag(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@case(lambda: (3,))
def dataclass_made(n):
    c = Config(n, names=["a"])
    d = Config(width=n, depth=4)
    c.names.append("b")
    return c, d, c == d, c.area, c.size, Wide(1, extra="z"), repr(c)


@case(lambda: ())
def dataclass_wrong_arguments():
    return Config()


@case(lambda: (Version(1, 2),))
def dataclass_frozen(v):
    found = [
        v < Version(2),
        sorted([v, Version(0)]),
        hash(v) == hash(Version(1, 2)),
        {v: 1}[Version(1, 2)],
    ]
    try:
        v.major = 5
    except dataclasses.FrozenInstanceError as error:
        found.append(str(error))
    return found


@case(lambda: (Config(2),))
def dataclass_tools(c):
    d = dataclasses.replace(c, width=5)
    return d, dataclasses.asdict(d), dataclasses.astuple(c), [f.name for f in dataclasses.fields(c)]


@case(lambda: (Slot(1.0),))
def dataclass_slots(s):
    s.y = s.x + 1
    return s, Slot(s.y, y=3.0)


@case(lambda: ())
def dataclass_in_function():
    @dataclasses.dataclass
    class Local:
        a: int = 1
        b: list = dataclasses.field(default_factory=lambda: [5])

    x, y = Local(), Local(2)
    x.b.append(6)
    return dataclasses.astuple(x), dataclasses.astuple(y)


@case(lambda: (Shape(2, 3),))
def named_tuples(s):
    rows, columns = s
    p = Pair("a")
    return (
        rows,
        s.area(),
        s._replace(rows=9),
        Shape(4),
        p,
        p.second,
        p._asdict(),
        s[0],
        s == (2, 3),
        Pair(*"xy"),
    )


@case(lambda: ())
def named_tuple_errors():
    try:
        Pair()
    except TypeError:
        pass
    s = Shape(1)
    s.rows = 5


@case(lambda: ("train",), lambda: ("nothing",))
def enums(name):
    m = Mode(name)
    return (
        m,
        m is Mode.TRAIN,
        m.short,
        Mode["TEST"].value,
        [x.name for x in Mode],
        Mode.default(),
        Flag.A | Flag.B == Flag.AB,
        Flag.A in Flag.AB,
        Level.HIGH > Level.LOW,
        Level(1) + 1,
    )


class Base(abc.ABC):
    @abc.abstractmethod
    def area(self):
        """Abstract."""

    def double(self):
        return self.area() * 2


class Square(Base):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side**2


@case(lambda: (3,))
def abstract_classes(side):
    found = [Square(side).double(), isinstance(Square(1), Base)]
    try:
        Base()
    except TypeError as error:
        found.append("abstract" in str(error))
    return found


class Movie(typing.TypedDict):
    name: str
    year: int


@case(lambda: ())
def typed_dict_and_namespace():
    m: Movie = {"name": "x", "year": 5}
    n = types.SimpleNamespace(a=1, **m)
    n.b = typing.cast(int, n.a)
    T = typing.TypeVar("T")
    x: typing.Optional[int] = None
    return m, n, x, T.__name__, typing.get_origin(list[int])


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: "torch.Tensor | None" = None
    step: int = 0


class State(typing.NamedTuple):
    h: torch.Tensor
    c: torch.Tensor


@case(lambda: (torch.arange(3.0),))
def tensor_dataclass(x):
    out = Output(x * 2)
    out.loss = out.logits.sum()
    out.step += 1
    return out, dataclasses.replace(out, step=9).step


@case(lambda: (torch.arange(3.0), State(torch.zeros(3), torch.ones(3))))
def tensor_named_tuple(x, state):
    for _ in range(2):
        h, c = state
        c = c * 0.5 + x
        state = state._replace(h=torch.tanh(c), c=c)
    return state


@case(lambda: (torch.ones(2), Mode.TRAIN), lambda: (torch.ones(2), Mode.TEST))
def tensor_by_enum(x, mode):
    if mode is Mode.TRAIN:
        return x * 2
    return x + len(mode.short)


@case(lambda: (Config(2, 3), torch.ones(2)))
def tensor_by_config(config, x):
    for _ in range(config.depth):
        x = x * config.width
    config.names.append("ran")
    return x
