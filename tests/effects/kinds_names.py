"""Variables, attributes, and whatever decides which attribute is found."""

from __future__ import annotations

from functools import partial

from tests.effects.kinds import kind

names = partial(kind, "names")

names("variable", "S = 1.0", "S", write="S = S + 0.5", change="S = k", rebinds=True)
names("integer variable", "S = 1", "S", write="S = S % 3 + 1", change="S = int(k)", rebinds=True)
names(
    "variable that is deleted", "S = 1.0", "S", write="del S\nS = 2.0", change="S = k", rebinds=True
)
names(
    "tensor variable",
    "S = torch.ones(1)",
    "S",
    write="S = S * 2 % 7",
    change="S = torch.ones(1) * k",
    rebinds=True,
)
names(
    "string variable",
    "S = 'ab'",
    "float(len(S))",
    write="S = S + 'c'",
    change="S = 'a' * int(k)",
    rebinds=True,
)
names(
    "attribute",
    "class Plain: pass\nS = Plain()\nS.a = 1.0",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
names(
    "attribute set by setattr",
    "class Plain: pass\nS = Plain()\nS.a = 1.0",
    "getattr(S, 'a')",
    write="setattr(S, 'a', S.a + 0.5)",
    change="setattr(S, 'a', k)",
)
names(
    "attribute in vars",
    "class Plain: pass\nS = Plain()\nS.a = 1.0",
    "vars(S)['a']",
    write="vars(S)['a'] += 0.5",
    change="vars(S)['a'] = k",
)
names(
    "attribute in __dict__",
    "class Plain: pass\nS = Plain()\nS.a = 1.0",
    "S.__dict__['a']",
    write="S.__dict__.update(a=S.a + 0.5)",
    change="S.__dict__ = {'a': k}",
)
names(
    "attribute that comes and goes",
    "class Plain: pass\nS = Plain()\nS.a = 1.0",
    "getattr(S, 'b', 1.0)",
    write="S.b = getattr(S, 'b', 1.0) + 1",
    change="S.b = k\nif k == 1.0: del S.b",
)
names(
    "attribute by hasattr",
    "class Plain: pass\nS = Plain()",
    "2.0 if hasattr(S, 'b') else 1.0",
    write="if hasattr(S, 'b'):\n    del S.b\nelse:\n    S.b = 1",
    change="if k == 2.0: S.b = 1\nelif hasattr(S, 'b'): del S.b",
)
names(
    "slots",
    "class Slots:\n    __slots__ = ('a', 'b')\nS = Slots()\nS.a = 1.0",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
names(
    "slots set by setattr",
    "class Slots:\n    __slots__ = ('a', 'b')\nS = Slots()\nS.a = 1.0",
    "S.a",
    write="object.__setattr__(S, 'a', S.a + 0.5)",
    change="Slots.a.__set__(S, k)",
)
names(
    "slot that is empty",
    "class Slots:\n    __slots__ = ('a', 'b')\nS = Slots()\nS.a = 1.0",
    "getattr(S, 'b', 1.0)",
    write="S.b = 2.0",
    change="S.b = k\nif k == 1.0: del S.b",
)
names(
    "slot with a tensor",
    "class Slots:\n    __slots__ = ('a',)\nS = Slots()\nS.a = torch.ones(1)",
    "S.a",
    write="S.a = S.a + 0.5",
    change="S.a = torch.ones(1) * k",
)
names(
    "slots and a dict",
    "class Slots:\n    __slots__ = ('a', '__dict__')\nS = Slots()\nS.a = S.b = 1.0",
    "S.a * S.b",
    write="S.a += 0.5\nS.b += 0.25",
    change="S.a = k\nS.b = k",
)
names(
    "slots inherited",
    "class A:\n    __slots__ = ('a',)\nclass B(A):\n"
    "    __slots__ = ('b',)\n"
    "S = B()\nS.a = S.b = 1.0",
    "S.a * S.b",
    write="S.a += 0.5",
    change="S.a = k",
)
names("class attribute", "class S:\n    a = 1.0", "S.a", write="S.a += 0.5", change="S.a = k")
names(
    "class attribute by an instance",
    "class Kind:\n    a = 1.0\nS = Kind()",
    "S.a",
    write="type(S).a += 0.5",
    change="Kind.a = k",
)
names(
    "class attribute hidden",
    "class Kind:\n    a = 1.0\nS = Kind()",
    "S.a",
    write="S.a = S.a + 0.5",
    change="S.__dict__.clear()\nKind.a = k",
)
names(
    "attribute of a base",
    "class Base:\n    a = 1.0\nclass Kind(Base): pass\nS = Kind()",
    "S.a",
    write="type(S).__mro__[1].a += 0.5",
    change="Base.a = k\nif k == 2.0: Kind.a = 9.0\nelif 'a' in vars(Kind): del Kind.a",
)
names(
    "class counter",
    "class S:\n    n = 0\n    def __init__(self):\n        type(self).n += 1",
    "float(S.n)",
    write="S()",
    change="S.n = int(k)",
)
names(
    "property",
    "class Kind:\n    def __init__(self): self._a = 1.0\n"
    "    @property\n"
    "    def a(self): return self._a * 2\n    @a.setter\n"
    "    def a(self, v): self._a = v\nS = Kind()",
    "S.a",
    write="S.a = S._a + 0.5",
    change="S.a = k",
)
names(
    "property that counts",
    "class Kind:\n    n = 0\n    @property\n    def a(self):\n"
    "        self.n += 1\n        return float(self.n)\nS = Kind()",
    "S.a",
    change="S.n = int(k)",
    state="S.n",
)
names(
    "property exchanged",
    "class Kind:\n    @property\n    def a(self): return 1.0\nS = Kind()",
    "S.a",
    change="Kind.a = property(lambda self: k)",
)
names(
    "cached property",
    "class Kind:\n    base = 1.0\n    @functools.cached_property\n"
    "    def a(self): return self.base * 2\nS = Kind()",
    "S.a",
    write="S.__dict__.pop('a', None)",
    change="S.base = k\nS.__dict__.pop('a', None)",
    state="sorted(S.__dict__.items())",
)
names(
    "descriptor",
    "class Desc:\n    def __init__(self): self.v = 1.0\n"
    "    def __get__(self, o, t): return self.v\n"
    "    def __set__(self, o, v): self.v = v\n"
    "class Kind:\n    a = Desc()\nS = Kind()",
    "S.a",
    write="S.a = S.a + 0.5",
    change="S.a = k",
)
names(
    "descriptor by instance",
    "class Desc:\n    def __init__(self): self.vs = {}\n"
    "    def __get__(self, o, t): return self.vs.get(id(o), 1.0)\n"
    "    def __set__(self, o, v): self.vs[id(o)] = v\n"
    "class Kind:\n    a = Desc()\nS = Kind()",
    "S.a",
    write="S.a = S.a + 0.5",
    change="S.a = k",
)
names(
    "non-data descriptor",
    "class Desc:\n    def __get__(self, o, t): return 1.0\nclass Kind:\n    a = Desc()\nS = Kind()",
    "S.a",
    write="S.__dict__['a'] = S.a + 0.5",
    change="S.__dict__.pop('a', None)\nif k == 2.0: S.__dict__['a'] = 7.0\n"
    "if k == 3.0: Desc.__get__ = lambda self, o, t: 5.0",
)
names(
    "descriptor becomes one",
    "class Desc: pass\nclass Kind:\n    a = Desc()\nS = Kind()\nS.a = 1.0",
    "S.a",
    change="Desc.__get__ = lambda s, o, t: k\nDesc.__set__ = lambda s, o, v: None",
)
names(
    "__getattr__",
    "class Kind:\n    def __init__(self): self.d = {'a': 1.0}\n"
    "    def __getattr__(self, n):\n"
    "        if n == 'a': return self.d[n]\n"
    "        raise AttributeError(n)\nS = Kind()",
    "S.a",
    write="S.d['a'] += 0.5",
    change="S.d['a'] = k",
)
names(
    "__getattr__ added",
    "class Kind: pass\nS = Kind()",
    "getattr(S, 'a', 1.0)",
    change="Kind.__getattr__ = lambda s, n: k if n == 'a' else object.__getattribute__(s, n)",
)
names(
    "__getattribute__",
    "class Kind:\n    a = 1.0\n    def __getattribute__(self, n):\n"
    "        v = object.__getattribute__(self, n)\n"
    "        return v * 2 if n == 'a' else v\n"
    "S = Kind()",
    "S.a",
    write="S.a = S.a + 0.5 if S.a < 9 else 1.0",
    change="S.a = k",
)
names(
    "__getattribute__ added",
    "class Kind:\n    a = 1.0\nS = Kind()",
    "S.a",
    change="Kind.__getattribute__ = lambda s, n: k if n == 'a' else object.__getattribute__(s, n)",
)
names(
    "__setattr__",
    "class Kind:\n    def __setattr__(self, n, v):\n"
    "        object.__setattr__(self, n, v * 2)\nS = Kind()\n"
    "S.a = 1.0",
    "S.a",
    write="S.a = S.a % 3 + 0.5",
    change="S.a = k",
)
names(
    "__class__ assigned",
    "class A:\n    a = 1.0\nclass B:\n    a = 2.0\nS = A()",
    "S.a",
    write="S.__class__ = B if type(S) is A else A",
    change="S.__class__ = A if k == 1.0 else B",
)
names(
    "mro changed",
    "class A:\n    a = 1.0\nclass B:\n    a = 2.0\nclass C(A): pass\nS = C()",
    "S.a",
    change="C.__bases__ = (A,) if k == 1.0 else (B,)",
)
names(
    "method exchanged",
    "class Kind:\n    def m(self): return 1.0\nS = Kind()",
    "S.m()",
    write="S.m = lambda: 3.0",
    change="Kind.m = lambda self: k\nS.__dict__.clear()",
)
names(
    "method on an instance",
    "class Kind:\n    def m(self): return 1.0\nS = Kind()",
    "S.m()",
    change="S.m = lambda: k",
)
names(
    "static and class methods",
    "class Kind:\n    @staticmethod\n    def m(): return 1.0\n"
    "    @classmethod\n    def n(cls): return 2.0\nS = Kind()",
    "S.m() + S.n()",
    change="Kind.m = staticmethod(lambda: k)\nKind.n = classmethod(lambda c: k * 2)",
)
names(
    "operator exchanged",
    "class Kind:\n    def __init__(self): self.v = 1.0\n"
    "    def __add__(self, o): return self.v + o\nS = Kind()",
    "(S + 1)",
    write="S.v += 0.5",
    change="Kind.__add__ = lambda s, o: k + o",
)
names(
    "__call__ exchanged",
    "class Kind:\n    def __call__(self): return 1.0\nS = Kind()",
    "S()",
    change="Kind.__call__ = lambda s: k",
)
names(
    "__len__ and __bool__",
    "class Kind:\n    n = 1\n    def __len__(self): return self.n\nS = Kind()",
    "(2.0 if S else 3.0) + len(S)",
    write="S.n = (S.n + 1) % 3",
    change="S.n = int(k) - 1",
)
names(
    "__eq__ exchanged",
    "class Kind:\n    def __eq__(self, o): return False\nS = Kind()",
    "2.0 if S == 1 else 3.0",
    change="Kind.__eq__ = lambda s, o: k > 1.5",
)
names(
    "metaclass attribute",
    "class Meta(type):\n    a = 1.0\nclass S(metaclass=Meta): pass",
    "S.a",
    write="type(S).a += 0.5",
    change="Meta.a = k",
)
names(
    "isinstance hook",
    "class Meta(type):\n    v = True\n"
    "    def __instancecheck__(cls, o): return cls.v\n"
    "class S(metaclass=Meta): pass",
    "2.0 if isinstance(1, S) else 3.0",
    write="type(S).v = not S.v",
    change="Meta.v = k == 1.0",
)
names(
    "abc registered",
    "class S(abc.ABC): pass\nclass Mine: pass\nmine = Mine()",
    "2.0 if isinstance(mine, S) else 3.0",
    change="S.register(Mine)",
)
names(
    "__bases__ by issubclass",
    "class A: pass\nclass B: pass\nclass S(A): pass",
    "2.0 if issubclass(S, A) else 3.0",
    change="S.__bases__ = (A,) if k == 1.0 else (B,)",
)
names(
    "module attribute",
    "S = types.ModuleType('kept')\nS.a = 1.0",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
names(
    "module dict",
    "S = types.ModuleType('kept')\nS.a = 1.0",
    "S.__dict__['a']",
    write="S.__dict__['a'] += 0.5",
    change="vars(S).update(a=k)",
)
names(
    "module function patched",
    "S = types.ModuleType('kept')\nS.m = lambda: 1.0",
    "S.m()",
    write="S.m = lambda: 3.0",
    change="S.m = lambda: k",
)
names(
    "globals()",
    "S = 1.0",
    "globals().get('S', 1.0)",
    write="globals()['S'] = globals()['S'] + 0.5",
    change="globals()['S'] = k",
    places=("global",),
)
names(
    "builtin hidden",
    "S = None",
    "float(abs(-1.0))",
    change="globals()['abs'] = lambda v: k",
    places=("global",),
)
names(
    "standard function patched",
    "S = None\nkept = math.sqrt",
    "math.sqrt(4.0)",
    change="math.sqrt = (lambda v: k) if k > 1.5 else kept",
    undo="math.sqrt = kept",
)
names("namespace", "S = types.SimpleNamespace(a=1.0)", "S.a", write="S.a += 0.5", change="S.a = k")
names(
    "weakref",
    "class Kind: pass\nheld = Kind()\nheld.a = 1.0\nS = weakref.ref(held)",
    "S().a",
    write="S().a += 0.5",
    change="held.a = k",
)
names(
    "weakref that dies",
    "class Kind: pass\nheld = [Kind()]\nS = weakref.ref(held[0])",
    "(1.0 if S() is not None else 2.0)",
    change="if k == 2.0: held.clear(); gc.collect()",
)
names(
    "weak dict",
    "class Kind: pass\nheld = [Kind(), Kind()]\n"
    "S = weakref.WeakValueDictionary()\n"
    "S['a'] = held[0]\nS['b'] = held[1]\nmore = Kind()",
    "float(len(S))",
    write="S['c'] = more",
    change="if k == 2.0: held.pop(); gc.collect()",
)
names(
    "proxy",
    "class Kind: pass\nheld = Kind()\nheld.a = 1.0\nS = weakref.proxy(held)",
    "S.a",
    write="S.a += 0.5",
    change="held.a = k",
)
names(
    "enum member",
    "class E(enum.Enum):\n    A = 1.0\n    B = 2.0\nS = E.A",
    "S.value",
    write="S = E.B if S is E.A else E.A",
    change="S = E(k % 2 + 1)",
    rebinds=True,
)
names(
    "enum value set",
    "class E(enum.Enum):\n    A = 1.0\nS = E.A",
    "S.value",
    write="S._value_ = S._value_ + 0.5",
    change="S._value_ = k",
)
names(
    "flag",
    "class E(enum.Flag):\n    A = 1\n    B = 2\nS = E.A",
    "2.0 if E.B in S else 3.0",
    write="S = S ^ E.B",
    change="S = E.A | E.B if k == 2.0 else E.A",
    rebinds=True,
)
names(
    "dataclass",
    "@dataclasses.dataclass\nclass D:\n    a: float = 1.0\nS = D()",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
names(
    "frozen dataclass",
    "@dataclasses.dataclass(frozen=True)\nclass D:\n    a: float = 1.0\nS = D()",
    "S.a",
    write="object.__setattr__(S, 'a', S.a + 0.5)",
    change="object.__setattr__(S, 'a', k)",
)
names(
    "dataclass with slots",
    "@dataclasses.dataclass(slots=True)\nclass D:\n    a: float = 1.0\nS = D()",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
names(
    "dataclass replaced",
    "@dataclasses.dataclass(frozen=True)\nclass D:\n    a: float = 1.0\nS = D()",
    "S.a",
    write="S = dataclasses.replace(S, a=S.a + 0.5)",
    change="S = D(k)",
    rebinds=True,
)
names(
    "namedtuple",
    "P = collections.namedtuple('P', 'a b')\nS = P(1.0, 2.0)",
    "S.a",
    write="S = S._replace(a=S.a + 0.5)",
    change="S = P(k, 2.0)",
    rebinds=True,
)
names(
    "namedtuple of lists",
    "P = collections.namedtuple('P', 'a b')\nS = P([1.0], 2.0)",
    "S.a[0]",
    write="S.a[0] += 0.5",
    change="S.a[0] = k",
)
names(
    "exception attribute",
    "S = ValueError('a')\nS.a = 1.0",
    "S.a + len(S.args)",
    write="S.a += 0.5\nS.args = S.args + (1,)",
    change="S.a = k\nS.args = ()",
)
names(
    "copied object",
    "class Plain: pass\nS = Plain()\nS.a = 1.0",
    "copy.copy(S).a",
    write="copy.copy(S).a = 9.0\nS.a += 0.5",
    change="S.a = k",
)

_SLOTS = "class Slots:\n    __slots__ = ('a', 'b')\nS = Slots()\n"
for _name, _read in (
    ("sum", "S.a + S.b * 2"),
    ("identity", "2.0 if S.a is S.b else 3.0"),
    ("place of memory", "2.0 if S.a.data_ptr() == S.b.data_ptr() else 3.0"),
):
    names(
        f"two slots of one tensor, {_name}",
        _SLOTS + "S.a = S.b = torch.ones(1)",
        _read,
        write="S.a.add_(0.5)",
        change="S.b = S.a if k == 1.0 else torch.ones(1) * k",
    )
    names(
        f"two slots that come to hold one tensor, {_name}",
        _SLOTS + "S.a = torch.ones(1)\nS.b = torch.ones(1)",
        _read,
        write="S.a.add_(0.5)",
        change="S.b = torch.ones(1) if k == 1.0 else S.a",
    )
    names(
        f"slot and dict of one tensor, {_name}",
        "class Slots:\n    __slots__ = ('a', '__dict__')\nS = Slots()\nS.a = S.b = torch.ones(1)",
        _read,
        write="S.a.add_(0.5)",
        change="S.b = S.a if k == 1.0 else torch.ones(1) * k",
    )
    names(
        f"two attributes of one tensor, {_name}",
        "class Kind: pass\nS = Kind()\nS.a = S.b = torch.ones(1)",
        _read,
        write="S.a.add_(0.5)",
        change="S.b = S.a if k == 1.0 else torch.ones(1) * k",
    )
names(
    "two slots of one tensor, both written",
    _SLOTS + "S.a = S.b = torch.ones(1)",
    "S.a + S.b * 2",
    write="S.a.add_(0.5)\nS.b.mul_(1.25)",
    change="S.b = S.a if k == 1.0 else torch.ones(1) * k",
)
names(
    "two slots of one tensor, one bound anew",
    _SLOTS + "S.a = S.b = torch.ones(1)",
    "S.a + S.b * 2",
    write="S.a = S.a + 0.5",
    change="S.a = S.b",
)
names(
    "two slots that overlap",
    _SLOTS + "T = torch.ones(3)\nS.a = T[:2]\nS.b = T[1:]",
    "S.a[1] + S.b[0] * 2",
    write="S.a.mul_(1.25)",
    change="S.b = T[1:] if k == 1.0 else torch.ones(2) * k",
)
names(
    "two objects of one tensor in slots",
    _SLOTS + "R = Slots()\nS.a = R.a = torch.ones(1)",
    "S.a + R.a * 2",
    write="S.a.add_(0.5)",
    change="R.a = S.a if k == 1.0 else torch.ones(1) * k",
)
names(
    "one list in two slots",
    _SLOTS + "S.a = S.b = [1.0]",
    "float(sum(S.a) + len(S.b))",
    write="S.a.append(0.5)\nif len(S.a) > 4: S.a.clear()",
    change="S.b = S.a if k == 1.0 else [k]",
)

_PLAIN = "class Base: pass\nclass Kind(Base): pass\nS = Kind()\nS.a = 1.0"
_TENSOR = "class Base: pass\nclass Kind(Base): pass\nS = Kind()\nS.a = torch.ones(1)"
_IN_SLOTS = "class Kind:\n    __slots__ = ('a',)\nBase = Kind\nS = Kind()\nS.a = 1.0"
_MODULE = "class Base: pass\nclass Kind(Base, nn.Module): pass\nS = Kind()\nS.a = 1.0"
_METHOD = "class Base: pass\nclass Kind(Base):\n    def m(self): return self.a\n"
_METHOD += "S = Kind()\nS.a = 1.0"
_PROPERTY = "def plain(o): return vars(o).get('a', 4.0)\n"
_DATA = (
    "class Data:\n    def __init__(self, v): self.v = v\n    def __get__(self, o, t=None):\n"
    "        return self if o is None else self.v\n    def __set__(self, o, v): self.v = v\n"
)
for _name, _setup, _read in (
    ("a number", _PLAIN, "S.a"),
    ("a tensor", _TENSOR, "S.a"),
    ("getattr", _PLAIN, "getattr(S, 'a', 9.0)"),
    ("a slot", _IN_SLOTS, "S.a"),
    ("a module's attribute", _MODULE, "S.a"),
    ("what a method reads", _METHOD, "S.m()"),
    ("attrgetter", _PLAIN, "operator.attrgetter('a')(S)"),
    ("hasattr", _PLAIN, "S.a if hasattr(S, 'a') else 9.0"),
    ("dataclass", "@dataclasses.dataclass\nclass Kind:\n    a: float = 1.0\nBase = Kind\n"
     "S = Kind()", "S.a"),
    ("exception", "class Kind(Exception): pass\nBase = Kind\nS = Kind()\nS.a = 1.0", "S.a"),
    ("list with attributes", "class Kind(list): pass\nBase = Kind\nS = Kind()\nS.a = 1.0",
     "S.a"),
    ("dict with attributes", "class Kind(dict): pass\nBase = Kind\nS = Kind()\nS.a = 1.0",
     "S.a"),
    ("tensor with attributes", "class Kind(torch.Tensor): pass\nBase = Kind\n"
     "S = torch.ones(1).as_subclass(Kind)\nS.a = 1.0", "S.a"),
    ("namespace", "class Kind(types.SimpleNamespace): pass\nBase = Kind\nS = Kind(a=1.0)", "S.a"),
):  # fmt: skip
    for _where in ("Kind", "Base"):
        for _what, _made in (("property", "property(lambda o: k + 1)"), ("descriptor", "Data(k)")):
            if _where == "Base" and _what == "descriptor":
                continue
            names(
                f"{_what} over {_name} in {_where}",
                _DATA + _setup,
                _read,
                change=f"if k == 1.0 and 'a' in vars({_where}) and '__slots__' not in vars(Kind):\n"
                f"    del {_where}.a\nelse:\n    {_where}.a = {_made}",
            )
for _name, _change in (
    ("__getattribute__", "Kind.__getattribute__ = lambda s, n: k if n == 'a' else "
     "object.__getattribute__(s, n)"),
    ("__getattribute__ of a base", "Base.__getattribute__ = lambda s, n: k if n == 'a' else "
     "object.__getattribute__(s, n)"),
    ("__bases__ with a property", "class New:\n    a = property(lambda s: k)\n"
     "    def m(self): return k\n"
     "Kind.__bases__ = (Base,) if k == 1.0 else (New,)"),
    ("__class__ with a property", "class New(Kind):\n    a = property(lambda s: k)\n"
     "S.__class__ = Kind if k == 1.0 else New"),
    ("__class__ with __getattribute__", "class New(Kind):\n    def __getattribute__(s, n):\n"
     "        return k if n == 'a' else object.__getattribute__(s, n)\n"
     "S.__class__ = Kind if k == 1.0 else New"),
    ("__dict__ exchanged", "S.__dict__ = {'a': k}"),
    ("attribute deleted, class has one", "S.__dict__.clear()\nBase.a = k"),
    ("attribute deleted, __getattr__", "S.__dict__.clear()\n"
     "Kind.__getattr__ = lambda s, n: k if n == 'a' else object.__getattribute__(s, n)"),
):  # fmt: skip
    for _title, _setup, _read in (("", _PLAIN, "S.a"), (", tensor", _TENSOR, "S.a"),
                                  (", in a method", _METHOD, "S.m()")):  # fmt: skip
        names(f"{_name} comes later{_title}", _setup, _read, change=_change)
for _name, _add in (
    ("__setattr__", "Kind.__setattr__ = lambda s, n, v: object.__setattr__(s, n, v * k)"),
    ("property with a setter", "Kind.a = property(lambda s: s.__dict__.get('b', 1.0), "
     "lambda s, v: s.__dict__.__setitem__('b', v * k))"),
    ("__setattr__ of a base", "Base.__setattr__ = lambda s, n, v: object.__setattr__(s, n, v * k)"),
):  # fmt: skip
    names(
        f"{_name} comes later, where it is written",
        _PLAIN,
        "S.a",
        write="S.a = S.a % 2.0 + 0.5",
        change=_add,
        state="sorted(vars(S).items())",
    )
names(
    "items as attributes",
    "class Options(dict):\n    __getattr__ = dict.__getitem__\n"
    "    __setattr__ = dict.__setitem__\nS = Options(a=1.0)",
    "S.a",
    write="S['a'] += 0.5",
    change="S.a = k",
)
names(
    "items as attributes, by get",
    "class Options(dict):\n    __getattr__ = dict.get\n    __setattr__ = dict.__setitem__\n"
    "S = Options(b=1.0)",
    "(S.a or 1.0) + S.b",
    write="S.b = S.b + 0.5",
    change="S.a = k",
)
names(
    "deque of a class",
    "class S:\n    q = collections.deque([1.0], maxlen=3)",
    "sum(S.q) + len(S.q)",
    write="S.q.append(0.5)",
    change="S.q.clear()\nS.q.append(k)",
)
_META = "class Meta(type): pass\nclass S(metaclass=Meta):\n    a = 1.0\n"
names(
    "property of a metaclass comes later",
    _META,
    "S.a",
    change="if k == 1.0 and 'a' in vars(Meta): del Meta.a\n"
    "else: Meta.a = property(lambda c: k + 1)",
)
names("__getattribute__ of a metaclass comes later", _META, "S.a",
      change="Meta.__getattribute__ = lambda c, n: k if n == 'a' else "
      "type.__getattribute__(c, n)")  # fmt: skip
names("__getattr__ of a metaclass comes later", _META, "getattr(S, 'b', 1.0)",
      change="Meta.__getattr__ = lambda c, n: k if n == 'b' else "
      "type.__getattribute__(c, n)")  # fmt: skip
names("attribute of a metaclass", _META + "Meta.b = 1.0", "S.b", change="Meta.b = k")
names("__call__ of a metaclass comes later", _META + "S.__init__ = lambda s: None", "float(S().a)",
      change="Meta.__call__ = lambda c: types.SimpleNamespace(a=k)")  # fmt: skip
names("__instancecheck__ comes later", _META + "T = object()",
      "2.0 if isinstance(T, S) else 3.0",
      change="Meta.__instancecheck__ = lambda c, o: k == 2.0")  # fmt: skip
names("__init__ comes later", "class S: a = 1.0", "S().a",
      change="S.__init__ = lambda s: setattr(s, 'a', k)")  # fmt: skip
names("__new__ comes later", "class S: a = 1.0", "S().a",
      change="S.__new__ = lambda c: types.SimpleNamespace(a=k)")  # fmt: skip
for _name, _read, _made in (
    ("__eq__", "2.0 if S == T else 3.0", "__eq__ = lambda s, o: k == 2.0"),
    ("__ne__", "2.0 if S != T else 3.0", "__ne__ = lambda s, o: k == 1.0"),
    ("__bool__", "2.0 if S else 3.0", "__bool__ = lambda s: k == 1.0"),
    ("__len__", "2.0 if S else 3.0", "__len__ = lambda s: int(k == 1.0)"),
    ("__hash__", "float(hash(S) == 2)", "__hash__ = lambda s: int(k)"),
    ("__str__", "float(len(str(S)) < 4)", "__str__ = lambda s: 'a' * int(k + 1)"),
    ("__repr__", "float(len(repr(S)) < 4)", "__repr__ = lambda s: 'a' * int(k + 1)"),
    ("__format__", "float(len(f'{S}') < 4)", "__format__ = lambda s, f: 'a' * int(k + 1)"),
    ("__class__", "2.0 if isinstance(S, dict) else 3.0",
     "__class__ = property(lambda s: dict if k == 2.0 else Kind)"),
):  # fmt: skip
    names(
        f"{_name} comes to a class later",
        "class Kind: pass\nS = Kind()\nT = Kind()",
        _read,
        change=f"Kind.{_made}",
        state="0",
    )
